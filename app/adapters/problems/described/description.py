"""The keys of a `problem.yaml`, and where each of them stands in the text.

docs/problem-yaml.md describes them; `schema` returns their JSON Schema.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from app.adapters.problems.games import LostGames
from app.adapters.problems.yaml_text import composed, guarded, pairs
from app.config import yaml_values
from app.domain.problem import ProblemError
from app.domain.search.gates import gate

FILE = "problem.yaml"
BUILD = "build"
"""Name of the stage that runs the build of a program alone."""


class _Section(BaseModel):
    # Strict, because the JSON Schema refuses a quoted number, and a number as a Boolean.
    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class MeasuringSection(_Section):
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


class StageSection(MeasuringSection):
    """A stage: one function of the evaluator."""

    gate: float | str | None = None
    """The fitness that leads to the next stage, or `quantile Q of N`, or `top K of N`."""

    @field_validator("gate")
    @classmethod
    def _readable(cls, given: float | str | None) -> float | str | None:
        if given is not None:
            gate(given)
        return given


class ValidationSection(MeasuringSection):
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


class BuildSection(_Section):
    """A command that runs in the folder of a program before it is measured."""

    command: Annotated[list[str], Field(min_length=1)]
    """The command and its arguments."""
    seconds: float = Field(60.0, gt=0)
    """Time-out of the stage `build`, which runs the command alone."""
    memory_mib: int = Field(1024, gt=0)
    """Memory of the stage `build`."""


class ProgramSection(_Section):
    """The folder of a program of several files, and which of them evolve."""

    root: str
    """The folder, relative to problem.yaml. Every other path of this section is relative to it."""
    evolve: Annotated[list[str], Field(min_length=1)]
    """Patterns of the files that evolve, such as `src/**/*.py`. All others are fixed."""
    entry: str = ""
    """The Python file whose functions a guarded evaluator calls."""
    context: list[str] = Field(default_factory=list)
    """Patterns of the fixed files that prompts may show."""
    new_files: int = Field(0, ge=0)
    """Most files that a child may add, at paths that `evolve` matches."""
    remove: bool = False
    """Whether a child may remove files that evolve, all but the entry."""
    build: BuildSection | None = None
    """What is run in the folder before each stage, in compatible mode."""


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
    seeds: dict[str, str] = Field(default_factory=dict)
    """Names of start programs and their files. Each is a baseline of the results."""
    program: ProgramSection | None = None
    """The folder of a program of several files. A seed is then a folder with files that differ."""
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
    def in_order(self) -> list[StageSection]:
        """The stages: of a program that is built, the build first."""
        build = self.program.build if self.program else None
        if build is None:
            return self.stages
        first = StageSection(name=BUILD, seconds=build.seconds, memory_mib=build.memory_mib)
        return [first, *self.stages]

    @property
    def measuring(self) -> list[MeasuringSection]:
        """The stages, and what validation measures."""
        return [*self.in_order, *filter(None, [self.validation])]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for what, names in (
            ("stages", [stage.name for stage in self.measuring]),
            ("axes", [axis.name for axis in self.axes]),
            *((f"cases of {stage.name}", stage.cases) for stage in self.measuring),
        ):
            if twice := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"two {what} are called {twice[0]!r}")
        if not self.seeds and self.program is None:
            raise ValueError("`seeds` has no start program")
        if self.program is not None and self.players > 1:
            raise ValueError("the players of a game are programs of one file: leave `program` out")
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
        "anyOf": [
            {"required": ["seeds"], "properties": {"seeds": {"minProperties": 1}}},
            {"required": ["program"]},
        ],
    }


@dataclass(frozen=True, slots=True)
class DescribedText:
    """A `problem.yaml` that was read.

    Attributes:
      description: Its checked contents.
      lines: Dotted key to line, from 1; the entries of a list are counted from 0.
    """

    description: Description
    lines: Mapping[str, int]

    def error(self, key: str, what: str, remedy: str, value: str = "") -> ProblemError:
        """Returns the error of the value of a key, with the line of it."""
        return ProblemError(what, where=_place(self.lines, key), value=value, remedy=remedy)


def described(text: str) -> DescribedText:
    """Returns the contents of a `problem.yaml`.

    Raises:
      ProblemError: It is not YAML, or a key is wrong; with line and key.
    """
    loaded = guarded(FILE, lambda: yaml_values.loaded(text))
    lines = {pair.name: pair.line for pair in pairs(composed(text, FILE))}
    try:
        return DescribedText(Description.model_validate(loaded), lines)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = _dotted(fault["loc"])
        raise ProblemError(
            f"`{key or 'the file'}`: {_lowered(fault['msg'].removeprefix('Value error, '))}",
            where=_place(lines, key),
            value=repr(fault["input"])[:80],
            remedy="docs/problem-yaml.md lists every key, docs/problem.schema.json with its type.",
        ) from error


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _dotted(loc: Sequence[str | int]) -> str:
    """Returns the key of an error: the part of pydantic's that is in the file."""
    kinds = ("float", "str", "function-after", "constrained-str", "int", "bool")
    parts = [part for part in loc if isinstance(part, int) or not part.startswith(kinds)]
    return ".".join(map(str, parts))


def _place(lines: Mapping[str, int], key: str) -> str:
    """Returns `problem.yaml:LINE` of a key, or of the closest one around it."""
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return f"{FILE}:{lines[key]}" if key else FILE
