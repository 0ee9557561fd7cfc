"""OpenEvolve's problem folder as a `Problem`: stages, limits, seeds, templates and notices."""

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import PurePosixPath

from app.adapters.problems.building import (
    PYTHON_SUFFIX,
    Jobs,
    default_mode,
    evaluator_of,
    origin,
)
from app.adapters.problems.evaluator_result import ARTIFACT_CHARS, Reader
from app.adapters.problems.files import decoded, source_text
from app.adapters.problems.openevolve import config_yaml, evaluator_source, translation
from app.adapters.problems.openevolve.config_yaml import Config
from app.adapters.problems.options import CHECKPOINT, Options
from app.domain.evaluation import COMBINED
from app.domain.problem import EditRules, Mode, Problem, longest_child
from app.domain.program import Program
from app.domain.prompting.templates import TEMPLATES
from app.domain.source import regions
from app.domain.source.imports import ImportPolicy
from app.domain.source.languages import language_of

NAME = "openevolve"
OPTIONS = frozenset({CHECKPOINT})
SEEDS = "seeds"
REFERENCES = "references"
PROMPTS = "prompts"
INITIAL_NAME = "initial program"

DEFAULT_THRESHOLDS = (0.5, 0.75, 0.9)

_FUNSEARCH = re.compile(r"@funsearch\.evolve\b")


def build(name: str, files: Mapping[str, bytes], options: Options) -> Problem:
    """Returns the problem that files and options describe.

    Args:
      name: For people; not part of the digest.
      files: Relative POSIX path to contents, without secrets.
      options: As `options.shaping` returns them, with at least the names of the initial program
        and of the evaluator.

    Raises:
      ProblemError: The files are not a problem.
    """
    config = _configuration(files, options)
    values = config.values
    thresholds = tuple(map(float, values.get("evaluator.cascade_thresholds", DEFAULT_THRESHOLDS)))
    entry = options.evaluator
    defined = evaluator_source.defined_functions(source_text(files[entry], entry), entry)
    cascade = values.get("evaluator.cascade_evaluation", True)
    stages = evaluator_source.stages(defined, cascade=cascade, thresholds=thresholds, where=entry)
    probe = evaluator_source.PROBE if evaluator_source.PROBE in defined else ""
    validation = evaluator_source.VALIDATION if evaluator_source.VALIDATION in defined else ""
    suffix = _suffix(options.initial, config)
    language = values.get("language", language_of(suffix))
    named = _seeds(files, options.initial, language)
    seeds = tuple(named.values())
    axes, edit = translation.axes(config), translation.edit_rules(config)
    chosen = edit.max_code_chars if "max_code_length" in values else None
    edit = replace(edit, max_code_chars=longest_child(seeds, chosen))
    imports = translation.imports(config, options)
    mode = options.mode or default_mode(suffix)
    evaluator = evaluator_of(files, entry, options)
    limits = dict.fromkeys((*stages, probe, validation), translation.limits(config, options))
    templates = _templates(files, options)
    return Problem(
        **origin(NAME, name, files, options),
        instructions=_instructions(values, templates),
        seeds=seeds,
        prepare=Jobs(evaluator, suffix, mode, limits).prepare,
        interpret=Reader(
            seeds,
            verified=mode is Mode.GUARDED,
            stages=stages,
            axes=tuple(axis.name for axis in axes),
            validation=validation,
            flags_count=len(stages) > 1,
            artifact_chars=values.get("prompt.max_artifact_bytes", ARTIFACT_CHARS),
            redact=values.get("prompt.artifact_security_filter", True),
            keep_artifacts=values.get("evaluator.enable_artifacts", True),
        ).interpret,
        language=language,
        suffix=suffix,
        stages=stages,
        probe=probe,
        validation=validation,
        references=_programs(files, REFERENCES, options.initial, language),
        thresholds=thresholds[: len(stages) - 1],
        axes=axes,
        edit=edit,
        imports=imports,
        baselines={title: seed.id for title, seed in named.items()},
        suggestions=translation.suggestions(config, templates),
        suggested_by=translation.suggested_by(config),
        notices=(
            *_notices(config, files, options, templates),
            *_seed_notices(named, edit, imports, chosen),
            *_without_stand_in(suffix, options),
        ),
    )


def _notices(
    config: Config, files: Mapping[str, bytes], options: Options, templates: Mapping[str, str]
) -> list[str]:
    """Returns a sentence for each thing about the files that concerns the whole problem."""
    return [
        *config.notices,
        *translation.notices(config, templates),
        *_misnamed(files),
        *_without_combined_score(files),
        *_other_configurations(files, options),
    ]


def _configuration(files: Mapping[str, bytes], options: Options) -> Config:
    if not (where := options.config):
        return Config()
    return config_yaml.read(decoded(files[where], where), where)


def _suffix(initial: str, config: Config) -> str:
    suffix: str = config.values.get("file_suffix", PYTHON_SUFFIX)
    return suffix if suffix != PYTHON_SUFFIX else PurePosixPath(initial).suffix or PYTHON_SUFFIX


def _seeds(files: Mapping[str, bytes], initial: str, language: str) -> dict[str, Program]:
    """Returns the start programs by name: the initial program, then those of `seeds/`.

    A file of `seeds/` that equals the initial program gives it its name.
    """
    first = Program(source_text(files[initial], initial), language)
    named = {INITIAL_NAME: first}
    for title, seed in _programs(files, SEEDS, initial, language).items():
        if seed == first:
            named = {title: first} | {key: kept for key, kept in named.items() if kept != first}
        elif seed not in named.values():
            named[title] = seed
    return named


def _programs(
    files: Mapping[str, bytes], folder: str, initial: str, language: str
) -> dict[str, Program]:
    """Returns the programs of a folder by name, those with the suffix of the initial program."""
    suffix = PurePosixPath(initial).suffix
    return {
        path.stem.replace("_", " "): Program(source_text(files[str(path)], str(path)), language)
        for path in sorted(map(PurePosixPath, files))
        if path.parent == PurePosixPath(folder) and path.suffix == suffix
    }


def _templates(files: Mapping[str, bytes], options: Options) -> dict[str, str]:
    """Returns file name to text: those of `prompts/` that are templates, then `template_dir`'s."""
    own = {
        PurePosixPath(name).name: decoded(content, name)
        for name, content in files.items()
        if _is_template(PurePosixPath(name))
    }
    return own | {
        PurePosixPath(name).name: decoded(content, name)
        for name, content in files.items()
        if options.templates and str(PurePosixPath(name).parent) == options.templates
    }


def _is_template(path: PurePosixPath) -> bool:
    return str(path.parent) == PROMPTS and path.suffix == ".txt" and path.stem in TEMPLATES


def _misnamed(files: Mapping[str, bytes]) -> list[str]:
    """Returns a sentence for each file of `prompts/` that is nearly called like a template."""
    paths = [path for path in map(PurePosixPath, sorted(files)) if str(path.parent) == PROMPTS]
    near = {
        path: get_close_matches(path.stem, list(TEMPLATES), n=1, cutoff=0.8)
        for path in paths
        if not _is_template(path)
    }
    return [
        f"{path}: no template has that name, and it is not read as one; the closest is "
        f"{PROMPTS}/{names[0]}.txt."
        for path, names in near.items()
        if names
    ]


def _instructions(values: Mapping[str, object], templates: Mapping[str, str]) -> str:
    """Returns `prompt.system_message`: a text, or the name of a template."""
    message = str(values.get("prompt.system_message", "system_message"))
    own = templates.get(f"{message}.txt")
    if own is not None:
        return own
    return "" if message == "system_message" else message


def _seed_notices(
    named: Mapping[str, Program], edit: EditRules, imports: ImportPolicy, chosen: int | None
) -> list[str]:
    """Returns a sentence for each thing about a seed that concerns its children.

    Args:
      named: The seeds by title.
      edit: What a child may change.
      imports: The modules that children may import.
      chosen: `max_code_length`; None where the configuration has none.
    """
    notices = []
    unmarked = [title for title, seed in named.items() if regions.MARKER not in seed.source]
    if unmarked:
        notices.append(
            f"{', '.join(unmarked)}: no EVOLVE-BLOCK markers, so every line may change, also code "
            f"that only scores or tests. Put `# {regions.MARKER}-START` and "
            f"`# {regions.MARKER}-END` around the part to evolve."
        )
    for title in unmarked:
        if evolving := _FUNSEARCH.search(named[title].source):
            notices.append(
                f"{title}: `{evolving[0]}` restricts only the operator `complete`, which asks a "
                f"model for that function: --set 'search.operators={{complete: 1}}'. Every other "
                f"operator needs the EVOLVE-BLOCK markers."
            )
    for title, seed in named.items():
        if edit.enforce_blocks and (fault := regions.parse(seed.source).fault):
            notices.append(
                f"{title}, {fault}: its EVOLVE-BLOCK markers restrict nothing, every line may "
                "change."
            )
        if chosen is not None and chosen < edit.max_code_chars <= 2 * len(seed.source):
            notices.append(
                f"{title}: {len(seed.source)} characters, and `max_code_length` ({chosen}) leaves "
                f"its children no room: up to {edit.max_code_chars} are evaluated."
            )
        if (refusal := imports.refusal(seed)) is not None:
            notices.append(
                f"{title}: {refusal.detail} Seeds are measured all the same, and children may keep "
                "this import."
            )
    return notices


def _without_combined_score(files: Mapping[str, bytes]) -> list[str]:
    """Returns a notice where no Python file of the problem names `combined_score`."""
    if any(COMBINED.encode() in files[name] for name in files if name.endswith(PYTHON_SUFFIX)):
        return []
    return [
        f"The evaluator never names `{COMBINED}`: the fitness is the mean of all numbers that it "
        f"returns and that are no axis of the grid, and higher is better for each of them. Return "
        f"`{COMBINED}` to select by one number."
    ]


def _other_configurations(files: Mapping[str, bytes], options: Options) -> list[str]:
    """Returns a notice where the folder has configurations and none of them is in use."""
    named = [name for name in sorted(files) if re.fullmatch(r"config[^/]*\.ya?ml", name)]
    if options.config or not named:
        return []
    return [f"No config.yaml, so the defaults hold: `--config` takes {' or '.join(named)}."]


def _without_stand_in(suffix: str, options: Options) -> list[str]:
    if suffix == PYTHON_SUFFIX or options.mode:
        return []
    return [
        f"Programs are `{suffix}` files, which an evaluator reads or runs itself: they are "
        "measured in compatible mode, and scores are unverified. If it never runs them, `--set "
        "sandbox.mode=guarded` says so."
    ]
