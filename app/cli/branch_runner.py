"""Where the commands of `evoq branch` run: here, apart from here, on workers, or in pods."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
    "network": (SANDBOX,),
    "visible": (SANDBOX,),
    "env": (SANDBOX, KUBERNETES),
    "group": (CPU, KUBERNETES),
    "claim": (KUBERNETES,),
    "image": (KUBERNETES,),
    "mount": (KUBERNETES,),
    "namespace": (KUBERNETES,),
}
"""Options that have no effect elsewhere, which is wrong usage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The options that say where commands run."""

    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Run each command apart from this machine.")
    ] = False
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network", metavar="HOST[:PORT]", help="With --sandbox: is reached by proxy."
        ),
    ] = None
    visible: Annotated[
        list[str] | None,
        typer.Option("--visible", metavar="PATH", help="With --sandbox: can be read, beside /usr."),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=VALUE]", help="With --sandbox or Jobs: a variable."),
    ] = None
    on: Annotated[
        str | None,
        typer.Option(
            "--on", metavar="cpu|kubernetes", help="Run on workers' sandboxes, or as Jobs."
        ),
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="NAME", help="With --on: takes over what a killed one left."
        ),
    ] = None
    claim: Annotated[
        str | None,
        typer.Option(
            "--claim", metavar="NAME", help="With Jobs: the volume's ReadWriteMany claim."
        ),
    ] = None
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="With Jobs: has Python and tools."),
    ] = None
    mount: Annotated[
        str | None,
        typer.Option("--mount", metavar="DIR", help=f"With Jobs: the volume here; {_MOUNT}."),
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAME", help="With Jobs: that of the context."),
    ] = None

    def runner(self) -> Runner | None:
        """Returns the runner; None for forks of this process.

        Raises:
          UsageError: An option has no effect, is missing or cannot be used.
          CommandError: There is no cluster.
          IsolationError: Nothing here keeps a command apart.
        """
        where = self._where()
        given = asdict(self)
        for name, places in _ONLY_FOR.items():
            if given[name] and where not in places:
                needed = " or ".join(places)
                remedy = f"Add {needed}, or leave it out."
                what = f"has no effect without {needed}"
                raise UsageError(what, where=f"--{name}", remedy=remedy)
        if where == SANDBOX:
            return self._isolated()
        if where == CPU:
            # The ledger and Celery take longer to import than a local pattern takes.
            from app.client.branches import QueueRunner

            return QueueRunner(group=self.group or "")
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

    def _jobs(self) -> Runner:
        from app.patterns.jobs import JobsRunner

        if not self.claim or not self.image:
            name = "--image" if self.claim else "--claim"
            remedy = f"Give {name} NAME: Jobs need a volume that all nodes share, and an image."
            raise UsageError("is missing", where=name, remedy=remedy)
        try:
            return JobsRunner(
                claim=self.claim,
                image=self.image,
                mount=self.mount or _MOUNT,
                group=self.group or "",
                namespace=self.namespace or "",
                environment=self._environment(),
            )
        except ValueError as error:
            remedy = "Give another name."
            raise UsageError(str(error), where="--group", remedy=remedy) from error
        except Unavailable as error:
            raise CommandError(str(error)) from error

    def _environment(self) -> dict[str, str]:
        environment = {}
        for text in self.env or ():
            name, given, value = text.partition("=")
            if not given and name not in os.environ:
                remedy = "Write NAME=VALUE, or export it."
                raise UsageError("no such variable", where="--env", value=name, remedy=remedy)
            environment[name] = value if given else os.environ[name]
        return environment

    def _isolated(self) -> IsolatedRunner:
        visible, network = self.visible or (), self.network or ()
        if missing := [path for path in visible if not os.path.exists(path)]:
            remedy = "Correct the path."
            raise UsageError("does not exist", where="--visible", value=missing[0], remedy=remedy)
        if wrong := [host for host in network if not is_host(host)]:
            remedy = "Write NAME, for HTTPS, or NAME:PORT."
            raise UsageError("is no host", where="--network", value=wrong[0], remedy=remedy)
        return IsolatedRunner(visible=visible, hosts=network, environment=self._environment())
