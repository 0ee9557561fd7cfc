"""From the settings of a run as they are stored to the rules that its steps read."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace

from app.config.fleets import fleets_of
from app.config.models import ModelChoice, ModelSettings
from app.config.recipes import recipe, with_parameters
from app.config.settings import BudgetSettings, NestedSettings, RunSettings, stored_settings
from app.domain.operator import Role
from app.domain.problem import Limits
from app.domain.prompting.judging import Judge, Judges
from app.domain.run import AskingRules, Rules
from app.domain.search.archive import islands_for, learnt_after
from app.domain.search.fleets import label_of
from app.domain.search.gates import gate
from app.domain.search.model_mix import MixedModel, ModelMix, ModelPrice
from app.domain.search.nested import NestedRules
from app.domain.search.recipes.funsearch_lite import FunSearchLite
from app.domain.search.refining import Refining
from app.domain.search.strategy import Recipe, RecipeInputs, Strategy

REFINER_SHARE = 0.5
"""Share of the children that are due, where a refiner is configured and no share is set."""


def rules_of(strategy: str, settings: Mapping[str, object]) -> Rules:
    """Returns the rules of a run.

    Args:
      strategy: The name of its recipe.
      settings: The stored settings; a setting that this version does not know is ignored, and an
        absent setting has its default.

    Raises:
      ValueError: A value is of the wrong type or out of range.
    """
    run = stored_settings(settings)
    search, llm = run.search, run.llm
    found = _recipe(strategy, run)
    sandbox = asdict(run.sandbox)
    return Rules(
        search,
        run.prompts.rules(search),
        AskingRules(
            llm.repair_turns,
            frozenset(llm.roles),
            refining_of(llm),
            judges_of(llm),
            llm.price_ceiling,
            mixes_of(llm),
            frozenset(model.name for model in llm.models_of(Role.GENERATOR)),
            run.agent.tokens if run.agent.network else 0,
        ),
        run.queue,
        recipe=found,
        gates=None if search.gates is None else tuple(map(gate, search.gates)),
        grid_after=search.grid_after or learnt_after(run.budget.proposals),
        by_task=isinstance(found, FunSearchLite),
        nested=_nested(run),
        fleets=fleets_of(run),
        project=run.queue.project,
        limits={limit.name: sandbox[limit.name] for limit in fields(Limits)},
    )


def strategy_of(settings: RunSettings, islands: int) -> Strategy:
    """Returns the strategy of a run, before its problem and its grid are known."""
    search = settings.search
    built = with_parameters(recipe(search.strategy), asdict(search), settings.strategy)
    return built.strategy(RecipeInputs((), ("evaluate",), (), islands, settings.budget.proposals))


def islands_of(settings: RunSettings) -> int:
    """Returns the number of islands: the settings', else what suits the recipe and the budget.

    Without upkeep between them islands would only divide the budget.
    """
    search = settings.search
    if search.islands is not None:
        return search.islands
    islands = islands_for(settings.budget.proposals)
    return islands if strategy_of(settings, islands).upkeep.every else 1


def inside_settings(settings: RunSettings) -> RunSettings | None:
    """Returns the settings of the runs inside a run; None where there are none.

    They inherit `search.stop_fitness`, and neither the other stop rules nor validation.
    """
    nested = settings.nested
    if nested.strategy is None:
        return None
    search = replace(
        settings.search,
        strategy=nested.strategy,
        operators=nested.operators,
        islands=None,
        validate_best=0,
        stop_admitted=None,
        stop_patience=None,
    )
    changes = {
        "search": search,
        "strategy": nested.parameters,
        "nested": NestedSettings(),
        "budget": BudgetSettings(proposals=nested.proposals),
    }
    return settings.model_copy(update=changes)


def _nested(settings: RunSettings) -> NestedRules | None:
    inside = inside_settings(settings)
    if inside is None:
        return None
    recipe = _recipe(inside.search.strategy, inside)
    islands = islands_of(inside) if recipe else 1
    return NestedRules(
        inside.search.strategy,
        recipe,
        inside.budget.proposals,
        inside.model_dump(mode="json"),
        settings.nested.operators or {},
        islands,
        recipe is not None and strategy_of(inside, islands).gridded,
    )


def _recipe(name: str, settings: RunSettings) -> Recipe | None:
    """Returns the recipe with its parameters; None where it is not installed here."""
    try:
        found = recipe(name)
    except LookupError:
        return None
    return with_parameters(found, asdict(settings.search), settings.strategy)


def judges_of(llm: ModelSettings) -> Judges | None:
    """Returns the models that judge the programs of a run; None where no model does."""
    if not llm.feedback:
        return None
    panel = tuple(Judge(model.name, model.weight) for model in llm.models_of(Role.JUDGE))
    return Judges(tuple(judge for judge in panel if judge.weight > 0), llm.feedback_weight)


def mixes_of(llm: ModelSettings) -> dict[Role, ModelMix]:
    """Returns the mixes of which a model is drawn by what came of its children, by role."""
    if not llm.adaptive_weights:
        return {}
    drawn = {
        role: [choice for choice in llm.models_of(role) if choice.weight > 0]
        for role in (Role.GENERATOR, Role.REFINER)
    }
    return {
        role: ModelMix(
            tuple(
                MixedModel(one.name, one.weight, _price(one), label_of(one.fleet or ""))
                for one in choices
            )
        )
        for role, choices in drawn.items()
        if len(choices) > 1
    }


def _price(choice: ModelChoice) -> ModelPrice | None:
    prompt, cached = choice.usd_per_million_prompt_tokens, choice.usd_per_million_cached_tokens
    completion = choice.usd_per_million_completion_tokens
    if prompt is None or completion is None:
        return None
    return ModelPrice(prompt, prompt if cached is None else cached, completion)


def refining_of(llm: ModelSettings) -> Refining:
    """Returns when the refiner is asked."""
    share = llm.refiner_share
    if share is None:
        share = REFINER_SHARE if Role.REFINER in llm.roles else 0.0
    return Refining(share, llm.refiner_top, llm.refiner_stalled)
