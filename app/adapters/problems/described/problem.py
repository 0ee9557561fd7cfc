"""The folder of a `problem.yaml` as a `Problem`: stages, games, validation, limits and axes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from app.adapters.problems import options as option
from app.adapters.problems.building import (
    Jobs,
    case_groups,
    default_mode,
    evaluator_of,
    origin,
)
from app.adapters.problems.described.description import (
    BUILD,
    FILE,
    AxisSection,
    DescribedText,
    Description,
    StageSection,
    described,
)
from app.adapters.problems.described.repository import (
    DRIVER,
    driver,
    repository_of,
    require_mode,
)
from app.adapters.problems.evaluator_result import Reader
from app.adapters.problems.files import Source, decoded, refuse_configuration, source_text, tree
from app.adapters.problems.games import SLACK_SECONDS, GameJobs, GameReader
from app.adapters.problems.options import Options
from app.domain.evaluation import Cases
from app.domain.problem import Axis, EditRules, GameLimits, Limits, Mode, Problem, longest_child
from app.domain.program import Program
from app.domain.secrets import without_keys
from app.domain.source.languages import language_of

NAME = "problem"
OPTIONS: frozenset[str] = frozenset()

_REQUIREMENTS = "requirements.txt"
_OPEN_GATE = "quantile 0 of 1"
"""The gate of a stage that names none, before one that does."""


def recognises(paths: Sequence[Path]) -> bool:
    """Returns whether this is a `problem.yaml` or a folder with one."""
    return len(paths) == 1 and _described(paths[0]).is_file()


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


def build(name: str, files: Mapping[str, bytes], options: Options) -> Problem:
    """Returns the problem that a `problem.yaml` describes.

    Raises:
      ProblemError: A key is unknown or has a value that cannot be used, or a file is missing.
    """
    text = described(decoded(files[options.config], FILE))
    description = text.description
    _require_files(text, files)
    parts = _parts(text, files)
    suffix, language, seeds = parts.suffix, language_of(parts.suffix), parts.seeds
    mode = options.mode or Mode(description.mode or parts.mode)
    _require_mode(text, mode)
    imports, validation = description.imports, description.validation
    jobs = _jobs(text, parts, options, mode)
    reader = _reader(description, tuple(seeds.values()), mode)
    game = description.stages[-1].name if description.players > 1 else ""
    thresholds, suggested = _gates(description.in_order)
    return Problem(
        **origin(NAME, name, files, options),
        instructions=description.instructions,
        seeds=tuple(dict.fromkeys(seeds.values())),
        prepare=_players(description, jobs).prepare if game else jobs.prepare,
        interpret=GameReader(reader, game, description.game.lost_games).interpret
        if game
        else reader.interpret,
        players=description.players,
        language=language,
        suffix=suffix,
        stages=reader.stages,
        validation=reader.validation,
        references=_programs(validation.references if validation else {}, files, language),
        thresholds=thresholds,
        cases=Cases(
            {
                stage.name: case_groups(stage.cases, together=stage.together)
                for stage in description.measuring
                if stage.cases
            },
            whole=description.every_case,
        ),
        axes=tuple(_axis(axis) for axis in description.axes),
        edit=EditRules(
            description.enforce_blocks,
            longest_child(
                tuple(seeds.values()),
                description.max_code_chars
                if "max_code_chars" in description.model_fields_set
                else None,
            ),
            evolve=tuple(description.program.evolve) if description.program else (),
            new_files=description.program.new_files if description.program else 0,
            remove=description.program is not None and description.program.remove,
            entry=description.program.entry if description.program else "",
        ),
        context=parts.context,
        fixed=parts.fixed,
        imports=options.imports(imports.allow, imports.deny),
        baselines={title: seed.id for title, seed in seeds.items()},
        suggestions={**suggested, **description.settings},
    )


def _require_files(text: DescribedText, files: Mapping[str, bytes]) -> None:
    for key, file in _files(text.description):
        if file not in files:
            raise text.error(
                key,
                f"`{key}` names a file that the folder does not hold",
                "Correct the path, relative to problem.yaml, or add the file.",
                value=file,
            )


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a problem's files are: programs, fixed files around them, and those of the evaluator."""

    suffix: str
    mode: Mode
    seeds: Mapping[str, Program]
    beside: Mapping[str, bytes]
    fixed: Mapping[str, bytes] = field(default_factory=dict)
    context: Mapping[str, str] = field(default_factory=dict)


def _parts(text: DescribedText, files: Mapping[str, bytes]) -> _Parts:
    repository, named = repository_of(text, files), text.description.seeds
    if repository is None:
        suffix = PurePosixPath(next(iter(named.values()))).suffix
        seeds = _programs(named, files, language_of(suffix))
        return _Parts(suffix, default_mode(suffix), seeds, files)
    return _Parts(
        repository.suffix,
        repository.mode,
        repository.seeds,
        repository.beside,
        repository.fixed,
        repository.context,
    )


def _require_mode(text: DescribedText, mode: Mode) -> None:
    """Raises where a program cannot be measured in a mode, or would have what it may not have."""
    require_mode(text, mode)
    if mode is Mode.GUARDED:
        return
    description = text.description
    if description.hidden:
        raise text.error(
            "hidden",
            "hidden files can be read by every program in compatible mode",
            "Measure in guarded mode, or leave `hidden` out.",
            value=", ".join(description.hidden),
        )
    if description.players > 1:
        raise text.error(
            "players",
            "the players of a game would share one process in compatible mode",
            "Measure in guarded mode; its programs are Python.",
            value=str(description.players),
        )


def _programs(
    named: Mapping[str, str], files: Mapping[str, bytes], language: str
) -> dict[str, Program]:
    return {
        title: Program(source_text(files[file], file), language) for title, file in named.items()
    }


def _jobs(text: DescribedText, parts: _Parts, options: Options, mode: Mode) -> Jobs:
    """Returns the jobs of all stages; validation may have an evaluator of its own."""
    description, section = text.description, text.description.program
    files = dict(_with_requirements(text, parts.beside))
    given = replace(options, environment={**description.environment, **options.environment})
    limits = {
        stage.name: options.limits_of(stage.seconds, stage.memory_mib)
        for stage in description.measuring
    }
    validation, others = description.validation, {}
    if validation and validation.evaluator:
        others[validation.name] = evaluator_of(files, validation.evaluator, given, parts.fixed)
    entry, build = description.evaluator, section.build if section else None
    if section is not None and build is not None:
        functions = [stage.name for stage in description.measuring if stage.name != BUILD]
        files[DRIVER] = driver(section, entry, functions)
        entry = DRIVER
    return Jobs(
        evaluator_of(files, entry, given, parts.fixed),
        parts.suffix,
        mode,
        _with_time(limits, description),
        others=others,
        entry=section.entry if section else "",
        copied=build is not None,
    )


def _reader(description: Description, seeds: tuple[Program, ...], mode: Mode) -> Reader:
    return Reader(
        stages=tuple(stage.name for stage in description.in_order),
        axes=tuple(axis.name for axis in description.axes),
        seeds=seeds,
        verified=mode is Mode.GUARDED,
        validation=description.validation.name if description.validation else "",
    )


def _players(description: Description, jobs: Jobs) -> GameJobs:
    each = description.game
    limits = GameLimits(each.move_seconds, each.game_seconds, each.memory_mib)
    return GameJobs(jobs, description.stages[-1].name, description.players, limits)


def _with_time(limits: dict[str, Limits], description: Description) -> dict[str, Limits]:
    """Returns the limits of each stage: of a game, with the time and memory of all its players."""
    if description.players == 1:
        return limits
    each, stage = description.game, description.stages[-1].name
    seconds = description.players * each.game_seconds + SLACK_SECONDS
    game = replace(
        limits[stage],
        wall_seconds=max(seconds, limits[stage].wall_seconds),
        cpu_seconds=max(2 * seconds, limits[stage].cpu_seconds),
        memory_mib=limits[stage].memory_mib + description.players * each.memory_mib,
    )
    return {**limits, stage: game}


def _described(path: Path) -> Path:
    return path if path.name == FILE else path / FILE


def _files(description: Description) -> Iterator[tuple[str, str]]:
    yield "evaluator", description.evaluator
    if description.program is None:
        yield from ((f"seeds.{title}", file) for title, file in description.seeds.items())
    if (validation := description.validation) is not None:
        if validation.evaluator is not None:
            yield "validation.evaluator", validation.evaluator
        named = validation.references.items()
        yield from ((f"validation.references.{title}", file) for title, file in named)
    yield from ((f"hidden.{index}", file) for index, file in enumerate(description.hidden))


def _with_requirements(text: DescribedText, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    requirements = text.description.requirements
    if not requirements:
        return files
    if _REQUIREMENTS in files:
        raise text.error(
            "requirements", "the folder has a requirements.txt too", "Keep one of the two."
        )
    return {**files, _REQUIREMENTS: "\n".join([*requirements, ""]).encode()}


def _gates(stages: Sequence[StageSection]) -> tuple[tuple[float, ...], dict[str, object]]:
    """Returns thresholds where every gate is one, and otherwise the setting with all gates."""
    gates = [stage.gate for stage in stages[:-1]]
    while gates and gates[-1] is None:
        gates.pop()
    numbers = tuple(float(gate) for gate in gates if isinstance(gate, float))
    if len(numbers) == len(gates):
        return numbers, {}
    return (), {"search.gates": [_OPEN_GATE if gate is None else gate for gate in gates]}


def _axis(axis: AxisSection) -> Axis:
    scaled = axis.bins is None
    return Axis(axis.name, axis.bins or Axis("").bins, axis.low, axis.high, scaled=scaled)
