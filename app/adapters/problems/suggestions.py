"""From config.yaml to run settings: what a problem asks of the search and of the models."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.adapters.problems.config import Config, variable
from app.adapters.problems.keys import KEYS, MODEL_KEYS
from app.domain.evaluation import COMBINED

_SHOWN = {
    "num_top_programs": "search.top_programs",
    "num_diverse_programs": "search.inspirations",
}

_PRIMARY_WEIGHT = 1.0
_SECONDARY_WEIGHT = 0.2


def suggested(config: Config, templates: Mapping[str, str]) -> dict[str, Any]:
    """Returns run settings by dotted name; only what the configuration sets.

    Args:
      config: What config.yaml says.
      templates: File name to text of `prompt.template_dir`.
    """
    values = config.values
    settings = {key.setting: values[key.name] for key in KEYS if key.setting and key.name in values}
    if "diff_based_evolution" in values:
        settings["search.operators"] = {
            "diff" if values["diff_based_evolution"] else "rewrite": 1.0
        }
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


def remarks(config: Config, templates: Mapping[str, str]) -> list[str]:
    """Returns sentences about values whose effect here is not what the key alone suggests."""
    values = config.values
    said = []
    keys = [
        values.get("llm.api_key", ""),
        *(m.get("api_key", "") for m in (*config.models, *config.judges)),
    ]
    if any(key and variable(key) is None for key in keys):
        said.append(
            "`api_key`: a key written out is neither stored nor used; set OPENAI_API_KEY, or "
            "write `${NAME}` and set that variable."
        )
    patience = values.get("early_stopping_patience")
    if patience is not None and patience <= 0:
        said.append(
            "`early_stopping_patience`: read but without effect here, because stopping when a "
            "metric equals a threshold exactly is not offered; give a number above 0."
        )
    elif patience is None and "convergence_threshold" in values:
        said.append(
            "`convergence_threshold`: read but without effect here, because "
            "`early_stopping_patience` is not set."
        )
    if "llm.reasoning_effort" in values and not _models(config):
        said.append(
            "`llm.reasoning_effort`: read but without effect here, because no model is named."
        )
    if values.get("early_stopping_metric", COMBINED) != COMBINED:
        said.append(
            "`early_stopping_metric`: read but without effect here, because it is the fitness that "
            "is watched."
        )
    if "fragments.json" in templates:
        said.append(
            "fragments.json: read but without effect here, because the templates hold all of the "
            "text themselves."
        )
    return said


def _models(config: Config) -> list[dict[str, Any]]:
    """Returns the models, those of the old style last, in the form of `llm.models`."""
    values = config.values
    entries = [dict(entry) for entry in config.models if entry.get("name")]
    for which, weight in (("primary", _PRIMARY_WEIGHT), ("secondary", _SECONDARY_WEIGHT)):
        if name := values.get(f"llm.{which}_model"):
            weight = values.get(f"llm.{which}_model_weight", weight)
            entries.append({"name": name, "weight": weight})
    return [_model(entry, values) for entry in entries]


def _model(entry: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an entry in the form of `llm.models`."""
    names = {key.name: key.setting for key in MODEL_KEYS if key.setting}
    model = {names[name]: value for name, value in entry.items() if name in names}
    if secret := variable(entry.get("api_key", "")):
        model["api_key_variable"] = secret
    if "llm.reasoning_effort" in values:
        model.setdefault("reasoning_effort", values["llm.reasoning_effort"])
    return model


def _key_variable(config: Config, models: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the variable that holds the key: that of `llm`, else the one all models name."""
    own = variable(config.values.get("llm.api_key", ""))
    named = {model.get("api_key_variable") for model in models}
    return own or (named.pop() if len(named) == 1 else None)
