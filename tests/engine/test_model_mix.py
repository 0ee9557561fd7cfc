"""Models drawn by what came of their children, as the engine draws and the ledger counts."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.adapters.model.providers.recorded import CachedModel, ReplayModel
from app.adapters.store.sql import SqlStore
from app.cli.costs import cost_rows
from app.domain.operator import Completion, Prompt, Role
from app.domain.search.model_mix import ModelMix, Written
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, LanguageModel, Stop, Unavailable
from app.ports.runs import NewRun
from app.reports.costs import read_costs
from app.reports.documents import to_json
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.executors import RecordedMessages, operator_replies
from tests.engine.test_replay import programs
from tests.engine.toy import ASKED, problem

BUDGET, SHORT = 32, 12


class Two:
    """A model that comes nearer to pi with each proposal, and one that goes away from it.

    Without a name in the prompt it draws one, as an ensemble does.
    """

    name = "able+poor"
    places = None

    def __init__(self) -> None:
        self.asked: list[Prompt] = []
        self.answered: list[str] = []
        self.down = False

    def _model(self, prompt: Prompt) -> str:
        return prompt.model or Random(prompt.sample).choice(["able", "poor"])

    def parameters(self, prompt: Prompt) -> dict[str, Any]:
        return {"model": self._model(prompt)}

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.asked += prompts
        if self.down and any(prompt.system == "build" for prompt in prompts):
            raise Unavailable("it is down")
        return [self._completion(prompt) for prompt in prompts]

    def _completion(self, prompt: Prompt) -> Completion:
        model = self._model(prompt)
        self.answered.append(model)
        x = math.pi - 1 / (2 + prompt.sample) if model == "able" else 10.0 + prompt.sample
        return Completion(
            f"x = {x:.9f}\n",
            model,
            prompt_tokens=20,
            completion_tokens=5,
            cost_usd=0.25,
            role=prompt.role,
            parameters=self.parameters(prompt),
        )


def order(
    name: str = "toy-run", *, budget: int = BUDGET, adaptive: bool = True, in_flight: int = 1
) -> NewRun:
    asked = replace(new_run(problem(), budget=budget, in_flight=in_flight, islands=1), name=name)
    price = {"usd_per_million_prompt_tokens": 1.0, "usd_per_million_completion_tokens": 4.0}
    models = [{"name": model, **price} for model in ("able", "poor")]
    llm = {**asked.settings["llm"], "models": models, "adaptive_weights": adaptive}
    settings = {**asked.settings, "llm": llm}
    return replace(asked, settings=settings, operators={ASKED.name: 1.0})


def done(ctx: Context, model: LanguageModel, new: NewRun) -> int:
    return run_to_the_end(replace(ctx, model=lambda run: model), problem(), new)


def wrote(ctx: Context, run: int, *, first: int = 0) -> dict[str, list[bool]]:
    """Returns for each model of whose proposals the child gained, from an ordinal on."""
    found: dict[str, list[bool]] = {}
    with ctx.store.begin() as tx:
        settled = tx.history.settled(run)
        fitness = {one.program: one.fitness for one in settled}
        for one in settled:
            if one.ordinal >= first:
                [plan, build] = tx.completions.of_proposal(run, one.ordinal, 10)
                assert plan.completion.model == build.completion.model
                old = fitness[one.parents[0]]
                gain = one.fitness is not None and old is not None and one.fitness > old
                found.setdefault(build.completion.model, []).append(gain)
    return found


def test_the_model_whose_children_gain_writes_most_of_them(ctx: Context) -> None:
    model = Two()

    run = done(ctx, model, order())

    later = {name: len(gains) for name, gains in wrote(ctx, run, first=BUDGET // 2).items()}
    assert later["able"] > 3 * later.get("poor", 0), later
    assert {prompt.model for prompt in model.asked} == {"able", "poor"}


def test_without_the_option_the_engine_names_no_model(ctx: Context) -> None:
    model = Two()

    run = done(ctx, model, order(adaptive=False))

    later = {name: len(gains) for name, gains in wrote(ctx, run, first=BUDGET // 2).items()}
    assert later["able"] < 3 * later["poor"], later
    assert {prompt.model for prompt in model.asked} == {""}


def test_the_ledger_counts_the_children_and_gains_of_each_model(ctx: Context) -> None:
    run = done(ctx, Two(), order())

    with ctx.store.begin() as tx:
        written = tx.completions.written(run, Role.GENERATOR, 1000)
        newest = tx.completions.written(run, Role.GENERATOR, 10)
        refined = tx.completions.written(run, Role.REFINER, 1000)
    expected = wrote(ctx, run)
    assert sum(map(len, expected.values())) == BUDGET
    assert expected["able"].count(True) > 7
    assert written == {
        name: Written(len(gains), sum(gains), 40 * len(gains), 0, 10 * len(gains))
        for name, gains in expected.items()
    }
    assert sum(each.children for each in newest.values()) == 10
    assert refined == {}


def test_the_costs_of_a_run_say_what_its_models_were_drawn_by(ctx: Context) -> None:
    runs = [done(ctx, Two(), order(str(adaptive), adaptive=adaptive)) for adaptive in (True, False)]

    with ctx.store.begin() as tx:
        [drawn, fixed] = [read_costs(tx, tx.runs.get(run), 0) for run in runs]
    of_able = wrote(ctx, runs[0])["able"]
    said = f"{sum(of_able)} of its last {len(of_able)} children better than their parent"
    assert said in cost_rows(drawn)["generator"]
    assert to_json(drawn)["written"]["generator"]["able"]["gains"] == sum(of_able)
    assert "better than" not in cost_rows(fixed)["generator"]
    assert to_json(fixed)["written"] == {}


def test_the_same_run_again_is_the_same_and_a_cache_answers_all_of_it(
    ctx: Context, store: SqlStore
) -> None:
    first, again = Two(), Two()

    recorded = done(ctx, first, order("recorded", budget=SHORT))
    cached = done(ctx, CachedModel(again, store), order("cached", budget=SHORT))
    replayed = done(ctx, ReplayModel("recorded", store), order("replayed", budget=SHORT))

    assert again.asked == []
    assert programs(ctx, cached) == programs(ctx, recorded)
    assert programs(ctx, replayed) == programs(ctx, recorded)
    assert Counter(first.answered) != Counter(prompt_free(first))


def prompt_free(model: Two) -> list[str]:
    """Returns who would have answered without the names in the prompts."""
    return [model._model(replace(prompt, model="")) for prompt in model.asked]


def test_a_step_that_runs_again_asks_the_model_that_answered_and_pays_nothing_twice(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = itertools.cycle(["able", "poor"])
    monkeypatch.setattr(ModelMix, "draw", lambda mix, written, rng: next(draws))
    model = Two()
    ctx = replace(ctx, model=lambda run: model, executor=RecordedMessages())
    run = lifecycle.start(ctx, problem(), order())
    for _ in range(3):
        step, subjects, _ = ctx.executor.take()  # type: ignore[attr-defined]
        table(ctx)[step](*subjects)
    step, [proposal], _ = ctx.executor.take()  # type: ignore[attr-defined]
    assert step == "generate"

    model.down = True
    with pytest.raises(Unavailable):
        steps.generate(ctx, proposal)
    model.down = False
    steps.generate(ctx, proposal)

    asked = [(prompt.system, prompt.model) for prompt in model.asked]
    assert asked == [("plan", "able"), ("build", "able"), ("build", "able")]
    with ctx.store.begin() as tx:
        stored = operator_replies(tx, proposal)
        assert tx.runs.get(run.id).tokens == 50
    assert [stored[turn][0].model for turn in (0, 1)] == ["able", "able"]
