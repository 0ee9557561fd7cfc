"""Runs the candidates of one call of a pattern, each in a branch, within limits of the group."""

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from app.patterns.budget import INHERITED, CandidateBudget
from app.patterns.errors import BranchingError, ConflictError, LimitError
from app.patterns.outcomes import Answer, SpeculationOutcome, SpeculationResult
from app.patterns.running import ProcessRunner, Runner, Running
from app.patterns.work import Candidate, Critique, Evaluate, Work
from app.patterns.workspace import Branch, Workspace
from workers.harness import processes

Base: TypeAlias = Workspace | Branch
Target: TypeAlias = Workspace | Branch | Path | str

_COUNTING_SECONDS = 0.1
"""Between two counts of the processes and the memory of a group."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What all candidates of one call of a pattern may use together; None sets no limit.

    Processes and memory are counted ten times a second, those of patterns inside included; when
    there are too many, every candidate at work is ended.

    Attributes:
      processes: At one time.
      memory_mib: At one time; pages that processes share count once.
      seconds: From the call to its return.
    """

    processes: int | None = None
    memory_mib: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The fields that every pattern has, whose records extend this one.

    Attributes:
      max_parallel: Candidates at work at one time; None starts all at once.
      timeout: Seconds for each candidate, from its start.
      limits: Of all its candidates together.
      budget: What each candidate takes one from; None means what the candidate that calls the
        pattern was given, and no bound outside of one.
      reserved: Candidates that patterns inside one candidate may run.  They are taken from the
        budget when it starts; what is left of them is given back when it ends.
      runner: Where candidates run; None means forks of this process.
    """

    max_parallel: int | None = None
    timeout: float | None = None
    limits: GroupLimits = GroupLimits()
    budget: CandidateBudget | None = None
    reserved: int = 0
    runner: Runner | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A candidate and what it branches from.

    Attributes:
      evaluate: Gives the score of a success.
      critique: Gives the error of a failure.
      score: Of a success that has none.
    """

    base: Base
    candidate: Candidate
    evaluate: Evaluate | None = None
    critique: Critique | None = None
    score: float = 1.0


@dataclass(frozen=True, slots=True)
class FinishedCandidate:
    """A candidate that has ended, with its branch, which the pattern commits or aborts.

    The branch is None where the candidate was never started.
    """

    entry: Entry
    result: SpeculationResult
    branch: Branch | None


@dataclass(slots=True)
class _Task:
    """Work that waits for its turn or has been started."""

    index: int
    begin: Callable[[], Work]
    running: Running | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class _EndedCandidate:
    index: int
    answer: Answer | None
    exception: Exception | None


@runtime_checkable
class Opens(Protocol):
    """A runner that opens the folders of its patterns itself."""

    def open(self, folder: Path | str) -> contextlib.AbstractContextManager[Workspace]: ...


@contextlib.contextmanager
def open_base(target: Target, runner: Runner | None) -> Iterator[Base]:
    """Yields what candidates branch from; a path becomes a workspace until the end."""
    if isinstance(target, Workspace | Branch):
        yield target
    else:
        opened = runner.open(target) if isinstance(runner, Opens) else Workspace(target)
        with opened as workspace:
            yield workspace


class Group:
    """The candidates of one call of a pattern.

    Use it in a `with` statement: its end aborts the branches that are still open.
    """

    def __init__(self, terms: Terms, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts the time of the group.

        Raises:
          ValueError: A term is out of its range.
        """
        for name, value in (("max_parallel", terms.max_parallel), ("timeout", terms.timeout)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be more than 0")
        self._terms, self._clock = terms, clock
        self._limits, self._runner = terms.limits, terms.runner or ProcessRunner()
        self._budget = terms.budget or INHERITED.get()
        seconds = self._limits.seconds
        self._until = None if seconds is None else clock() + seconds
        self._counted = clock()
        self._branches: list[Branch] = []
        self._dropped: deque[Branch] = deque()
        self.results: list[SpeculationResult] = []

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        for branch in self._branches:
            branch.abort()

    def race(
        self,
        entries: Sequence[Entry],
        *,
        seconds: float | None = None,
    ) -> Generator[FinishedCandidate, None, None]:
        """Yields candidates as they end; closing the iterator ends the others.

        Args:
          entries: Are started in this order.
          seconds: For all of them together.
        """
        first = len(self.results)
        branches: list[Branch | None] = [None] * len(entries)
        parts: list[CandidateBudget | None] = [None] * len(entries)
        roots: dict[int, Branch] = {}

        def begin(number: int) -> Work:
            entry = entries[number]
            if self._budget is not None:
                taken = self._budget.reserve(1 + self._terms.reserved)
                parts[number] = taken.reserve(self._terms.reserved)
            index = first + number
            branch = entry.base.branch(str(index), since=roots.get(id(entry.base)))
            roots.setdefault(id(entry.base), self.keep(branch))
            branches[number] = branch
            return Work(
                folders=(branch.path,),
                candidate=entry.candidate,
                evaluate=entry.evaluate,
                critique=entry.critique,
                home=branch.home,
                seconds=self._terms.timeout,
                budget=parts[number],
            )

        def finished(ended: _EndedCandidate) -> FinishedCandidate:
            part, branch = parts[ended.index], branches[ended.index]
            if part is not None and self._budget is not None:
                self._budget.give_back(part)
            entry = entries[ended.index]
            result = _result(first + ended.index, ended, entry, branch)
            self.results.append(result)
            return FinishedCandidate(entry, result, branch)

        tasks = [_Task(number, partial(begin, number)) for number in range(len(entries))]
        with contextlib.closing(self._run_tasks(tasks, seconds)) as all_ended:
            for ended in all_ended:
                yield finished(ended)

    def run(self, works: Sequence[Work]) -> list[Answer]:
        """Does work that has no branch of its own and returns the answers, in its order.

        Raises:
          ProcessBranchError: One raised.
          TimeoutError: One took too long.
        """
        tasks = [_Task(n, partial(_itself, work)) for n, work in enumerate(works)]
        answers: dict[int, Answer] = {}
        with contextlib.closing(self._run_tasks(tasks, None)) as all_ended:
            for ended in all_ended:
                if ended.exception is not None:
                    raise ended.exception
                assert ended.answer is not None
                answers[ended.index] = ended.answer
        return [answers[n] for n in range(len(works))]

    def commit(self, finished: FinishedCandidate, *more: Branch) -> bool:
        """Commits a candidate's branch, then each branch around it; returns whether all were.

        A conflict becomes the exception of the candidate's result.
        """
        assert finished.branch is not None
        try:
            for branch in (finished.branch, *more):
                branch.commit()
        except ConflictError as error:
            self._replace(replace(finished.result, exception=error))
            return False
        return True

    def best(self, entries: Sequence[Entry], most: int = 1) -> list[FinishedCandidate]:
        """Runs candidates to their end and returns the successes with the highest scores.

        The branches of all others are dropped as soon as they are not among these any more.

        Args:
          entries: Are started in this order.
          most: How many to return.
        """
        leading: list[FinishedCandidate] = []
        for finished in self.race(entries):
            ranked = best([*leading, finished])
            leading = ranked[:most]
            for beaten in (*ranked[most:], *(() if finished.result.success else (finished,))):
                self.drop(beaten)
        return leading

    def drop(self, finished: FinishedCandidate) -> None:
        """Has a candidate's branch aborted when there is nothing else to do, or at the end."""
        if finished.branch is not None:
            self._dropped.append(finished.branch)

    def keep(self, branch: Branch) -> Branch:
        """Takes over a branch, which the end of the group aborts if it is open."""
        self._branches.append(branch)
        return branch

    def outcome(
        self, winner: FinishedCandidate | None, *, committed: bool = False
    ) -> SpeculationOutcome:
        """Returns the outcome of the pattern."""
        results = sorted(self.results, key=lambda result: result.branch_index)
        return SpeculationOutcome(winner.result if winner else None, tuple(results), committed)

    def _replace(self, result: SpeculationResult) -> None:
        self.results = [
            result if earlier.branch_index == result.branch_index else earlier
            for earlier in self.results
        ]

    def _run_tasks(
        self, tasks: Sequence[_Task], seconds: float | None
    ) -> Generator[_EndedCandidate, None, None]:
        waiting, at_work = deque(tasks), dict[int, _Task]()
        most = self._terms.max_parallel or len(tasks)
        until = _earliest(self._until, None if seconds is None else self._clock() + seconds)
        try:
            with selectors.DefaultSelector() as selector:
                while waiting or at_work:
                    if waiting and len(at_work) < most:
                        task = waiting.popleft()
                        try:
                            self._start(task)
                        except BranchingError as error:
                            yield _EndedCandidate(task.index, None, error)
                            continue
                        assert task.running is not None
                        at_work[task.index] = task
                        selector.register(task.running, selectors.EVENT_READ, task)
                    may_start = bool(waiting) and len(at_work) < most
                    is_idle = not may_start and not self._dropped
                    pause = self._pause(at_work.values(), until) if is_idle else 0.0
                    ready = [key.data for key, _ in selector.select(pause)]
                    if self._dropped and not ready and not may_start:
                        self._dropped.popleft().abort()
                    for task in sorted(ready, key=lambda task: task.index):
                        selector.unregister(task.running)
                        del at_work[task.index]
                        yield _close(task)
                    over = self._exceeded(at_work.values(), until)
                    late = [task for task in at_work.values() if over or self._is_late(task)]
                    if over:
                        late += waiting
                        waiting.clear()
                    for task in late:
                        if task.running is not None:
                            selector.unregister(task.running)
                            del at_work[task.index]
                    _end(late)
                    for task in late:
                        late_error = TimeoutError(f"no end within {self._terms.timeout} s")
                        yield _EndedCandidate(task.index, None, over or late_error)
        finally:
            _end(list(at_work.values()))

    def _start(self, task: _Task) -> None:
        task.running = self._runner.start(task.begin())
        if self._counts and task.running.pid is None:
            _end([task])
            raise ValueError(
                "limits of a group count the processes and memory of this machine, and the runner "
                "starts candidates elsewhere; give the limits to the runner"
            )
        if self._terms.timeout is not None and task.running.pid is not None:
            task.until = self._clock() + self._terms.timeout

    def _is_late(self, task: _Task) -> bool:
        return task.until is not None and self._clock() >= task.until

    def _pause(self, tasks: Iterable[_Task], until: float | None) -> float | None:
        """Returns for how long nothing but the end of a candidate matters; None for ever."""
        next_count = self._counted + _COUNTING_SECONDS if self._counts else None
        at = _earliest(until, next_count, *(task.until for task in tasks))
        return None if at is None else max(0.0, at - self._clock())

    @property
    def _counts(self) -> bool:
        return self._limits.processes is not None or self._limits.memory_mib is not None

    def _exceeded(self, tasks: Iterable[_Task], until: float | None) -> Exception | None:
        """Returns the error of a group that is over one of its limits."""
        if until is not None and self._clock() >= until:
            return TimeoutError("the time of the group is over")
        if not self._counts or self._clock() < self._counted + _COUNTING_SECONDS:
            return None
        pids = processes.descendants(
            {task.running.pid for task in tasks if task.running and task.running.pid is not None}
        )
        self._counted = self._clock()
        most, most_mib = self._limits.processes, self._limits.memory_mib
        if most is not None and len(pids) > most:
            return LimitError(f"the group has {len(pids)} processes; its limit is {most}")
        if most_mib is not None:
            mib = sum(map(_proportional_bytes, pids)) / (1 << 20)
            if mib > most_mib:
                return LimitError(f"the group uses {mib:.0f} MiB; its limit is {most_mib}")
        return None


def best(finished: Sequence[FinishedCandidate]) -> list[FinishedCandidate]:
    """Returns the successes, the best first; of equal scores the earlier candidate is first."""
    successes = [candidate for candidate in finished if candidate.result.success]
    return sorted(
        successes, key=lambda candidate: (-candidate.result.score, candidate.result.branch_index)
    )


def _itself(work: Work) -> Work:
    return work


def _earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _close(task: _Task) -> _EndedCandidate:
    assert task.running is not None
    try:
        return _EndedCandidate(task.index, task.running.result(), None)
    except (BranchingError, TimeoutError) as error:
        return _EndedCandidate(task.index, None, error)
    finally:
        task.running.close()


def _end(tasks: Sequence[_Task]) -> None:
    """Ends tasks at work, all at once."""
    running = [task.running for task in tasks if task.running is not None]
    for candidate in running:
        candidate.request_end()
    for candidate in running:
        candidate.close()


def _result(
    index: int, ended: _EndedCandidate, entry: Entry, branch: Branch | None
) -> SpeculationResult:
    path, answer = branch.path if branch else None, ended.answer
    if answer is None:
        message = str(ended.exception)
        return SpeculationResult(index, False, None, ended.exception, path, 0.0, message)
    own = entry.score if answer.score is None else answer.score
    score = own if answer.success else 0.0
    return SpeculationResult(index, answer.success, answer.value, None, path, score, answer.error)


def _proportional_bytes(pid: int) -> int:
    """Returns the memory of a process, with its part of what it shares; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as lines:
            return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:"))
    except OSError:
        return 0
