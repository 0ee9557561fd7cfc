"""The mix of a run's operators: the one that its settings name, else one that suits its problem."""

from collections.abc import Mapping

from app.config.layers import UsageError
from app.config.rules import strategy_of
from app.config.settings import RunSettings
from app.domain.operator import Operator, Role
from app.domain.operators.search import SEARCH
from app.domain.operators.seed import SEED
from app.domain.operators.tune import tunable_numbers
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.setting import MOST
from app.domain.source.functions import evolving

WITH_A_MODEL = {"function": 0.5, "rewrite": 0.3, "diff": 0.1, "mend": 0.1}
OF_ONE_FUNCTION = {
    "complete": 0.4, "function": 0.2, "rewrite": 0.1, "mend": 0.1, "mutate": 0.1, "tune": 0.1
}  # fmt: skip
"""With a model, where the initial programs say which function evolves."""
WITHOUT_A_MODEL = {"tune": 0.75, "mutate": 0.25}
FEW_NUMBERS = 10
"""Tunable numbers of an initial program below which its expressions have to change first."""
OF_FEW_NUMBERS = {"tune": 0.25, "mutate": 0.75}


def operators(
    settings: RunSettings, problem: Problem, known: Mapping[str, Operator]
) -> dict[str, float]:
    """Returns the weight of each operator of a run: the settings', else what suits its problem.

    A recipe may have a mix of its own for runs with a model.

    Args:
      settings: The run's.
      problem: Its problem.
      known: Every operator.

    Raises:
      UsageError: An operator is unknown, has no weight, or asks a model where there is none.
    """
    weights = settings.search.operators
    if weights is None:
        if settings.nested.strategy is not None:
            return {SEARCH.name: 1.0}
        if not settings.llm.mix:
            numbers = max(
                (sum(map(tunable_numbers, seed.views())) for seed in problem.seeds), default=0
            )
            return dict(OF_FEW_NUMBERS if numbers < FEW_NUMBERS else WITHOUT_A_MODEL)
        usual = (
            OF_ONE_FUNCTION if one_function(problem, settings.prompts.function) else WITH_A_MODEL
        )
        return dict(strategy_of(settings, 1).model_mix or usual)
    asking = {name for name, operator in known.items() if operator.asks_model}
    names = sorted(name for name in known if name != SEED.name)
    for name, weight in weights.items():
        if name not in names:
            raise UsageError(
                f"unknown operator `{name}`",
                where="search.operators",
                remedy=f"Choose among {', '.join(names)}.",
            )
        if not 0 <= weight <= MOST:
            raise UsageError(
                f"the weight of `{name}` is not from 0 to {MOST:,}",
                where="search.operators",
                value=f"{weight:g}",
                remedy="Give weights of 0 or more; only their ratios count.",
            )
    mix = {name: weight for name, weight in weights.items() if weight > 0}
    if not mix:
        raise UsageError(
            "no operator has a weight",
            where="search.operators",
            remedy="Give one of them a weight above 0.",
        )
    _require_nested(settings, mix)
    if not settings.llm.models_of(Role.AGENT) and settings.agent.network:
        _require_no_agent(mix, known)
    lacking = sorted(asking & set(mix)) if not settings.llm.mix else []
    if lacking:
        raise UsageError(
            f"{' and '.join(lacking)} {'asks' if len(lacking) == 1 else 'ask'} a language model, "
            f"and none is configured",
            where="search.operators",
            remedy="Name a model, as --set llm.model=NAME, or use tune and mutate, which ask none.",
        )
    return mix


def _require_no_agent(mix: Mapping[str, float], known: Mapping[str, Operator]) -> None:
    """Makes sure that no operator has agents, which would have no model to ask.

    Raises:
      UsageError: One has.
    """
    named = next((name for name in sorted(mix) if known[name].agent), None)
    if named is not None:
        raise UsageError(
            f"the agents of `{named}` ask a language model, and none is configured",
            where="search.operators",
            remedy="Name a model, as --set llm.model=NAME, or set agent.network=false for an agent "
            "that asks none.",
        )


def _require_nested(settings: RunSettings, mix: Mapping[str, float]) -> None:
    """Makes sure that `search` has a recipe to search with, and that such a recipe is used.

    Raises:
      UsageError: One is named without the other.
    """
    named = settings.nested.strategy
    if SEARCH.name in mix and named is None:
        raise UsageError(
            f"`{SEARCH.name}` begins runs inside the run, and their recipe is not named",
            where="search.operators",
            remedy="Name it, as --set nested.strategy=reflexion; a run inside has none inside it.",
        )
    if named is not None and SEARCH.name not in mix:
        raise UsageError(
            f"no operator begins a run inside the run: `{SEARCH.name}` does",
            where="nested.strategy",
            value=named,
            remedy="Give it a weight in search.operators, or leave search.operators out.",
        )


def one_function(problem: Problem, name: str) -> str:
    """Returns the function that every seed says is the one to evolve; "" where there is none.

    Args:
      problem: The problem.
      name: The function that the settings name; "" where they name none.
    """
    names = {_function_of(seed, name) for seed in problem.seeds}
    return names.pop() if len(names) == 1 else ""


def _function_of(seed: Program, name: str) -> str:
    """Returns the function that a seed says is the one to evolve; "" where it says none.

    A program of several files says so only together with the settings.
    """
    if seed.path and not name:
        return ""
    found = (evolving(view, name) for view in seed.views() if view.language == "python")
    return next(filter(None, found), "")


def require_function(problem: Problem, name: str) -> None:
    """Makes sure that every seed has the function that is to be completed.

    Raises:
      UsageError: A seed has no such function, or several without a name.
    """
    for seed in problem.seeds:
        if not _function_of(seed, name):
            raise UsageError(
                f"seed {seed.id[:8]} does not say which function `complete` evolves",
                where="search.operators",
                value=name,
                remedy="Name it, as --set prompts.function=NAME; it must be at top level, in "
                "Python, and inside the EVOLVE-BLOCK markers if there are any. Or name other "
                "operators in search.operators.",
            )
