"""Working on a run and following it: embedded, in a deployment, or in this one process."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from app.adapters.queue.inline import InlineExecutor
from app.bootstrap.ledger import context
from app.client.following import (
    POLL_SECONDS,
    Deadline,
    Follower,
    ProgressReader,
    RunStatus,
    StopCondition,
)
from app.client.local_state import is_held, run_lock, work_lock
from app.client.measuring import open_sandbox
from app.client.notes import Notes
from app.client.protections import lines_of_workers, protection_lines
from app.client.queue import with_queue
from app.client.target import Ledger, Target, embedded_stack, open_ledger, require_queue
from app.config.section import variable_of
from app.config.settings import RunSettings, of_workers
from app.domain.problem import Evaluator
from app.domain.run import Run
from app.engine import inside, lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import Step, Store, Unavailable
from app.reports.waiting import watched_queue

IDLE_SECONDS = 0.5
"""Pause of an inline run in which nothing can be done now."""


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
    notes: Notes
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

    def follower(self, run: Run, show: Callable[[RunStatus], None] = lambda _: None) -> Follower:
        """Returns the follower of a run, which works on it where no worker does.

        Args:
          run: The run.
          show: Receives every status.
        """
        queue, work = None, None
        if self.inline is None:
            queue = watched_queue(self.ledger.redis_url)
        else:
            work = partial(_work_a_while, self.ctx, self.inline, run.id, self.notes.note)
        return Follower(
            ProgressReader(self.store, run.id, queue),
            show,
            check=self.ledger.check,
            note=self.notes.note,
            until=StopCondition(None if self.detached else self.patience_seconds),
            work=work,
        )


@contextmanager
def open_session(
    target: Target,
    settings: RunSettings,
    *,
    inline: bool,
    notes: Notes,
    resumed: int | None = None,
    evaluator: Evaluator | None = None,
    verbose: bool = False,
) -> Iterator[RunSession]:
    """Opens the ledger, and the sandbox or the workers that a run needs.

    Args:
      target: Where runs live.
      settings: The run's settings.
      inline: Whether this process does all the work.
      notes: Shows the state of the sandbox.
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
                notes.say(line)
            hint = "`evoq doctor` and the workers' logs say more"
            yield RunSession(with_queue(ledger), notes, ledger, target.home, hint, detached=True)
        return
    patience = settings.queue.patience_seconds
    with ExitStack() as stack:
        alone = stack.enter_context(work_lock(target.home))
        environment = environment_of_workers(settings, os.environ)
        servers = None if inline else embedded_stack(target, environment)
        if servers is not None:
            stack.callback(servers.stop)
            # The servers start while the sandbox is tried.
            servers.begin()
        sandbox = stack.enter_context(open_sandbox(settings.sandbox, notes, may_build=True))
        for line in protection_lines(sandbox.protections(), verbose=verbose):
            notes.say(line)
        if evaluator is not None:
            sandbox.prepare(evaluator)
        if servers is None:
            ledger = stack.enter_context(open_ledger(target))
            executor = InlineExecutor()
            ctx = context(ledger.store, executor, sandbox, keep_leases=False)
            _pause_left_behind(ctx, target.home, resumed, notes, alone=alone)
            yield RunSession(
                *(ctx, notes, ledger, target.home), inline=executor, patience_seconds=patience
            )
            return
        sandbox.close()
        if not alone and environment != dict(os.environ):
            notes.note(
                "notice: the stack is running already: its workers keep the sandbox, queue and "
                "price settings it was started with"
            )
        ledger = stack.enter_context(open_ledger(target, servers))
        ctx = with_queue(ledger)
        _pause_left_behind(ctx, target.home, resumed, notes, alone=alone)
        hint = f"the logs are in {target.home / 'log'}"
        yield RunSession(ctx, notes, ledger, target.home, hint, patience_seconds=patience)


def environment_of_workers(settings: RunSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns this process's environment with the run's settings for workers."""
    defaults = RunSettings()
    usual = {**of_workers(defaults), "sandbox.image": defaults.sandbox.image}
    own = {**of_workers(settings), "sandbox.image": settings.sandbox.image}
    changed = {variable_of(key): str(own[key]) for key in own if own[key] != usual[key]}
    return {**environment, **changed}


def _pause_left_behind(
    ctx: Context, home: Path, resumed: int | None, notes: Notes, *, alone: bool
) -> None:
    """Pauses runs whose `evoq run` was killed, so that they take no place of this run's.

    Args:
      ctx: The world.
      home: The embedded folder.
      resumed: The run that is about to be resumed.
      notes: Names them.
      alone: Whether no other command works on runs; others may work on those of the workers.
    """
    with ctx.store.begin() as tx:
        going = [tx.runs.get(run) for run in tx.runs.running(in_process=True)]
        left = [run for run in going if run.parent is None and not is_held(home, run.name)]
        left += [tx.runs.get(run) for run in tx.runs.running()] if alone else []
    left = [run for run in left if run.id != resumed]
    for run in left:
        lifecycle.pause(ctx, run.id, "its `evoq run` ended before it did")
        notes.note(f"notice: {run.name} was left unfinished; `evoq resume {run.name}` continues it")


def step_table(ctx: Context) -> Mapping[Step, Callable[[int], None]]:
    """Returns what this process does about each message of an inline run."""
    return {
        "produce": partial(steps.produce, ctx),
        "generate": partial(steps.generate, ctx),
        "evaluate": partial(steps.evaluate, ctx),
        "judge": partial(steps.judge, ctx),
    }


def _work_a_while(
    ctx: Context,
    executor: InlineExecutor,
    run: int,
    note: Callable[[str], None],
    halted: Callable[[], bool],
) -> None:
    """Handles messages of a run in this process until its status is read again, or `halted()`.

    A service that does not answer is waited for, as a worker would.
    """
    due = Deadline(POLL_SECONDS)
    try:
        executor.drain(step_table(ctx), until=lambda: due() or halted())
        if executor.pending or halted():
            return
        for each in (run, *inside.going(ctx, run)):
            steps.reap(ctx, each)
            steps.produce(ctx, each)
    except Unavailable as error:
        note(f"unavailable, trying again: {error}")
    if not executor.pending:
        time.sleep(IDLE_SECONDS)
