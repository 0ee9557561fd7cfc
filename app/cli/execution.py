"""`evoq run` and `evoq resume`: from options to a run that is followed to its end."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from app.cli.budget_change import raised
from app.cli.faults import DONE, Failed
from app.cli.local_state import RESULTS, Memory, is_up, recall, remember, writable
from app.cli.measuring import evaluator_of
from app.cli.plan import Order, layers_of, load, ordered
from app.cli.screen import Screen
from app.cli.session import Desk, desk
from app.cli.target import Place, opened, place, require_runs
from app.config.checks import require_bounds
from app.config.layers import UsageError
from app.config.settings import QueueSettings, RunSettings
from app.domain.problem import Problem
from app.domain.run import Run
from app.engine import lifecycle
from app.ports.protocols import Store

NOTHING_BEGUN = "no run had begun"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `evoq run`."""

    paths: tuple[Path, ...]
    iterations: int | None = None
    seed: int | None = None
    name: str | None = None
    config: Path | None = None
    assignments: tuple[str, ...] = ()
    out: Path | None = None
    detach: bool = False
    strict: bool = False
    reproducible: bool = False


def start(asked: Asked, screen: Screen) -> int:
    """Starts a run; returns the exit status.

    Whatever can be found wrong is found before the run exists.
    """
    if asked.name is not None:
        _require_name(asked.name)
    layers = layers_of(
        asked.assignments, asked.config, iterations=asked.iterations, seed=asked.seed
    )
    at = place(layers.choices)
    _require_ways(asked, at)
    order = ordered(load(asked.paths, layers, strict=asked.strict), local=not at.deployed)
    if asked.reproducible:
        order = _one_at_a_time(order)
    writable(asked.out or RESULTS)
    for notice in order.notices:
        screen.note(f"notice: {notice}")
    needs = evaluator_of(order.problem)
    inline = asked.reproducible
    hint = NOTHING_BEGUN
    try:
        with desk(at, order.settings, inline=inline, screen=screen, evaluator=needs) as work:
            name = asked.name or _free_name(work.store, order.problem)
            folder = writable((asked.out or RESULTS / name).absolute())
            _keep(at, name, Memory(str(folder), asked.reproducible), screen)
            run = lifecycle.start(work.ctx, order.problem, order.new_run(name))
            hint = f"`evoq resume {name}` goes on"
            return _follow(work, run, order.problem, folder, detach=asked.detach)
    except (KeyboardInterrupt, BrokenPipeError):
        screen.note(f"stopped at once; {hint}")
        raise


@dataclass(frozen=True, slots=True)
class Again:
    """The options of `evoq resume`."""

    name: str
    iterations: int | None = None
    assignments: tuple[str, ...] = ()
    out: Path | None = None
    detach: bool = False


def go_on(again: Again, screen: Screen) -> int:
    """Goes on with a run; returns the exit status."""
    at = place()
    require_runs(at)
    if again.detach and not at.deployed and not is_up(at.home):
        raise _nobody()
    with opened(at) as ledger:
        before = find(ledger.store, again.name)
        budget = raised(before.budget, again.iterations, again.assignments)
        settings = RunSettings.model_validate(before.settings)
        require_bounds(budget or before.budget, settings.llm)
        memory = recall(at.home, before.name)
        memory = replace(memory, out=str(again.out or memory.out))
        folder = writable(Path(memory.out).absolute())
        _keep(at, before.name, replace(memory, out=str(folder)), screen)
        inline = memory.reproducible and not at.deployed
        try:
            with desk(at, settings, inline=inline, screen=screen, spare=before.id) as work:
                problem = work.ctx.problem(before.problem)
                if not lifecycle.resume(work.ctx, before.id, budget):
                    screen.note(
                        f"notice: {before.name} goes no further: {before.reason}; a larger "
                        f"--iterations N or --set budget.KEY=VALUE goes on"
                    )
                with work.store.begin() as tx:
                    run = tx.runs.get(before.id)
                return _follow(work, run, problem, folder, detach=again.detach)
        except (KeyboardInterrupt, BrokenPipeError):
            screen.note(f"stopped at once; `evoq resume {before.name}` goes on")
            raise


def find(store: Store, name: str) -> Run:
    """Returns the run of that name or number.

    Raises:
      LookupError: There is none.
    """
    with store.begin() as tx:
        found = tx.runs.named(name)
    if found is None:
        raise LookupError(f"there is no run {name!r}: `evoq list-runs` names them")
    return found


def _follow(work: Desk, run: Run, problem: Problem, folder: Path, *, detach: bool) -> int:
    share = sum(run.operators.values())
    mix = ", ".join(f"{name} {weight / share:.0%}" for name, weight in run.operators.items())
    work.screen.say(
        f"run {run.name}: {run.budget.proposals} proposals, seed {run.seed}, "
        f"{run.islands} islands, operators {mix}; files go to {folder}"
    )
    if not detach:
        return work.follow(run, problem, folder)
    work.screen.say(f"submitted: `evoq watch {run.name}` follows it")
    work.screen.answer({"run": run.name, "id": run.id, "state": run.state.value, "out": None})
    return DONE


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name.isdigit():
        raise UsageError(
            "not a name for a run",
            where="--name",
            value=name,
            remedy="Use up to 100 letters, digits, dots, dashes and underscores, not digits alone.",
        )


def _require_ways(asked: Asked, at: Place) -> None:
    if asked.reproducible and (at.deployed or asked.detach):
        raise UsageError(
            "a reproducible run happens in this one process",
            where="--reproducible",
            remedy="Leave out --detach, EVOQ_DATABASE_URL and EVOQ_REDIS_URL.",
        )
    if asked.detach and not at.deployed and not is_up(at.home):
        raise _nobody()


def _nobody() -> UsageError:
    return UsageError(
        "nobody would work on the run",
        where="--detach",
        remedy="Start `evoq up` in another terminal first, or leave --detach out.",
    )


def _one_at_a_time(order: Order) -> Order:
    limits: QueueSettings = order.settings.queue.model_copy(
        update={"generating": 1, "evaluating": 1}
    )
    return replace(order, settings=order.settings.model_copy(update={"queue": limits}))


def _free_name(store: Store, problem: Problem) -> str:
    """Returns PROBLEM-NUMBER, with the first number that no run has from the newest run's on."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", problem.name).strip("-._")[:80] or "run"
    with store.begin() as tx:
        newest = tx.runs.newest(limit=1)
        number = newest[0].id + 1 if newest else 1
        while tx.runs.named(f"{stem}-{number}") is not None:
            number += 1
    return f"{stem}-{number}"


def _keep(at: Place, run: str, memory: Memory, screen: Screen) -> None:
    """Remembers how a run was started; a client of a deployment may do without."""
    try:
        remember(at.home, run, memory)
    except OSError as error:
        if not at.deployed:
            raise Failed(f"{at.home}: cannot be written to ({error.strerror})") from error
        screen.note(f"notice: {at.home} cannot be written to: `evoq resume` will not know --out")
