"""`evoq change`: other settings for a run that has begun; `evoq resume --set` gives them, too."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import Debug, Json, RunName
from app.cli.output import Screen
from app.client.local_model import with_local_model
from app.client.notes import CommandError
from app.client.setting_layers import with_templates
from app.client.target import find_target, open_run, without_queue
from app.config.changes import revision_of, unused
from app.config.checks import require_owned_by_run
from app.config.layers import Choices, from_assignments, from_environment
from app.domain.run import Run
from app.engine import lifecycle
from app.engine.context import Context
from app.engine.inside import refusal

Changes = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting, as llm.max_tokens=2048; may be repeated."
    ),
]


def change(
    name: RunName,
    assignments: Changes,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Gives a run other settings while it runs, or before it is resumed.

    They hold for steps that begin afterwards; an event of the run records each. Models, endpoints
    and their limits, prompts, limits of the sandbox, budgets and stop rules can change; the
    problem, the seed, the grid and the recipe cannot.

    Examples:
      evoq change online_bin_packing-1 --set budget.proposals=2000
      evoq change 1 --set llm.model=NAME --set llm.base_url=http://localhost:8000/v1
    """
    screen, target = Screen(json=as_json), find_target()
    with open_run(name, target) as (ledger, run):
        if why := refusal(ledger.store, run):
            raise CommandError(why)
        values = given(assignments, local=not target.deployed)
        changed = apply(without_queue(ledger), run, values, screen)
    screen.answer({"run": run.name, "id": run.id, "changed": changed})


def given(
    assignments: Sequence[str], options: Mapping[str, object] = {}, *, local: bool
) -> dict[str, object]:
    """Returns the values that the command line gives a run that has begun, by dotted key.

    Args:
      assignments: The values of `--set`.
      options: Settings that have options of their own.
      local: Whether the run's workers are started by a command of this machine.

    Raises:
      UsageError: A setting is unknown, or none of the run.
    """
    values = {**from_assignments(assignments).values, **options}
    layer = with_templates(Choices("--set", values), Path())
    if not local:
        require_owned_by_run([layer])
    [layer] = with_local_model([layer])
    values = dict(layer.values)
    asked = [str(value) for name, value in values.items() if name.startswith("llm.")]
    # `human` is a provider here.
    if any("human" in text for text in asked) and "llm.answers" not in values:
        values["llm.answers"] = str(Path(".evoq/answers").absolute())
    return values


def apply(
    ctx: Context, run: Run, values: Mapping[str, object], screen: Screen
) -> dict[str, object]:
    """Changes settings of a run, and says so; returns the changes as a JSON value, by setting.

    Raises:
      UsageError: A value is of the wrong kind, or its setting cannot change.
      CommandError: Another command changed the run at the same moment.
    """
    revision = revision_of(run, values, ctx.problem(run.problem), ctx.operators)
    if not revision.changes:
        if values:
            screen.note(f"notice: nothing was changed: {run.name} has these values already")
        return {}
    if not lifecycle.change(ctx, run, revision):
        raise CommandError(
            f"{run.name} was changed by another command at the same moment: give the command again"
        )
    for fact in revision.changes:
        screen.say(f"changed {fact.text}")
    return {fact.setting: {"before": fact.before, "after": fact.after} for fact in revision.changes}


def note_unused_variables(run: Run, screen: Screen) -> None:
    """Says which variables of the environment the run does not take, because it keeps its own."""
    if names := unused(from_environment(os.environ), run):
        screen.note(
            f"notice: {', '.join(names)} of the environment: not used, because {run.name} keeps "
            f"the settings it was started with; --set KEY=VALUE changes one"
        )
