"""Evaluations: the measurements of a sandbox run, and the fitness computed from them.

Every trial is a match.  A benchmark is a match with one player; a game has two or more.  Scores are
kept for each player and each case, which covers FunSearch's scores per test, OpenEvolve's metrics
and the crosstable of a tournament.
"""

import enum
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain.finite import mean
from app.domain.program import ProgramId
from app.domain.secrets import redacted

CaseId: TypeAlias = str

COMBINED = "combined_score"
"""A case of this name stands for all others: OpenEvolve's convention."""


BEGINS = "It begins: "
"""Begins the line of a failure's detail that quotes the beginning of a reply without code."""


class FailureKind(enum.StrEnum):
    """Why a proposal failed.  Set where the failure happens, never inferred from a text."""

    # These are faults of a reply.
    NO_CODE = "no_code"
    """The reply contains no program."""
    BAD_EDIT = "bad_edit"
    """A search block did not match its parent, or left the evolvable regions."""
    UNCHANGED = "unchanged"
    """The child equals its parent."""
    REFUSED = "refused"
    """The model declined to answer."""
    TOO_LONG = "too_long"
    """The child exceeds the problem's length limit."""
    # These are found before a trial, or by the compiler in the sandbox.
    SYNTAX = "syntax"
    IMPORT_BLOCKED = "import_blocked"
    # These are faults of a trial.
    RUNTIME = "runtime"
    """The program raised an exception, exited, or was ended by a signal."""
    TIMEOUT = "timeout"
    """The program exceeded its wall time or its CPU time."""
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    INVALID_SIGNATURE = "invalid_signature"
    INVALID_RESULT = "invalid_result"
    """A result is NaN, infinite, a bool, a string, complex, huge or nested."""
    SANDBOX_VIOLATION = "sandbox_violation"


@dataclass(frozen=True, slots=True)
class Failure:
    """A fault of a program.  Faults of the machinery are exceptions, not Failures.

    Attributes:
      detail: One or more lines for the user and for the model, of bounded length.
      culprit: The player at fault in a match; None means every player of the trial.
    """

    kind: FailureKind
    detail: str = ""
    culprit: ProgramId | None = None

    @property
    def shown(self) -> str:
        """The detail for people and files, without what may be a secret."""
        return redacted(self.detail)


@dataclass(frozen=True, slots=True)
class Trial:
    """A sandbox run to be made: its stage, its players and their cases."""

    stage: str
    players: tuple[ProgramId, ...]
    cases: tuple[CaseId, ...] = ("",)

    @property
    def measures(self) -> str:
        """The stage of the problem that it measures: of a repetition, that of the first trial."""
        return self.stage.partition(REPETITION)[0]

    @property
    def repetition(self) -> int:
        """0 for a first measurement, 1 for its first repetition, and so on."""
        return int(self.stage.partition(REPETITION)[2] or 0)


REPETITION = "#"
"""Stands between the stage and the number of a repetition."""


@dataclass(frozen=True, slots=True)
class Cases:
    """How the cases of a problem are divided into trials.

    Attributes:
      groups: Stage to the cases of each of its trials, in order; a stage that is absent has one
        trial, whose one case has no name.
      whole: Whether a program must pass every trial of a stage; otherwise one trial is enough, and
        the cases of those that it fails have no score.
      repeated: The stage whose trials are repeated, because its evaluator has noise; "" for none.
      measurements: Most measurements of a program at that stage, the first included.
    """

    groups: Mapping[str, tuple[tuple[CaseId, ...], ...]] = field(default_factory=dict)
    whole: bool = True
    repeated: str = ""
    measurements: int = 1

    def trials(
        self, stage: str, players: tuple[ProgramId, ...], repetition: int = 0
    ) -> tuple[Trial, ...]:
        """Returns the trials that measure the players at a stage, at least one."""
        name = f"{stage}{REPETITION}{repetition}" if repetition else stage
        return tuple(Trial(name, players, cases) for cases in self.groups.get(stage, (("",),)))


NO_CASES = Cases()
"""Every stage has one trial, whose one case has no name."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The measurements of one trial.

    Attributes:
      scores: For each player, its score on each case; higher is better.  Empty after a failure.
      metrics: For each player, every finite number that the evaluator reported.
      features: For each player, named measurements that place it in a feature grid.
      artifacts: Named texts for the next prompt and for the user, bounded.
      failure: None where the trial succeeded.
      wall_seconds: Real time in the sandbox, without waiting for a warm sandbox.
      cpu_seconds: User and system time of all processes of the trial.
      peak_memory_mib: Largest resident set of a process of the trial; None where not measured.
      boot_seconds: Time to start the sandbox for this trial; 0.0 in a warm one.
      verified: Whether evaluator and program were separate processes (guarded mode).
      behaviour: Digest of what a probe reported; "" where the trial is no probe.
      saved_seconds: Real time that an equal job took earlier, whose outcome this is; None where
        the trial was run.

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
    behaviour: str = ""
    saved_seconds: float | None = None

    def __post_init__(self) -> None:
        for table in (self.scores, self.metrics, self.features):
            for player, row in table.items():
                for name, value in row.items():
                    if not math.isfinite(value):
                        raise ValueError(f"{name!r} of {player[:8]} is not finite: {value!r}")


def fitness(player: ProgramId, evaluations: Iterable[Evaluation]) -> float | None:
    """Returns the fitness of `player`, or None if it has no score; higher is better.

    Scores are merged by case; later evaluations override earlier ones.  A case named
    `combined_score` stands for all others; otherwise the fitness is the mean over cases, which for
    matches scored 1, 1/2 and 0 is the win rate.
    """
    merged = _merged(player, evaluations)
    if COMBINED in merged:
        return merged[COMBINED]
    return mean(merged.values()) if merged else None


def mean_scores(player: ProgramId, repetitions: Iterable[Iterable[Evaluation]]) -> Evaluation:
    """Returns the player's scores with the mean of each case over the repetitions that have it.

    The evaluations of one repetition are of different cases: they are merged as `fitness` does.
    """
    known: dict[CaseId, list[float]] = {}
    for evaluations in repetitions:
        for case, score in _merged(player, evaluations).items():
            known.setdefault(case, []).append(score)
    return Evaluation({player: {case: mean(scores) for case, scores in known.items()}})


def fitness_names(player: ProgramId, evaluations: Iterable[Evaluation]) -> tuple[CaseId, ...]:
    """Returns the cases whose mean is the fitness; `combined_score` alone where it is measured."""
    merged = _merged(player, evaluations)
    return (COMBINED,) if COMBINED in merged else tuple(sorted(merged))


def signature(player: ProgramId, evaluations: Iterable[Evaluation]) -> tuple[float, ...]:
    """Returns the player's scores in case order: programs with equal signatures behave alike."""
    merged = _merged(player, evaluations)
    return tuple(merged[case] for case in sorted(merged))


def behaviour(player: ProgramId, evaluations: Sequence[Evaluation]) -> str:
    """Returns a digest of all that was measured of the player: scores and metrics, to the last bit.

    Programs with equal digests cannot be told apart by their evaluator.
    """
    measured = [_merged(player, evaluations), merged_metrics(player, evaluations)]
    text = repr([sorted(numbers.items()) for numbers in measured])
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


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
