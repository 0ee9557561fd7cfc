"""Working on a run and following it: embedded, in a deployment, or in this one process."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from app import bootstrap
from app.adapters.queue.inline import InlineExecutor
from app.cli.costs import total_cost
from app.cli.following import (
    POLL_SECONDS,
    SETTLING_SECONDS,
    Deadline,
    Follower,
    Interruption,
    ProgressReader,
    RunStatus,
    StopCondition,
    progress_display,
)
from app.cli.local_state import is_held, run_lock, work_lock
from app.cli.measurement import lines_of_workers, open_sandbox, protection_lines
from app.cli.output import (
    DONE,
    FAILED,
    ErrorReport,
    Screen,
    counted,
    counted_measured,
)
from app.cli.show import print_best
from app.cli.target import (
    Ledger,
    Target,
    embedded_stack,
    open_ledger,
    require_queue,
    with_queue,
)
from app.config.settings import Owner, PriceSettings, QueueSettings, RunSettings, SandboxSettings
from app.domain.problem import Evaluator, Problem
from app.domain.run import Run, RunState
from app.engine import inside, lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import Step, Store, Unavailable
from app.reports.decoration import NotMade, attempt
from app.reports.documents import RunDocument, to_json
from app.reports.metrics import GrowingMetrics
from app.reports.summary import Summary, summarise
from app.reports.text import duration
from app.reports.waiting import watched_queue

IDLE_SECONDS = 0.5
"""Pause of an inline run in which nothing can be done now."""
APPENDING_SECONDS = 1.0
"""Shortest time between two additions to the metrics of a run that goes on."""


@dataclass(frozen=True, slots=True)
class RunSession:
    """A context to start a run with, and the means to follow it.

    Attributes:
      home: The embedded folder, whose files say which process works on a run alone.
      hint: Advice for a user whose run settles nothing.
      inline: The executor whose messages this process handles itself; None where workers do.
      detached: Whether the run goes on when this command ends.
      patience_seconds: How long a run that is not detached may wait for a service.
    """

    ctx: Context
    screen: Screen
    ledger: Ledger
    home: Path
    hint: str = ""
    inline: InlineExecutor | None = None
    detached: bool = False
    patience_seconds: float = 180.0

    @property
    def store(self) -> Store:
        return self.ledger.store

    def hold(self, run: str) -> AbstractContextManager[None]:
        """Keeps other processes away from a run that this one alone works on.

        Raises:
          CommandError: Another process works on it.
        """
        return run_lock(self.home, run) if self.inline else nullcontext()

    def follow(self, run: Run, problem: Problem, folder: Path, *, detach: bool) -> int:
        """Follows a run to its end and writes its results; returns the exit status.

        The first Ctrl-C pauses an embedded run and waits for the proposals in flight; it leaves a
        deployment's run alone.  With `detach` the run is announced and not followed.
        """
        weights = sum(run.operators.values())
        mix = ", ".join(f"{name} {weight / weights:.0%}" for name, weight in run.operators.items())
        self.screen.say(
            f"run {run.name}: {run.budget.proposals} proposals, seed {run.seed}, "
            f"{run.islands} {'island' if run.islands == 1 else 'islands'}, operators {mix}; "
            f"files go to {folder}"
        )
        if detach:
            self.screen.say(f"submitted: `evoq watch {run.name}` follows it")
            self.screen.answer(
                {"run": run.name, "id": run.id, "state": run.state.value, "out": None}
            )
            return DONE
        with Interruption() as interruption:
            self._watch(
                run, GrowingMetrics(self.store, run, folder / "metrics.jsonl"), interruption
            )
        return report_end(self.store, run.id, problem, folder, self.screen, detached=self.detached)

    def _watch(self, run: Run, metrics: GrowingMetrics, interruption: Interruption) -> None:
        with progress_display(self.screen.out, self.hint) as display:
            show = _also_appending(display, metrics, self.screen.note)
            until = StopCondition(None if self.detached else self.patience_seconds)
            queue = None if self.inline else watched_queue(self.ledger.redis_url)
            reader, check = ProgressReader(self.store, run.id, queue), self.ledger.check
            follower = Follower(reader, show, check=check, note=self.screen.note, until=until)
            status = self._work(run, follower, lambda: interruption.requested, until)
            if until.stuck and status is not None:
                reason = f"nothing settled for long; {status.run.reason}"
                lifecycle.pause(self.ctx, run.id, reason)
                return
            stopped = status is not None and status.stopped
            if interruption.requested and not self.detached and not stopped:
                self.screen.note("pausing: steps in progress end; Ctrl-C again stops at once")
                lifecycle.pause(self.ctx, run.id, "interrupted")
                self._work(run, follower, Deadline(SETTLING_SECONDS), until)

    def _work(
        self, run: Run, follower: Follower, halted: Callable[[], bool], until: StopCondition
    ) -> RunStatus | None:
        if self.inline is None:
            return follower.follow(halted)
        return _work_inline(self.ctx, self.inline, run.id, follower, halted, until)


def _also_appending(
    show: Callable[[RunStatus], None], metrics: GrowingMetrics, note: Callable[[str], None]
) -> Callable[[RunStatus], None]:
    """Returns a function that shows a status and, once a second, appends what has settled.

    A file that cannot be written to is left alone after a notice.
    """
    done, due = -1, 0.0
    drawing = threading.Thread(target=import_drawing, daemon=True)

    def show_and_append(status: RunStatus) -> None:
        nonlocal done, due
        show(status)
        if status.progress.done and drawing.ident is None:
            drawing.start()  # its import takes a second, which the end of the run need not wait for
        if status.progress.done == done or time.monotonic() < due:
            return
        done, due = status.progress.done, time.monotonic() + APPENDING_SECONDS
        try:
            metrics.append()
        except Unavailable:
            done = -1  # the next status tries again
        except OSError as error:
            note(f"notice: no lines are appended to {error.filename}: {error.strerror}")
            due = math.inf

    return show_and_append


def import_drawing() -> None:
    """Imports what draws pictures; where it cannot be imported, the drawing says why."""
    attempt("pictures", _import_plots)


def _import_plots() -> None:
    """Imports it without the text that matplotlib writes on each of its classes.

    That text lists what can be set, for documentation, and is a fifth of the import.
    """
    from matplotlib import artist

    written, artist.kwdoc = artist.kwdoc, lambda artist: ""  # noqa: ARG005  its name is typed
    try:
        import_module("app.reports.plots")
    finally:
        artist.kwdoc = written


@contextmanager
def open_session(
    target: Target,
    settings: RunSettings,
    *,
    inline: bool,
    screen: Screen,
    resumed: int | None = None,
    evaluator: Evaluator | None = None,
    verbose: bool = False,
) -> Iterator[RunSession]:
    """Opens the ledger, and the sandbox or the workers that a run needs.

    Args:
      target: Where runs live.
      settings: The run's settings.
      inline: Whether this process does all the work.
      screen: Shows the state of the sandbox.
      resumed: The run that is about to be resumed; runs left behind by others are paused.
      evaluator: Its dependencies are installed here, with the progress shown, before workers of
        this machine need them; None leaves it to them.
      verbose: Whether every protection of the sandbox is named.

    Raises:
      Unavailable: The database or the sandbox cannot be reached.
      EmbeddedError: The stack cannot run here.
      CommandError: The queue does not answer, or the schema is not current.
    """
    if target.deployed:
        with open_ledger(target) as ledger:
            require_queue(ledger.redis_url)
            with ledger.store.begin() as tx:
                evaluating = tx.workers.evaluating()
            for line in lines_of_workers(evaluating, verbose=verbose):
                screen.say(line)
            hint = "`evoq doctor` and the workers' logs say more"
            yield RunSession(with_queue(ledger), screen, ledger, target.home, hint, detached=True)
        return
    patience = settings.queue.patience_seconds
    with ExitStack() as stack:
        alone = stack.enter_context(work_lock(target.home))
        environment = environment_of_workers(settings, os.environ)
        servers = None if inline else embedded_stack(target, environment)
        if servers is not None:
            stack.callback(servers.stop)
            servers.begin()  # while the sandbox is tried
        sandbox = stack.enter_context(open_sandbox(settings.sandbox, screen, may_build=True))
        for line in protection_lines(sandbox.protections(), verbose=verbose):
            screen.say(line)
        if evaluator is not None:
            sandbox.prepare(evaluator)
        if servers is None:
            ledger = stack.enter_context(open_ledger(target))
            executor = InlineExecutor()
            ctx = bootstrap.context(ledger.store, executor, sandbox, keep_leases=False)
            _pause_left_behind(ctx, target.home, resumed, screen, alone=alone)
            yield RunSession(
                *(ctx, screen, ledger, target.home), inline=executor, patience_seconds=patience
            )
            return
        sandbox.close()
        if not alone and environment != dict(os.environ):
            screen.note(
                "notice: the stack is running already: its workers keep the sandbox, queue and "
                "price settings it was started with"
            )
        ledger = stack.enter_context(open_ledger(target, servers))
        ctx = with_queue(ledger)
        _pause_left_behind(ctx, target.home, resumed, screen, alone=alone)
        hint = f"the logs are in {target.home / 'log'}"
        yield RunSession(ctx, screen, ledger, target.home, hint, patience_seconds=patience)


def environment_of_workers(settings: RunSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns this process's environment with the run's settings for workers."""
    variables = dict(environment)
    sections: dict[str, SandboxSettings | QueueSettings | PriceSettings] = {
        "SANDBOX": settings.sandbox,
        "QUEUE": settings.queue,
        "PRICES": settings.prices,
    }
    for section, values in sections.items():
        changed = values.model_dump(
            mode="json", exclude_defaults=True, include=values.owned_by(Owner.WORKER) | {"image"}
        )
        for name, value in changed.items():
            variables[f"EVOQ_{section}__{name.upper()}"] = str(value)
    return variables


def _pause_left_behind(
    ctx: Context, home: Path, resumed: int | None, screen: Screen, *, alone: bool
) -> None:
    """Pauses runs whose `evoq run` was killed, so that they take no place of this run's.

    Args:
      ctx: The world.
      home: The embedded folder.
      resumed: The run that is about to be resumed.
      screen: Names them.
      alone: Whether no other command works on runs; others may work on those of the workers.
    """
    with ctx.store.begin() as tx:
        going = [tx.runs.get(run) for run in tx.runs.running(in_process=True)]
        left = [run for run in going if run.parent is None and not is_held(home, run.name)]
        left += [tx.runs.get(run) for run in tx.runs.running()] if alone else []
    left = [run for run in left if run.id != resumed]
    for run in left:
        lifecycle.pause(ctx, run.id, "its `evoq run` ended before it did")
        screen.note(
            f"notice: {run.name} was left unfinished; `evoq resume {run.name}` continues it"
        )


def step_table(ctx: Context) -> Mapping[Step, Callable[[int], None]]:
    """Returns what this process does about each message of an inline run."""
    return {
        "produce": partial(steps.produce, ctx),
        "generate": partial(steps.generate, ctx),
        "evaluate": partial(steps.evaluate, ctx),
        "judge": partial(steps.judge, ctx),
    }


def _work_inline(
    ctx: Context,
    executor: InlineExecutor,
    run: int,
    follower: Follower,
    halted: Callable[[], bool],
    until: StopCondition,
) -> RunStatus | None:
    """Handles the messages of a run in this process until it stops or `halted()`.

    A service that does not answer is waited for, as a worker would.

    Returns:
      The last status read.
    """
    table = step_table(ctx)
    due = 0.0

    def poll() -> RunStatus | None:
        nonlocal due
        status = follower.poll()
        due = time.monotonic() + POLL_SECONDS
        return status

    def interrupted() -> bool:
        if time.monotonic() >= due:
            poll()
        return halted()

    while True:
        try:
            executor.drain(table, until=interrupted)
            status = poll()
            if until.reached(status) or halted():
                return status
            for each in (run, *inside.going(ctx, run)):
                steps.reap(ctx, each)
                steps.produce(ctx, each)
        except Unavailable as error:
            follower.note(f"unavailable, trying again: {error}")
            status = poll()
            if until.reached(status) or halted():
                return status
        if not executor.pending:
            time.sleep(IDLE_SECONDS)


def report_end(
    store: Store, run: int, problem: Problem, folder: Path, screen: Screen, *, detached: bool
) -> int:
    """Writes the results of a run at its present state and shows them; returns the exit status.

    Args:
      store: The ledger.
      run: The run.
      problem: The run's problem.
      folder: Where the files go.
      screen: Where the rest goes.
      detached: Whether an unfinished run goes on without this command.
    """
    summary = summarise(store, run, problem)
    unwritten, missing = _write_results(store, summary, problem, folder)
    notices = [f"{each.text}; `evoq plot {summary.run.name}` tries again" for each in missing]
    if not screen.json:
        shown = attempt("the best program's table", lambda: print_best(summary, problem, screen))
        notices += [shown.text] if isinstance(shown, NotMade) else []
    screen.say(
        f"{summary.iterations} proposals settled in {duration(summary.seconds)}: "
        f"{counted_measured(summary.measured, summary.entered)}, cut {counted(summary.cuts)}, "
        f"failed {counted(summary.failures)}; files in {folder}"
    )
    if summary.explanation is not None:
        screen.say(f"commonest failure: {summary.explanation.text}")
    if not summary.iterations and summary.run.state is RunState.FINISHED:
        screen.note(f"notice: no proposal was made: {summary.run.reason}")
    if summary.costs.models:
        screen.say(f"cost so far: {total_cost(summary.costs)}")
    answer = to_json(RunDocument(summary, out=str(folder)))
    for text in notices:
        screen.note(f"notice: {text}")
    answer["notices"] += notices
    unfinished = _why_unfinished(summary, detached=detached)
    faults = [fault for fault in (unwritten, unfinished) if fault]
    for fault in faults:
        failed = fault == unwritten or summary.run.state is RunState.FAILED
        screen.note(f"{'error: ' if failed else ''}{fault}")
    if faults:
        kind = summary.run.state.value if unfinished else "failed"
        answer["error"] = ErrorReport(kind, faults[0], faults[0]).document()
    screen.answer(answer)
    return FAILED if faults else DONE


def _write_results(
    store: Store, summary: Summary, problem: Problem, folder: Path
) -> tuple[str, list[NotMade]]:
    """Writes the files of a run; returns why they could not be written, and what is missing.

    The first is "" where all results were written: a run whose results are not is an error, one
    without a picture is not.
    """
    from app.reports import folder as results

    name = summary.run.name
    made = attempt(str(folder), lambda: results.write(store, summary, problem, folder))
    if not isinstance(made, NotMade):
        return "", made
    return (
        f"{folder}: the results of {name}, which is {summary.run.state.value}, could not be "
        f"written ({made.why}). The ledger has everything: free some space, then `evoq resume "
        f"{name} --out DIR` writes them"
    ), []


def _why_unfinished(summary: Summary, *, detached: bool) -> str:
    """Returns why a run did not finish and how it continues; "" for a finished run."""
    run = summary.run
    why = f" ({run.reason})" if run.reason else ""
    again = f"`evoq resume {run.name}` continues it"
    match run.state:
        case RunState.FINISHED:
            return ""
        case RunState.RUNNING if detached:
            return f"{run.name} goes on without this command: `evoq watch {run.name}` follows it"
        case RunState.RUNNING:
            return f"{run.name} was left running: {again}"
        case RunState.PAUSED:
            return f"{run.name} is paused{why}: {again}; --set KEY=VALUE changes a setting"
        case RunState.FAILED:
            return (
                f"{run.name} failed{why}. A run keeps its problem's files as they were: a change "
                f"of them needs a new `evoq run`; after any other correction {again}"
            )
        case RunState.CANCELLED:
            return f"{run.name} was cancelled{why}: {again}"
