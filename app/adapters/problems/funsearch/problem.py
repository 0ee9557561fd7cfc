"""A specification file as a `Problem`: a case for each input, the whole file as the program."""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path, PurePosixPath

from app.adapters.problems import inputs
from app.adapters.problems import options as option
from app.adapters.problems.building import (
    DEFAULT_AXES,
    PYTHON_SUFFIX,
    Jobs,
    case_groups,
    evaluator_of,
    origin,
)
from app.adapters.problems.evaluator_result import Reader
from app.adapters.problems.files import (
    Source,
    content,
    decoded,
    refuse_configuration,
    source_text,
    tree,
)
from app.adapters.problems.funsearch import driver
from app.adapters.problems.funsearch.specification import (
    Specification,
    is_specification,
    parsed,
    runnable,
)
from app.adapters.problems.options import Options
from app.domain.evaluation import CaseId, Cases
from app.domain.problem import EditRules, Mode, Problem, ProblemError, longest_child
from app.domain.program import Program

NAME = "funsearch"
OPTIONS = frozenset({option.INPUTS, option.SCORING})

EVALUATOR = "evaluator.py"
DRIVER = "evoq_driver.py"
SUFFIXES = (PYTHON_SUFFIX, ".txt")
TRIAL_SECONDS = 30.0
"""Time-out of one input, as in FunSearch's released code."""


def recognises(paths: Sequence[Path]) -> bool:
    """Returns whether this is one specification, or a folder with one and without an evaluator."""
    return len(paths) == 1 and _found(paths[0]) is not None


def read(paths: Sequence[Path], config: Path | None = None, *, strict: bool = False) -> Source:  # noqa: ARG001
    """Reads a specification, with the files of its folder if the folder was named.

    Raises:
      ProblemError: A configuration was given, or a file is too large.
      OSError: A path cannot be read.
    """
    refuse_configuration(config, "a specification has no configuration of its own")
    path = _found(paths[0])
    assert path is not None
    folder = paths[0] if paths[0].is_dir() else None
    files = tree(folder) if folder else {path.name: content(path)}
    name = (folder or path.with_suffix("")).resolve().name
    return Source(name, files, {option.INITIAL: path.name})


def build(name: str, files: Mapping[str, bytes], options: Options) -> Problem:
    """Returns the problem of a specification.

    Raises:
      ProblemError: The file is no specification, or its inputs do not fit.
    """
    where = options.initial
    text = source_text(files[where], where).replace("\r\n", "\n")
    spec = parsed(text, where)
    cases = _cases(spec, files, options, where)
    mode = options.mode or Mode.GUARDED
    limits = options.limits_of(TRIAL_SECONDS * max(map(len, cases)))
    seed = Program(spec.program)
    driven = _driven(files, options, spec, runnable(text))
    jobs = Jobs(
        evaluator_of(driven, DRIVER, options),
        PYTHON_SUFFIX,
        mode,
        {"evaluate": limits, driver.count.__name__: limits},
        runnable,
    )
    return Problem(
        **origin(NAME, name, files, options),
        instructions=spec.instructions,
        seeds=(seed,),
        prepare=jobs.prepare,
        interpret=Reader((seed,), verified=mode is Mode.GUARDED).interpret,
        cases=Cases({"evaluate": cases}, whole=options.scoring == "mean"),
        calls=driver.count.__name__,
        axes=DEFAULT_AXES,
        edit=EditRules(max_code_chars=longest_child((seed,))),
        imports=options.imports(),
        baselines={PurePosixPath(where).stem.replace("_", " "): seed.id},
        suggestions={"search.strategy": "funsearch", "prompts.function": spec.evolve},
    )


def _found(path: Path) -> Path | None:
    """Returns the specification that a path names: itself, or the only one of a folder."""
    if path.is_dir():
        if (path / EVALUATOR).exists():
            return None
        files = [file for file in sorted(path.iterdir()) if _reads_as(file, decorated=False)]
        return files[0] if len(files) == 1 else None
    beside = (path.parent / EVALUATOR).exists()
    return path if _reads_as(path, decorated=beside) else None


def _reads_as(path: Path, *, decorated: bool) -> bool:
    if path.suffix not in SUFFIXES or not path.is_file():
        return False
    try:
        return is_specification(decoded(content(path), str(path)), decorated=decorated)
    except ProblemError:
        # The file is not text, which whichever format reads it reports.
        return False


def _cases(
    spec: Specification, files: Mapping[str, bytes], options: Options, where: str
) -> tuple[tuple[CaseId, ...], ...]:
    """Returns the inputs of each trial.

    Raises:
      ProblemError: Inputs are missing, or given to a function that takes none.
    """
    if not options.inputs:
        if any(not name.startswith("_") for name in spec.required):
            raise ProblemError(
                f"`{spec.run}` takes an input, and none is given",
                where=where,
                remedy="Give the inputs, as --set problem.inputs=8 or 3,4,5 or the path of a file.",
            )
        return (("",),)
    if not spec.takes_input:
        raise ProblemError(
            f"`{spec.run}` takes no input",
            where=option.INPUTS,
            remedy="Leave the option out.",
        )
    return case_groups(inputs.names(files[options.inputs]))


def _driven(
    files: Mapping[str, bytes], options: Options, spec: Specification, text: str
) -> dict[str, bytes]:
    """Returns the files of the evaluator: the problem's, the driver, and what the driver reads."""
    file = str(PurePosixPath(options.initial).with_suffix(PYTHON_SUFFIX))
    settings = {
        "file": file,
        "inputs": options.inputs,
        "run": spec.run,
        "evolve": spec.evolve,
        "scoring": options.scoring,
    }
    code = resources.files(__package__).joinpath("driver.py").read_bytes()
    return {
        **files,
        file: text.encode(),
        DRIVER: code + b"\n\nload()\n",
        driver.SETTINGS: json.dumps(settings).encode(),
    }
