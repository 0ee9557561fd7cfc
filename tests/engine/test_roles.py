"""Who writes a child, as the engine schedules it and the ledger keeps it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from app.domain.operator import Completion, Prompt, Role
from app.domain.operators.rewrite import REWRITE
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import ASKED, problem


class Heard:
    """Notes in which role it is asked, and writes a number."""

    name = "heard"

    def __init__(self) -> None:
        self.asked: list[Prompt] = []

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.asked += prompts
        return [
            Completion(f"x = {one.sample / 7:.6f}\n", "heard", role=one.role) for one in prompts
        ]


class Fenced(Heard):
    """Writes the number as a block of code."""

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        replies = super().complete(prompts, stop)
        return [replace(one, text=f"```python\n{one.text}```\n") for one in replies]


def refined(ctx: Context, share: float) -> tuple[list[Role], list[Role], list[str], Heard]:
    toy, model = problem(), Heard()
    ctx = replace(ctx, model=lambda run: model)
    order = new_run(toy, budget=30)
    llm = {**order.settings["llm"], "refiner_share": share}
    settings = {**order.settings, "llm": llm}
    run = run_to_the_end(ctx, toy, replace(order, settings=settings, operators={ASKED.name: 1.0}))
    with ctx.store.begin() as tx:
        settled = [one.role for one in tx.history.settled(run) if one.ordinal >= 0]
        events = [
            e.data.get("role", "") for e in tx.events.read(run) if e.data.get("proposal", -1) >= 0
        ]
    return settled, [one.role for one in model.asked], events, model


def test_the_ledger_and_the_events_say_what_the_refiner_wrote(ctx: Context):
    settled, asked, events, model = refined(ctx, share=0.5)

    wrote = Counter(settled)
    assert 0 < wrote[Role.REFINER] < 30
    assert sum(wrote.values()) == 30
    assert events.count("refiner") == wrote[Role.REFINER]
    assert Counter(asked)[Role.REFINER] == 2 * wrote[Role.REFINER]  # a plan and a program
    by_sample = {one.sample: one.role for one in model.asked}
    assert Counter(by_sample.values()) == wrote


def test_without_a_share_everything_is_the_generators(ctx: Context):
    settled, asked, events, _ = refined(ctx, share=0.0)

    assert set(settled) == set(asked) == {Role.GENERATOR}
    assert set(events) == {""}


def test_the_refiner_writes_the_phase_of_refinements_of_each_generation(ctx: Context):
    toy, model = problem(), Heard()
    ctx = replace(ctx, model=lambda run: model)
    order = new_run(toy, budget=24, in_flight=64)
    settings = {**order.settings, "strategy": {"refinements": 2, "mutations": 3, "fresh": 1}}
    order = replace(
        order, strategy="funsearch_lite", settings=settings, operators={ASKED.name: 1.0}
    )

    run = run_to_the_end(ctx, toy, order)

    with ctx.store.begin() as tx:
        settled = [one for one in tx.history.settled(run) if one.ordinal >= 0]
    roles = Counter((one.ordinal // 6, one.role) for one in settled)
    generations = range(4)
    assert roles == {(n, Role.REFINER): 2 for n in generations} | {
        (n, Role.GENERATOR): 4 for n in generations
    }


def test_a_generation_is_asked_for_from_scratch_by_change_and_by_refinement(ctx: Context):
    toy, model = problem(), Fenced()
    operators = {**ctx.operators, REWRITE.name: REWRITE}
    ctx = replace(ctx, model=lambda run: model, operators=operators)
    order = new_run(toy, budget=12, in_flight=64, islands=1)
    settings = {**order.settings, "strategy": {"refinements": 1, "mutations": 4, "fresh": 1}}
    settings["llm"] = {**order.settings["llm"], "repair_turns": 0}
    order = replace(
        order, strategy="funsearch_lite", settings=settings, operators={REWRITE.name: 1.0}
    )

    run_to_the_end(ctx, toy, order)

    beginnings = {
        "from scratch": "Write a program for this problem from scratch",
        "change": "Write a better version of the current program",
        "refinement": "Refine it: keep its idea",
    }
    tasks = {
        prompt.sample: [task for task, text in beginnings.items() if text in prompt.user]
        for prompt in model.asked
    }
    assert [tasks[n] for n in range(6)] == [["refinement"], *[["from scratch"]] * 5]
    assert tasks[6] == ["refinement"]
    assert ["change"] in [tasks[n] for n in range(7, 11)]
    assert tasks[11] == ["from scratch"]
