"""A task folder as a `Problem`: one stage, whose evaluator calls the task's `main`."""

import ast
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path, PurePosixPath

from app.adapters.problems import options as option
from app.adapters.problems.building import (
    DEFAULT_AXES,
    PYTHON_SUFFIX,
    Jobs,
    default_mode,
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
from app.adapters.problems.options import Options
from app.domain.problem import EditRules, Mode, Problem, longest_child
from app.domain.program import Program
from app.domain.source.languages import language_of
from app.domain.source.syntax import UNPARSABLE, syntax_tree

NAME = "shinka"
OPTIONS: frozenset[str] = frozenset()

EVALUATE = "evaluate.py"
MAIN = "main"
SCRIPT_OPTIONS = (b"--program_path", b"--results_dir")
"""Options of an `evaluate.py` that is a script alone."""
INITIAL = "initial"
DRIVER = "evoq_driver.py"
LAUNCHERS = ("run_evo.py", "run_evo_async.py")
"""Scripts of a task that begin a search; they are read for its instructions, never run."""
_INSTRUCTIONS = ("task_sys_msg", "search_task_sys_msg")
_OTHERS = ("evaluator.py", "problem.yaml")
"""Files of a folder that is of another format."""
TRIAL_SECONDS = 300.0
MAX_CHARS = 100_000


def recognises(paths: Sequence[Path]) -> bool:
    """Returns whether this is a task folder, or one of its two files."""
    if len(paths) != 1:
        return False
    folder = paths[0] if paths[0].is_dir() else paths[0].parent
    if not paths[0].is_dir() and paths[0].name != EVALUATE and paths[0].stem != INITIAL:
        return False
    if any((folder / other).exists() for other in _OTHERS) or len(_initials(folder)) != 1:
        return False
    if not (folder / EVALUATE).is_file():
        return False
    task = content(folder / EVALUATE)
    return _defines_main(task) or all(name in task for name in SCRIPT_OPTIONS)


def read(paths: Sequence[Path], config: Path | None = None, *, strict: bool = False) -> Source:  # noqa: ARG001
    """Reads a task folder.

    Raises:
      ProblemError: A configuration was given, or the folder is too large.
      OSError: A path cannot be read.
    """
    refuse_configuration(config, "a ShinkaEvolve task has no configuration that Evoqueue reads")
    folder = paths[0] if paths[0].is_dir() else paths[0].parent
    [initial] = _initials(folder)
    return Source(folder.resolve().name, tree(folder), {option.INITIAL: initial.name})


def build(name: str, files: Mapping[str, bytes], options: Options) -> Problem:
    """Returns the problem of a task folder.

    Raises:
      ProblemError: A file of it is no text.
    """
    initial = options.initial
    suffix = PurePosixPath(initial).suffix
    seed = Program(source_text(files[initial], initial), language_of(suffix))
    mode = options.mode or default_mode(suffix)
    limits = options.limits_of(TRIAL_SECONDS)
    code = resources.files(__package__).joinpath("driver.py").read_bytes()
    loaded = b"\n\nload()\n" if _defines_main(files[EVALUATE]) else b""
    driven = {**files, DRIVER: code + loaded}
    return Problem(
        **origin(NAME, name, files, options),
        instructions=_instructions(files),
        seeds=(seed,),
        prepare=Jobs(
            evaluator_of(driven, DRIVER, options), suffix, mode, {"evaluate": limits}
        ).prepare,
        interpret=Reader((seed,), verified=mode is Mode.GUARDED).interpret,
        language=seed.language,
        suffix=suffix,
        axes=DEFAULT_AXES,
        edit=EditRules(max_code_chars=longest_child((seed,), MAX_CHARS)),
        imports=options.imports(),
        baselines={"initial program": seed.id},
        notices=() if suffix == PYTHON_SUFFIX or options.mode else (_UNVERIFIED,),
    )


_UNVERIFIED = (
    "The task's evaluator reads or runs programs itself: they are measured in compatible mode, and "
    "scores are unverified."
)


def _initials(folder: Path) -> list[Path]:
    """Returns the files that may be the initial program."""
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.glob(f"{INITIAL}.*")) if path.is_file()]


def _defines_main(contents: bytes) -> bool:
    try:
        tree = syntax_tree(contents)
    except UNPARSABLE:
        return False
    return any(isinstance(node, ast.FunctionDef) and node.name == MAIN for node in tree.body)


def _instructions(files: Mapping[str, bytes]) -> str:
    """Returns the task's system message, where its launcher has it as a literal; else ""."""
    for name in LAUNCHERS:
        if name not in files:
            continue
        try:
            tree = syntax_tree(decoded(files[name], name))
        except UNPARSABLE:
            continue
        for node in ast.walk(tree):
            if (text := _message(node)) is not None:
                return text.strip()
    return ""


def _message(node: ast.AST) -> str | None:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
            return text if name in _INSTRUCTIONS else None
        case ast.keyword(arg=str(name), value=ast.Constant(value=str(text))):
            return text if name in _INSTRUCTIONS else None
    return None
