"""Fleets of a run: from its settings to the rules of its steps."""

from collections.abc import Sequence

from app.config.models import ModelChoice
from app.config.settings import RunSettings
from app.domain.operator import Role
from app.domain.search.fleets import FleetRules, label_of, labels


def fleets_of(settings: RunSettings) -> FleetRules:
    """Returns which fleets serve the steps of a run."""
    named = settings.queue.fleets
    models: dict[str, float] = {}
    for model in settings.llm.models_of():
        if model.weight > 0:
            label = model_label(model)
            models[label] = models.get(label, 0.0) + model.weight
    return FleetRules(
        labels(named, "gpu"),
        models or {"": 1.0},
        labels(named, "cpu") or ("",),
        next(iter(judge_labels(settings)), None),
    )


def judge_labels(settings: RunSettings) -> Sequence[str]:
    """Returns the labels of the fleets of the judges, each once; () where no model judges."""
    if not settings.llm.feedback:
        return ()
    panel = [model for model in settings.llm.models_of(Role.JUDGE) if model.weight > 0]
    return tuple(dict.fromkeys(model_label(model) for model in panel))


def model_label(model: ModelChoice) -> str:
    """Returns the label of the workers that ask a model; "" for those of any."""
    return label_of(model.fleet or "")
