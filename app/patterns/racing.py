"""Patterns whose candidates all begin with the same files: of one wave, or wave after wave."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from app.patterns.commands import Command
from app.patterns.group import Entry, FinishedCandidate, Group, Target, Terms, open_base
from app.patterns.outcomes import SpeculationOutcome
from app.patterns.work import Candidate, Critique, Evaluate

Attempt: TypeAlias = Callable[[Path, int, str], Any] | Command
"""Takes the folder, the number of the attempt from 0, and what was said of the last one.

A command has them in `BRANCHING_ATTEMPT` and `BRANCHING_FEEDBACK`.
"""
Informed: TypeAlias = Callable[[Path, Sequence[str]], Any] | Command
"""Takes the folder and the errors so far, oldest first; a command has `BRANCHING_FEEDBACK`."""


@dataclass(frozen=True, slots=True)
class Speculate(Terms):
    """Runs candidates side by side and commits the first that succeeds.

    Attributes:
      first_wins: Whether the first success in time wins, and all others are ended.  Otherwise all
        run to their end, and the first success in the order of `candidates` wins.
    """

    candidates: Sequence[Candidate]
    first_wins: bool = field(default=True, kw_only=True)

    def __call__(self, target: Target) -> SpeculationOutcome:
        """Runs the pattern on a workspace, a branch or the path of a folder."""
        with open_base(target, self.runner) as base, Group(self) as group:
            entries = [Entry(base, candidate) for candidate in self.candidates]
            if self.first_wins:
                return _first_commit(group, group.race(entries))
            ended = sorted(group.race(entries), key=lambda one: one.result.branch_index)
            return _first_commit(group, ended)


def _first_commit(group: Group, ended: Iterable[FinishedCandidate]) -> SpeculationOutcome:
    """Commits the first success that can be committed, and ends the others."""
    with contextlib.ExitStack() as stack:
        if isinstance(ended, Generator):
            stack.callback(ended.close)
        for finished in ended:
            if finished.result.success and group.commit(finished):
                return group.outcome(finished, committed=True)
    return group.outcome(None)


@dataclass(frozen=True, slots=True)
class BestOfN(Terms):
    """Runs all candidates to their end and commits the success with the highest score.

    The score is that of `evaluate`, else the candidate's own, else the one in `scores`, else 1.

    Attributes:
      scores: One for each candidate.
      evaluate: Scores the folder of a success, in the candidate's process.
      commit: False commits nothing: every result has its score.
    """

    candidates: Sequence[Candidate]
    scores: Sequence[float] | None = field(default=None, kw_only=True)
    evaluate: Evaluate | None = field(default=None, kw_only=True)
    commit: bool = field(default=True, kw_only=True)

    def __call__(self, target: Target) -> SpeculationOutcome:
        """Runs the pattern on a workspace, a branch or the path of a folder.

        Raises:
          ValueError: `scores` has another length than `candidates`.
        """
        given = self.scores or [1.0] * len(self.candidates)
        if len(given) != len(self.candidates):
            raise ValueError(f"{len(given)} scores for {len(self.candidates)} candidates")
        with open_base(target, self.runner) as base, Group(self) as group:
            ranked = group.best(
                [
                    Entry(base, candidate, self.evaluate, score=score)
                    for candidate, score in zip(self.candidates, given, strict=True)
                ]
            )
            if not ranked or not self.commit:
                return group.outcome(ranked[0] if ranked else None)
            committed = group.commit(ranked[0])
            return group.outcome(ranked[0] if committed else None, committed=committed)


@dataclass(frozen=True, slots=True)
class Cascaded(Terms):
    """Runs one wave of candidates after the other, each wider, until one succeeds.

    Within a wave the first success is committed and the others are ended.  The next wave is given
    the errors of all before it.

    Attributes:
      task: Is called with its folder and the errors so far; returns (success, error).
      fan_out: How many candidates each wave has.
      wave_timeout: Seconds for each wave.
    """

    task: Informed
    fan_out: Sequence[int] = field(default=(1, 2, 4), kw_only=True)
    wave_timeout: float | None = field(default=None, kw_only=True)

    def __call__(self, target: Target) -> SpeculationOutcome:
        """Runs the pattern on a workspace, a branch or the path of a folder."""
        with open_base(target, self.runner) as base, Group(self) as group:
            for width in self.fan_out:
                errors = [one.error for one in group.outcome(None).all_results if one.error]
                entries = [Entry(base, _informed(self.task, errors))] * width
                outcome = _first_commit(group, group.race(entries, seconds=self.wave_timeout))
                if outcome.committed:
                    return outcome
            return group.outcome(None)


def _informed(task: Informed, errors: Sequence[str]) -> Candidate:
    if isinstance(task, Command):
        return task.given(BRANCHING_FEEDBACK="\n".join(errors))
    return lambda path: task(path, errors)


@dataclass(frozen=True, slots=True)
class Reflexion(Terms):
    """Tries one candidate after the other, each with what was said of the one before.

    Each attempt begins with the files of the base; the first success is committed.

    Attributes:
      task: Is called with its folder, the number of the attempt and the feedback ("" at first).
      max_retries: Attempts, the first included.
      critique: Reads the folder of a failed attempt and returns the feedback, in the process of the
        attempt; by default the feedback is what the attempt said, or raised.
    """

    task: Attempt
    max_retries: int = field(default=3, kw_only=True)
    critique: Critique | None = field(default=None, kw_only=True)
    max_parallel: int | None = field(default=1, init=False)
    """Attempts follow one another."""

    def __call__(self, target: Target) -> SpeculationOutcome:
        """Runs the pattern on a workspace, a branch or the path of a folder."""
        feedback = ""
        with open_base(target, self.runner) as base, Group(self) as group:
            for attempt in range(self.max_retries):
                candidate = _attempt(self.task, attempt, feedback)
                [finished] = group.race([Entry(base, candidate, critique=self.critique)])
                if finished.result.success and group.commit(finished):
                    return group.outcome(finished, committed=True)
                feedback = finished.result.error
            return group.outcome(None)


def _attempt(task: Attempt, attempt: int, feedback: str) -> Candidate:
    if isinstance(task, Command):
        return task.given(BRANCHING_ATTEMPT=str(attempt), BRANCHING_FEEDBACK=feedback)
    return lambda path: task(path, attempt, feedback)
