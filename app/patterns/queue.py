"""Runs candidates in the sandboxes of workers, through the ledger and the queue `cpu`.

The folder goes to the ledger once, a candidate is a small program, and what comes back is its
answer and a patch, which is applied to its branch here.  The pattern decides and commits.
"""

import json
import logging
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from app.adapters.problems import reload
from app.adapters.problems.workspace import NAME as WORKSPACE
from app.adapters.problems.workspace.problem import ENTRY, STAGE
from app.adapters.snapshots import snapshot
from app.adapters.store.leases import ENDED_CHANNEL
from app.config.settings import RunSettings
from app.domain.evaluation import Evaluation, FailureKind, Trial
from app.domain.problem import Limits
from app.domain.program import Program
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.cohort import TrialId
from app.engine import branches
from app.engine.context import Context
from app.patterns import patch, sandboxed, shipping
from app.patterns.errors import ProcessBranchError
from app.patterns.outcomes import Answer
from app.patterns.work import Work, read_answer
from app.ports.protocols import Unavailable
from app.ports.runs import NewRun

MOST_CANDIDATE_BYTES = 1 << 20
_LOOK_SECONDS, _AGAIN_SECONDS = 5.0, 1.0

log = logging.getLogger(__name__)


class Listening(Protocol):
    """A ledger that says when something has ended."""

    def listen(self, channel: str, seconds: float) -> Iterator[bool]: ...


@dataclass(frozen=True, slots=True)
class _Base:
    """The folder that all candidates of a group are described from."""

    run: int
    manifest: patch.Manifest
    known: dict[Trial, TrialId]


class LedgerRunner:
    """Runs candidates as trials of a run in the ledger; see `app.engine.branches`.

    The run has the name of the group.  Another runner of the same group, such as that of a process
    that is started again after its end, takes over the candidates that are equal to earlier ones.
    """

    def __init__(
        self, ctx: Context, ledger: Listening, group: str = "", limits: Limits | None = None
    ) -> None:
        """Does nothing in the ledger yet.

        Args:
          ctx: Sends steps to workers.
          ledger: Its ledger.
          group: Name of the group; "" makes one.
          limits: Of each candidate; its wall time is the default where the pattern has no timeout.
        """
        self.group = group or f"branches-{secrets.token_hex(4)}"
        self._ctx, self._ledger = ctx, ledger
        self._limits = limits or Limits(wall_seconds=3600.0, cpu_seconds=7200.0)
        self._base: _Base | None = None
        self._starts: dict[int, str] = {}
        self._started = 0
        self._lock = threading.Lock()
        self._open: dict[TrialId, _Queued] = {}
        self._watching = False

    def start(self, work: Work) -> "_Queued":
        """Adds a candidate to the ledger.

        Raises:
          ProcessBranchError: It cannot be sent, or the ledger does not take it.
        """
        document = shipping.write(work)
        try:
            starts = [self._start_of(str(folder)) for folder in work.folders]
            base = self._base
            assert base is not None
            changes = work.candidate is not None
            text = json.dumps(document | {"starts": starts, "changes": changes}, sort_keys=True)
            if len(text) > MOST_CANDIDATE_BYTES:
                raise ProcessBranchError(
                    f"a candidate of {len(text)} bytes; the most is {MOST_CANDIDATE_BYTES}: read "
                    f"large data from the folder"
                )
            program, case = Program(text, "json"), str(self._started)
            self._started += 1
            trial = Trial(STAGE, (program.id,), (case,))
            number = base.known.get(trial)
            if number is None:
                number = branches.add(self._ctx, base.run, program, trial)
        except (patch.PatchError, branches.GroupTaken, Unavailable, OSError) as error:
            raise ProcessBranchError(str(error)) from error
        queued = _Queued(self, number, work)
        with self._lock:
            self._open[number] = queued
            if not self._watching:
                self._watching = True
                watch = threading.Thread(target=self._watch, name="candidates", daemon=True)
                watch.start()
        if trial in base.known:
            # The watch looks again.
            with suppress(Unavailable):
                self._look()
        return queued

    def withdraw(self, trial: TrialId) -> None:
        """Ends a candidate that is not wanted any more; where that fails, it goes on to its end."""
        try:
            branches.withdraw(self._ctx, [trial])
        except Unavailable as error:
            log.warning("the candidate %d of %s is not withdrawn: %s", trial, self.group, error)

    def forget(self, trial: TrialId) -> None:
        """Waits for a candidate no longer."""
        with self._lock:
            self._open.pop(trial, None)

    def _start_of(self, folder: str) -> str:
        """Returns the patch from the group's folder to another; the first becomes the group's."""
        entries = snapshot(Path(folder)).items()
        key = hash(frozenset((p, e.mode, e.size, e.modified_ns, e.target) for p, e in entries))
        if self._base is None:
            self._base = self._found(folder)
            self._starts[key] = ""
        if key not in self._starts:
            self._starts[key] = patch.make(self._base.manifest, folder)
        return self._starts[key]

    def _found(self, folder: str) -> _Base:
        files = {
            ENTRY: Path(sandboxed.__file__).read_bytes(),
            sandboxed.ARCHIVE: shipping.archive(),
            sandboxed.BASE: patch.pack(folder),
        }
        options = {f"sandbox.{name}": value for name, value in asdict(self._limits).items()}
        problem = reload(WORKSPACE, self.group, files, options)
        settings = RunSettings()
        new = NewRun(
            name=self.group,
            problem=problem.digest,
            strategy=settings.search.strategy,
            settings=settings.model_dump(mode="json"),
            operators={},
            axes=(),
            seed=0,
            islands=1,
            budget=Budget(1),
            limits=InFlightLimits(1, 1),
        )
        run, known = branches.open_group(self._ctx, problem, new)
        return _Base(run.id, patch.manifest(folder), known)

    def _watch(self) -> None:
        """Hands out results whenever the ledger says that there are some."""
        while True:
            try:
                for _ in self._ledger.listen(ENDED_CHANNEL, _LOOK_SECONDS):
                    self._look()
                    if self._has_stopped():
                        return
            except Unavailable:
                if self._has_stopped():
                    return
                threading.Event().wait(_AGAIN_SECONDS)

    def _has_stopped(self) -> bool:
        with self._lock:
            self._watching = bool(self._open)
            return not self._watching

    def _look(self) -> None:
        with self._lock:
            waiting = dict(self._open)
        if not waiting or self._base is None:
            return
        standing = branches.standing(self._ctx, self._base.run, list(waiting))
        for number, queued in waiting.items():
            if number in standing.results:
                queued.end(standing.results[number])
            elif standing.halted:
                queued.end(standing.halted)


class _Queued:
    """A candidate in the ledger; its branch gets its changes when its result is read."""

    pid = None

    def __init__(self, runner: LedgerRunner, trial: TrialId, work: Work) -> None:
        self._runner, self._trial, self._work = runner, trial, work
        self._shipped = shipping.Shipped(work.budget)
        self._handle = os.eventfd(0)
        self._lock = threading.Lock()
        self._ended: Evaluation | str | None = None

    def fileno(self) -> int:
        return self._handle

    def end(self, ended: Evaluation | str) -> None:
        """Takes the result over, or why there will be none; the first counts."""
        with self._lock:
            if self._ended is None:
                self._ended = ended
                os.eventfd_write(self._handle, 1)

    def result(self) -> Answer:
        ended = self._ended
        if ended is None or isinstance(ended, str):
            raise ProcessBranchError(ended or "the candidate has not ended")
        if ended.failure is not None:
            if ended.failure.kind is FailureKind.TIMEOUT:
                raise TimeoutError(ended.failure.detail)
            raise ProcessBranchError(f"{ended.failure.kind.value}: {ended.failure.shown}")
        answer = read_answer(self._shipped.finish(ended.artifacts.get("said", "")))
        if answer.success and self._work.candidate is not None:
            try:
                patch.apply(ended.artifacts.get("patch", ""), str(self._work.folders[0]))
            except (patch.PatchError, OSError) as error:
                raise ProcessBranchError(f"its changes cannot be taken over: {error}") from error
        return answer

    def request_end(self) -> None:
        if self._ended is None:
            self._runner.withdraw(self._trial)

    def close(self) -> None:
        self._runner.forget(self._trial)
        with self._lock:
            # A result that arrives now must not be written into what has the descriptor next.
            self._ended = self._ended or "it was closed"
            os.close(self._handle)
