"""Traces: whatever steps do for a proposal is one trace, whichever worker does it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import StatusCode

from app.adapters.queue.inline import InlineExecutor
from app.domain.problem import Job, Outcome
from app.domain.search.cohort import State
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop, Unavailable
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.test_judge import Bench, order
from tests.engine.toy import ASKED, ToySandbox, problem
from workers.spans import FirstIds, Spans

KEY = "sk-" + "a1B2c3D4" * 4


class Worker:
    """A process of its own, as far as its spans are concerned."""

    def __init__(self, ctx: Context, sampler: Sampler = ALWAYS_ON) -> None:
        self._exported = InMemorySpanExporter()
        ids = FirstIds()
        provider = TracerProvider(sampler=sampler, id_generator=ids, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exported))
        self.ctx = replace(ctx, tracing=Spans(provider, ids, ctx.store))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exported.get_finished_spans()


def of_proposal(spans: Sequence[ReadableSpan], proposal: object) -> list[ReadableSpan]:
    return [span for span in spans if attribute(span, "proposal") == proposal]


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(f"evoq.{name}")


def parent_of(span: ReadableSpan, spans: Sequence[ReadableSpan]) -> str | None:
    """Returns the name of a span's parent; None of the first one."""
    if span.parent is None:
        return None
    [parent] = [one for one in spans if one.context.span_id == span.parent.span_id]
    assert parent.context.trace_id == span.context.trace_id
    return parent.name


def test_all_that_several_workers_do_for_a_proposal_is_one_trace(ctx: Context) -> None:
    bench = Bench()
    ctx = replace(ctx, model=lambda run: bench)
    control, gpu, cpu = workers = [Worker(ctx) for _ in range(3)]
    assert isinstance(ctx.executor, InlineExecutor)

    run = lifecycle.start(control.ctx, problem(), replace(order(), operators={ASKED.name: 1.0}))
    ctx.executor.drain(
        {
            "produce": lambda one: steps.produce(control.ctx, one),
            "generate": lambda one: steps.generate(gpu.ctx, one),
            "evaluate": lambda one: steps.evaluate(cpu.ctx, one),
            "judge": lambda one: steps.judge(gpu.ctx, one),
        },
        lambda: False,
    )

    spans = [span for worker in workers for span in worker.spans]
    firsts = [span for span in spans if span.parent is None]
    assert {span.name for span in firsts} == {"proposal"}
    assert len(firsts) == len({span.context.trace_id for span in spans})
    admitted = next(
        span
        for span in firsts
        if attribute(span, "state") == State.ADMITTED and attribute(span, "ordinal") >= 0
    )
    mine = of_proposal(spans, attribute(admitted, "proposal"))
    assert {span.context.trace_id for span in mine} == {admitted.context.trace_id}
    assert sorted((span.name, parent_of(span, mine)) for span in mine if span is not admitted) == [
        ("ask", "generate"),
        ("ask", "generate"),
        ("ask", "judge"),
        ("enter", "proposal"),
        ("evaluate", "proposal"),
        ("generate", "proposal"),
        ("judge", "proposal"),
        ("produce", "proposal"),
        ("record", "proposal"),
        ("record", "proposal"),
    ]
    assert {attribute(span, "run") for span in mine} == {run.name}
    [evaluated] = [span for span in mine if span.name == "evaluate"]
    assert evaluated in cpu.spans
    assert isinstance(attribute(evaluated, "trial"), int)
    assert attribute(evaluated, "stage") == "evaluate"
    asked = [span for span in mine if span.name == "ask" and attribute(span, "asker") == "operator"]
    assert [(attribute(one, "turn"), attribute(one, "model")) for one in asked] == [
        (0, "bench"),
        (1, "bench"),
    ]


def test_each_settled_proposal_has_a_first_span_with_its_outcome(ctx: Context) -> None:
    worker = Worker(ctx)

    run = run_to_the_end(worker.ctx, problem(), new_run(problem(), budget=24))

    with ctx.store.begin() as tx:
        settled = tx.history.settled(run)
    firsts = {attribute(s, "ordinal"): s for s in worker.spans if s.name == "proposal"}
    assert {one.ordinal: one.state.value for one in settled} == {
        ordinal: attribute(span, "state") for ordinal, span in firsts.items()
    }
    outcomes = {attribute(span, "outcome") for span in firsts.values()}
    assert {"runtime", "duplicate", None} <= outcomes


class Gone(ToySandbox):
    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        raise Unavailable(f"the engine refuses the key {KEY}")


def test_a_step_that_cannot_go_on_shows_why_without_secrets(ctx: Context) -> None:
    worker = Worker(replace(ctx, sandbox=Gone()))
    assert isinstance(ctx.executor, InlineExecutor)

    lifecycle.start(worker.ctx, problem(), new_run(problem(), budget=2))
    with pytest.raises(Unavailable):
        run_all(worker.ctx)

    [evaluated] = [span for span in worker.spans if span.name == "evaluate"]
    assert evaluated.status.status_code is StatusCode.ERROR
    assert "Unavailable: the engine refuses the key" in (evaluated.status.description or "")
    assert KEY not in json.dumps(evaluated.to_json())


def run_all(ctx: Context) -> None:
    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(
        {
            "produce": lambda one: steps.produce(ctx, one),
            "generate": lambda one: steps.generate(ctx, one),
            "evaluate": lambda one: steps.evaluate(ctx, one),
        },
        lambda: False,
    )


def test_a_sampler_that_drops_a_trace_drops_all_of_it(ctx: Context) -> None:
    worker = Worker(ctx, ALWAYS_OFF)

    run_to_the_end(worker.ctx, problem(), new_run(problem(), budget=6))

    assert not worker.spans


def test_a_conversation_of_several_proposals_is_in_the_trace_of_each(ctx: Context) -> None:
    worker = Worker(ctx)
    toy = problem(seeds=("x = 0.0\n", "x = 1.0\n"))

    run_to_the_end(worker.ctx, toy, new_run(toy, budget=1))

    seeds = [s for s in worker.spans if s.name == "proposal" and attribute(s, "ordinal") < 0]
    generated = [s for s in worker.spans if s.name == "generate"]
    assert len(seeds) == 2
    traces = [span.context.trace_id for span in seeds]
    assert {span.context.trace_id for span in generated} >= {*traces}
