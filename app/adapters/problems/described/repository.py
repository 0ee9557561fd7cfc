"""The files of a program of several, as a `problem.yaml` describes them: evolving and fixed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from app.adapters.problems.building import PYTHON_SUFFIX
from app.adapters.problems.described.description import DescribedText, ProgramSection
from app.adapters.problems.files import decoded
from app.domain.problem import Mode, ProblemError
from app.domain.program import Program
from app.domain.source.globs import matches

_START = "start"
"""Name of the seed that the folder itself is."""
_MOST_CONTEXT_BYTES = 262_144
DRIVER = "evoq_build.py"
"""The module that a problem with a build is measured by."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The files of a problem whose programs have several.

    Attributes:
      seeds: Start programs by name.
      fixed: Path below the root to contents of every file that does not evolve.
      context: Path to text of those that prompts may show.
      beside: The problem's files outside the root, which are the evaluator's.
    """

    section: ProgramSection
    seeds: Mapping[str, Program]
    fixed: Mapping[str, bytes]
    context: Mapping[str, str]
    beside: Mapping[str, bytes]

    @property
    def suffix(self) -> str:
        """The suffix of the entry, or of the first file that evolves."""
        first = next(iter(self.seeds.values())).files[0].path
        return PurePosixPath(self.section.entry or first).suffix

    @property
    def mode(self) -> Mode:
        """The mode of a problem that names none: guarded where Python functions are called."""
        guarded = self.section.entry.endswith(PYTHON_SUFFIX) and self.section.build is None
        return Mode.GUARDED if guarded else Mode.COMPATIBLE


def repository_of(text: DescribedText, files: Mapping[str, bytes]) -> Repository | None:
    """Returns what a problem's `program` describes; None where its programs have one file.

    Raises:
      ProblemError: A path or a pattern leads nowhere, or a file that evolves is no text.
    """
    section = text.description.program
    if section is None:
        return None
    root = PurePosixPath(section.root)
    if root.is_absolute() or ".." in root.parts or not root.parts:
        raise text.error(
            "program.root",
            "the root is not a folder below that of problem.yaml",
            "Put the files of the program into a folder beside the evaluator, and name it.",
            value=section.root,
        )
    inside = _below(files, root)
    evolving = {path: contents for path, contents in inside.items() if _evolves(path, section)}
    _require(text, section, inside, evolving)
    hidden = set(text.description.hidden)
    fixed = {
        path: contents
        for path, contents in inside.items()
        if path not in evolving and str(root / path) not in hidden
    }
    start = {path: decoded(contents, str(root / path)) for path, contents in evolving.items()}
    seeds = {_START: Program.of_files(start)} | {
        title: _overlaid(text, title, start, files) for title in text.description.seeds
    }
    context = {
        path: decoded(contents, str(root / path))
        for path, contents in fixed.items()
        if matches(path, section.context)
    }
    if (size := sum(map(len, context.values()))) > _MOST_CONTEXT_BYTES:
        raise text.error(
            "program.context",
            "the files that prompts may show are too long",
            f"Name files of {_MOST_CONTEXT_BYTES} characters together, or fewer.",
            value=f"{size} characters",
        )
    folders = [root, *map(PurePosixPath, text.description.seeds.values())]
    beside = {path: contents for path, contents in files.items() if not _in_one(path, folders)}
    return Repository(section, seeds, fixed, context, beside)


def require_mode(text: DescribedText, mode: Mode) -> None:
    """Raises where a program of several files cannot be measured in a mode."""
    section = text.description.program
    if section is None or mode is Mode.COMPATIBLE:
        return
    if not section.entry.endswith(PYTHON_SUFFIX):
        raise text.error(
            "program",
            "guarded mode calls functions of one Python file, and `program.entry` names none",
            "Name it, or measure in compatible mode.",
            value=section.entry,
        )
    if section.build is not None:
        raise text.error(
            "program.build",
            "a build writes into the folder that the evaluator sees, which in guarded mode is not "
            "the one that the program runs in",
            "Measure in compatible mode, or leave `build` out.",
        )


def driver(section: ProgramSection, module: str, functions: Sequence[str]) -> bytes:
    """Returns the text of the module that builds before each function of the evaluator.

    Args:
      section: With its build.
      module: The evaluator's file, relative to problem.yaml.
      functions: Names of the functions of the stages.
    """
    assert section.build is not None
    calls = "\n\n".join(_CALL.format(name=name) for name in functions)
    return (_DRIVER.format(command=section.build.command, module=module) + calls).encode()


_DRIVER = '''"""Builds a program in its folder, then lets the evaluator measure it."""

import importlib.util
import os
import subprocess

_HERE = os.path.dirname(os.path.abspath(__file__))
_CHARS = 8000
_spec = importlib.util.spec_from_file_location("evoq_measured_by", os.path.join(_HERE, {module!r}))
_evaluator = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_evaluator)


def _built(folder):
    done = subprocess.run(
        {command!r}, cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    return done.returncode, done.stdout[-_CHARS:]


def build(folder):
    status, output = _built(folder)
    if status:
        return {{"error": f"The build ended with status {{status}}.\\n{{output}}", "build": output}}
    return {{"combined_score": 1.0, "build": output}}


'''
_CALL = """def {name}(folder, **cases):
    status, output = _built(folder)
    if status:
        return {{"error": f"The build ended with status {{status}}.\\n{{output}}"}}
    return _evaluator.{name}(folder, **cases)
"""


def _evolves(path: str, section: ProgramSection) -> bool:
    return matches(path, section.evolve)


def _below(files: Mapping[str, bytes], folder: PurePosixPath) -> dict[str, bytes]:
    """Returns the files of a folder, by their paths below it."""
    prefix = f"{folder}/"
    return {
        path.removeprefix(prefix): contents
        for path, contents in files.items()
        if path.startswith(prefix)
    }


def _in_one(path: str, folders: Sequence[PurePosixPath]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _require(
    text: DescribedText,
    section: ProgramSection,
    inside: Mapping[str, bytes],
    evolving: Mapping[str, bytes],
) -> None:
    """Raises where the folder, the entry or a pattern leads nowhere."""
    if not inside:
        raise text.error(
            "program.root",
            "the root holds no file",
            "Correct the path, relative to problem.yaml.",
            value=section.root,
        )
    for number, pattern in enumerate(section.evolve):
        if not any(matches(path, [pattern]) for path in inside):
            raise _no_match(text, f"program.evolve.{number}", pattern, section)
    for number, pattern in enumerate(section.context):
        if not any(matches(path, [pattern]) for path in inside):
            raise _no_match(text, f"program.context.{number}", pattern, section)
    if section.entry and section.entry not in inside:
        raise text.error(
            "program.entry",
            "the root does not hold the entry",
            "Correct the path, relative to the root.",
            value=section.entry,
        )
    if section.entry and section.entry not in evolving:
        raise text.error(
            "program.entry",
            "the entry does not evolve",
            "Let `evolve` match it: guarded mode puts a stand-in in its place.",
            value=section.entry,
        )


def _no_match(text: DescribedText, key: str, pattern: str, section: ProgramSection) -> ProblemError:
    return text.error(
        key,
        "the pattern matches no file of the root",
        f"Write it relative to {section.root}, such as `src/**/*.py`.",
        value=pattern,
    )


def _overlaid(
    text: DescribedText, title: str, start: Mapping[str, str], files: Mapping[str, bytes]
) -> Program:
    """Returns the start program with the files of a seed's folder in the place of its own."""
    folder = PurePosixPath(text.description.seeds[title])
    others = _below(files, folder)
    section = text.description.program
    assert section is not None
    strange = [path for path in others if not _evolves(path, section)]
    if not others or strange:
        raise text.error(
            f"seeds.{title}",
            f"a file of the seed does not evolve: {strange[0]}"
            if strange
            else "the seed is not a folder with files",
            "A seed of a program of several files is a folder with the files that differ, at "
            "paths that `program.evolve` matches.",
            value=str(folder),
        )
    changed = {path: decoded(contents, str(folder / path)) for path, contents in others.items()}
    return Program.of_files({**start, **changed})
