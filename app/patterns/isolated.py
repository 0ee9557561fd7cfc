"""Commands as candidates in the isolation of agents: each sees its branch and what is named."""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from app.adapters.isolated import (
    NAMESPACES,
    CommandLimits,
    IsolatedCommand,
    NotIsolated,
    Overdue,
    Tail,
    places_of_programs,
    plain_environment,
    serve_nothing,
)
from app.adapters.locked_folders import remove_folder
from app.adapters.sandbox.isolated_command import run_isolated
from app.adapters.sandbox.relay import CERTIFICATES, PROXIES, Relay, place_of
from app.adapters.snapshots import Refused, Snapshot, changes, read_own, snapshot, walk
from app.patterns.commands import OUTPUT_BYTES, WRITTEN_BYTES, Command, CommandEnd
from app.patterns.errors import IsolationError, ProcessBranchError
from app.patterns.running import ProcessRunner, Running
from app.patterns.work import Work

_LONGEST_SECONDS = 86_400.0
_MOST_WRITTEN_BYTES = 1 << 20
_REMEDY = f"S{NAMESPACES.format('it')[1:]}; or leave --sandbox, or the runner, out"


class IsolatedRunner:
    """Runs commands apart from this machine, and refuses callables, which need this process.

    A command changes nothing but its branch, of which nothing is taken that leads out of it, and
    has no variable of this process.  Everything that it started ends with it.
    """

    def __init__(
        self,
        *,
        limits: CommandLimits | None = None,
        visible: Sequence[str] = (),
        hosts: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Tries the isolation.

        Args:
          limits: Of each command; None for those of agents.
          visible: Files and folders of this machine that commands may read, beside the system's.
          hosts: What they reach, through an HTTP proxy: `NAME`, for HTTPS, or `NAME:PORT`.
          environment: Variables that they have.

        Raises:
          IsolationError: Nothing here keeps a command apart.
          ValueError: A host is none, or a path does not exist.
        """
        self._limits = limits or CommandLimits()
        self._visible = tuple(os.path.abspath(path) for path in visible)
        if missing := [path for path in self._visible if not os.path.exists(path)]:
            raise ValueError(f"{missing[0]!r} does not exist")
        if wrong := [host for host in hosts if not is_host(host)]:
            raise ValueError(f"{wrong[0]!r} is no host: a host is HOST or HOST:PORT")
        self._places = frozenset(filter(None, (place_of(f"https://{host}") for host in hosts)))
        self._environment = dict(environment or {})
        with tempfile.TemporaryDirectory(prefix="evoq-probe-") as folder:
            home = Path(folder, "own")
            home.mkdir()
            try:
                run_isolated(self._isolated(home, ["/bin/true"], [], {}, Tail(0), 60.0))
            except NotIsolated as error:
                raise IsolationError(
                    f"nothing here keeps a candidate apart: {error}. {_REMEDY}"
                ) from error

    def start(self, work: Work) -> Running:
        """Starts work.

        Raises:
          ProcessBranchError: It is no command, or the machine gives no process.
        """
        if not work.is_data:
            raise ProcessBranchError("a callable cannot be kept apart from its process")
        return ProcessRunner(partial(self._run, work)).start(work)

    def _run(
        self, work: Work, command: Command, folders: Sequence[Path], descriptor: int
    ) -> CommandEnd:
        """Runs in the fork of the candidate."""
        home, output = work.home / "own", Tail(OUTPUT_BYTES)
        remove_folder(work.home)
        home.mkdir(parents=True)
        written = home / "written"
        moved = ["/bin/sh", "-c", f'exec "$@" {descriptor}>>"$0"', str(written)]
        seconds = work.seconds or _LONGEST_SECONDS
        before = [(_owner(folder), snapshot(folder)) for folder in folders]
        try:
            status = run_isolated(
                self._isolated(
                    home,
                    [*moved, *command.arguments],
                    folders,
                    command.variables,
                    output,
                    seconds,
                )
            )
            text = read_own(written, _MOST_WRITTEN_BYTES) if os.path.lexists(written) else b""
        except (Overdue, NotIsolated) as error:
            raise ProcessBranchError(str(error)) from error
        except Refused as error:
            raise ProcessBranchError(f"what it wrote on descriptor {descriptor}: {error}") from None
        for folder, (owner, entries) in zip(folders, before, strict=True):
            _take_back(folder, owner, entries)
        return CommandEnd(status, output.text, text[-WRITTEN_BYTES:].decode(errors="replace"))

    def _isolated(
        self,
        home: Path,
        arguments: Sequence[str],
        folders: Sequence[Path],
        variables: Mapping[str, str],
        output: Tail,
        seconds: float,
    ) -> IsolatedCommand:
        places = places_of_programs("", self._visible)
        relay = Relay(self._places, "the named hosts", _line_to(output))
        scratch = home.parent / f"{home.name}-scratch"
        scratch.mkdir()
        return IsolatedCommand(
            command=arguments,
            writable=(home, *folders),
            folder=folders[0] if folders else home,
            scratch=scratch,
            deadline=time.monotonic() + seconds,
            environment={
                **plain_environment(home, places),
                **self._environment,
                **variables,
            },
            readable=(*self._visible, *(CERTIFICATES if self._places else ())),
            addresses=dict.fromkeys(PROXIES, "{address}") if self._places else {},
            serve=relay.serve if self._places else serve_nothing,
            show=output.add,
            limits=self._limits,
        )


def _line_to(output: Tail) -> Callable[[str], None]:
    return lambda line: output.add(f"[evoq] {line}\n".encode())


def is_host(text: str) -> bool:
    """Returns whether a text is `NAME` or `NAME:PORT`."""
    return "/" not in text and place_of(f"https://{text}") is not None


def _owner(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_uid, status.st_gid


def _take_back(folder: Path, owner: tuple[int, int], before: Snapshot) -> None:
    """Gives the files of a folder their owners again, after a command with another identity.

    Args:
      folder: The folder.
      owner: Of the folder, and of all that is new.
      before: Its entries at the start.

    Raises:
      ProcessBranchError: The command left something that may not be taken; it names all of it.
    """
    found = changes(folder, before)
    if found.refused:
        named = "; ".join(f"{path}: {why}" for path, why in sorted(found.refused.items())[:10])
        raise ProcessBranchError(f"it left what is not taken: {named}")
    if _owner(folder) == owner:
        return
    for path, entry in walk(folder):
        earlier = before.get(path)
        os.chown(entry.path, *(earlier.owner if earlier else owner), follow_symlinks=False)
    os.chown(folder, *owner)
