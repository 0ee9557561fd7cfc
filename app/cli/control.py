"""`evoq pause` and `evoq cancel`."""

from app.cli.execution import find
from app.cli.faults import Failed
from app.cli.screen import Screen
from app.cli.target import opened, place, require_runs, silent
from app.engine import lifecycle


def pause(name: str, screen: Screen) -> None:
    """Stops planning for a run.

    Raises:
      Failed: It is not running.
    """
    _change(name, screen, "pause")


def cancel(name: str, screen: Screen) -> None:
    """Ends a run.

    Raises:
      Failed: It had ended before.
    """
    _change(name, screen, "cancel")


def _change(name: str, screen: Screen, verb: str) -> None:
    at = place()
    require_runs(at)
    with opened(at) as ledger:
        run = find(ledger.store, name)
        ctx = silent(ledger)
        done = lifecycle.pause(ctx, run.id) if verb == "pause" else lifecycle.cancel(ctx, run.id)
        after = find(ledger.store, run.name)
    if not done:
        raise Failed(f"{run.name} is {after.state.value}: there is nothing to {verb}")
    screen.say(f"{run.name} is {after.state.value}; `evoq resume {run.name}` goes on")
    screen.answer({"run": run.name, "id": run.id, "state": after.state.value})
