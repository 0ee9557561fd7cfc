"""What a crash leaves behind is found again; what is repeated is harmless."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.events import SETTLING, EventKind
from app.domain.operator import Completion, Prompt
from app.domain.problem import EvaluatorBroken, Job, Outcome
from app.domain.run import RunState
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.engine.lease import stop
from app.ports.protocols import NEVER, Misconfigured, Starved, Stop, Unavailable, Unwritable
from tests.engine.conftest import new_run, run_to_the_end, table, with_process
from tests.engine.toy import problem


def test_every_step_run_twice_is_run_once(ctx: Context) -> None:
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=30, in_flight=6))
    twice = {
        name: (lambda subject, step=step: (step(subject), step(subject)))
        for name, step in table(ctx).items()
    }
    ctx.executor.drain(twice, lambda: False)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        events, final = tx.events.read(run.id), tx.runs.get(run.id)
    assert final.state is RunState.FINISHED
    assert sorted(e.data["proposal"] for e in events if e.kind in SETTLING) == list(range(30))


def test_losing_the_queue_again_and_again_costs_time_and_nothing_else(ctx: Context) -> None:
    ctx = replace(ctx, pace=Pace(lease_seconds=0.05, redeliver_seconds=0.0))
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=20, in_flight=4))
    waiting = ctx.executor._messages  # type: ignore[attr-defined]
    for _ in range(300):
        if len(waiting) > 3:
            waiting.clear()
        if not waiting:
            steps.reap(ctx, run.id)
            steps.produce(ctx, run.id)
        if waiting:
            step, subject = waiting.popleft()
            table(ctx)[step](subject)
        with ctx.store.begin() as tx:
            if tx.runs.get(run.id).state is not RunState.RUNNING:
                break
    with ctx.store.begin() as tx:
        events, final = tx.events.read(run.id), tx.runs.get(run.id)
    assert (final.state, final.proposals) == (RunState.FINISHED, 20)
    assert sorted(e.data["proposal"] for e in events if e.kind in SETTLING) == list(range(20))


class Busy:
    """A sandbox of a machine that has no time for any trial but the seeds'."""

    def __init__(self) -> None:
        self.asked = 0

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if b"0.0\n" in job.programs[0][1]:
            return Outcome(b'{"x": 0.0}', None)
        self.asked += 1
        raise Starved(Outcome(None, Failure(FailureKind.TIMEOUT, "no result")))

    def close(self) -> None: ...


def test_a_starved_trial_is_tried_again_and_is_a_timeout_at_the_last_attempt(ctx: Context) -> None:
    busy = Busy()
    ctx = replace(ctx, sandbox=busy, pace=Pace(30.0, 0.0, 0.0, attempts=3))
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=1))
    waiting = ctx.executor._messages  # type: ignore[attr-defined]
    reasons = set()
    for _ in range(60):
        if not waiting:
            steps.reap_all(ctx)
        if not waiting:
            break
        step, subject = waiting.popleft()
        with suppress(Starved):
            table(ctx)[step](subject)
        with ctx.store.begin() as tx:
            reasons.add(tx.runs.get(run.id).reason)
    with ctx.store.begin() as tx:
        final, failures = tx.runs.get(run.id), tx.history.failures(run.id)

    assert (final.state, failures) == (RunState.FINISHED, {"timeout": 1})
    assert busy.asked == 3
    assert "waiting: the machine is too busy for a trial: no result" in reasons


def test_while_the_ledger_has_no_room_steps_wait_and_lose_neither_message_nor_result(
    ctx: Context,
) -> None:
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=3))
    refused, waits, reasons = Counter[str](), list[float](), set[str]()

    def full(kind: object, *work: object) -> object:
        name = kind[0] if isinstance(kind, tuple) else kind
        if refused[name] < 2:
            refused[name] += 1
            raise Unwritable("the database: no space left on device")
        return ctx.process.share(kind, *work)  # type: ignore[arg-type]

    def wait(seconds: float) -> None:
        waits.append(seconds)
        with ctx.store.begin() as tx:
            reasons.add(tx.runs.get(run.id).reason)

    crowded = with_process(ctx, share=full, wait=wait)
    ctx.executor.drain(table(crowded), lambda: False)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        final = tx.runs.get(run.id)

    assert (final.state, final.proposals) == (RunState.FINISHED, 3)
    assert "waiting" not in final.reason
    assert {"lease proposals", "lease a place", "record"} <= refused.keys()
    assert set(waits) == {ctx.pace.retry_seconds}
    assert len(waits) >= len(refused)
    assert "waiting: the database: no space left on device" in reasons


def test_a_ledger_that_has_no_room_for_long_is_left_to_the_next_step(ctx: Context) -> None:
    def full(*_: object) -> object:
        raise Unwritable("the database: no space left on device")

    toy, waits = problem(), list[float]()
    lifecycle.start(ctx, toy, new_run(toy, budget=1))
    crowded = with_process(ctx, share=full, wait=waits.append)
    with pytest.raises(Unwritable):
        ctx.executor.drain(table(crowded), lambda: False)  # type: ignore[attr-defined]

    assert sum(waits) <= ctx.pace.redeliver_seconds


def test_a_run_whose_results_cannot_be_saved_waits_and_says_for_what(ctx: Context) -> None:
    def full(kind: object, *work: object) -> object:
        if isinstance(kind, tuple) and kind[0] == "record":
            raise Unavailable("the database: no space left on device")
        return ctx.process.share(kind, *work)  # type: ignore[arg-type]

    ctx = replace(ctx, pace=Pace(lease_seconds=60.0, redeliver_seconds=60.0, retry_seconds=0.0))
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=1))
    waiting = ctx.executor._messages  # type: ignore[attr-defined]
    without_space = table(with_process(ctx, share=full))
    for _ in range(len(waiting) + 1):
        step, subject = waiting.popleft()
        with suppress(Unavailable):
            without_space[step](subject)
    with ctx.store.begin() as tx:
        reason = tx.runs.get(run.id).reason
    steps.reap(ctx, run.id)
    ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]

    with ctx.store.begin() as tx:
        final = tx.runs.get(run.id)
    assert reason == "waiting: the database: no space left on device"
    assert final.state is RunState.FINISHED
    assert "no space" not in final.reason


def test_a_run_that_cannot_be_planned_waits_and_says_for_what(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> list[int]:
        raise Unavailable("the database: no space left on device")

    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=1))
    monkeypatch.setattr("app.engine.produce._plan", full)

    with pytest.raises(Unavailable):
        steps.produce(ctx, run.id)

    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).reason == "waiting: the database: no space left on device"


class Poison:
    """A sandbox whose worker dies at every trial but the seeds'."""

    def __init__(self) -> None:
        self.deaths = 0

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if b"0.0\n" in job.programs[0][1]:
            return Outcome(b'{"x": 0.0}', None)
        self.deaths += 1
        raise SystemExit("killed")

    def close(self) -> None: ...


def test_a_step_that_never_ends_breaks_the_run_and_not_the_workers(ctx: Context) -> None:
    poison = Poison()
    ctx = replace(ctx, sandbox=poison, pace=Pace(0.0, 0.0, 0.0, attempts=3))
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=5))
    waiting = ctx.executor._messages  # type: ignore[attr-defined]
    for _ in range(60):
        if not waiting:
            steps.reap_all(ctx)
            steps.produce_all(ctx)
        if waiting:
            step, subject = waiting.popleft()
            try:
                table(ctx)[step](subject)
            except SystemExit:
                continue
    with ctx.store.begin() as tx:
        final = tx.runs.get(run.id)
    assert final.state is RunState.FAILED
    assert "started 3 times" in final.reason
    assert poison.deaths >= 3


class Counting:
    """A model that counts what it is asked, and fails where the test asks for it."""

    name = "counting"

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self.error = error

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        if self.error is not None:
            raise self.error
        self.asked += len(prompts)
        return [
            Completion(f"x = {prompt.sample + self.asked / 100}\n", "counting", prompt_tokens=3)
            for prompt in prompts
        ]


def test_a_completion_is_paid_for_once_however_often_its_step_runs(ctx: Context) -> None:
    model = Counting()
    ctx = replace(ctx, model=lambda run: model, pace=Pace(lease_seconds=0.0))
    toy = problem()
    run = lifecycle.start(ctx, toy, replace(new_run(toy, budget=3), operators={"asked": 1.0}))
    real, crashed = ctx.store, []

    def crash_before_entering(cohort: int) -> None:
        steps.generate(replace(ctx, store=CrashAtPut(real)), cohort)

    for name, subject in iter(lambda: _next(ctx), None):
        if name == "generate" and subject not in crashed and crashed != []:
            crashed.append(subject)
            with pytest.raises(RuntimeError, match="pulled the plug"):
                crash_before_entering(subject)
        crashed.append(-1) if not crashed else None
        table(ctx)[name](subject)
    with ctx.store.begin() as tx:
        final = tx.runs.get(run.id)
    assert final.state is RunState.FINISHED
    assert model.asked == 6  # two turns a proposal
    assert final.tokens == 18


def _next(ctx: Context) -> object:
    waiting = ctx.executor._messages  # type: ignore[attr-defined]
    return waiting.popleft() if waiting else None


class CrashAtPut:
    """A store whose transactions die when children are put into the ledger."""

    def __init__(self, store: object) -> None:
        self._store = store

    def begin(self) -> object:
        from contextlib import contextmanager

        @contextmanager
        def transaction():  # type: ignore[no-untyped-def]
            with self._store.begin() as tx:  # type: ignore[attr-defined]

                def plug(programs: object) -> None:
                    raise RuntimeError("pulled the plug")

                tx.programs.put = plug
                yield tx

        return transaction()


def test_the_reason_of_a_run_holds_no_secret(ctx: Context) -> None:
    fault = "https://me:hunter2@models.example/v1 with sk-abcdefgh1234 refused"
    model = Counting(Unavailable(fault))
    ctx = replace(ctx, model=lambda run: model, pace=Pace(retry_seconds=0.0))
    toy = problem()
    run = lifecycle.start(ctx, toy, replace(new_run(toy, budget=2), operators={"asked": 1.0}))
    with pytest.raises(Unavailable):
        ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        waiting = tx.runs.get(run.id).reason
    assert waiting.startswith("waiting: https://<REDACTED>@models.example/v1 with <REDACTED_KEY>")

    stop(ctx, run.id, RunState.PAUSED, "the key sk-abcdefgh1234 is refused")
    with ctx.store.begin() as tx:
        paused = tx.runs.get(run.id)
        [event] = tx.events.read(run.id, kinds=(EventKind.PAUSED,))
    assert paused.reason == "the key <REDACTED_KEY> is refused"
    assert "sk-" not in str(event.data)


def test_a_model_that_cannot_be_reached_keeps_its_work_for_later(ctx: Context) -> None:
    model = Counting(Unavailable("no route"))
    ctx = replace(ctx, model=lambda run: model, pace=Pace(retry_seconds=0.0))
    toy = problem()
    run = lifecycle.start(ctx, toy, replace(new_run(toy, budget=2), operators={"asked": 1.0}))
    with pytest.raises(Unavailable):
        ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).reason == "waiting: no route"
    model.error = None
    for _ in range(10):
        steps.reap_all(ctx)
        ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        final, failures = tx.runs.get(run.id), tx.history.failures(run.id)
    assert final.state is RunState.FINISHED
    assert failures == {}


def test_a_model_that_refuses_the_key_pauses_the_run_and_spends_nothing(ctx: Context) -> None:
    model = Counting(Misconfigured("401: set OPENAI_API_KEY"))
    ctx = replace(ctx, model=lambda run: model)
    toy = problem()
    run_id = run_to_the_end(ctx, toy, replace(new_run(toy, budget=9), operators={"asked": 1.0}))
    with ctx.store.begin() as tx:
        run, states = tx.runs.get(run_id), tx.history.states(run_id)
    assert run.state is RunState.PAUSED
    assert "OPENAI_API_KEY" in run.reason
    assert not any(state.final for state in states)


class Broken:
    """A sandbox that finds the evaluator unusable."""

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        raise EvaluatorBroken("evaluator.py:3: NameError: nope")

    def close(self) -> None: ...


def test_a_broken_evaluator_fails_the_run_with_its_line(ctx: Context) -> None:
    ctx = replace(ctx, sandbox=Broken())
    toy = problem()
    run_id = run_to_the_end(ctx, toy, new_run(toy))
    with ctx.store.begin() as tx:
        run = tx.runs.get(run_id)
    assert run.state is RunState.FAILED
    assert "evaluator.py:3" in run.reason
