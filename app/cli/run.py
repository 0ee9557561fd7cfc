"""`evoq run` and `evoq resume`: start or continue a run and follow it to its end."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from app.cli.change import apply, given, note_unused_variables
from app.cli.dashboard import served
from app.cli.follow import follow
from app.cli.options import Assignments, Config, Debug, Json, Problem, RunName, Strict, Verbose
from app.cli.output import Screen
from app.client.local_state import (
    RESULTS,
    LocalState,
    is_up,
    read_local_state,
    require_own,
    require_writable,
    write_local_state,
)
from app.client.measuring import evaluator_of
from app.client.notes import CommandError
from app.client.plan import RunPlan, plan_run
from app.client.run_names import free_name, require_name
from app.client.session import open_session
from app.client.setting_layers import load_problem, named_problem, read_layers
from app.client.target import Target, find_run, find_target, open_run, without_queue
from app.config.layers import UsageError
from app.config.settings import RunSettings
from app.domain.problem import Problem as Loaded
from app.domain.run import RunState
from app.engine import lifecycle
from app.engine.inside import refusal
from app.ports.protocols import Store

Iterations = Annotated[
    int | None,
    typer.Option("--iterations", metavar="N", min=1, help="Number of proposals in all."),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="S", min=0, help="Seed of all random draws; 42 by default."),
]
Name = Annotated[
    str | None, typer.Option("--name", help="Name of the run; PROBLEM-NUMBER by default.")
]
Results = Annotated[
    str | None,
    typer.Option(
        "--out", "--output", metavar="DIR", help="Folder of results; runs/NAME by default."
    ),
]
NoModel = Annotated[
    bool,
    typer.Option("--no-model", help="Ask no model, whatever the configuration names."),
]
TargetScore = Annotated[
    float | None,
    typer.Option("--target-score", metavar="X", help="Stop at this fitness: search.stop_fitness."),
]
PrimaryModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        "--primary-model",
        metavar="NAME",
        help="The model: llm.model; `auto`: that of a server on this machine.",
    ),
]
ApiBase = Annotated[
    str | None, typer.Option("--api-base", metavar="URL", help="Its endpoint: llm.base_url.")
]
Project = Annotated[
    str | None,
    typer.Option(
        "--project", metavar="NAME", help="Project whose share and quotas hold: queue.project."
    ),
]
WithDashboard = Annotated[
    bool,
    typer.Option("--dashboard", help="Show the run in a browser while it is followed."),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Submit to a deployment, or to `evoq up`, and return.")
]
Reproducible = Annotated[
    bool,
    typer.Option("--reproducible", help="One process, one proposal at a time: repeatable."),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another value of a setting; may be repeated."),
]
SameResults = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="DIR", help="Folder of results; the run's own folder by default."
    ),
]
Submit = Annotated[bool, typer.Option("--detach", help="Do not follow the run.")]


def run(
    problem: Problem,
    iterations: Iterations = None,
    seed: Seed = None,
    name: Name = None,
    config: Config = None,
    assignments: Assignments = None,
    out: Results = None,
    detach: Detach = False,
    as_json: Json = False,
    strict: Strict = False,
    reproducible: Reproducible = False,
    no_model: NoModel = False,
    primary_model: PrimaryModel = None,
    api_base: ApiBase = None,
    target_score: TargetScore = None,
    project: Project = None,
    dashboard: WithDashboard = False,
    verbose: Verbose = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> int:
    """Starts a search and follows it to its end.

    Without EVOQ_DATABASE_URL and EVOQ_REDIS_URL everything it needs is started here and ended with
    it. Ctrl-C pauses the run; `evoq resume` continues it. Exit status: 0 finished, 1 not finished,
    2 wrong usage.

    Examples:
      evoq run examples/online_bin_packing --iterations 400 --seed 1
      evoq run initial_program.py evaluator.py --config config.yaml
      evoq run my_problem --model auto
      evoq run my_problem --set llm.model=NAME --set llm.base_url=http://localhost:8000/v1
      evoq run my_problem --reproducible --seed 7 --json
      evoq run examples/bin_packing/funsearch_lite.yaml
      evoq run examples/online_bin_packing --dashboard
    """
    paths, config = named_problem(problem, config)
    screen = Screen(json=as_json)
    options = {
        "budget.proposals": iterations,
        "search.seed": seed,
        "search.stop_fitness": target_score,
        "llm.model": primary_model,
        "llm.base_url": api_base,
        "queue.project": project,
    }
    layers = read_layers(assignments, config, options)
    experiment = layers.experiment
    require_name(name)
    require_name(experiment.run or None, f"{config}: run_id")
    name = name or experiment.run or None
    results = Path(out) if out else None
    if experiment.folder and name and results is None:
        results = Path(experiment.folder, name)
    target = find_target(layers.choices)
    _require_possible(target, detach=detach, reproducible=reproducible, dashboard=dashboard)
    loaded = load_problem(paths, layers, strict=strict)
    plan = plan_run(
        loaded, layers, local=not target.deployed, reproducible=reproducible, no_model=no_model
    )
    require_writable(require_own(results, "--out") if results else RESULTS)

    for notice in plan.notices:
        screen.note(f"notice: {notice}")
    begun = _Begun(name, results, Path(experiment.folder or RESULTS), detach, dashboard)
    return _begin(target, loaded, plan, begun, screen, verbose=verbose)


@dataclass(frozen=True, slots=True)
class _Begun:
    """How a run is begun.

    Attributes:
      name: None makes one from the problem's.
      results: The folder of its results; None for one of its name in `above`.
      above: The folder of such folders.
      detach: Whether it is not followed.
      dashboard: Whether it is shown in a browser meanwhile.
    """

    name: str | None
    results: Path | None
    above: Path
    detach: bool
    dashboard: bool


def _begin(
    target: Target, problem: Loaded, plan: RunPlan, begun: _Begun, screen: Screen, *, verbose: bool
) -> int:
    """Starts a run and follows it; returns the exit status."""
    hint, name = "no run had begun", begun.name
    try:
        with open_session(
            target,
            plan.settings,
            inline=plan.in_process,
            notes=screen,
            evaluator=evaluator_of(problem),
            verbose=verbose,
        ) as session:
            if name:
                _require_new(session.store, name, None if begun.results else RESULTS / name)
            name = name or free_name(session.store, problem.name)
            folder = require_writable((begun.results or begun.above / name).absolute())
            _remember(target, name, LocalState(str(folder)), screen)
            with session.hold(name):
                run = lifecycle.start(session.ctx, problem, plan.new_run(name))
                hint = f"`evoq resume {name}` continues it"
                address = session.ledger.redis_url
                page = served(session.ctx, address, screen) if begun.dashboard else nullcontext()
                with page:
                    return follow(session, run, problem, folder, screen, detach=begun.detach)
    except (KeyboardInterrupt, BrokenPipeError):
        screen.note(f"stopped at once; {hint}")
        raise


def resume(
    name: RunName,
    iterations: Iterations = None,
    assignments: Changes = None,
    out: SameResults = None,
    detach: Submit = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Continues a run that was paused, interrupted, killed or cancelled, or that failed.

    The run ends at exactly its budget; --iterations changes the number of proposals, and --set any
    setting that a run which has begun can change: see `evoq change`.

    Examples:
      evoq resume online_bin_packing-1
      evoq resume 1 --iterations 2000
      evoq resume 1 --set llm.max_tokens=2048 --set sandbox.memory_mib=4096
    """
    screen, target = Screen(json=as_json), find_target()
    if target.used and detach:
        _require_workers(target)
    with open_run(name, target) as (ledger, stored):
        if why := refusal(ledger.store, stored):
            raise CommandError(why)
        if stored.in_process and target.deployed:
            raise CommandError(
                f"{stored.name} is --reproducible, so that no worker works on it: unset "
                f"EVOQ_DATABASE_URL and EVOQ_REDIS_URL to continue it in its embedded folder, or "
                f"start another run"
            )
        options = {} if iterations is None else {"budget.proposals": iterations}
        values = given(assignments or (), options, local=not target.deployed)
        apply(without_queue(ledger), stored, values, screen)
        before = find_run(ledger.store, stored.name)
        note_unused_variables(before, screen)
        settings = RunSettings.model_validate(before.settings)
        state = read_local_state(target.home, before.name)
        if out and Path(out).absolute() != Path(state.out).absolute():
            require_own(Path(out), "--out", run=before.name, problem=before.problem)
        folder = require_writable(Path(out or state.out).absolute())
        _remember(target, before.name, replace(state, out=str(folder)), screen)
        try:
            with (
                open_session(
                    *(target, settings), inline=before.in_process, notes=screen, resumed=before.id
                ) as session,
                session.hold(before.name),
            ):
                problem = session.ctx.problem(before.problem)
                if lifecycle.resume(session.ctx, before.id, keep_leases=session.detached):
                    if before.state is RunState.FINISHED:
                        screen.note(f"notice: {before.name} had finished: {before.reason}")
                else:
                    screen.note(
                        f"notice: {before.name} goes no further: {before.reason}; a larger "
                        f"--iterations N or --set budget.KEY=VALUE continues it"
                    )
                with session.store.begin() as tx:
                    resumed = tx.runs.get(before.id)
                return follow(session, resumed, problem, folder, screen, detach=detach)
        except (KeyboardInterrupt, BrokenPipeError):
            screen.note(f"stopped at once; `evoq resume {before.name}` continues it")
            raise


def _require_possible(target: Target, *, detach: bool, reproducible: bool, dashboard: bool) -> None:
    if reproducible and (target.deployed or detach):
        raise UsageError(
            "a reproducible run happens in this one process",
            where="--reproducible",
            remedy="Leave out --detach, EVOQ_DATABASE_URL and EVOQ_REDIS_URL.",
        )
    if detach and dashboard:
        raise UsageError(
            "a command that returns at once serves no dashboard",
            where="--dashboard",
            remedy="Leave out --detach, or use `evoq dashboard` or that of `evoq up`.",
        )
    if detach:
        _require_workers(target)


def _require_workers(target: Target) -> None:
    """Raises unless workers of this target outlive this command."""
    if not target.deployed and not is_up(target.home):
        raise UsageError(
            "no workers would evaluate the run",
            where="--detach",
            remedy="Start `evoq up` in another terminal first, or leave --detach out.",
        )


def _require_new(store: Store, name: str, folder: Path | None) -> None:
    """Raises if the default folder of a new run holds results of a run that is not in the ledger.

    A name that a run of the ledger has is refused where the run is created.
    """
    with store.begin() as tx:
        taken = tx.runs.named(name) is not None
    if folder is not None and not taken:
        require_own(folder, "--name")


def _remember(target: Target, run: str, state: LocalState, screen: Screen) -> None:
    """Writes the local state of a run; a client of a deployment can do without it."""
    try:
        write_local_state(target.home, run, state)
    except OSError as error:
        if not target.deployed:
            raise CommandError(f"{target.home}: cannot be written to ({error.strerror})") from error
        screen.note(
            f"notice: {target.home} cannot be written to: `evoq resume` will not know --out"
        )
