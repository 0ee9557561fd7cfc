"""From config.yaml to values of ours: limits, axes and rules of the problem, settings of a run."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.adapters.problems.openevolve.config_yaml import Config, variable
from app.adapters.problems.options import Options, modules
from app.config.openevolve_keys import KEYS, MODEL_KEYS
from app.domain.evaluation import COMBINED
from app.domain.problem import Axis, EditRules, Limits, ProblemError
from app.domain.search.features import COMPLEXITY, DIVERSITY
from app.domain.source.imports import ImportPolicy

DEFAULT_TIMEOUT_SECONDS = 300.0
DEFAULT_CORES = 2.0
DEFAULT_AXES = (COMPLEXITY, DIVERSITY)
DEFAULT_BINS = 10
MAX_BINS = 10_000

_SHOWN = {
    "num_top_programs": "search.top_programs",
    "num_diverse_programs": "search.inspirations",
}

_WEIGHTS = {"primary": 1.0, "secondary": 0.2}
"""Models of the old style, in order, with their weights where config.yaml gives none."""


def limits(config: Config, options: Options) -> Limits:
    """Returns the limits of one stage; `sandbox.*` options win over config.yaml.

    `evaluator.cpu_limit` is a number of cores: so many times the time-out may be spent as CPU
    time.  Without it, two cores' worth.

    Raises:
      ProblemError: A value is not above 0.
    """
    wall = _above_zero(config, "evaluator.timeout", DEFAULT_TIMEOUT_SECONDS)
    cores = _above_zero(config, "evaluator.cpu_limit", DEFAULT_CORES)
    memory_mib = None
    if "evaluator.memory_limit_mb" in config.values:
        memory_mib = int(_above_zero(config, "evaluator.memory_limit_mb", 1))
    return options.limits_of(wall, memory_mib, cores)


def axes(config: Config) -> tuple[Axis, ...]:
    """Returns the axes of the grid; a run learns the range of an axis that declares none.

    An axis without a number of bins has as many as suit the run's budget.

    `database.feature_ranges` is Evoqueue's own key: OpenEvolve declares no ranges.

    Raises:
      ProblemError: A number of bins or a range cannot be used.
    """
    names = dict.fromkeys(config.values.get("database.feature_dimensions", DEFAULT_AXES))
    declared = config.values.get("database.feature_bins", {})
    ranges = _ranges(config, list(names))
    grid = []
    for name in names:
        counts = declared if isinstance(declared, dict) else dict.fromkeys(names, declared)
        count = counts.get(name, DEFAULT_BINS)
        if not 1 <= count <= MAX_BINS:
            raise ProblemError(
                f"`database.feature_bins` of `{name}` must be from 1 to {MAX_BINS}",
                where=config.place("database.feature_bins"),
                value=str(count),
                remedy="Correct the number.",
            )
        low, high = ranges.get(name, (None, None))
        grid.append(Axis(name, count, low, high, scaled=name not in counts))
    return tuple(grid)


def _ranges(config: Config, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Returns axis to its lowest and highest value, for the axes that declare a range."""
    ranges: dict[str, tuple[float, float]] = {}
    for name, values in config.values.get("database.feature_ranges", {}).items():
        low, high = map(float, values) if len(values) == 2 else (0.0, 0.0)
        if name not in names or not (math.isfinite(high - low) and low < high):
            raise ProblemError(
                "`database.feature_ranges` must give axes their lowest and highest value",
                where=config.place("database.feature_ranges"),
                value=f"{name}: {values}",
                remedy=f"Write `NAME: [LOW, HIGH]`; the axes are {', '.join(names)}.",
            )
        ranges[name] = (low, high)
    return ranges


def imports(config: Config, options: Options) -> ImportPolicy:
    """Returns what children may import; options win over config.yaml.

    Raises:
      ProblemError: A name is not a module's.
    """
    allow, deny = (
        modules(config.values[key], config.place(key)) if key in config.values else None
        for key in ("allow_imports", "deny_imports")
    )
    return options.imports(allow, deny or ())


def edit_rules(config: Config) -> EditRules:
    """Returns what a child may change.

    Departure from OpenEvolve: markers are enforced unless config.yaml says otherwise.

    Raises:
      ProblemError: `diff_pattern` is no regular expression with two groups.
    """
    rules = EditRules()
    pattern = config.values.get("diff_pattern", rules.diff_pattern)
    try:
        groups = re.compile(pattern, re.DOTALL).groups
        wrong = "" if groups == 2 else f"{groups} groups"
    except re.error as error:
        wrong = str(error)
    if wrong:
        raise ProblemError(
            "`diff_pattern` must be a regular expression with two groups",
            where=config.place("diff_pattern"),
            value=wrong,
            remedy="Capture the text to search for, then its replacement.",
        )
    return EditRules(
        enforce_blocks=config.values.get("enforce_evolve_blocks", rules.enforce_blocks),
        max_code_chars=int(_above_zero(config, "max_code_length", rules.max_code_chars)),
        diff_pattern=pattern,
    )


def suggestions(config: Config, templates: Mapping[str, str]) -> dict[str, object]:
    """Returns run settings by dotted name; only what the configuration sets.

    Args:
      config: The values of config.yaml.
      templates: File name to text of `prompt.template_dir`.
    """
    values = config.values
    settings = {key.setting: values[key.name] for key in KEYS if key.setting and key.name in values}
    if "diff_based_evolution" in values:
        wished = "diff" if values["diff_based_evolution"] else "rewrite"
        settings["search.operators"] = {wished: 0.7, "function": 0.2, "mend": 0.1}
    if values.get("early_stopping_patience", 0) > 0:
        settings["search.stop_patience"] = values["early_stopping_patience"]
    else:
        settings.pop("search.stop_threshold", None)
    for key, setting in _SHOWN.items():
        if f"prompt.{key}" in values:
            settings |= {
                setting: values[f"prompt.{key}"],
                f"prompts.{key}": values[f"prompt.{key}"],
            }
    if models := _models(config):
        settings["llm.models"] = models
    if judges := [_model(entry, values) for entry in config.judges if entry.get("name")]:
        settings["llm.roles.judge.models"] = judges
    if name := _key_variable(config, models):
        settings["llm.api_key_variable"] = name
    texts = {name[:-4]: text for name, text in templates.items() if name.endswith(".txt")}
    return settings | ({"prompts.templates": texts} if texts else {})


def suggested_by(config: Config) -> dict[str, str]:
    """Returns the key of config.yaml that each setting of the run is taken from as it stands."""
    return {key.setting: key.name for key in KEYS if key.setting and key.name in config.values}


def notices(config: Config, templates: Mapping[str, str]) -> list[str]:
    """Returns sentences about values whose effect here is not what the key alone suggests."""
    values = config.values
    sentences = []
    keys = [
        values.get("llm.api_key", ""),
        *(m.get("api_key", "") for m in (*config.models, *config.judges)),
    ]
    if any(key and variable(key) is None for key in keys):
        sentences.append(
            "`api_key`: a key written out is neither stored nor used; set OPENAI_API_KEY, or "
            "write `${NAME}` and set that variable."
        )
    patience = values.get("early_stopping_patience")
    if patience is not None and patience <= 0:
        sentences.append(
            "`early_stopping_patience`: read but without effect here, because stopping when a "
            "metric equals a threshold exactly is not offered; give a number above 0."
        )
    elif patience is None and "convergence_threshold" in values:
        sentences.append(
            "`convergence_threshold`: read but without effect here, because "
            "`early_stopping_patience` is not set."
        )
    if "llm.reasoning_effort" in values and not _models(config):
        sentences.append(
            "`llm.reasoning_effort`: read but without effect here, because no model is named."
        )
    if values.get("early_stopping_metric", COMBINED) != COMBINED:
        sentences.append(
            "`early_stopping_metric`: read but without effect here, because it is the fitness that "
            "is watched."
        )
    if "fragments.json" in templates:
        sentences.append(
            "fragments.json: read but without effect here, because the templates hold all of the "
            "text themselves."
        )
    return sentences


def _models(config: Config) -> list[dict[str, object]]:
    """Returns the models, those of the old style last, in the form of `llm.models`."""
    values = config.values
    entries = [dict(entry) for entry in config.models if entry.get("name")]
    for which, default in _WEIGHTS.items():
        if name := values.get(f"llm.{which}_model"):
            weight = values.get(f"llm.{which}_model_weight", default)
            entries.append({"name": name, "weight": weight})
    return [_model(entry, values) for entry in entries]


def _model(entry: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, object]:
    """Returns an entry in the form of `llm.models`."""
    names = {key.name: key.setting for key in MODEL_KEYS if key.setting}
    model = {names[name]: value for name, value in entry.items() if name in names}
    if secret := variable(entry.get("api_key", "")):
        model["api_key_variable"] = secret
    if "llm.reasoning_effort" in values:
        model.setdefault("reasoning_effort", values["llm.reasoning_effort"])
    return model


def _key_variable(config: Config, models: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the variable that holds the key: that of `llm`, else the one that all models name."""
    own = variable(config.values.get("llm.api_key", ""))
    named = {model.get("api_key_variable") for model in models}
    return own or (named.pop() if len(named) == 1 else None)


def _above_zero(config: Config, key: str, default: float) -> float:
    value = config.values.get(key, default)
    if not 0 < value < 1e9:
        raise ProblemError(
            f"`{key}` must be above 0 and below 1e9",
            where=config.place(key),
            value=str(config.values[key])[:80],
            remedy="Correct the value, or remove the key to have the default.",
        )
    return float(value)
