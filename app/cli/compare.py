"""`evoq compare`: arms of a search on the same problems, seeds and budget."""

import hashlib
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from app.cli.display import best_text
from app.cli.interruption import Interruption
from app.cli.options import Config, Debug, Json, Strict
from app.cli.output import DONE, FAILED, Screen
from app.client.following import (
    POLL_SECONDS,
    SETTLING_SECONDS,
    Deadline,
    Follower,
    ProgressReader,
    RunStatus,
    StopCondition,
)
from app.client.local_state import RESULTS, require_writable
from app.client.measuring import evaluator_of
from app.client.plan import RunPlan, plan_run
from app.client.session import RunSession, environment_of_workers, open_session
from app.client.setting_layers import load_problem, read_layers
from app.client.target import find_target
from app.config.layers import UsageError
from app.domain.run import Run, RunState
from app.engine import lifecycle
from app.ports.protocols import Store
from app.reports import comparison as reports
from app.reports.arms import ArmRun, Comparison, ProblemComparison, Settings, arm_run, differing
from app.reports.decoration import NotMade, attempt
from app.reports.documents import to_json
from app.reports.folder import Drawn
from app.reports.metrics import metrics_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_STEM = 14
"""Characters of a problem in the name of a run."""
NULL_ARM = "random"
"""The recipe that every comparison has an arm of: it selects nothing."""
NO_VALIDATION = "search.validate_best=0"
"""The arms are compared by what the search sees; --set overrides it."""
FIXED = ("budget.", "search.seed")
"""Beginnings of settings that are the same in all arms."""

Problems = Annotated[
    list[str],
    typer.Argument(metavar="PROBLEM...", help="Problem folders, or initial programs in folders."),
]
Arms = Annotated[
    str,
    typer.Option("--arms", metavar="A,B,…", help="Recipes, each an arm with no other settings."),
]
ArmSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="NAME:KEY=VALUE",
        help="A setting of an arm, as small:search.islands=1; may be repeated.",
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Runs of each arm.")]
FirstSeed = Annotated[
    int, typer.Option("--seed", metavar="S", min=0, help="Seed of the first run of each arm.")
]
Iterations = Annotated[
    int | None, typer.Option("--iterations", metavar="N", min=1, help="Proposals of each run.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of all arms; may be repeated."),
]
Name = Annotated[
    str | None,
    typer.Option("--name", help="Name of the comparison; that of an earlier one continues it."),
]
Results = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Folder of the report; runs/NAME by default."),
]
NoModel = Annotated[bool, typer.Option("--no-model", help="Ask no model.")]
AtOnce = Annotated[
    int, typer.Option("--at-once", metavar="N", min=1, help="Runs that go on at the same time.")
]


@dataclass(frozen=True, slots=True)
class _PlannedRun:
    """A run of the comparison."""

    problem: str
    arm: str
    seed: int
    plan: RunPlan

    def run_name(self, comparison: str) -> str:
        """Returns the run's name, by which a later command finds it again.

        A problem's name that is too long for it, or has other characters, is cut and ends with a
        digest of the whole.
        """
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", self.problem).strip("-_")
        if stem != self.problem or len(stem) > _STEM:
            digest = hashlib.sha256(self.problem.encode()).hexdigest()[:5]
            stem = f"{stem[: _STEM - 6] or 'problem'}-{digest}"
        return f"{comparison}.{stem}.{self.arm}.{self.seed}"


@dataclass(frozen=True, slots=True)
class _RunAtWork:
    """A run that is followed."""

    run: Run
    follower: Follower
    until: StopCondition


def compare(
    problems: Problems,
    arms: Arms = "map_elites,greedy",
    arm: ArmSettings = None,
    seeds: Seeds = 10,
    seed: FirstSeed = 1,
    iterations: Iterations = None,
    config: Config = None,
    assignments: Assignments = None,
    name: Name = None,
    out: Results = None,
    no_model: NoModel = False,
    at_once: AtOnce = 1,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> int:
    """Runs arms of a search with the same budget and reports how they did.

    An arm is a recipe, or any settings; an arm of the recipe `random`, which selects nothing, is
    always among them. The report has curves with bands, and how probably the first arm ends above
    each other one. Run again with the same --name, the command goes on where it ended.

    Examples:
      evoq compare examples/online_bin_packing --arms map_elites,greedy --seeds 5 --no-model
      evoq compare my_problem --arm small:search.islands=1 --name islands --iterations 200
    """
    screen, target = Screen(json=as_json), find_target()
    if name is not None:
        _require_name(name, "--name")
    settings = _settings_of_arms(arms, arm or ())
    planned = _plan_runs(
        problems, settings, range(seed, seed + seeds), iterations, config, assignments or (),
        no_model=no_model, strict=strict, local=not target.deployed,
    )  # fmt: skip
    first = planned[0].plan
    if not target.deployed:
        _require_equal_workers(planned)
    for notice in dict.fromkeys(text for run in planned for text in run.plan.notices):
        screen.note(f"notice: {notice}")
    with open_session(
        target, first.settings, inline=False, notes=screen, evaluator=evaluator_of(first.problem)
    ) as session:
        name = name or _free_name(session.store)
        folder = require_writable(Path(out) if out else RESULTS / name)
        screen.say(
            f"comparison {name}: {len(planned)} runs of {first.settings.budget.proposals} "
            f"proposals; files go to {folder}"
        )
        with Interruption() as interruption:
            ended = _work(session, name, planned, at_once, interruption)
        result = _read_results(session.store, name, planned, ended)
        unwritten, written = _write_results(result, folder)
    return _report(result, written, screen, folder=folder, unwritten=unwritten, runs=len(planned))


def _report(
    result: Comparison, written: Drawn, screen: Screen, *, folder: Path, unwritten: str, runs: int
) -> int:
    """Prints the results of a comparison; returns the exit status.

    Args:
      result: Of the runs that finished.
      written: Its files.
      screen: Where it is printed.
      folder: Of the files.
      unwritten: Why they could not be written; "" if they were.
      runs: How many were planned.
    """
    for problem in result.problems:
        for sentence in problem.sentences():
            screen.say(sentence)
    if written.files:
        screen.say(f"files: {', '.join(str(path) for path in written.files)}")
    notices = [each.text for each in written.missing]
    for text in notices:
        screen.note(f"notice: {text}")
    answer = {**to_json(reports.document(result)), "out": str(folder), "notices": notices}
    if result.unfinished:
        why = f"{len(result.unfinished)} of {runs} runs have not finished: "
        why += f"the same command with --name {result.name} goes on with them"
        screen.note(why)
        answer["error"] = why
    if unwritten:
        screen.note(f"error: {unwritten}")
        answer["error"] = unwritten
    screen.answer(answer)
    return FAILED if result.unfinished or unwritten else DONE


def _require_equal_workers(planned: Sequence[_PlannedRun]) -> None:
    """Raises `UsageError` where runs differ in what their common workers are started with."""
    environments = [environment_of_workers(run.plan.settings, {}) for run in planned]
    if any(environment != environments[0] for environment in environments):
        raise UsageError(
            "the arms or problems differ in settings of the workers, which all runs share",
            where="--arm",
            remedy="Compare them in commands of their own.",
        )


def _settings_of_arms(recipes: str, assignments: Sequence[str]) -> dict[str, list[str]]:
    """Returns the assignments of each arm, the null arm last unless it is named.

    Raises:
      UsageError: An arm has no name or no setting, or a setting that all arms share.
    """
    arms = {
        recipe.strip(): [f"search.strategy={recipe.strip()}"]
        for recipe in recipes.split(",")
        if recipe.strip()
    }
    for assignment in assignments:
        name, colon, setting = assignment.partition(":")
        if not colon or "=" not in setting:
            raise UsageError(
                "no arm, or no setting of it",
                where="--arm",
                value=assignment,
                remedy="Write NAME:KEY=VALUE, as small:search.islands=1.",
            )
        if setting.startswith(FIXED):
            raise UsageError(
                "all arms have the same budget and the same seeds",
                where="--arm",
                value=assignment,
                remedy="Use --iterations, --seeds and --seed, or --set for all arms.",
            )
        arms.setdefault(name, []).append(setting)
    for name in arms:
        _require_name(name, "--arms, --arm")
    null = f"search.strategy={NULL_ARM}"
    if all(null not in settings for settings in arms.values()):
        arms[NULL_ARM] = [null]
    return arms


def _require_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            "not a name for an arm or a comparison",
            where=where,
            value=name,
            remedy="Use up to 40 letters, digits, dashes and underscores, a letter or digit first.",
        )


def _plan_runs(
    problems: Sequence[str],
    arms: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    iterations: int | None,
    config: str | None,
    assignments: Sequence[str],
    *,
    no_model: bool,
    strict: bool,
    local: bool,
) -> list[_PlannedRun]:
    """Returns the runs seed by seed, so that a comparison that is stopped has even arms.

    Raises:
      UsageError: A setting is wrong, or two problems have the same name.
      ProblemError: A problem cannot be loaded.
    """
    planned: dict[tuple[str, str], list[_PlannedRun]] = {}
    for path in problems:
        for arm, own in arms.items():
            runs = []
            for seed in seeds:
                options = {"budget.proposals": iterations, "search.seed": seed}
                layers = read_layers([NO_VALIDATION, *assignments, *own], config, options)
                problem = load_problem([Path(path)], layers, strict=strict)
                plan = plan_run(problem, layers, local=local, no_model=no_model)
                runs.append(_PlannedRun(problem.name, arm, seed, plan))
            if (problem.name, arm) in planned:
                raise UsageError(
                    "two problems have the same name",
                    where="PROBLEM",
                    value=problem.name,
                    remedy="Compare them in commands of their own, or rename a folder.",
                )
            planned[problem.name, arm] = runs
    return [run for row in zip(*planned.values(), strict=True) for run in row]


def _work(
    session: RunSession,
    comparison: str,
    planned: Sequence[_PlannedRun],
    at_once: int,
    interruption: Interruption,
) -> dict[str, Run]:
    """Takes runs to their ends, some at once; returns those that began, as they are, by name.

    The first interrupt pauses what is going on and waits for its proposals in flight; it leaves
    runs of a deployment alone.  Notices of a run are shown by `evoq show`.
    """
    waiting = deque(planned)
    at_work: deque[_RunAtWork] = deque()
    ended: dict[str, Run] = {}
    halted: Deadline | None = None
    while (waiting and halted is None) or at_work:
        if interruption.requested and halted is None:
            halted = Deadline(0.0 if session.detached else SETTLING_SECONDS)
            if not session.detached:
                text = "pausing: steps in progress end; Ctrl-C again stops at once"
                session.notes.note(text)
                for running in at_work:
                    lifecycle.pause(session.ctx, running.run.id, "interrupted")
        while waiting and halted is None and len(at_work) < at_once:
            at_work.append(_begin_run(session, comparison, waiting.popleft()))
        session.ledger.check()
        for _ in range(len(at_work)):
            running = at_work.popleft()
            status = running.follower.poll()
            if not running.until.reached(status) and not (halted and halted()):
                at_work.append(running)
                continue
            if status is not None:
                _conclude(session, running, status)
                ended[status.run.name] = status.run
                done = f"{len(ended)}/{len(planned)} {status.run.name}: {status.run.state.value}"
                best = best_text(status.progress)
                session.notes.say(f"{done}, best {best} after {status.progress.done} proposals")
        time.sleep(POLL_SECONDS)
    return ended


def _begin_run(session: RunSession, comparison: str, planned: _PlannedRun) -> _RunAtWork:
    """Begins a run, or finds the one that an earlier command began.

    Raises:
      UsageError: That one has other settings or another version of the problem.
    """
    name, ctx = planned.run_name(comparison), session.ctx
    new = planned.plan.new_run(name)
    with session.store.begin() as tx:
        run = tx.runs.named(name)
    if run is None:
        run = lifecycle.start(ctx, planned.plan.problem, new)
    elif (run.problem, run.settings) != (new.problem, new.settings):
        raise UsageError(
            "the run of an earlier comparison has other settings or another version of its problem",
            where="--name",
            value=name,
            remedy="Give the settings of the earlier comparison, or another --name.",
        )
    elif run.state is not RunState.FINISHED:
        lifecycle.resume(ctx, run.id)
    reader, check = ProgressReader(session.store, run.id), session.ledger.check
    follower = Follower(reader, lambda _: None, check=check, note=lambda _: None)
    until = StopCondition(None if session.detached else session.patience_seconds)
    return _RunAtWork(run, follower, until)


def _conclude(session: RunSession, running: _RunAtWork, status: RunStatus) -> None:
    """Pauses a run that waits for a service that does not answer."""
    if running.until.stuck:
        reason = f"nothing settled for long; {status.run.reason}"
        lifecycle.pause(session.ctx, running.run.id, reason)


def _read_results(
    store: Store, name: str, planned: Sequence[_PlannedRun], ended: Mapping[str, Run]
) -> Comparison:
    """Reads the results of the runs that finished."""
    measured: dict[str, dict[str, list[ArmRun]]] = {}
    unfinished: dict[str, str] = {}
    settings: dict[str, Settings] = {}
    nulls = {
        planned_run.arm
        for planned_run in planned
        if planned_run.plan.settings.search.strategy == NULL_ARM
    }
    null = NULL_ARM if NULL_ARM in nulls else min(nulls)
    for planned_run in planned:
        arms = measured.setdefault(planned_run.problem, {})
        runs = arms.setdefault(planned_run.arm, [])
        settings.setdefault(planned_run.arm, planned_run.plan.settings.model_dump(mode="json"))
        run = ended.get(planned_run.run_name(name))
        found = None
        if run is not None and run.state is RunState.FINISHED:
            table = list(metrics_of(store, run))
            found = arm_run(run.name, run.seed, run.budget.proposals, table)
        if found is not None:
            runs.append(found)
        else:
            state = "not begun" if run is None else run.state.value
            why = f" ({run.reason})" if run is not None and run.reason else ""
            unfinished[planned_run.run_name(name)] = f"{state}{why}"
    return Comparison(
        name,
        planned[0].plan.settings.budget.proposals,
        tuple(
            ProblemComparison(problem, {arm: tuple(runs) for arm, runs in arms.items()}, null)
            for problem, arms in measured.items()
        ),
        differing(settings),
        unfinished,
    )


def _write_results(result: Comparison, folder: Path) -> tuple[str, Drawn]:
    """Writes the files of a comparison; returns why they could not be written, "" if they were."""
    made = attempt(str(folder), lambda: reports.write(result, folder))
    if not isinstance(made, NotMade):
        return "", made
    return (
        f"{folder}: the results of {result.name} could not be written ({made.why}). The ledger has "
        f"everything: free some space, then the same command with --name {result.name} writes them"
    ), Drawn([], [])


def _free_name(store: Store) -> str:
    """Returns compare-NUMBER with the first free number."""
    number = 1
    with store.begin() as tx:
        taken = {run.name.partition(".")[0] for run in tx.runs.newest()}
    while f"compare-{number}" in taken or (RESULTS / f"compare-{number}").exists():
        number += 1
    return f"compare-{number}"
