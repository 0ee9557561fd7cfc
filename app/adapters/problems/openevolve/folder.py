"""OpenEvolve's problem folder on the disk: which file is which, and what of it is stored."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.adapters.problems import options as option
from app.adapters.problems.files import Source, content, decoded, tree
from app.adapters.problems.openevolve import config_yaml
from app.domain.problem import ProblemError

EVALUATOR = "evaluator.py"
CONFIGS = ("config.yaml", "config.yml")
MARKER = b"EVOLVE-BLOCK-START"

CONFIG_ELSEWHERE = "evoq_config.yaml"
"""The stored name of a configuration whose own name is taken by another file of the folder."""

TEMPLATES = "evoq_templates"
"""The stored folder of the prompt templates, which may come from outside the problem's folder."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a problem's parts.

    Attributes:
      folder: What surrounds the evaluator, and goes into the sandbox with it.
      config: None where there is none.
    """

    folder: Path
    initial: Path
    evaluator: Path
    config: Path | None


def recognises(paths: Sequence[Path]) -> bool:
    """Returns whether these paths are, or lie in, a folder with an evaluator; or are two files."""
    folders = [path if path.is_dir() else path.parent for path in paths]
    return len(paths) == 2 or any((folder / EVALUATOR).is_file() for folder in folders)


def read(paths: Sequence[Path], config: Path | None = None, *, strict: bool = False) -> Source:
    """Reads a problem's files and finds out which of them is which.

    Args:
      paths: A folder; or an initial program; or an initial program and its evaluator.
      config: A config.yaml that lies elsewhere or has another name.
      strict: Whether an unknown key of config.yaml is an error.

    Raises:
      ProblemError: Something is missing, unreadable, of the wrong type or too large.
      OSError: A path cannot be read.
    """
    layout = find(paths, config)
    source = Source(layout.folder.resolve().name, _without_secrets(tree(layout.folder)), {})
    source.options[option.EVALUATOR] = layout.evaluator.name
    source.options[option.INITIAL] = _include(layout.initial, layout.folder, source)
    if layout.config is not None:
        _add_config(layout.config, source, strict=strict)
    return source


def find(paths: Sequence[Path], config: Path | None = None) -> Layout:
    """Returns the layout of `folder`, of `initial_program` or of `initial_program evaluator`.

    Raises:
      ProblemError: A path does not exist, or it is not clear which file is which.
    """
    for path in [*paths, *([config] if config else [])]:
        if not path.exists():
            raise ProblemError(
                "no such file or folder", where=str(path), remedy="Check the spelling of the path."
            )
    match list(paths):
        case [folder] if folder.is_dir():
            evaluator = folder / EVALUATOR
            initial = None
        case [only] if only.name == EVALUATOR or only.name in CONFIGS:
            folder = only.parent
            evaluator = folder / EVALUATOR
            initial = None
        case [initial]:
            folder = initial.parent
            evaluator = folder / EVALUATOR
        case [initial, evaluator] if initial.is_file() and evaluator.is_file():
            folder = evaluator.parent
        case _:
            raise ProblemError(
                "not a problem",
                where="PROBLEM",
                value=" ".join(map(str, paths)),
                remedy="Give one folder, or an initial program and an evaluator.",
            )
    if not evaluator.is_file():
        raise ProblemError(
            "the evaluator is missing",
            where=str(evaluator),
            remedy=f"Add {EVALUATOR} with a function `evaluate(program_path)`.",
        )
    own = next((folder / name for name in CONFIGS if (folder / name).is_file()), None)
    return Layout(folder, initial or _initial_program(folder), evaluator, config or own)


def replaced_keys(paths: Sequence[Path], config: Path) -> tuple[str, ...]:
    """Returns the keys of a folder's own configuration that another one changes or leaves out.

    Raises:
      ProblemError: A file is unreadable or no configuration.
    """
    own = find(paths).config if recognises(paths) else None
    if own is None or own.resolve() == config.resolve():
        return ()
    before, after = (
        config_yaml.read(
            config_yaml.without_secrets(decoded(content(path), str(path)), str(path)), str(path)
        )
        for path in (own, config)
    )
    keys = [key for key, value in before.values.items() if after.values.get(key) != value]
    for name, models, others in (
        ("llm.models", before.models, after.models),
        ("llm.evaluator_models", before.judges, after.judges),
    ):
        if models and models != others and name not in keys:
            keys.append(name)
    return tuple(sorted(keys))


def _initial_program(folder: Path) -> Path:
    """Returns `initial_program.*`, else the one file with markers, else `initial*.*`."""
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and path.name not in (EVALUATOR, *CONFIGS)
        and not path.name.endswith(("~", ".pyc", ".bak"))
    )
    named = [path for path in files if path.stem == "initial_program"]
    marked = [path for path in files if path.suffix != ".md" and MARKER in content(path)]
    alike = [path for path in files if path.name.startswith("initial")]
    for matches in ([path for path in named if path in marked], named, marked, alike):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ProblemError(
                "several files could be the initial program",
                where=str(folder),
                value=", ".join(path.name for path in matches),
                remedy="Name the one that is meant, followed by the evaluator.",
            )
    raise ProblemError(
        "the initial program is missing",
        where=str(folder),
        remedy="Add initial_program.py (any extension), or mark one file with EVOLVE-BLOCK-START.",
    )


def _add_config(path: Path, source: Source, *, strict: bool) -> None:
    """Adds config.yaml, without secrets, and the prompt templates that it names."""
    text = config_yaml.without_secrets(decoded(content(path), str(path)), str(path))
    config = config_yaml.read(text, str(path))
    if strict and config.unknown:
        raise ProblemError(
            "unknown keys, and --strict refuses them",
            where=str(path),
            value=" ".join(config.unknown),
            remedy="Correct the names, or leave --strict out.",
        )
    taken = source.files.get(path.name, text.encode()) != text.encode()
    name = CONFIG_ELSEWHERE if taken else path.name
    source.add(name, text.encode())
    source.options[option.CONFIG] = name
    if "prompt.template_dir" in config.values:
        _add_templates(path, config.values["prompt.template_dir"], source)


def _add_templates(config: Path, named: str, source: Source) -> None:
    folder = config.parent / named
    if not folder.is_dir():
        raise ProblemError(
            "`prompt.template_dir` is not a folder",
            where=str(config),
            value=named,
            remedy="Give its path relative to the file.",
        )
    source.options[option.TEMPLATES] = TEMPLATES
    for part in [*sorted(folder.glob("*.txt")), *folder.glob("fragments.json")]:
        source.add(f"{TEMPLATES}/{part.name}", content(part))


def _without_secrets(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns the files, with keys removed from every YAML file that has a section `llm`.

    A folder may hold several configurations, and any of them may be the one with the key.
    """
    cleaned = dict(files)
    for name in files:
        if name.endswith((".yaml", ".yml")) and b"llm" in files[name]:
            # A file that is not YAML is no configuration.
            with contextlib.suppress(ProblemError):
                text = decoded(files[name], name)
                cleaned[name] = config_yaml.without_secrets(text, name).encode()
    return cleaned


def _include(path: Path, folder: Path, source: Source) -> str:
    """Returns the stored name of a file, which is added where it lies outside the folder."""
    if path.resolve().parent == folder.resolve() and path.name in source.files:
        return path.name
    name = path.name
    if path.resolve().is_relative_to(folder.resolve()):
        name = path.resolve().relative_to(folder.resolve()).as_posix()
    source.add(name, content(path))
    return name
