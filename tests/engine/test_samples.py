"""Several samples of one prompt: children of the same parents, for one reading of the prompt."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.domain.operator import Completion, Prompt
from app.domain.operators.function import FUNCTION
from app.domain.operators.mutate import MUTATE
from app.domain.operators.seed import SEED
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import problem

BUDGET = 10


class Counting:
    """A model that notes how many prompts of which texts are asked for together."""

    name = "m"
    places = None

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def parameters(self, prompt: Prompt) -> dict[str, Any]:
        return {"model": self.name}

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.calls.append([prompt.user for prompt in prompts])
        replies = [f"```python\nx = {1 + prompt.sample / 64}\n```" for prompt in prompts]
        return [Completion(reply, model=self.name) for reply in replies]


def calls(ctx: Context, samples: int) -> list[list[str]]:
    model, new = Counting(), new_run(problem(), budget=BUDGET, samples=samples)
    run_to_the_end(
        replace(
            ctx,
            model=lambda run: model,
            operators={operator.name: operator for operator in (SEED, FUNCTION)},
        ),
        problem(),
        replace(new, operators={"function": 1.0}, islands=1),
    )
    return model.calls


def test_the_children_of_one_prompt_are_asked_for_together(ctx: Context) -> None:
    together = calls(ctx, 4)

    assert sorted(map(len, together), reverse=True) == [4, 4, 2], "the budget of 10 is spent"
    assert all(len(set(texts)) == 1 for texts in together), "they are samples of one text"


def test_each_child_has_a_prompt_of_its_own_by_default(ctx: Context) -> None:
    assert set(map(len, calls(ctx, 1))) == {1}


def test_the_weights_of_operators_are_shares_of_the_proposals(ctx: Context) -> None:
    model, new = Counting(), new_run(problem(), budget=120, samples=4)
    known = {operator.name: operator for operator in (SEED, FUNCTION, MUTATE)}
    run = run_to_the_end(
        replace(ctx, model=lambda run: model, operators=known),
        problem(),
        replace(new, operators={"function": 0.5, "mutate": 0.5}, islands=1),
    )

    with ctx.store.begin() as tx:
        made = Counter(one.operator for one in tx.history.settled(run))
    assert 0.3 * 120 < made["mutate"] < 0.7 * 120
