"""Candidates of patterns on the workers of a ledger: opens it for as long as a pattern runs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.client.notes import CommandError
from app.client.queue import with_queue
from app.client.target import Target, embedded_stack, find_target, open_ledger, require_queue
from app.domain.problem import Limits
from app.patterns.errors import ProcessBranchError
from app.patterns.queue import LedgerRunner
from app.patterns.running import Running
from app.patterns.work import Work
from app.patterns.workspace import Workspace
from app.ports.protocols import Unavailable


class QueueRunner:
    """Runs candidates in the sandboxes of workers: of a deployment, or of this folder's stack.

    The folder goes to the ledger, at most 64 MiB, and what a candidate changes comes back as a
    patch of at most 1 MiB.  A candidate has no network and no variable of this process.
    """

    def __init__(
        self,
        *,
        group: str = "",
        seconds: float = 3600.0,
        memory_mib: int = 1024,
        processes: int = 64,
        target: Target | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
          group: Names the run in the ledger; a pattern that is started again with the same group,
            folder and candidates takes over what is at work and what has ended.
          seconds: Longest time of a candidate whose pattern has no timeout.
          memory_mib: Memory of each candidate.
          processes: Of each candidate, at one time.
          target: Where the ledger is; None means where the environment says.
        """
        self._limits = Limits(
            wall_seconds=seconds,
            cpu_seconds=2 * seconds,
            memory_mib=memory_mib,
            processes=processes,
        )
        self._group, self._target = group, target
        self._opened = ExitStack()
        self._runner: LedgerRunner | None = None

    @contextmanager
    def open(self, folder: str | Path) -> Iterator[Workspace]:
        """Opens a folder for a pattern, and the ledger until its end."""
        with Workspace(folder) as workspace, ExitStack() as stack:
            if self._runner is None:
                stack.callback(self.close)
            yield workspace

    def start(self, work: Work) -> Running:
        """Adds a candidate to the ledger.

        Raises:
          ProcessBranchError: The ledger or the queue cannot be reached, or does not take it.
        """
        if self._runner is None:
            try:
                self._runner = self._connect()
            except (Unavailable, CommandError) as error:
                self.close()
                raise ProcessBranchError(str(error)) from error
        return self._runner.start(work)

    def close(self) -> None:
        """Closes the ledger.  Idempotent."""
        self._runner = None
        self._opened.close()

    def _connect(self) -> LedgerRunner:
        target = self._target or find_target()
        servers = None
        if target.deployed:
            assert target.redis_url is not None
            require_queue(target.redis_url)
        else:
            servers = embedded_stack(target)
            self._opened.callback(servers.stop)
            servers.begin()
        ledger = self._opened.enter_context(open_ledger(target, servers))
        return LedgerRunner(with_queue(ledger), ledger.store, self._group, self._limits)
