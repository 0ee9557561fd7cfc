"""Checks between the settings of a run that is to begin, and what follows from them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from app.config.layers import ENVIRONMENT, Choices, UsageError
from app.config.models import ModelSettings, RoleSettings
from app.config.resolve import PROBLEMS_OWN, Resolved
from app.config.rules import islands_of, mixes_of, refining_of, strategy_of
from app.config.section import Owner, variable_of
from app.config.settings import RunSettings, owner_of
from app.domain.operator import Operator, Role
from app.domain.problem import Axis, Problem
from app.domain.search.archive import scaled
from app.domain.search.budget import Budget
from app.domain.search.nested import LEAST


def require_bounds(budget: Budget, llm: ModelSettings, prompt_tokens: int = 0) -> None:
    """Makes sure that caps on tokens and money can be kept.

    Args:
      budget: The caps.
      llm: The run's models.
      prompt_tokens: Tokens of the shortest prompt; 0 where they are not known.

    Raises:
      UsageError: A model has no price, or may answer at any length, or one proposal may take more.
    """
    if budget.tokens is None and budget.cost_usd is None:
        return
    unbounded = sorted({model.name for model in llm.every_model if model.max_tokens is None})
    if unbounded:
        raise UsageError(
            f"{', '.join(unbounded)} may answer at as much length as it likes",
            where="budget.tokens" if budget.tokens is not None else "budget.cost_usd",
            remedy="Set llm.max_tokens, or leave the cap out.",
        )
    unpriced = sorted(
        {
            model.name
            for model in llm.every_model
            if model.usd_per_million_prompt_tokens is None
            or model.usd_per_million_completion_tokens is None
        }
    )
    if unpriced and budget.cost_usd is not None:
        raise UsageError(
            f"no price is known of {', '.join(unpriced)}",
            where="budget.cost_usd",
            remedy="Set llm.usd_per_million_prompt_tokens and llm.usd_per_million_completion_tokens"
            ", or those of the model or role; or cap budget.tokens instead.",
        )
    requests, each = 1 + llm.repair_turns, llm.price_ceiling.reservation(prompt_tokens)
    counted = "with the shortest prompt" if prompt_tokens else "prompts not counted"
    for name, cap, price in (
        ("tokens", budget.tokens, each.tokens),
        ("cost_usd", budget.cost_usd, each.cost_usd),
    ):
        least = requests * price
        if cap is not None and cap < least:
            raise UsageError(
                f"one proposal may take {least:g}, {counted}, so none could be asked for",
                where=f"budget.{name}",
                value=f"{cap:g}",
                remedy=f"Raise it, or lower llm.max_tokens (the longest answer is "
                f"{llm.price_ceiling.max_tokens}) or llm.repair_turns ({llm.repair_turns}).",
            )


def require_agent(settings: RunSettings) -> None:
    """Makes sure that a run's agents have a command, and that its caps have room for one of them.

    Raises:
      UsageError: There is no command, or one agent may take more.
    """
    if not settings.agent.command:
        raise UsageError(
            "the operator `agent` has no command to run",
            where="search.operators",
            value="agent",
            remedy='Give one, as --set \'agent.command=["my-agent", "{task}"]\': docs/agents.md.',
        )
    tokens = settings.agent.tokens if settings.agent.network else 0
    each = settings.llm.price_ceiling.of_tokens(tokens)
    for name, cap, price in (
        ("tokens", settings.budget.tokens, each.tokens),
        ("cost_usd", settings.budget.cost_usd, each.cost_usd),
    ):
        if cap is not None and cap < price:
            raise UsageError(
                f"one agent may take {price:g}, so none could be started",
                where=f"budget.{name}",
                value=f"{cap:g}",
                remedy=f"Raise it, or lower agent.tokens ({settings.agent.tokens}).",
            )


def require_gates(settings: RunSettings, problem: Problem) -> None:
    """Makes sure that every gate has a stage behind it.

    Raises:
      UsageError: There are more gates than steps between stages.
    """
    given = settings.search.gates or ()
    steps = len(problem.stages) - 1 + settings.llm.feedback
    if len(given) > steps:
        raise UsageError(
            f"the problem has the stages {', '.join(problem.stages)}, so at most {steps} gates",
            where="search.gates",
            value=str(list(given)),
            remedy="Leave the others out.",
        )


def require_players(settings: RunSettings, problem: Problem) -> None:
    """Makes sure that the recipe can rank the programs of the problem.

    Raises:
      UsageError: The problem is a game and the recipe measures each program alone, or the reverse.
    """
    plays = strategy_of(settings, 1).plays
    if plays == (problem.players > 1):
        return
    raise UsageError(
        f"`{problem.name}` is no game, and this recipe ranks programs by games"
        if plays
        else f"the programs of `{problem.name}` play each other, and this recipe ranks each alone",
        where="search.strategy",
        value=settings.search.strategy,
        remedy="Choose another recipe." if plays else "Set search.strategy=tournament.",
    )


_READERS = {"sandbox": "cpu", "prices": "gpu, cpu or control", "queue": "gpu, cpu and control"}
"""Section to the queues whose workers read it."""
_HAS_A_DEFAULT = "sandbox.places"
"""A worker's setting that docker-compose.yml gives a default, so that workers.env cannot."""


def require_owned_by_run(layers: Sequence[Choices]) -> list[str]:
    """Makes sure that what is given to a run of a deployment has an effect on it.

    Returns:
      A sentence on the variables of this process that have none; [] where there is no such.

    Raises:
      UsageError: The command line or --config gives a setting that is not the run's.
    """
    idle: list[str] = []
    for layer in layers:
        for name in (n for n in layer.values if owner_of(n) is not Owner.RUN):
            variable = variable_of(name)
            if layer.source == ENVIRONMENT:
                idle.append(variable)
                continue
            readers = _READERS[name.partition(".")[0]]
            file = ".env" if name == _HAS_A_DEFAULT else "workers.env"
            raise UsageError(
                f"`{name}` belongs to the workers of this deployment, which never see a run's value"
                if owner_of(name) is Owner.WORKER
                else f"`{name}` has no effect on a run of a deployment",
                where=layer.source,
                value=repr(layer.values[name])[:80],
                remedy=f"Leave it out, and set {variable} where the workers of the queue {readers} "
                f"are started (with Compose: in {file})."
                if owner_of(name) is Owner.WORKER
                else "Leave it out.",
            )
    if not idle:
        return []
    return [
        f"{', '.join(idle)} of this environment: without effect on a run of a deployment, whose "
        f"workers read their own."
    ]


def require_refining(settings: RunSettings) -> None:
    """Makes sure that prompts contain the programs whose children are due for the refiner.

    Raises:
      UsageError: The refiner's parents are among more programs than prompts contain.
    """
    rules, shown = refining_of(settings.llm), settings.search.top_programs
    if rules.share and rules.top > shown:
        raise UsageError(
            f"the refiner's parents are looked for among the {shown} fittest, as many as are shown",
            where="llm.refiner_top",
            value=str(rules.top),
            remedy="Lower it, or raise search.top_programs.",
        )


def require_mix(settings: RunSettings, *, asks: bool) -> None:
    """Makes sure that there are models to draw from where they are drawn by what they gained.

    Args:
      settings: The run's.
      asks: Whether an operator of the run asks a model.

    Raises:
      UsageError: There are no two models with a weight, or two have one name.
    """
    llm = settings.llm
    if not llm.adaptive_weights:
        return
    if not asks or not mixes_of(llm):
        raise UsageError(
            "no operator of the run asks a model"
            if not asks
            else "there are no two models with a weight above 0 to draw from",
            where="llm.adaptive_weights",
            value="true",
            remedy="Leave it out, or "
            + (
                "name at least two models with weights in llm.models."
                if asks
                else "give an operator that asks one a weight in search.operators."
            ),
        )
    for role in (Role.GENERATOR, Role.REFINER):
        names = [model.name for model in llm.models_of(role)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(
                "two models of a mix have one name, so that their children cannot be distinguished",
                where=f"the models of the role {role}",
                value=twice[0],
                remedy="Leave llm.adaptive_weights out, or one of the two.",
            )


def with_asked_roles(run: Resolved, operators: Collection[Operator]) -> tuple[Resolved, list[str]]:
    """Drops roles that the problem's configuration names and that no step of the run asks.

    Args:
      run: The settings.
      operators: Those of the run.

    Returns:
      The settings, and a sentence for each role that was dropped.

    Raises:
      UsageError: Another source names a role that no step asks.
    """
    roles = dict(run.settings.llm.roles)
    notices = []
    for role, why in _why_unasked(run.settings, operators).items():
        if role not in roles:
            continue
        name = f"llm.roles.{role}"
        sources = {
            source
            for key, source in run.sources.items()
            if key == "llm.roles" or f"{key}.".startswith(f"{name}.")
        }
        if sources != {PROBLEMS_OWN}:
            raise _unasked(role, roles[role], why, ", ".join(sorted(sources)))
        del roles[role]
        notices.append(f"`{name}`: without effect in this run, because {why}.")
    llm = replace(run.settings.llm, roles=roles)
    return (_with_models(run, llm), notices) if notices else (run, [])


def require_asked_roles(
    settings: RunSettings,
    added: Mapping[Role, RoleSettings],
    operators: Collection[Operator],
) -> None:
    """Makes sure that steps of a run that has begun ask the roles that are added to it.

    Args:
      settings: With the added roles.
      added: Those.
      operators: The operators of the run.

    Raises:
      UsageError: No step asks one of them.
    """
    for role, why in _why_unasked(settings, operators).items():
        if role in added:
            raise _unasked(role, added[role], why, "--set")


def _unasked(role: Role, settings: RoleSettings, why: str, source: str) -> UsageError:
    return UsageError(
        f"no step of this run asks the role `{role}`: {why}",
        where=f"llm.roles.{role} ({source})",
        value=", ".join(model.name for model in settings.mix) or "no model",
        remedy=_REMEDIES[role],
    )


def _why_unasked(settings: RunSettings, operators: Collection[Operator]) -> dict[Role, str]:
    """Returns the roles that no step of a run asks, each with the reason."""
    llm, rules = settings.llm, refining_of(settings.llm)
    why: dict[Role, str] = {}
    if not any(operator.asks_model for operator in operators):
        why = dict.fromkeys((Role.GENERATOR, Role.REFINER), "no operator of the run asks a model")
    elif not rules.share:
        why[Role.REFINER] = "`llm.refiner_share` is 0"
    elif not rules.top and not rules.stalled:
        why[Role.REFINER] = "`llm.refiner_top` and `llm.refiner_stalled` are 0"
    if not llm.feedback:
        why[Role.JUDGE] = "`llm.feedback` is false"
    if settings.search.similarity is None:
        why[Role.EMBEDDER] = "`search.similarity` has no value"
    elif Role.EMBEDDER in llm.roles and not llm.roles[Role.EMBEDDER].mix:
        why[Role.EMBEDDER] = "it names no model of its own, and a chat model makes no embeddings"
    if not any(operator.agent for operator in operators):
        why[Role.AGENT] = "no operator of the run has agents; `agent` does"
    elif not settings.agent.network:
        why[Role.AGENT] = "`agent.network` is false"
    advisers = {role for operator in operators for role in operator.advisers}
    for role in {Role.STRATEGIST, Role.ADVERSARY} - advisers:
        why[role] = "no operator of the run asks it; `directed` does"
    return why


_ASKING = "Set llm.model, and search.operators to some that ask a model, or leave the role out."
_DIRECTING = "Give `directed` a weight in search.operators, or leave the role out."
_REMEDIES = {
    Role.GENERATOR: _ASKING,
    Role.STRATEGIST: _DIRECTING,
    Role.ADVERSARY: _DIRECTING,
    Role.REFINER: f"{_ASKING} The refiner also takes a share of the children that are due: "
    f"llm.refiner_share, llm.refiner_top, llm.refiner_stalled.",
    Role.EMBEDDER: "Set llm.roles.embedder.model, and search.similarity to the least cosine of a "
    "child that is not evaluated, such as 0.99; or leave the role out.",
    Role.AGENT: "Give `agent` a weight in search.operators, and its agents a network; or leave the "
    "role out.",
    Role.JUDGE: "Set llm.feedback=true and a model of the role, or leave the role out.",
}


def without_models(run: Resolved) -> Resolved:
    """Returns the settings without any language model."""
    llm = run.settings.llm
    return _with_models(
        run,
        replace(llm, models=[], model=None, roles={}, feedback=False, adaptive_weights=False),
    )


def require_nesting(settings: RunSettings, sources: Mapping[str, str]) -> None:
    """Makes sure that a run has room for those inside it, and that its limits hold for them.

    Args:
      settings: The run's.
      sources: As in `Resolved`.

    Raises:
      UsageError: A setting of `nested` has no effect, or one of the run cannot be kept.
    """
    budget = settings.budget
    if settings.nested.strategy is None:
        parts = [key.split(".") for key in sources]
        given = sorted({name for section, name, *_ in parts if section == "nested"} - {"strategy"})
        if given:
            raise UsageError(
                "it is a setting of the runs inside the run, and there are none",
                where=f"nested.{given[0]}",
                remedy="Set nested.strategy to their recipe, or leave it out.",
            )
        return
    if budget.proposals < LEAST:
        raise UsageError(
            f"a proposal with a run inside takes {LEAST} proposals or more",
            where="budget.proposals",
            value=str(budget.proposals),
            remedy="Raise it.",
        )
    if settings.queue.trials_at_once is not None:
        raise UsageError(
            "it holds for each run alone, and the runs inside measure at once",
            where="queue.trials_at_once",
            value=str(settings.queue.trials_at_once),
            remedy="Leave it out, or set sandbox.places of the workers.",
        )


def without_judges(run: Resolved) -> tuple[Resolved, list[str]]:
    """Drops judges that the problem's configuration asks for where there is no model for them.

    Returns:
      The settings, and a sentence for each thing that was dropped.

    Raises:
      UsageError: Another source asks for judges, and there is no model.
    """
    llm = run.settings.llm
    if not llm.feedback or llm.models_of(Role.JUDGE):
        return run, []
    if run.sources.get("llm.feedback") != PROBLEMS_OWN:
        raise UsageError(
            "judges are asked for, and no language model is configured",
            where="llm.feedback",
            remedy="Name a model, as --set llm.model=NAME or --set llm.roles.judge.model=NAME.",
        )
    return _with_models(run, replace(llm, feedback=False)), [
        "`evaluator.use_llm_feedback`: without effect in this run, because no language model is "
        "configured."
    ]


def _with_models(run: Resolved, llm: ModelSettings) -> Resolved:
    return replace(run, settings=run.settings.model_copy(update={"llm": llm}))


def axes_of(problem: Problem, settings: RunSettings) -> tuple[Axis, ...]:
    """Returns the axes of a run's grid; () where its recipe has none."""
    islands = islands_of(settings)
    if not strategy_of(settings, islands).gridded:
        return ()
    return scaled(problem.axes, islands, settings.budget.proposals)
