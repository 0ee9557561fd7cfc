"""The requirements that the settings and the problem of a run have to meet."""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from app.adapters.tuning.cma import ask
from app.client.adjustments import operator_mix, without_keyless_models, without_operators_of_models
from app.client.setting_layers import SettingLayers
from app.config.checks import (
    require_agent,
    require_bounds,
    require_gates,
    require_mix,
    require_nesting,
    require_players,
    require_refining,
)
from app.config.fleet_checks import require_fleets
from app.config.layers import UsageError
from app.config.mix import require_function
from app.config.resolve import resolved
from app.config.rules import inside_settings, islands_of, rules_of
from app.config.settings import RunSettings
from app.domain.operator import Offspring
from app.domain.operators import operators as every_operator
from app.domain.operators.agent import AGENT
from app.domain.operators.complete import COMPLETE
from app.domain.operators.diff import DIFF
from app.domain.operators.mend import MEND
from app.domain.operators.search import SEARCH
from app.domain.problem import Problem
from app.domain.prompting.tokens import estimated
from app.domain.source.regions import bodies
from app.engine.briefing import own_children, unmeasured_brief

_MODEL_REMEDY = (
    "Name a model, as --set llm.model=NAME; without one only Python programs change: their "
    "numbers, expressions, texts and lists inside the EVOLVE-BLOCK markers."
)
_OPERATOR_REMEDY = (
    "Leave search.operators out, or give one that asks the model a weight, as "
    "--set 'search.operators={rewrite: 1}'."
)
_TRIED = 3
"""Proposals tried on each seed; one proposal of `mutate` makes 30 attempts."""


@dataclass(frozen=True, slots=True)
class Unchangeable:
    """Why no proposal of a run could change its program, and what lets one."""

    reason: str
    remedy: str


def unchangeable(problem: Problem, layers: SettingLayers) -> Unchangeable | None:
    """Returns why no proposal of a run could change its program; None if one could.

    Raises:
      UsageError: As `plan_run`.
    """
    resolution = resolved(layers.choices, problem.suggestions, problem.suggested_by)
    resolution, _ = without_keyless_models(resolution)
    settings = without_operators_of_models(resolution)
    reason = _why_unchangeable(problem, settings)
    return Unchangeable(reason, _remedy_of_unchangeable(settings)) if reason else None


def require_possible(
    problem: Problem,
    settings: RunSettings,
    sources: Mapping[str, str],
    used: Collection[str],
    *,
    asks: bool,
) -> None:
    """Raises `UsageError` where a run of these settings and operators makes no sense.

    Args:
      problem: The problem.
      settings: Those of the run.
      sources: Dotted name of a setting to what has set it.
      used: The operators.
      asks: Whether one of them asks a model.
    """
    require_mix(settings, asks=asks)
    agents = AGENT.name in used and settings.agent.network
    if asks or agents or settings.llm.feedback:
        shortest = min(estimated(seed.source) for seed in problem.seeds)
        require_bounds(settings.budget, settings.llm, shortest if asks else 0)
        require_refining(settings)
    if AGENT.name in used:
        require_agent(settings)
    require_fleets(settings, islands_of(settings), asks=asks)
    require_gates(settings, problem)
    require_players(settings, problem)
    require_nesting(settings, sources)
    if nested := inside_settings(settings):
        require_players(nested, problem)
    if COMPLETE.name in used:
        require_function(problem, settings.prompts.function)
    _require_lines(problem, settings, used)
    if reason := _why_unchangeable(problem, settings):
        raise UsageError(
            f"no proposal could change the program: {reason}",
            where="search.operators",
            value=", ".join(sorted(used)),
            remedy=_remedy_of_unchangeable(settings),
        )


def _require_lines(problem: Problem, settings: RunSettings, used: Collection[str]) -> None:
    """Raises unless edits find a line that may change, where nothing but edits is asked for.

    Raises:
      UsageError: Every EVOLVE-BLOCK region is blank, and only `diff` and `mend` ask a model.
    """
    enforced = settings.search.enforce_blocks
    enforced = problem.edit.enforce_blocks if enforced is None else enforced
    if not enforced or not {*used} <= {DIFF.name, MEND.name}:
        return
    texts = (file.source for seed in problem.seeds for file in seed.files)
    if any(body.strip() for text in texts for body in bodies(text)):
        return
    raise UsageError(
        "every EVOLVE-BLOCK region is empty, and an edit has no line to search for",
        where="search.operators",
        value=", ".join(sorted(used)),
        remedy="Put lines between the markers, or use an operator that writes the program, as "
        "--set 'search.operators={rewrite: 1}'.",
    )


def _why_unchangeable(problem: Problem, settings: RunSettings) -> str:
    """Tries each operator on each seed until a child is made, as in a run's first proposals."""
    known = every_operator(ask)
    inside = inside_settings(settings)
    mix = {**operator_mix(settings, problem), **(operator_mix(inside, problem) if inside else {})}
    mix.pop(SEARCH.name, None)
    # This order tries `mutate` before `tune`.
    mixed = [known[name] for name in sorted(mix)]
    if any(operator.prompts for operator in mixed):
        return ""
    rules = rules_of(settings.search.strategy, settings.model_dump(mode="json"))
    reasons: dict[str, None] = {}
    for operator, seed in itertools.product(mixed, problem.seeds):
        for attempt in range(_TRIED):
            brief = unmeasured_brief(problem, rules, attempt, seed, (), operator.language)
            [child] = own_children(operator, brief)
            if isinstance(child, Offspring):
                return ""
            reasons[child.detail] = None
    return " ".join(reasons)


def _remedy_of_unchangeable(settings: RunSettings) -> str:
    return _OPERATOR_REMEDY if settings.llm.mix else _MODEL_REMEDY
