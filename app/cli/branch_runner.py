"""Where the commands of `evoq branch` run: here, apart from here, on workers, or in pods."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from app.client.notes import CommandError
from app.config.layers import UsageError
from app.patterns.isolated import IsolatedRunner, is_host
from app.patterns.running import Runner
from app.ports.protocols import Unavailable

HERE, SANDBOX, CPU, KUBERNETES = "", "--sandbox", "--on cpu", "--on kubernetes"
_MOUNT = "/mnt/branchfs"
_PLACES = {"cpu": CPU, "kubernetes": KUBERNETES}
_ONLY_FOR: Mapping[str, tuple[str, ...]] = {
    "--network": (SANDBOX,),
    "--visible": (SANDBOX,),
    "--env": (SANDBOX, KUBERNETES),
    "--group": (CPU, KUBERNETES),
    "--claim": (KUBERNETES,),
    "--image": (KUBERNETES,),
    "--mount": (KUBERNETES,),
    "--namespace": (KUBERNETES,),
}
"""Options that have no effect elsewhere, which is wrong usage."""

On = Annotated[
    str | None,
    typer.Option("--on", metavar="cpu|kubernetes", help="Run on workers' sandboxes, or as Jobs."),
]
GroupName = Annotated[
    str | None,
    typer.Option("--group", metavar="NAME", help="With --on: takes over what a killed one left."),
]
ClaimName = Annotated[
    str | None,
    typer.Option("--claim", metavar="NAME", help="With Jobs: the volume's ReadWriteMany claim."),
]
Image = Annotated[
    str | None, typer.Option("--image", metavar="IMAGE", help="With Jobs: has Python and tools.")
]
Mount = Annotated[
    str | None,
    typer.Option("--mount", metavar="DIR", help=f"With Jobs: the volume here; {_MOUNT}."),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="With Jobs: that of the context.")
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where commands run, as the command line says.

    Attributes:
      given: Option to its value; None or () where it is not given.
    """

    on: str | None
    sandbox: bool
    given: Mapping[str, str | Sequence[str] | None]

    def runner(self) -> Runner | None:
        """Returns the runner; None for forks of this process.

        Raises:
          UsageError: An option has no effect, is missing or cannot be used.
          CommandError: There is no cluster.
          IsolationError: Nothing here keeps a command apart.
        """
        where = self._where()
        for name, value in self.given.items():
            if value and where not in _ONLY_FOR[name]:
                places = " or ".join(_ONLY_FOR[name])
                remedy = f"Add {places}, or leave it out."
                raise UsageError(f"has no effect without {places}", where=name, remedy=remedy)
        if where == SANDBOX:
            return self._isolated()
        if where == CPU:
            # The ledger and Celery take longer to import than a local pattern takes.
            from app.client.branches import QueueRunner

            return QueueRunner(group=self._text("--group"))
        return self._jobs() if where == KUBERNETES else None

    def _where(self) -> str:
        if self.on is None:
            return SANDBOX if self.sandbox else HERE
        if self.on not in _PLACES:
            remedy = f"Choose one of {', '.join(_PLACES)}."
            raise UsageError("unknown place", where="--on", value=self.on, remedy=remedy)
        if self.sandbox:
            remedy = "Leave one of them out: candidates on the queue are in sandboxes anyway."
            raise UsageError("has no effect beside --on", where="--sandbox", remedy=remedy)
        return _PLACES[self.on]

    def _text(self, name: str) -> str:
        return str(self.given[name] or "")

    def _jobs(self) -> Runner:
        from app.patterns.jobs import JobsRunner

        for name in ("--claim", "--image"):
            if not self.given[name]:
                remedy = f"Give {name} NAME: Jobs need a volume that all nodes share, and an image."
                raise UsageError("is missing", where=name, remedy=remedy)
        try:
            return JobsRunner(
                claim=self._text("--claim"),
                image=self._text("--image"),
                mount=self._text("--mount") or _MOUNT,
                group=self._text("--group"),
                namespace=self._text("--namespace"),
                environment=self._environment(),
            )
        except ValueError as error:
            remedy = "Give another name."
            raise UsageError(str(error), where="--group", remedy=remedy) from error
        except Unavailable as error:
            raise CommandError(str(error)) from error

    def _environment(self) -> dict[str, str]:
        environment = {}
        for text in self.given["--env"] or ():
            name, given, value = text.partition("=")
            if not given and name not in os.environ:
                remedy = "Write NAME=VALUE, or export it."
                raise UsageError("no such variable", where="--env", value=name, remedy=remedy)
            environment[name] = value if given else os.environ[name]
        return environment

    def _isolated(self) -> IsolatedRunner:
        visible, network = self.given["--visible"] or (), self.given["--network"] or ()
        if missing := [path for path in visible if not os.path.exists(path)]:
            remedy = "Correct the path."
            raise UsageError("does not exist", where="--visible", value=missing[0], remedy=remedy)
        if wrong := [host for host in network if not is_host(host)]:
            remedy = "Write NAME, for HTTPS, or NAME:PORT."
            raise UsageError("is no host", where="--network", value=wrong[0], remedy=remedy)
        return IsolatedRunner(visible=visible, hosts=network, environment=self._environment())
