"""A recorded run as a model."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from app.adapters.model.providers.recorded import ReplayModel
from app.adapters.model.providers.scripted import ScriptedModel
from app.adapters.store.sql import SqlStore
from app.domain.operator import Completion, Prompt
from app.domain.run import RunState
from app.domain.search.budget import Charge
from app.engine import lifecycle
from app.engine.context import Context
from app.ports.completions import Asker, Turn
from app.ports.protocols import NEVER, Stop
from app.ports.runs import NewRun
from tests.contracts.language_model import LanguageModelContract, Serve
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.executors import operator_replies
from tests.engine.toy import ASKED, problem


class Recorded:
    """Has everything recorded before it is replayed."""

    def __init__(self, store: SqlStore, run: int, cohort: int, said: Callable[[str], str]) -> None:
        self._store, self._cohort, self._said = store, cohort, said
        self._replay = ReplayModel(str(run), store)
        self.name = self._replay.name

    def complete(self, prompts: list[Prompt], stop: Stop = NEVER) -> list[Completion]:
        answers = [Completion(self._said(one.user), "recorded", prompt_tokens=3) for one in prompts]
        with self._store.begin() as tx:
            _, cohort = tx.cohorts.lock(self._cohort)
            turn = len(operator_replies(tx, cohort.members[0].id))
            tx.completions.save([Turn(cohort, Asker.OPERATOR, turn, Charge(), prompts, answers)])
        return self._replay.complete(prompts)


class TestReplayModel(LanguageModelContract):
    @pytest.fixture
    def serve(self, ctx: Context, store: SqlStore) -> Serve:
        run = lifecycle.start(ctx, problem(), new_run(problem()))
        with store.begin() as tx:
            [cohort] = tx.cohorts.unsettled(run.id)
        return lambda said: Recorded(store, run.id, cohort, said)


def asking(name: str, **more: object) -> NewRun:
    order = replace(new_run(problem(), budget=12, **more), name=name)
    llm = {**order.settings["llm"], "repair_turns": 0}
    settings = {**order.settings, "llm": llm}
    return replace(order, settings=settings, operators={ASKED.name: 1.0})


def programs(ctx: Context, run: int) -> list[tuple[object, ...]]:
    with ctx.store.begin() as tx:
        return [
            (one.ordinal, one.state, one.program, one.fitness) for one in tx.history.settled(run)
        ]


def test_a_replayed_run_is_the_recorded_one_and_pays_nothing(ctx: Context, store: SqlStore):
    def said(prompt: Prompt) -> str:
        return f"x = {prompt.sample / 7:.6f}\n"

    first = replace(ctx, model=lambda run: ScriptedModel(said))
    recorded = run_to_the_end(first, problem(), asking("recorded"))

    again = replace(ctx, model=lambda run: ReplayModel("recorded", store))
    replayed = run_to_the_end(again, problem(), asking("replayed"))

    assert programs(ctx, replayed) == programs(ctx, recorded)
    with store.begin() as tx:
        assert tx.runs.get(replayed).tokens == 0
        assert tx.runs.get(replayed).cost_usd == 0.0


@pytest.mark.parametrize(
    ("name", "says"), [("nobody", "no run 'nobody'"), ("silent", "was not asked")]
)
def test_what_was_never_recorded_pauses_the_run_and_says_so(
    ctx: Context, store: SqlStore, name: str, says: str
):
    lifecycle.start(ctx, problem(), asking("silent"))
    ctx = replace(ctx, model=lambda run: ReplayModel(name, store))

    run = run_to_the_end(ctx, problem(), asking("replayed", seed=9))

    with store.begin() as tx:
        assert tx.runs.get(run).state is RunState.PAUSED
        assert says in tx.runs.get(run).reason
