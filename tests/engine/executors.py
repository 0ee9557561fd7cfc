"""Executors and models for tests that run the steps of messages themselves."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.adapters.queue.inline import InlineExecutor
from app.domain.events import SETTLING
from app.domain.operator import Completion, Prompt
from app.domain.run import Run, RunState
from app.domain.search.cohort import ProposalId
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.completions import Asker
from app.ports.ledger import Transaction
from app.ports.protocols import NEVER, Step, Stop, Unavailable
from tests.engine.conftest import new_run, table
from tests.engine.toy import problem


class RecordedMessages(InlineExecutor):
    """Records what was submitted together as one message."""

    def __init__(self) -> None:
        self.messages: list[tuple[Any, tuple[int, ...], int]] = []

    def submit(
        self, step: Any, subjects: Sequence[int], *, together: int = 1, fleet: str = ""
    ) -> None:
        self.messages.append((step, tuple(subjects), together))

    def take(self) -> tuple[Any, tuple[int, ...], int]:
        return self.messages.pop(0)

    def queued(self, step: Step, fleet: str = "") -> int:
        return sum(message[0] == step for message in self.messages)


class UnreliableQueue:
    """A queue that loses a tenth of the messages, delivers a fifth twice, and keeps no order.

    Attributes:
      shared: The number of messages with more than one subject.
    """

    def __init__(self, seed: int) -> None:
        self._waiting: list[tuple[Step, list[int]]] = []
        self.shared = 0
        self._arrived = threading.Condition()
        self._rng = random.Random(seed)

    def submit(
        self, step: Step, subjects: Sequence[int], *, together: int = 1, fleet: str = ""
    ) -> None:
        with self._arrived:
            shuffled = self._rng.sample(subjects, len(subjects))
            for n in range(0, len(shuffled), together):
                message = shuffled[n : n + together]
                self.shared += len(message) > 1
                luck = self._rng.random()
                copies = 0 if luck < 0.1 else 2 if luck < 0.3 else 1
                self._waiting += [(step, message)] * copies
                self._arrived.notify(copies)

    def queued(self, step: Step, fleet: str = "") -> int:
        with self._arrived:
            return sum(name == step for name, _ in self._waiting)

    def take(self) -> tuple[Step, list[int]] | None:
        """Returns a message, or None where none comes for a twentieth of a second."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: bool(self._waiting), timeout=0.05):
                return None
            return self._waiting.pop(self._rng.randrange(len(self._waiting)))

    def serve(
        self,
        answers: Mapping[Step, Callable[..., None]],
        stop: threading.Event,
        errors: list[str],
        borne: tuple[type[Exception], ...] = (),
    ) -> None:
        """Runs the steps of messages until `stop` is set; ignores errors of `borne` kinds."""
        while not stop.is_set():
            message = self.take()
            if message is None:
                continue
            try:
                answers[message[0]](*message[1])
            except borne:
                continue
            except Exception as error:
                errors.append(repr(error))


def served(
    queue: UnreliableQueue,
    ctx: Context,
    run: Run,
    workers: Sequence[Context],
    *,
    seconds: float,
    borne: tuple[type[Exception], ...] = (),
) -> None:
    """Serves a queue with a thread for each of `workers` until the run ends or time is over.

    Args:
      queue: The queue of the messages.
      ctx: The context that reaps and produces, as beat does.
      run: In that queue alone.
      workers: A context may stand here several times.
      seconds: After which the run is given up.
      borne: Errors that workers ignore; any other fails the test.
    """
    stop, errors = threading.Event(), list[str]()
    threads = [
        threading.Thread(target=queue.serve, args=(table(worker), stop, errors, borne))
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    deadline, state = time.monotonic() + seconds, RunState.RUNNING
    while state is RunState.RUNNING and time.monotonic() < deadline:
        stop.wait(0.05)
        steps.reap_all(ctx)
        steps.produce_all(ctx)
        with ctx.store.begin() as tx:
            state = tx.runs.get(run.id).state
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not errors, (len(errors), errors[:3])


class Numbers:
    """Answers with numbers, and is unavailable at the completion of that number."""

    name = "numbers"

    def __init__(self, away: int = -1, text: str = "", tokens: int = 0) -> None:
        self.tokens = tokens
        self.asked = 0
        self.away = away
        self.text = text

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.asked += 1
        if self.asked - 1 == self.away:
            raise Unavailable("the model is away")
        text = self.text or f"x = {self.asked}\n"
        return [Completion(text, "numbers", completion_tokens=self.tokens) for _ in prompts]


def planned(
    ctx: Context, cohorts: int, operator: str = "nudge", name: str = "toy-run"
) -> tuple[Run, tuple[int, ...]]:
    """Returns a run whose seed is in, and cohorts that are planned and have no children yet."""
    toy = problem()
    new = new_run(toy, budget=cohorts, in_flight=cohorts)
    new = replace(new, name=name, operators={operator: 1.0})
    run = lifecycle.start(ctx, toy, new)
    for _ in range(3):
        step, subjects, _ = ctx.executor.take()  # type: ignore[attr-defined]
        table(ctx)[step](*subjects)
    step, subjects, _ = ctx.executor.take()  # type: ignore[attr-defined]
    assert (step, len(subjects)) == ("generate", cohorts)
    return run, subjects


def operator_replies(
    tx: Transaction, proposal: ProposalId
) -> Mapping[int, Mapping[int, Completion]]:
    """Returns the stored completions of a proposal's operator, by turn and place."""
    return tx.completions.of_conversation(proposal, Asker.OPERATOR)


def settled(ctx: Context, run: Run) -> list[int]:
    with ctx.store.begin() as tx:
        events = tx.events.read(run.id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return sorted(event.data["proposal"] for event in events if event.kind in SETTLING)
