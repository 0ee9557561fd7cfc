"""Where a run is worked on and followed: embedded, in a deployment, or in this process."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app import bootstrap
from app.adapters.queue.inline import InlineExecutor
from app.cli.display import shown
from app.cli.finish import end
from app.cli.following import SETTLING_SECONDS, Deadline, Follower, Look, Standstill, Tail
from app.cli.inline import drive
from app.cli.interruption import Interruption
from app.cli.local_state import at_work
from app.cli.measuring import open_cells, protection_lines
from app.cli.screen import Screen
from app.cli.target import Place, opened, require_queue, ringing
from app.config.settings import PriceSettings, QueueSettings, RunSettings, SandboxSettings
from app.domain.problem import Evaluator, Problem
from app.domain.run import Run
from app.engine import lifecycle
from app.engine.context import Context
from app.ports.protocols import Store

_OF_THE_RUN = {"generating", "evaluating", "patience_seconds"}
"""Limits that go with the run, whoever works for it."""
_GRACE_SECONDS = SETTLING_SECONDS


@dataclass(frozen=True, slots=True)
class Desk:
    """A context to start a run with, and the way to follow it.

    Attributes:
      inline: The executor whose bells this process answers itself; None where workers do.
      stays: Whether the run goes on when this command is gone.
      patience_seconds: How long a run that does not stay may wait for what is down.
      hint: Where to look when nothing happens.
    """

    ctx: Context
    store: Store
    screen: Screen
    check: Callable[[], None]
    hint: str
    inline: InlineExecutor | None = None
    stays: bool = False
    patience_seconds: float = 180.0

    def follow(self, run: Run, problem: Problem, folder: Path) -> int:
        """Follows a run to its end and writes its results; returns the exit status.

        The first Ctrl-C pauses an embedded run and waits for what is in flight; a deployment's run
        is left alone.
        """
        with Interruption() as stop:
            self._watch(run, stop)
        return end(self.store, run.id, problem, folder, self.screen, stays=self.stays)

    def _watch(self, run: Run, stop: Interruption) -> None:
        tail = Tail(self.store, run.id)
        with shown(self.screen.out, self.hint) as show:
            standstill = Standstill(None if self.stays else self.patience_seconds)
            follower = Follower(
                tail, show, check=self.check, note=self.screen.note, standstill=standstill
            )
            look = self._go(run, follower, lambda: stop.asked, standstill)
            if standstill.stuck and look is not None:
                lifecycle.pause(self.ctx, run.id, f"nothing settled for long; {look.run.reason}")
                return
            if stop.asked and not self.stays and not (look and look.still):
                self.screen.note("pausing: what is in flight settles; Ctrl-C again stops at once")
                lifecycle.pause(self.ctx, run.id, "interrupted")
                self._go(run, follower, Deadline(_GRACE_SECONDS), standstill)

    def _go(
        self, run: Run, follower: Follower, halted: Callable[[], bool], standstill: Standstill
    ) -> Look | None:
        if self.inline is None:
            return follower.follow(halted)
        note = self.screen.note
        return drive(self.ctx, self.inline, run.id, follower.glance, halted, note, standstill)


@contextmanager
def desk(
    at: Place,
    settings: RunSettings,
    *,
    inline: bool,
    screen: Screen,
    spare: int | None = None,
    evaluator: Evaluator | None = None,
) -> Iterator[Desk]:
    """Opens the place where a run will be worked on.

    Args:
      at: Where runs live.
      settings: The run's.
      inline: Whether this process does all the work.
      screen: Gets what there is to say of the sandbox.
      evaluator: Whose dependencies are installed here, with the progress shown, before workers
        of this machine need them; None leaves it to them.
      spare: The run that is about to go on, and so was not left behind.

    Raises:
      Unavailable: The database or the sandbox cannot be reached.
      EmbeddedError: The stack cannot run here.
      Failed: The queue does not answer, the schema is not current, or others are at work.
    """
    if at.deployed:
        with opened(at) as ledger:
            require_queue(ledger.redis_url)
            if settings.prices != PriceSettings():
                screen.note(
                    "notice: `prices` have no effect here: each worker of a deployment takes its "
                    "own from EVOQ_PRICES__GPU_USD_PER_HOUR and its like"
                )
            hint = "`evoq doctor` and the workers' logs say more"
            yield Desk(ringing(ledger), ledger.store, screen, ledger.check, hint, stays=True)
        return
    with ExitStack() as stack:
        alone = stack.enter_context(at_work(at.home, alone=inline))
        sandbox = stack.enter_context(open_cells(settings.sandbox, screen))
        for line in protection_lines(sandbox.protections()):
            screen.say(line)
        if evaluator is not None:
            sandbox.prepare(evaluator)
        if inline:
            ledger = stack.enter_context(opened(at))
            executor = InlineExecutor()
            ctx = bootstrap.context(ledger.store, executor, sandbox, keep_leases=False)
            yield Desk(
                ctx,
                ledger.store,
                screen,
                ledger.check,
                "",
                inline=executor,
                patience_seconds=settings.queue.patience_seconds,
            )
            return
        sandbox.close()
        environment = _told(settings, os.environ)
        if not alone and environment != dict(os.environ):
            screen.note(
                "notice: the stack is running already: its workers keep the sandbox, queue and "
                "price settings it was started with"
            )
        ledger = stack.enter_context(opened(at, workers=True, environment=environment))
        ctx = ringing(ledger)
        if alone:
            _pause_left_behind(ctx, spare, screen)
        hint = f"the logs are in {at.home / 'log'}"
        patience = settings.queue.patience_seconds
        yield Desk(ctx, ledger.store, screen, ledger.check, hint, patience_seconds=patience)


def _told(settings: RunSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of workers: ours, and what the run's settings say of them."""
    variables = dict(environment)
    sections: tuple[tuple[str, SandboxSettings | QueueSettings | PriceSettings], ...] = (
        ("SANDBOX", settings.sandbox),
        ("QUEUE", settings.queue),
        ("PRICES", settings.prices),
    )
    for section, values in sections:
        told = values.model_dump(mode="json", exclude_defaults=True, exclude=_OF_THE_RUN)
        for name, value in told.items():
            variables[f"EVOQ_{section}__{name.upper()}"] = str(value)
    return variables


def _pause_left_behind(ctx: Context, spare: int | None, screen: Screen) -> None:
    """Pauses runs whose `evoq run` was killed, so that they do not share this run's workers."""
    with ctx.store.begin() as tx:
        left = [tx.runs.get(run) for run in tx.runs.running() if run != spare]
    for run in left:
        lifecycle.pause(ctx, run.id, "its `evoq run` ended before it did")
        screen.note(f"notice: {run.name} was left unfinished; `evoq resume {run.name}` goes on")
