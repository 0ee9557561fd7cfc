"""Patterns in which chosen candidates go on: to the next level, or to the next round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from app.patterns.commands import Command
from app.patterns.errors import ProcessBranchError
from app.patterns.group import Entry, FinishedCandidate, Group, Target, Terms, open_base
from app.patterns.outcomes import Answer, SpeculationOutcome
from app.patterns.work import Candidate, Compare, Evaluate, Work
from app.patterns.workspace import Branch

Expand: TypeAlias = Callable[[Path, int], Sequence[Candidate]]
"""Takes the folder of a chosen candidate and the number of the next level, from 1; returns the
candidates that go on from there.  Is called in the process of the pattern.
"""


@dataclass(frozen=True, slots=True)
class TreeOfThoughts(Terms):
    """Takes the best candidate of each level as the base of the next one.

    A level without a success ends the search, and nothing is committed.

    Attributes:
      strategies: The candidates of the first level.
      evaluate: Scores the folder of a success, in the candidate's process.
      expand: Makes the candidates of each further level.
      max_depth: Levels.
      timeout: Seconds for each candidate, so for each level.
    """

    strategies: Sequence[Candidate]
    evaluate: Evaluate | None = field(default=None, kw_only=True)
    expand: Expand | None = field(default=None, kw_only=True)
    max_depth: int = field(default=1, kw_only=True)

    def __call__(self, target: Target) -> SpeculationOutcome:
        """Runs the pattern on a workspace, a branch or the path of a folder."""
        with open_base(target, self.runner) as base, Group(self) as group:
            root = group.keep(base.branch("thoughts"))
            winner: FinishedCandidate | None = None
            candidates = self.strategies
            for depth in range(max(1, self.max_depth)):
                if depth:
                    candidates = self.expand(root.path, depth) if self.expand else ()
                if not candidates:
                    break
                ranked = group.best([Entry(root, each, self.evaluate) for each in candidates])
                if not ranked or not group.commit(ranked[0]):
                    return group.outcome(None)
                winner = ranked[0]
            if winner is None or not group.commit(winner, root):
                return group.outcome(None)
            return group.outcome(winner, committed=True)


@dataclass(frozen=True, slots=True)
class _Beam:
    """A surviving candidate, and the branches around its own, innermost first."""

    finished: FinishedCandidate
    around: tuple[Branch, ...]

    @property
    def branch(self) -> Branch:
        assert self.finished.branch is not None
        return self.finished.branch

    @property
    def line(self) -> tuple[Branch, ...]:
        return (self.branch, *self.around)


@dataclass(frozen=True, slots=True)
class BeamSearch(Terms):
    """Keeps the best candidates of each level, whichever they go on from, and commits the best.

    Each survivor has a branch of its own, also where two go on from the same one.  A level
    without a success, or to which nothing is added, ends the search with the level before it.

    Attributes:
      strategies: The candidates of the first level.
      expand: Makes the candidates that go on from a survivor.
      evaluate: Scores the folder of a success, in the candidate's process.
      beam_width: Survivors of a level.
      max_depth: Levels.
      timeout: Seconds for each candidate, so for each level.
    """

    strategies: Sequence[Candidate]
    expand: Expand | None = field(default=None, kw_only=True)
    evaluate: Evaluate | None = field(default=None, kw_only=True)
    beam_width: int = field(default=3, kw_only=True)
    max_depth: int = field(default=2, kw_only=True)

    def __call__(self, target: Target) -> SpeculationOutcome:
        """Runs the pattern on a workspace, a branch or the path of a folder."""
        with open_base(target, self.runner) as base, Group(self) as group:
            entries = [Entry(base, candidate, self.evaluate) for candidate in self.strategies]
            beams = self._survivors(group, entries, {})
            for depth in range(1, self.max_depth):
                if self.expand is None:
                    break
                lines = {id(beam.branch): beam.line for beam in beams}
                entries = [
                    Entry(beam.branch, candidate, self.evaluate)
                    for beam in beams
                    for candidate in self.expand(beam.branch.path, depth)
                ]
                if not (survivors := self._survivors(group, entries, lines)):
                    break
                going_on = {id(branch) for one in survivors for branch in one.around}
                for beam in beams:
                    if id(beam.branch) not in going_on:
                        beam.branch.abort()
                beams = survivors
            if not beams or not group.commit(beams[0].finished, *beams[0].around):
                return group.outcome(None)
            return group.outcome(beams[0].finished, committed=True)

    def _survivors(
        self, group: Group, entries: Sequence[Entry], lines: dict[int, tuple[Branch, ...]]
    ) -> list[_Beam]:
        """Runs a level and returns its best, the best first."""
        chosen = group.best(entries, self.beam_width)
        return [_Beam(one, lines.get(id(one.entry.base), ())) for one in chosen]


@dataclass(frozen=True, slots=True)
class Tournament(Terms):
    """Lets a judge compare candidates in pairs, round after round, and commits the last one.

    Candidates that do not succeed do not take part.  Of an odd number the last one goes on without
    a comparison.

    Attributes:
      judge: Runs in a process of its own, as candidates do; all pairs of a round at once.
    """

    candidates: Sequence[Candidate]
    judge: Compare

    def __call__(self, target: Target) -> SpeculationOutcome:
        """Runs the pattern on a workspace, a branch or the path of a folder.

        Raises:
          ProcessBranchError: The judge raised, or returned neither 0 nor 1; nothing is committed.
          TimeoutError: The judge took longer than `timeout`.
        """
        with open_base(target, self.runner) as base, Group(self) as group:
            entries = [Entry(base, candidate) for candidate in self.candidates]
            left = [finished for finished in group.race(entries) if finished.result.success]
            left.sort(key=lambda finished: finished.result.branch_index)
            while len(left) > 1:
                pairs = list(zip(left[::2], left[1::2], strict=False))
                answers = group.run([self._comparison(*pair) for pair in pairs])
                unpaired = left[2 * len(pairs) :]
                better = [pair[_verdict(a)] for pair, a in zip(pairs, answers, strict=True)]
                left = better + unpaired
            if not left or not group.commit(left[0]):
                return group.outcome(None)
            return group.outcome(left[0], committed=True)

    def _comparison(self, first: FinishedCandidate, second: FinishedCandidate) -> Work:
        assert first.branch is not None
        assert second.branch is not None
        folders, judge = (first.branch.path, second.branch.path), self.judge
        if isinstance(judge, Command):
            judge = judge.given(BRANCHING_FIRST=str(folders[0]), BRANCHING_SECOND=str(folders[1]))
        else:
            judge = partial(_better, judge)
        return Work(folders=folders, evaluate=judge, home=first.branch.home, seconds=self.timeout)


def _better(judge: Callable[[Path, Path], int], first: Path, second: Path) -> int:
    """Runs in the judge's process."""
    better = judge(first, second)
    if better not in (0, 1):
        raise ProcessBranchError(f"the judge returned {better!r:.200}; return 0 or 1")
    return int(better)


def _verdict(answer: Answer) -> int:
    """Returns which of two folders is better."""
    if answer.score not in (0, 1):
        raise ProcessBranchError(f"the judge printed {answer.score}; print 0 or 1")
    return int(answer.score)
