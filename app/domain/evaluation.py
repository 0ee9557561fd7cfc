"""Evaluations: what a sandbox run measured, and how measurements become a fitness.

Every trial is a match.  A benchmark is a match with one player; a game has two or more.  Scores are
kept per player and per case, which is FunSearch's scores-per-test, OpenEvolve's metrics and a
tournament's crosstable at once.
"""

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeAlias

from app.domain.program import ProgramId

CaseId: TypeAlias = str

COMBINED = "combined_score"
"""A case of this name stands for all others: OpenEvolve's convention."""


class FailureKind(enum.StrEnum):
    """Why a proposal came to nothing.  Set where the failure happens, never guessed from text."""

    # of a model's reply
    NO_CODE = "no_code"  # the reply held no program
    BAD_EDIT = "bad_edit"  # a search block did not match its parent, or left the evolvable regions
    UNCHANGED = "unchanged"  # the child equals its parent
    REFUSED = "refused"  # the model declined to answer
    TOO_LONG = "too_long"  # the child exceeds the problem's length limit
    # before a sandbox is spent, or by the compiler inside it
    SYNTAX = "syntax"
    IMPORT_BLOCKED = "import_blocked"
    # of a trial
    RUNTIME = "runtime"  # exception, exit, signal
    TIMEOUT = "timeout"  # wall or CPU
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    INVALID_SIGNATURE = "invalid_signature"
    INVALID_RESULT = "invalid_result"  # NaN, infinity, bool, string, complex, huge, nested
    SANDBOX_VIOLATION = "sandbox_violation"


@dataclass(frozen=True, slots=True)
class Failure:
    """A program's own fault.  Faults of the machinery are exceptions, not Failures.

    Attributes:
      detail: One or more lines for a person and for the model; bounded by whoever makes it.
      culprit: The player at fault in a match; None means every player of the trial.
    """

    kind: FailureKind
    detail: str = ""
    culprit: ProgramId | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One sandbox run to be made: who plays, at which stage, on which cases."""

    stage: str
    players: tuple[ProgramId, ...]
    cases: tuple[CaseId, ...] = ("",)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one trial measured.

    Attributes:
      scores: For each player, its score on each case; higher is better.  Empty after a failure.
      metrics: For each player, everything finite and numeric that the evaluator reported.
      features: For each player, named measurements that place it in a feature grid.
      artifacts: Named texts for the next prompt and for people, bounded.
      failure: What went wrong, if anything did.
      wall_seconds: Real time in the sandbox, without waiting for a cell.
      cpu_seconds: User and system time of everything the trial started.
      peak_memory_mib: Largest resident set of a process of the trial; None where not measured.
      boot_seconds: What starting a cell cost this trial; 0.0 in a warm one.
      verified: Whether evaluator and program were separate processes (guarded mode).

    Raises:
      ValueError: A score, metric or feature is not finite.
    """

    scores: Mapping[ProgramId, Mapping[CaseId, float]] = field(default_factory=dict)
    metrics: Mapping[ProgramId, Mapping[str, float]] = field(default_factory=dict)
    features: Mapping[ProgramId, Mapping[str, float]] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_mib: float | None = None
    boot_seconds: float = 0.0
    verified: bool = False

    def __post_init__(self) -> None:
        for table in (self.scores, self.metrics, self.features):
            for player, row in table.items():
                for name, value in row.items():
                    if not math.isfinite(value):
                        raise ValueError(f"{name!r} of {player[:8]} is not finite: {value!r}")


def fitness(player: ProgramId, evaluations: Iterable[Evaluation]) -> float | None:
    """Returns the fitness of `player`, or None if it has no score; higher is better.

    Scores are merged by case, later evaluations overriding earlier ones.  A case named
    `combined_score` stands for all others; otherwise the fitness is the mean over cases, which for
    matches scored 1, 1/2 and 0 is the win rate.
    """
    merged = _merged(player, evaluations)
    if COMBINED in merged:
        return merged[COMBINED]
    return fmean(merged.values()) if merged else None


def signature(player: ProgramId, evaluations: Iterable[Evaluation]) -> tuple[float, ...]:
    """Returns the player's scores in case order: programs with equal signatures behave alike."""
    merged = _merged(player, evaluations)
    return tuple(merged[case] for case in sorted(merged))


def merged_metrics(player: ProgramId, evaluations: Iterable[Evaluation]) -> dict[str, float]:
    """Returns the player's metrics, later evaluations overriding earlier ones."""
    merged: dict[str, float] = {}
    for evaluation in evaluations:
        merged.update(evaluation.metrics.get(player, {}))
    return merged


def _merged(player: ProgramId, evaluations: Iterable[Evaluation]) -> dict[CaseId, float]:
    merged: dict[CaseId, float] = {}
    for evaluation in evaluations:
        merged.update(evaluation.scores.get(player, {}))
    return merged
