"""Forms of asking a model whose weights are learnt from the children that were measured."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.domain.operator import Completion, Prompt
from app.domain.operators import operators
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop
from app.ports.runs import NewRun
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import problem

BUDGET = 40
MIX = {"diff": 0.7, "rewrite": 0.2, "function": 0.1}


class RewritesOnly:
    """A model that writes whole programs and cannot write a block of edits."""

    name = "small"
    places = None

    def parameters(self, prompt: Prompt) -> dict[str, Any]:
        return {"model": self.name}

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        return [self._completion(prompt) for prompt in prompts]

    def _completion(self, prompt: Prompt) -> Completion:
        x = math.pi - 1 / (2 + prompt.sample)
        text = f"```python\nx = {x}\n```" if "SEARCH" not in prompt.user else "Use a larger x."
        return Completion(text, model=self.name, prompt_tokens=40, completion_tokens=10)


def ask(points: object, sizes: object, seed: int) -> list[float]:
    raise AssertionError("no run of these tests tunes numbers")


def order(name: str, *, learn: bool) -> NewRun:
    asked = new_run(problem(), budget=BUDGET, learn_forms=learn)
    settings = {**asked.settings, "llm": {"model": "small", "repair_turns": 0}}
    return replace(asked, name=name, settings=settings, operators=MIX)


def run(ctx: Context, new: NewRun) -> int:
    known = operators(ask)  # type: ignore[arg-type]  # Its type is the optimiser's protocol.
    return run_to_the_end(
        replace(ctx, model=lambda run: RewritesOnly(), operators={**ctx.operators, **known}),
        problem(),
        new,
    )


def used(ctx: Context, run: int) -> Counter[str]:
    with ctx.store.begin() as tx:
        return Counter(one.operator for one in tx.history.settled(run) if one.ordinal >= 0)


def test_a_form_that_the_model_cannot_answer_gives_way_within_the_run(ctx: Context) -> None:
    fixed = used(ctx, run(ctx, order("fixed", learn=False)))
    learnt = used(ctx, run(ctx, order("learnt", learn=True)))

    assert fixed["diff"] > BUDGET / 2
    assert learnt["diff"] < BUDGET / 3, learnt


def test_a_run_begins_as_earlier_runs_of_its_model_suggest(ctx: Context) -> None:
    run(ctx, order("first", learn=True))

    second = run(ctx, order("second", learn=True))

    with ctx.store.begin() as tx:
        weights = tx.runs.get(second).operators
    assert weights["diff"] < 0.35 < weights["rewrite"] + weights["function"]


def test_runs_of_another_model_suggest_nothing(ctx: Context) -> None:
    run(ctx, order("first", learn=True))
    other = order("other", learn=True)

    second = run(ctx, replace(other, settings={**other.settings, "llm": {"model": "large"}}))

    with ctx.store.begin() as tx:
        assert tx.runs.get(second).operators == MIX
