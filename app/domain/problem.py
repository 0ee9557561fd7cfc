"""Problems: the programs to evolve, and how a sandbox run is prepared and its outcome read."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.domain.evaluation import NO_CASES, Cases, Evaluation, Failure, Trial
from app.domain.games import match
from app.domain.program import Program, ProgramId
from app.domain.source.imports import EVERYTHING, ImportPolicy

ProblemDigest: TypeAlias = str
"""Sixty-four hex digits over a problem's files and the settings that shape its evaluation."""


class EvaluatorBroken(ValueError):
    """The problem's own scoring code cannot be used.

    Attributes:
      what: What is wrong, such as the error that it raised.
      where: The file, with its line where one is known; "" where none is.
      remedy: What to do about it.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        place = f"{where}: " if where else ""
        super().__init__(f"{place}{what}. {remedy}" if remedy else f"{place}{what}")


class ProblemError(ValueError):
    """A problem that cannot be loaded.

    Attributes:
      what: What is wrong, in one clause.
      where: The file, with its line where one is known, or the option.
      value: The offending value as written; "" where there is none to show.
      remedy: What to do about it, in one sentence.
    """

    def __init__(self, what: str, *, where: str, value: str = "", remedy: str) -> None:
        self.what, self.where, self.value, self.remedy = what, where, value, remedy
        shown = f" ({value})" if value else ""
        super().__init__(f"{where}: {what}{shown}. {remedy}")


class Mode(enum.StrEnum):
    """How evaluator and program meet in the sandbox."""

    GUARDED = "guarded"
    """Evaluator and program have a process and an identity each, and calls carry data only."""
    COMPATIBLE = "compatible"
    """Evaluator and program share one process, and every score is labelled unverified."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources that one sandbox run may use."""

    wall_seconds: float = 60.0
    cpu_seconds: float = 120.0
    memory_mib: int = 1024
    output_bytes: int = 1_048_576
    result_bytes: int = 1_048_576
    file_bytes: int = 33_554_432
    processes: int = 64
    open_files: int = 256


@dataclass(frozen=True, slots=True)
class GameLimits:
    """What each player of a game may use.  Only the player that is to move runs.

    Attributes:
      move_seconds: Real time of one move.
      game_seconds: Real time of all its moves, and of loading it.
      memory_mib: Memory of all processes of the player.
    """

    move_seconds: float = 2.0
    game_seconds: float = 30.0
    memory_mib: int = 256


@dataclass(frozen=True, slots=True)
class Evaluator:
    """The trusted side of a trial: the problem's own scoring code and the files beside it.

    Attributes:
      digest: Names `files` and `entry`; warm sandboxes are pooled and reused under it.
      files: Relative POSIX path to contents; the whole problem folder.
      entry: The path in `files` of the module that defines the stage functions.
      environment: Extra variables the evaluator sees, and the program does not.
      image: Container image that holds the problem's dependencies; "" for the default one.
      fixed: Relative POSIX path to contents: the files around those of a program of several files,
        in its folder.  Every program may read them.
      mounts: Data that is not among the files, because it may have any size: name to absolute path
        on the machines of the workers.  The evaluator finds it as `data/NAME`, to read.
    """

    digest: str
    files: Mapping[str, bytes]
    entry: str = "evaluator.py"
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    mounts: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Folder:
    """How the bytes of a program of several files are laid out for a trial.

    Attributes:
      paths: Path of each file below the folder.
      sizes: Bytes of each file, in the order of the paths.
      entry: The file whose functions a guarded evaluator calls; "" for a compatible one's.
      copied: Whether the fixed files around them are copies that a build may write beside.
    """

    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    entry: str = ""
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One stage function to be called on the players' programs, in isolation.

    Attributes:
      function: Name of the evaluator's function, called with one path per player.
      programs: One (file suffix, source bytes) per player.
      folder: How the bytes of the only player's program are files of a folder, whose path the
        function is called with; None where each program is a file.
      seed: Seeds the random numbers that trials in a warm sandbox would otherwise share;
        0 <= seed < 2**32.
      cases: Names of the cases to be measured, which the function is given as its argument `cases`;
        empty for a function that has no such argument.
      reuse: Whether the outcome of an equal job, of this run or another, may take its place.
      game: The limits of each player, where the function is a game; only in guarded mode.
      watch: Receives the moves of a game so far, again and again while it is played, as texts that
        nobody has checked; None: nobody watches.  It must not raise.
      ticket: Names the work within its ledger, so that whoever takes it over may find what runs
        already; "" for work that nobody takes over.
    """

    evaluator: Evaluator
    function: str
    programs: tuple[tuple[str, bytes], ...]
    limits: Limits = Limits()
    mode: Mode = Mode.GUARDED
    seed: int = 0
    cases: tuple[str, ...] = ()
    reuse: bool = False
    game: GameLimits | None = None
    folder: Folder | None = None
    watch: Callable[[Sequence[str]], None] | None = None
    ticket: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes:
      result: The value of the stage function, as strict JSON with the keys `metrics` (name to
        number, bool, string, list, object or null) and `artifacts` (name to string); None after a
        failure, but of a game with its `moves` until then.  Not yet checked for meaning:
        `Problem.interpret` does that.
      failure: The reason why there is no result; None when there is one.
      culprit: Of a game, the place of the player that failed, from 0; None where it is not known
        to be the fault of a player.
      stdout, stderr: Bounded head and tail of what was printed, before secrets are filtered.
      boot_seconds: Time this job waited for its sandbox to start; 0.0 in a warm one.
      reused: Whether an equal job ended so earlier; nothing was run.
    """

    result: bytes | None
    failure: Failure | None
    stdout: bytes = b""
    stderr: bytes = b""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_mib: float | None = None
    boot_seconds: float = 0.0
    reused: bool = False
    culprit: int | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a feature grid: `bins` equal cells over [`low`, `high`], clipped outside.

    A range of None is learnt from the run's first evaluations and then frozen.

    Attributes:
      provisional: Whether the range was drawn from the seeds alone and is yet to be learnt.
      scaled: Whether `bins` was not declared, and follows from the run's budget.
    """

    name: str
    bins: int = 10
    low: float | None = None
    high: float | None = None
    provisional: bool = False
    scaled: bool = False

    @property
    def ranged(self) -> bool:
        return self.low is not None and self.high is not None


def axis_of(stored: Mapping[str, Any]) -> Axis:
    """Returns the axis with these values of JSON, in which a large float may be an integer."""
    ends = {end: stored[end] for end in ("low", "high")}
    return Axis(**{**stored, **{end: at if at is None else float(at) for end, at in ends.items()}})


@dataclass(frozen=True, slots=True)
class EditRules:
    """The changes that a child may make to its parent.

    Attributes:
      enforce_blocks: Whether text outside EVOLVE-BLOCK regions is put back.
      max_code_chars: Longest child that is evaluated, in characters.
      diff_pattern: Regular expression with two groups, search and replace text.
      evolve: Patterns of the paths at which a child of several files may have files.
      new_files: Most files that a child may have beyond those of its parent.
      remove: Whether a child may be without files of its parent.
      entry: The file that none may be without; "" for none.
    """

    enforce_blocks: bool = True
    max_code_chars: int = 10_000
    diff_pattern: str = r"<<<<<<< SEARCH\n(.*?)=======\n(.*?)>>>>>>> REPLACE"
    evolve: tuple[str, ...] = ()
    new_files: int = 0
    remove: bool = False
    entry: str = ""


def longest_child(seeds: Sequence[Program], chosen: int | None = None) -> int:
    """Returns the longest child that is evaluated, in characters.

    The limit grows with the seeds: below their length nearly every child would be refused.

    Args:
      seeds: The seeds, at least one.
      chosen: The limit that the problem's configuration sets; None where it sets none.
    """
    longest = max(seed.length for seed in seeds)
    if chosen is not None and chosen > longest:
        return chosen
    return max(chosen or EditRules().max_code_chars, 2 * longest)


@dataclass(frozen=True, slots=True)
class Problem:
    """A search task, loaded once and never changed.

    Attributes:
      digest: Names the files and everything else that shapes an evaluation.
      files: Relative POSIX path to contents; together with `options` enough to load it again.
      options: Values beside the files that shape the evaluation (JSON).
      instructions: The task in prose, for the model's system prompt.
      seeds: The programs every island starts from, at least one.
      baselines: Name to seed program, which results are compared with.
      suffix: File name suffix of a program, with its dot.
      players: How many programs play in one trial of the last stage; those before have one.
      stages: Stage names in order; the last one's measurements reach the archive.
      probe: The stage that measures how a program behaves before it is measured; "" for none.  Of
        programs that behave alike only the first is measured.
      validation: The stage that measures the best programs at the end of a run, on data that the
        search never saw; "" for none.
      references: Name to program that validation measures beside the best; it never breeds.
      thresholds: `thresholds[i]` is the fitness needed to go on from `stages[i]`.
      cases: The trials of each stage.
      calls: A function of the evaluator that returns how many calls of the program (`calls`) and
        seconds (`seconds`) a trial of some cases takes; "" where there is none.
      axes: Feature grid.
      imports: Modules that children may import; seeds may import any.
      suggestions: Run settings that the problem's own configuration asks for, by dotted key.
      suggested_by: Setting to the key of the problem's configuration that suggests it, where that
        key has another name.
      notices: Sentences for the user about what was loaded.
      context: Path to text of the files that prompts show beside a program of several files.
      fixed: Path to contents of the files around those of a program of several files.
      prepare: Turns a trial and its players' programs into a sandbox job.
      interpret: Turns the job's outcome back into an evaluation.
    """

    name: str
    digest: ProblemDigest
    format: str
    files: Mapping[str, bytes]
    options: Mapping[str, Any]
    instructions: str
    seeds: tuple[Program, ...]
    prepare: Callable[[Trial, Mapping[ProgramId, Program]], Job]
    interpret: Callable[[Trial, Mapping[ProgramId, Program], Outcome], Evaluation]
    language: str = "python"
    suffix: str = ".py"
    players: int = 1
    stages: tuple[str, ...] = ("evaluate",)
    probe: str = ""
    validation: str = ""
    references: Mapping[str, Program] = field(default_factory=dict)
    thresholds: tuple[float, ...] = ()
    cases: Cases = NO_CASES
    calls: str = ""
    axes: tuple[Axis, ...] = ()
    edit: EditRules = EditRules()
    imports: ImportPolicy = EVERYTHING
    baselines: Mapping[str, ProgramId] = field(default_factory=dict)
    suggestions: Mapping[str, Any] = field(default_factory=dict)
    suggested_by: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    context: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def final_stage(self) -> str:
        return self.stages[-1]

    def trials_of(self, program: ProgramId, stage: str) -> tuple[Trial, ...]:
        """Returns the trials that measure one program: of a game, those against the first seed."""
        if self.players > 1 and stage == self.final_stage:
            return match(stage, (program, self.seeds[0].id), 1)
        return self.cases.trials(stage, (program,))

    @property
    def trial_names(self) -> tuple[str, ...]:
        """The stage of each trial of a program, in order, with the names of its cases."""
        return tuple(
            " ".join(filter(None, (stage, ", ".join(trial.cases))))
            for stage in self.stages
            for trial in self.trials_of("", stage)
        )

    def first_job(self) -> Job:
        """Returns the first job of the first seed."""
        seed = self.seeds[0]
        return self.prepare(self.trials_of(seed.id, self.stages[0])[0], {seed.id: seed})
