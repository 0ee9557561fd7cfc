"""Changes of a run's settings after it began: which are possible, and what they make of a run."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace

from app.config.checks import (
    require_agent,
    require_asked_roles,
    require_bounds,
    require_mix,
    require_refining,
)
from app.config.fleet_checks import require_fleets
from app.config.fleets import fleets_of
from app.config.layers import ADDRESSES, Choices, UsageError
from app.config.mix import operators, require_function
from app.config.resolve import with_values
from app.config.rules import judges_of
from app.config.section import Owner, variable_of
from app.config.settings import SETTINGS, RunSettings, owner_of, setting_of, stored_settings
from app.domain.events import Changed
from app.domain.operator import Operator
from app.domain.operators.complete import COMPLETE
from app.domain.problem import Problem
from app.domain.run import Revision, Run, RunState
from app.domain.search.budget import Budget
from app.domain.setting import Fixed

_FUNCTION = "prompts.function"
_JUDGES = (
    "the judges of the run would change with it, and programs that others rated are not "
    "comparable: name the present ones in llm.roles.judge.models, too"
)
_READ_AT_START = "it is read when the run's workers start"
_RESTART = "Pause the run, then give it to `evoq resume`."


def fixed() -> Mapping[str, str]:
    """Returns why settings cannot change once a run has begun, by setting or section."""
    return {
        name: part.reason
        for name, field in {**RunSettings.model_fields, **SETTINGS}.items()
        for part in field.metadata
        if isinstance(part, Fixed)
    }


def revision_of(
    run: Run, values: Mapping[str, object], problem: Problem, known: Mapping[str, Operator]
) -> Revision:
    """Returns what other values of settings make of a run that has begun.

    Args:
      run: As it is in the ledger.
      values: The values that are given, by dotted key.
      problem: The run's.
      known: Every operator a run may name.

    Raises:
      UsageError: A value is of the wrong kind, or its setting cannot change; the reason is named.
    """
    _require_changeable(run, values)
    budget = {"budget": asdict(run.budget)}
    before = stored_settings({**run.settings, **budget})
    after = with_values({**run.settings, **budget}, Choices("--set", dict(values)))
    # Proposals that were planned stay in the budget.
    planned = max(after.budget.proposals, run.proposals)
    capped = replace(after.budget, proposals=planned)
    after = after.model_copy(update={"budget": capped})
    facts = _differences(before, after)
    for fact in facts:
        if why := _fixed(fact, {*run.operators, *(before.nested.operators or {})}):
            raise _refused(fact.setting, fact.after, why)
    if judges_of(before.llm) != judges_of(after.llm):
        setting = next(fact.setting for fact in facts if fact.setting.startswith("llm."))
        raise _refused(setting, values.get(setting), _JUDGES)
    mix = run.operators
    named = before.search.operators != after.search.operators
    if named or bool(before.llm.mix) != bool(after.llm.mix):
        mix = operators(after, problem, known)
    if mix != run.operators and "search.operators" not in values:
        facts.append(Changed(setting="search.operators", before=dict(run.operators), after=mix))
    _require_consistent(before, after, problem, mix, known)
    asks = any(known[name].asks_model for name in mix)
    require_fleets(after, run.islands, asks=asks)
    # Islands and grid follow from the budget that the run began with.
    kept = run.settings.get("budget", {})
    settings = {**after.model_dump(mode="json"), "budget": kept}
    budget_after = Budget(**asdict(after.budget))
    return Revision(settings, mix, budget_after, tuple(facts), fleets_of(after))


def unused(environment: Choices, run: Run) -> list[str]:
    """Returns the variables of an environment that a run which has begun does not take.

    Those are variables of settings for which the run keeps a value of its own that is another one.
    """
    given = {name: value for name, value in environment.values.items() if name not in ADDRESSES}
    before = stored_settings(run.settings)
    after = with_values(run.settings, Choices(environment.source, given))
    differing = {fact.setting for fact in _differences(before, after)}
    own = {fact.setting for fact in _differences(RunSettings(), before)}
    return [
        variable_of(name)
        for name in given
        if setting_of(name) in differing
        and (owner_of(name) is Owner.RUN or setting_of(name) in own)
    ]


def _require_changeable(run: Run, values: Mapping[str, object]) -> None:
    """Makes sure that what is given has an effect on a run that has begun.

    Raises:
      UsageError: It has none.
    """
    for name, value in values.items():
        if name in ADDRESSES:
            raise _refused(name, value, "the run is in the ledger of the present address")
        if name == "sandbox.compare_modes":
            raise _refused(name, value, "only `evoq check` reads it")
        if owner_of(name) is not Owner.RUN and run.state is RunState.RUNNING:
            raise _refused(name, value, _READ_AT_START, _RESTART)


def _fixed(fact: Changed, used: Collection[str]) -> str:
    """Returns why a setting cannot change; "" where it can.

    Args:
      fact: The change of the setting.
      used: The operators of the run.
    """
    # Without `complete`, no function was chosen yet.
    if fact.setting == _FUNCTION and not fact.before and COMPLETE.name not in used:
        return ""
    reasons = fixed()
    return reasons.get(fact.setting) or reasons.get(fact.setting.partition(".")[0], "")


def _refused(setting: str, value: object, why: str, remedy: str = "") -> UsageError:
    when = "while a run goes on" if remedy else "once a run has begun"
    return UsageError(
        f"`{setting}` cannot be changed {when}: {why}",
        where="--set",
        value=repr(value)[:80],
        remedy=remedy or "Leave it out, or start another run with it.",
    )


def _differences(before: RunSettings, after: RunSettings) -> list[Changed]:
    """Returns a fact for each setting that differs, with the values that are no defaults."""
    facts = []
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    for section, values in new.items():
        for name in dict.fromkeys((*values, *old[section])):
            was, becomes = old[section].get(name), values.get(name)
            if was != becomes:
                setting = f"{section}.{name}"
                facts.append(
                    Changed(
                        setting=setting, before=_without_none(was), after=_without_none(becomes)
                    )
                )
    return facts


def _without_none(value: object) -> object:
    """Returns a JSON value whose mappings have no key without a value."""
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value


def _require_consistent(
    before: RunSettings,
    after: RunSettings,
    problem: Problem,
    mix: Mapping[str, float],
    known: Mapping[str, Operator],
) -> None:
    """Makes sure that the settings fit each other, as for a new run.

    Raises:
      UsageError: They do not.
    """
    names = {*mix, *(after.nested.operators or {})}
    used = [known[name] for name in names]
    asks = any(operator.asks_model for operator in used)
    require_mix(after, asks=asks)
    agents = any(operator.agent for operator in used)
    if asks or (agents and after.agent.network) or after.llm.feedback:
        require_bounds(after.budget, after.llm)
        require_refining(after)
    if agents:
        require_agent(after)
    added = {role: own for role, own in after.llm.roles.items() if role not in before.llm.roles}
    require_asked_roles(after, added, used)
    if COMPLETE.name in names:
        require_function(problem, after.prompts.function)
