"""Fleets of a run that is to begin: what of them has to fit, and where they have no effect."""

from dataclasses import replace

from app.config.fleets import judge_labels, model_label
from app.config.layers import UsageError
from app.config.models import ModelChoice, RoleSettings
from app.config.resolve import Resolved
from app.config.settings import RunSettings
from app.domain.operator import Role
from app.domain.search.fleets import labels, queue_of

_STEPS = (Role.GENERATOR, Role.JUDGE)
"""The roles that a step of their own asks; the others are asked by the step of a child."""


def without_fleets(run: Resolved) -> tuple[Resolved, list[str]]:
    """Drops the fleets of a run whose workers serve every step, as those of a command do.

    Returns:
      The settings, and a sentence where there were fleets.
    """
    queue, llm = run.settings.queue, run.settings.llm
    if not queue.fleets and not any(model.fleet for model in llm.every_model):
        return run, []
    roles = {role: replace(own, fleet=None, models=_free(own)) for role, own in llm.roles.items()}
    llm = replace(llm, fleet=None, models=_free(llm), roles=roles)
    changed = {"queue": replace(queue, fleets=[]), "llm": llm}
    notice = (
        "`queue.fleets` and `fleet` of models: without effect on a run whose workers this command "
        "brings; those of a deployment have labels."
    )
    return replace(run, settings=run.settings.model_copy(update=changed)), [notice]


def _free(role: RoleSettings) -> list[ModelChoice]:
    return [replace(model, fleet=None) for model in role.models]


def require_fleets(settings: RunSettings, islands: int, *, asks: bool) -> None:
    """Makes sure that each fleet of a run has work, and each step of it a model.

    Args:
      settings: The run's.
      islands: Their number.
      asks: Whether an operator of the run asks a model.

    Raises:
      UsageError: A fleet would have nothing to do, or nothing to ask.
    """
    _require_roles(settings)
    for kind in ("gpu", "cpu"):
        named = [name for name in settings.queue.fleets if name.startswith(kind)]
        if len(named) > islands:
            raise UsageError(
                f"islands take the fleets of {kind} in turn, and the run has {islands} of them",
                where="queue.fleets",
                value=", ".join(named),
                remedy="Leave the others out, or raise search.islands.",
            )
    if asks:
        _require_models(settings)
    judges = judge_labels(settings)
    if settings.llm.feedback and len(judges) > 1:
        raise UsageError(
            "one step asks all judges of a program, and these are of several fleets",
            where="llm.roles.judge",
            value=", ".join(queue_of("gpu", label) for label in judges),
            remedy="Name judges of one fleet in llm.roles.judge.models, or one judge in "
            "llm.roles.judge.model.",
        )


def _require_roles(settings: RunSettings) -> None:
    """Refuses a fleet of a role that is asked by the step of a child, wherever that is."""
    for role, own in settings.llm.roles.items():
        named = own.fleet or next((model.fleet for model in own.models if model.fleet), None)
        if named and role not in _STEPS:
            raise UsageError(
                "its models are asked by the step that makes a child, whose fleet is that of the "
                "child",
                where=f"llm.roles.{role}.fleet",
                value=named,
                remedy="Leave it out: a model without a fleet is asked by the workers of any.",
            )


def _require_models(settings: RunSettings) -> None:
    """Refuses islands whose fleet has no model to ask, and models that no island asks."""
    islands = labels(settings.queue.fleets, "gpu")
    models = settings.llm.models_of()
    if not islands or not models:
        return
    known = {model_label(model) for model in models}
    for label in islands:
        if not {label, ""} & known:
            raise UsageError(
                f"no model is asked by the workers of {queue_of('gpu', label)}",
                where="queue.fleets",
                value=queue_of("gpu", label),
                remedy="Give a model of llm.models this `fleet`, or name one without a fleet.",
            )
    for model in models:
        if model.fleet and model_label(model) not in islands:
            raise UsageError(
                "no island is served by its fleet",
                where=f"llm.models ({model.name}).fleet",
                value=model.fleet,
                remedy="Name the fleet in queue.fleets, too, or leave those of the kind `gpu` out "
                "there, so that models are drawn by weight.",
            )
