"""A context on a real ledger with everything else in this process."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.group_commit import GroupCommit
from app.adapters.store.sql import SqlStore
from app.config.settings import QueueSettings, RunSettings, SearchSettings
from app.domain.operators.seed import SEED
from app.domain.problem import Problem
from app.domain.run import Run
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.engine.process import Process
from app.ports.runs import NewRun
from tests.engine.toy import ASKED, NUDGE, ToySandbox, problem


def no_model(run: Run) -> Any:
    raise AssertionError("nobody may ask a model here")


@pytest.fixture
def ctx(store: SqlStore) -> Context:
    toy = problem()
    plain = Context(
        store=store,
        model=no_model,
        sandbox=ToySandbox(),
        executor=InlineExecutor(),
        problem=lambda digest: toy,
        operators={one.name: one for one in (SEED, NUDGE, ASKED)},
    )
    return with_process(plain, share=GroupCommit().share)


def with_process(ctx: Context, **methods: Any) -> Context:
    """Returns a context whose process does some things in another way."""
    process: Any = _Changed(ctx.process, methods)
    return replace(ctx, process=process)


class _Changed:
    def __init__(self, process: Process, methods: Mapping[str, Any]) -> None:
        self.__dict__.update(methods)
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


def new_run(toy: Problem, *, budget: int = 24, in_flight: int = 1, **search: Any) -> NewRun:
    settings = RunSettings(
        search=SearchSettings(**{"islands": 2, **search}),
        queue=QueueSettings(generating=in_flight, evaluating=in_flight),
    )
    return NewRun(
        name=search.pop("name", "toy-run"),
        problem=toy.digest,
        strategy="map_elites",
        settings=settings.model_dump(mode="json"),
        operators={"nudge": 1.0},
        axes=toy.axes,
        seed=settings.search.seed,
        islands=settings.search.islands,
        budget=Budget(budget),
        limits=InFlightLimits(in_flight, in_flight),
    )


Table = Mapping[Any, Callable[..., None]]


def table(ctx: Context) -> Table:
    return {
        "produce": partial(steps.produce, ctx),
        "generate": partial(steps.generate, ctx),
        "evaluate": partial(steps.evaluate, ctx),
        "judge": partial(steps.judge, ctx),
    }


def run_to_the_end(ctx: Context, toy: Problem, new: NewRun) -> int:
    ctx = replace(ctx, problem=lambda digest: toy)
    run = lifecycle.start(ctx, toy, new)
    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), lambda: False)
    return run.id
