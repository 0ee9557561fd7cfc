"""From the options of a command to the layers of its settings, and to its problem."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.adapters.problems import configures_problem, replaced_keys
from app.adapters.problems.loading import load
from app.client.local_model import with_local_model
from app.config.layers import (
    Choices,
    UsageError,
    from_assignments,
    from_environment,
    from_file,
    is_experiment,
    problem_options,
)
from app.config.lite import Experiment
from app.config.resolve import resolved
from app.domain.problem import Problem
from app.domain.prompting.templates import TEMPLATES

COMMAND_LINE = "the command line"
_YAML = (".yaml", ".yml")
_EXAMPLES = Path(__file__).parents[2] / "examples"
TEMPLATE_DIR = "prompts.template_dir"
_TEMPLATE_SUFFIX = ".txt"


@dataclass(frozen=True, slots=True)
class SettingLayers:
    """Settings of the command line, the environment and --config; earlier layers win.

    Attributes:
      config: An OpenEvolve config.yaml given with --config; None where there is none.
    """

    choices: tuple[Choices, ...]
    config: Path | None = None

    @property
    def experiment(self) -> Experiment:
        """What --config says beside settings; nothing where it is no file of FunSearch-Lite's."""
        return self.choices[-1].experiment or Experiment()


def named_problem(problem: Sequence[str], config: str | None) -> tuple[list[Path], str | None]:
    """Returns the paths of the problem and --config, from the arguments of a command.

    A configuration of FunSearch-Lite in the place of the problem is --config, and its `task_name`
    is the folder of the problem: beside the file, under the present folder, or a shipped example.

    Raises:
      UsageError: There is no such folder.
    """
    paths = [Path(path) for path in problem]
    if config is not None or len(paths) != 1 or paths[0].suffix not in _YAML:
        return paths, config
    file = paths[0]
    if not file.is_file():
        return paths, config
    text = _text(file, "cannot be read", str(file), "Check the path; it must be text in UTF-8.")
    if not is_experiment(text):
        return paths, config
    read = from_file(text, str(file), foreign=configures_problem)
    task = read.experiment.task if read is not None and read.experiment is not None else ""
    around = file.absolute().parent
    places = [around / task, Path(task), Path("examples", task), _EXAMPLES / task]
    if around.name == task:
        places.insert(0, around)
    folder = next((place for place in places if task and place.is_dir()), None)
    if folder is None:
        raise UsageError(
            "there is no folder of that name beside the file, here, in examples/ or among the "
            "shipped examples",
            where=f"{file}: task_name",
            value=task or "none",
            remedy=f"Name the problem: evoq run PROBLEM --config {file}.",
        )
    return [folder], str(file)


def read_layers(
    assignments: Sequence[str] | None,
    config: str | None,
    options: Mapping[str, object] = {},
) -> SettingLayers:
    """Reads `--set`, the environment and `--config`.

    Args:
      assignments: The values of `--set`.
      config: The value of `--config`.
      options: Settings that have options of their own; None where an option was not given.

    Raises:
      UsageError: A setting is unknown, a file cannot be read, or the model is `auto` and no server
        of this machine offers one.
    """
    given = {name: value for name, value in options.items() if value is not None}
    line = Choices(COMMAND_LINE, {**from_assignments(assignments or ()).values, **given})
    choices = [with_templates(layer, Path()) for layer in (line, from_environment(os.environ))]
    if not config:
        return SettingLayers(tuple(with_local_model(choices)))
    path = Path(config)
    remedy = "Check the path; it must be text in UTF-8."
    text = _text(path, "cannot be read", f"--config {path}", remedy)
    file = from_file(text, str(path), foreign=configures_problem)
    if file is None:
        return SettingLayers(tuple(with_local_model(choices)), path)
    return SettingLayers(tuple(with_local_model([*choices, with_templates(file, path.parent)])))


def with_templates(layer: Choices, around: Path) -> Choices:
    """Returns a layer with the templates of the folder that its `prompts.template_dir` names.

    A template that the same layer sets by name wins over the folder's file.

    Args:
      layer: Settings of one source.
      around: The folder that a relative path starts from.

    Raises:
      UsageError: There is no such folder, it holds no template, or a file is not text.
    """
    if TEMPLATE_DIR not in layer.values:
        return layer
    others = {name: value for name, value in layer.values.items() if name != TEMPLATE_DIR}
    named = str(layer.values[TEMPLATE_DIR])
    folder, where = around / named, f"{TEMPLATE_DIR} ({layer.source})"
    if not folder.is_dir():
        raise UsageError(
            "not a folder",
            where=where,
            value=named,
            remedy="Name a folder that holds templates such as diff_user.txt.",
        )
    what, remedy = "a template cannot be read", "It must be text in UTF-8."
    templates = {
        path.stem: _text(path, what, str(path), remedy)
        for path in sorted(folder.glob(f"*{_TEMPLATE_SUFFIX}"))
    }
    if not set(templates) & set(TEMPLATES):
        known = ", ".join(sorted(TEMPLATES))
        raise UsageError(
            "the folder holds no template",
            where=where,
            value=named,
            remedy=f"Name files {known}, each with the ending {_TEMPLATE_SUFFIX}.",
        )
    by_name = {f"prompts.templates.{name}": text for name, text in templates.items()}
    return Choices(layer.source, {**by_name, **others})


def load_problem(paths: Sequence[Path], layers: SettingLayers, *, strict: bool = False) -> Problem:
    """Loads the problem that the paths and the settings describe.

    Raises:
      UsageError: A path does not exist, or a setting is wrong.
      ProblemError: The problem cannot be loaded.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(
                "no such file or folder", where=str(path), remedy="Check the spelling of the path."
            )
    # Wrong settings are refused here, before they shape the problem.
    resolved(layers.choices, {}, complete=False)
    problem = load(
        paths, config=layers.config, strict=strict, options=problem_options(layers.choices)
    )
    if layers.config is None or not (keys := replaced_keys(paths, layers.config)):
        return problem
    notice = (
        f"--config {layers.config} takes the place of the folder's own configuration, of which "
    )
    notice += f"these keys have no effect: {', '.join(keys)}."
    return replace(problem, notices=(*problem.notices, notice))


def _text(path: Path, what: str, where: str, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(what, where=where, value=str(error), remedy=remedy) from error
