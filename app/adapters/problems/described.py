"""Evoqueue's own format: a folder with a `problem.yaml`; docs/problem-yaml.md describes it.

The keys are the fields of `Description`; `schema` returns their JSON Schema.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self, TypeAlias

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from app.adapters.problems import options as option
from app.adapters.problems.building import (
    Jobs,
    default_mode,
    evaluator_of,
    language_of,
    problem_digest,
)
from app.adapters.problems.evaluator_result import Reader
from app.adapters.problems.files import Source, decoded, refuse_configuration, source_text, tree
from app.adapters.problems.games import SLACK_SECONDS, GameJobs, GameReader, LostGames
from app.domain.evaluation import Cases
from app.domain.problem import Axis, EditRules, GameLimits, Limits, Mode, Problem, ProblemError
from app.domain.program import Program
from app.domain.search.gates import gate
from app.domain.secrets import without_keys
from app.domain.source.imports import ImportPolicy

NAME = "problem"
FILE = "problem.yaml"
OPTIONS: frozenset[str] = frozenset()

MOST_TRIALS = 8
_REQUIREMENTS = "requirements.txt"
_OPEN_GATE = "quantile 0 of 1"
"""The gate of a stage that names none, before one that does."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _Measuring(_Section):
    name: Name
    """The function, called with the path of the program; with `cases` too where there are any."""
    cases: list[str] = Field(default_factory=list)
    """Names of the cases. The function returns a dict with a score for each one it is given."""
    together: bool | None = None
    """Whether all cases are one trial. Up to 8 cases have a trial each by default."""
    seconds: float = Field(60.0, gt=0)
    """Time-out of a trial."""
    memory_mib: int = Field(1024, gt=0)
    """Memory of a trial."""


class StageSection(_Measuring):
    """A stage: one function of the evaluator."""

    gate: float | str | None = None
    """The fitness that leads to the next stage, or `quantile Q of N`, or `top K of N`."""

    @field_validator("gate")
    @classmethod
    def _readable(cls, given: float | str | None) -> float | str | None:
        if given is not None:
            gate(given)
        return given


class ValidationSection(_Measuring):
    """What measures the best programs at the end of a run, on data that the search never saw."""

    evaluator: str | None = None
    """The file that defines the function. Without a value, that of the stages."""
    references: dict[str, str] = Field(default_factory=dict)
    """Names of programs and their files, which are measured beside the best and never breed."""


class GameSection(_Section):
    """What each player of a game may use, and what a game counts that no player lost."""

    move_seconds: float = Field(2.0, gt=0)
    """Real time of one move. Only the player that is to move runs."""
    game_seconds: float = Field(30.0, gt=0)
    """Real time of all moves of a player, and of loading it."""
    memory_mib: int = Field(256, gt=0)
    """Memory of all processes of a player."""
    lost_games: LostGames = "draw"
    """Whether a game that ended by the fault of no player is a draw or does not count."""


class AxisSection(_Section):
    """An axis of the feature grid."""

    name: str
    """A metric of the evaluator, or `complexity`, `diversity` or another built-in feature."""
    bins: int | None = Field(None, ge=1, le=10_000)
    """Cells along the axis. Without a value, as many as suit the run's budget."""
    low: float | None = None
    """Lower end of the range. Without a range, it is learnt from what is measured."""
    high: float | None = None
    """Upper end of the range."""

    @model_validator(mode="after")
    def _whole_range(self) -> Self:
        if (self.low is None) != (self.high is None):
            raise ValueError("a range needs both low and high")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}")
        return self


class ImportsSection(_Section):
    """The modules that children may import."""

    allow: list[str] | None = None
    """The only modules that a child may import. Without a value, every module."""
    deny: list[str] = Field(default_factory=list)
    """Modules that a child may not import."""


class Description(_Section):
    """A problem: what evolves, how it is measured, and what a run of it begins with."""

    instructions: str = ""
    """The task in prose, for the model."""
    seeds: Annotated[dict[str, str], Field(min_length=1)]
    """Names of start programs and their files. Each is a baseline of the results."""
    evaluator: str = "evaluator.py"
    """The file that defines the functions of the stages."""
    stages: Annotated[list[StageSection], Field(min_length=1)]
    """The stages in order. A case that two stages share counts with its later score."""
    validation: ValidationSection | None = None
    """What measures the best programs after the last proposal; the best by it is the result."""
    players: Literal[1, 2] = 1
    """Programs of a trial of the last stage. With 2 it is a game, called with two paths."""
    game: GameSection = Field(default_factory=GameSection)
    """Limits of each player, where there are two."""
    every_case: bool = True
    """Whether a program fails if one of its cases fails; otherwise that case has no score."""
    axes: list[AxisSection] = Field(default_factory=lambda: [AxisSection(name="complexity")])
    """The feature grid."""
    hidden: list[str] = Field(default_factory=list)
    """Files that no program may read. The problem is refused in compatible mode."""
    requirements: list[str] = Field(default_factory=list)
    """Packages of the evaluator and the programs, as lines of a requirements.txt."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables of the evaluator; the program does not see them."""
    mode: Literal["guarded", "compatible"] | None = None
    """Whether evaluator and program are separate processes. `guarded` for Python by default."""
    imports: ImportsSection = Field(default_factory=ImportsSection)
    """The modules that children may import."""
    enforce_blocks: bool = True
    """Whether only the lines inside EVOLVE-BLOCK markers may change."""
    max_code_chars: int = Field(10_000, gt=0)
    """Longest child that is measured, in characters."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of a run by dotted name, such as `search.strategy`. --set overrides them."""

    @property
    def measuring(self) -> list[_Measuring]:
        """The stages, and what validation measures."""
        return [*self.stages, *filter(None, [self.validation])]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for what, names in (
            ("stages", [one.name for one in self.measuring]),
            ("axes", [axis.name for axis in self.axes]),
            *((f"cases of {one.name}", one.cases) for one in self.measuring),
        ):
            if twice := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"two {what} are called {twice[0]!r}")
        if self.stages[-1].gate is not None:
            raise ValueError("the last stage has a gate, which leads nowhere")
        if self.players > 1 and self.stages[-1].cases:
            raise ValueError("the cases of a game are its numbers: leave `cases` out")
        if self.players > 1 and self.validation:
            raise ValueError("`validation` measures programs alone: a game has none")
        if self.players == 1 and "game" in self.model_fields_set:
            raise ValueError("`game` needs `players: 2`")
        return self


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of `problem.yaml`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Description.model_json_schema(),
    }


def recognises(paths: Sequence[Path]) -> bool:
    """Returns whether this is a `problem.yaml` or a folder with one."""
    return len(paths) == 1 and _described(paths[0]).is_file()


def configures(loaded: Any) -> bool:  # noqa: ARG001  its settings lie in problem.yaml
    return False


def read(paths: Sequence[Path], config: Path | None = None, *, strict: bool = False) -> Source:  # noqa: ARG001
    """Reads the folder of a `problem.yaml`.

    Raises:
      ProblemError: A configuration was given, or the folder is too large.
      OSError: A path cannot be read.
    """
    refuse_configuration(config, "a problem.yaml takes no other configuration")
    folder = _described(paths[0]).parent
    files = tree(folder)
    files[FILE] = without_keys(decoded(files[FILE], FILE)).encode()
    return Source(folder.resolve().name, files, {option.CONFIG: FILE})


def build(name: str, files: Mapping[str, bytes], options: Mapping[str, Any]) -> Problem:
    """Returns the problem that a `problem.yaml` describes.

    Raises:
      ProblemError: A key is unknown or has a value that cannot be used, or a file is missing.
    """
    text = decoded(files[options[option.CONFIG]], FILE)
    described, places = _read(text), _places(text)
    _require_files(described, files, places)
    suffix = PurePosixPath(next(iter(described.seeds.values()))).suffix
    mode = Mode(options.get(option.MODE, described.mode or default_mode(suffix).value))
    _require_mode(described, mode, places)
    language, validation = language_of(suffix), described.validation
    seeds = _programs(described.seeds, files, language)
    jobs = _jobs(described, _with_requirements(described, files, places), options, suffix, mode)
    reader = _reader(described, tuple(seeds.values()), mode)
    game = described.stages[-1].name if described.players > 1 else ""
    thresholds, suggested = _gates(described.stages)
    return Problem(
        name=name,
        digest=problem_digest(NAME, files, options),
        format=NAME,
        files=files,
        options=options,
        instructions=described.instructions,
        seeds=tuple(dict.fromkeys(seeds.values())),
        prepare=_players(described, jobs).prepare if game else jobs.prepare,
        interpret=GameReader(reader, game, described.game.lost_games).interpret
        if game
        else reader.interpret,
        players=described.players,
        language=language,
        suffix=suffix,
        stages=reader.stages,
        validation=reader.validation,
        references=_programs(validation.references if validation else {}, files, language),
        thresholds=thresholds,
        cases=Cases(
            {one.name: _groups(one) for one in described.measuring if one.cases},
            whole=described.every_case,
        ),
        axes=tuple(_axis(axis) for axis in described.axes),
        edit=EditRules(described.enforce_blocks, described.max_code_chars),
        imports=_imports(described.imports, options),
        baselines={title: seed.id for title, seed in seeds.items()},
        suggestions={**suggested, **described.settings},
    )


def _require_files(
    described: Description, files: Mapping[str, bytes], places: Mapping[str, int]
) -> None:
    for key, file in _files(described):
        if file not in files:
            raise ProblemError(
                f"`{key}` names a file that the folder does not hold",
                where=_place(places, key),
                value=file,
                remedy="Correct the path, relative to problem.yaml, or add the file.",
            )


def _require_mode(described: Description, mode: Mode, places: Mapping[str, int]) -> None:
    """Raises where compatible mode would give a program what it may not have."""
    if mode is Mode.GUARDED:
        return
    if described.hidden:
        raise ProblemError(
            "hidden files can be read by every program in compatible mode",
            where=_place(places, "hidden"),
            value=", ".join(described.hidden),
            remedy="Measure in guarded mode, or leave `hidden` out.",
        )
    if described.players > 1:
        raise ProblemError(
            "the players of a game would share one process in compatible mode",
            where=_place(places, "players"),
            value=str(described.players),
            remedy="Measure in guarded mode; its programs are Python.",
        )


def _programs(
    named: Mapping[str, str], files: Mapping[str, bytes], language: str
) -> dict[str, Program]:
    return {
        title: Program(source_text(files[file], file), language) for title, file in named.items()
    }


def _jobs(
    described: Description,
    files: Mapping[str, bytes],
    options: Mapping[str, Any],
    suffix: str,
    mode: Mode,
) -> Jobs:
    """Returns the jobs of all stages; validation may have an evaluator of its own."""
    given = {**options, option.ENVIRONMENT: {**described.environment, **_given(options)}}
    limits = {
        stage.name: option.overridden(
            {
                "wall_seconds": stage.seconds,
                "cpu_seconds": 2 * stage.seconds,
                "memory_mib": stage.memory_mib,
            },
            options,
        )
        for stage in described.measuring
    }
    validation, others = described.validation, {}
    if validation and validation.evaluator:
        others[validation.name] = evaluator_of(files, validation.evaluator, given)
    evaluator = evaluator_of(files, described.evaluator, given)
    return Jobs(evaluator, suffix, mode, _with_time(limits, described), others=others)


def _reader(described: Description, seeds: tuple[Program, ...], mode: Mode) -> Reader:
    return Reader(
        stages=tuple(stage.name for stage in described.stages),
        axes=tuple(axis.name for axis in described.axes),
        seeds=seeds,
        flags_count=True,
        artifact_chars=20_480,
        redact=True,
        keep_artifacts=True,
        verified=mode is Mode.GUARDED,
        validation=described.validation.name if described.validation else "",
    )


def _players(described: Description, jobs: Jobs) -> GameJobs:
    each = described.game
    limits = GameLimits(each.move_seconds, each.game_seconds, each.memory_mib)
    return GameJobs(jobs, described.stages[-1].name, described.players, limits)


def _with_time(limits: dict[str, Limits], described: Description) -> dict[str, Limits]:
    """Returns the limits of each stage: of a game, with the time and memory of all its players."""
    if described.players == 1:
        return limits
    each, stage = described.game, described.stages[-1].name
    seconds = described.players * each.game_seconds + SLACK_SECONDS
    game = replace(
        limits[stage],
        wall_seconds=max(seconds, limits[stage].wall_seconds),
        cpu_seconds=max(2 * seconds, limits[stage].cpu_seconds),
        memory_mib=limits[stage].memory_mib + described.players * each.memory_mib,
    )
    return {**limits, stage: game}


def _described(path: Path) -> Path:
    return path if path.name == FILE else path / FILE


def _read(text: str) -> Description:
    """Returns the checked contents of a `problem.yaml`.

    Raises:
      ProblemError: It is not YAML, or a key is wrong; with line and key.
    """
    try:
        loaded = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ProblemError(
            f"not YAML: {error.problem}", where=f"{FILE}{line}", remedy="Correct the line."
        ) from error
    try:
        return Description.model_validate(loaded)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = _dotted(fault["loc"])
        raise ProblemError(
            f"`{key or 'the file'}`: {_lowered(fault['msg'].removeprefix('Value error, '))}",
            where=_place(_places(text), key),
            value=json.dumps(fault["input"], default=str)[:80],
            remedy="docs/problem-yaml.md lists every key, docs/problem.schema.json with its type.",
        ) from error


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _dotted(loc: Sequence[str | int]) -> str:
    """Returns the key of an error: the part of pydantic's that is in the file."""
    kinds = ("float", "str", "function-after", "constrained-str", "int", "bool")
    parts = [part for part in loc if isinstance(part, int) or not part.startswith(kinds)]
    return ".".join(map(str, parts))


def _places(text: str) -> dict[str, int]:
    """Returns dotted key to line, from 1; the entries of a list are counted from 0."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return dict(_lines(node, "")) if node else {}


def _lines(node: yaml.Node, above: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        parts = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        parts = [(str(index), value, value) for index, value in enumerate(node.value)]
    else:
        return
    for name, place, value in parts:
        key = f"{above}.{name}" if above else name
        yield key, place.start_mark.line + 1
        yield from _lines(value, key)


def _place(places: Mapping[str, int], key: str) -> str:
    """Returns `problem.yaml:LINE` of a key, or of the closest one around it."""
    while key and key not in places:
        key = key.rpartition(".")[0]
    return f"{FILE}:{places[key]}" if key else FILE


def _files(described: Description) -> Iterator[tuple[str, str]]:
    yield "evaluator", described.evaluator
    yield from ((f"seeds.{title}", file) for title, file in described.seeds.items())
    if (validation := described.validation) is not None:
        if validation.evaluator is not None:
            yield "validation.evaluator", validation.evaluator
        named = validation.references.items()
        yield from ((f"validation.references.{title}", file) for title, file in named)
    yield from ((f"hidden.{index}", file) for index, file in enumerate(described.hidden))


def _given(options: Mapping[str, Any]) -> dict[str, str]:
    return dict(options.get(option.ENVIRONMENT, {}))


def _with_requirements(
    described: Description, files: Mapping[str, bytes], places: Mapping[str, int]
) -> Mapping[str, bytes]:
    if not described.requirements:
        return files
    if _REQUIREMENTS in files:
        raise ProblemError(
            "the folder has a requirements.txt too",
            where=_place(places, "requirements"),
            remedy="Keep one of the two.",
        )
    return {**files, _REQUIREMENTS: "\n".join([*described.requirements, ""]).encode()}


def _groups(stage: _Measuring) -> tuple[tuple[str, ...], ...]:
    together = len(stage.cases) > MOST_TRIALS if stage.together is None else stage.together
    return (tuple(stage.cases),) if together else tuple((case,) for case in stage.cases)


def _gates(stages: Sequence[StageSection]) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Returns thresholds where every gate is one, and otherwise the setting with all gates."""
    gates = [stage.gate for stage in stages[:-1]]
    while gates and gates[-1] is None:
        gates.pop()
    numbers = tuple(float(one) for one in gates if isinstance(one, float))
    if len(numbers) == len(gates):
        return numbers, {}
    return (), {"search.gates": [_OPEN_GATE if one is None else one for one in gates]}


def _axis(axis: AxisSection) -> Axis:
    scaled = axis.bins is None
    return Axis(axis.name, axis.bins or Axis("").bins, axis.low, axis.high, scaled=scaled)


def _imports(imports: ImportsSection, options: Mapping[str, Any]) -> ImportPolicy:
    allow = options.get(option.ALLOW_IMPORTS, imports.allow)
    deny = options.get(option.DENY_IMPORTS, imports.deny)
    return ImportPolicy(None if allow is None else tuple(allow), tuple(deny))
