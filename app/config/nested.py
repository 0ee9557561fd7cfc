"""The settings of the runs inside a run, from those of the run around."""

from dataclasses import replace
from typing import Any

from app.config.settings import BudgetSettings, NestedSettings, RunSettings


def nested_settings(settings: RunSettings) -> RunSettings | None:
    """Returns the settings of the runs inside a run; None where there are none.

    What ends the run around, and what happens once it has ended, is not theirs, but for the fitness
    that is high enough.
    """
    nested, search = settings.nested, settings.search
    if nested.strategy is None:
        return None
    inside = replace(
        search,
        strategy=nested.strategy,
        operators=nested.operators,
        islands=None,
        validate_best=0,
        stop_admitted=None,
        stop_patience=None,
    )
    changes: dict[str, Any] = {
        "search": inside,
        "strategy": nested.parameters,
        "nested": NestedSettings(),
        "budget": BudgetSettings(proposals=nested.proposals),
    }
    return settings.model_copy(update=changes)
