"""Completions in the ledger: all that shaped them, and found again by it."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from psycopg.errors import ForeignKeyViolation

from app.adapters.model.providers.recorded import CachedModel
from app.adapters.model.providers.scripted import ScriptedModel
from app.adapters.store.sql import SqlStore
from app.domain.operator import Completion, Prompt, Role
from app.domain.search.budget import Charge
from app.ports.cohorts import Plan
from app.ports.completions import Asker, CompletionKey, Turn
from app.ports.ledger import Transaction
from app.ports.protocols import NEVER, Stop
from tests.contracts.language_model import LanguageModelContract, PartialAnswersContract, Serve
from tests.engine.conftest import new_run
from tests.engine.executors import operator_replies
from tests.engine.toy import problem

PROMPT = Prompt("be brief", "hello", sample=3, role=Role.REFINER)
PARAMETERS = {"model": "small", "temperature": 0.5, "seed": 7, "endpoint": "host/v1"}
ANSWER = Completion(
    "hi there \x00",
    "small",
    "stop",
    prompt_tokens=100,
    completion_tokens=20,
    latency_seconds=1.5,
    cost_usd=0.25,
    cached_tokens=64,
    role=Role.REFINER,
    revision="small-2026@fp",
    parameters=PARAMETERS,
)


def a_cohort(store: SqlStore, name: str = "toy-run") -> int:
    toy = problem()
    with store.begin() as tx:
        tx.problems.add(toy)
        run = tx.runs.add(replace(new_run(toy), name=name)).id
        tx.cohorts.add(run, [Plan(0, "asked", (0,))], redeliver_seconds=30)
        [cohort] = tx.cohorts.unsettled(run)
    return cohort


def first_of(tx: Transaction, cohort: int) -> int:
    return tx.cohorts.lock(cohort)[1].members[0].id


def answered(store: SqlStore, cohort: int, *replies: Completion) -> None:
    with store.begin() as tx:
        _, held = tx.cohorts.lock(cohort)
    saved(
        store,
        Turn(held, Asker.OPERATOR, 0, Charge(120, 0.25, 100), [PROMPT] * len(replies), replies),
    )


def saved(store: SqlStore, *turns: Turn) -> list[Turn]:
    with store.begin() as tx:
        return tx.completions.save(turns)


def test_a_completion_comes_back_with_all_that_is_known_of_it(store: SqlStore) -> None:
    cohort = a_cohort(store)

    answered(store, cohort, ANSWER, replace(ANSWER, cost_usd=None))

    with store.begin() as tx:
        [first, second] = operator_replies(tx, first_of(tx, cohort))[0].values()
        run, _ = tx.cohorts.lock(cohort)
    assert first == replace(ANSWER, text="hi there \ufffd")
    assert second.cost_usd is None
    assert (run.tokens, run.cost_usd, run.longest_prompt_tokens) == (120, 0.25, 100)


def test_a_turn_saved_twice_is_stored_and_booked_once(store: SqlStore) -> None:
    cohort = a_cohort(store)
    two = (ANSWER, replace(ANSWER, text="hi again"))

    answered(store, cohort, *two)
    answered(store, cohort, *two)

    with store.begin() as tx:
        texts = [one.text for one in operator_replies(tx, first_of(tx, cohort))[0].values()]
        run, _ = tx.cohorts.lock(cohort)
    assert texts == ["hi there \ufffd", "hi again"]
    assert (run.tokens, run.cost_usd) == (120, 0.25)


def test_an_answer_to_what_nobody_asked_is_refused_and_its_connection_goes_on(
    store: SqlStore,
) -> None:
    cohort = a_cohort(store)
    with store.begin() as tx:
        _, held = tx.cohorts.lock(cohort)
    [member] = held.members
    other = replace(member, id=member.id + 1)

    with pytest.raises(ForeignKeyViolation, match="completions_proposal_exists"):
        saved(
            store,
            Turn(
                replace(held, members=(other,)), Asker.OPERATOR, 0, Charge(120), [PROMPT], [ANSWER]
            ),
        )

    with store.begin() as tx:
        assert tx.cohorts.lock(cohort)[0].tokens == 0


def test_it_is_found_by_all_that_shaped_it_and_by_nothing_less(store: SqlStore) -> None:
    answered(store, a_cohort(store), ANSWER)
    same = CompletionKey(PROMPT.digest, 3, dict(reversed(PARAMETERS.items())))
    others = [
        replace(same, prompt=Prompt("be brief", "hello!").digest),
        replace(same, prompt=Prompt("be briefh", "ello").digest),
        replace(same, sample=4),
        replace(same, parameters={**PARAMETERS, "temperature": 0.6}),
        replace(same, parameters={**PARAMETERS, "model": "large"}),
        replace(same, parameters={k: v for k, v in PARAMETERS.items() if k != "seed"}),
    ]

    with store.begin() as tx:
        found = tx.completions.recall([others[0], same, *others[1:]])

    assert found[1] is not None
    assert found[1].text == "hi there \ufffd"
    assert [one for one in found if one is not None] == [found[1]]


class Small:
    """A model that counts what it is asked."""

    name = "small"

    def __init__(self) -> None:
        self.asked: list[Prompt] = []

    def parameters(self, prompt: Prompt) -> dict[str, object]:
        return {"model": "small", "seed": prompt.sample}

    def complete(self, prompts: list[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.asked += prompts
        return [
            replace(ANSWER, text=f"fresh {one.sample}", parameters=self.parameters(one))
            for one in prompts
        ]


def test_only_what_was_never_answered_is_asked_and_the_rest_is_marked(store: SqlStore) -> None:
    model = Small()
    cached = CachedModel(model, store)
    known = replace(ANSWER, parameters={"model": "small", "seed": 3})
    answered(store, a_cohort(store), known)

    replies = cached.complete([replace(PROMPT, sample=n, role=Role.JUDGE) for n in (2, 3, 4)])

    assert [prompt.sample for prompt in model.asked] == [2, 4]
    assert [reply.reused for reply in replies] == [False, True, False]
    assert [reply.text for reply in replies] == ["fresh 2", "hi there \ufffd", "fresh 4"]
    hit = replies[1]
    assert (hit.cost_usd, hit.latency_seconds, hit.prompt_tokens) == (0.0, 0.0, 100)
    assert hit.role is Role.JUDGE


class TestACacheThatKnowsNothing(PartialAnswersContract):
    @pytest.fixture
    def serve(self, store: SqlStore) -> Serve:
        return lambda said: CachedModel(ScriptedModel(lambda prompt: said(prompt.user)), store)


class Nobody:
    """A model that must not be asked."""

    name = "nobody"

    def parameters(self, prompt: Prompt) -> dict[str, object]:
        return {"model": self.name}

    def complete(self, prompts: list[Prompt], stop: Stop = NEVER) -> list[Completion]:
        assert not prompts, "the ledger answers these"
        return []


class Answered:
    """What a warm cache is to whoever asks it."""

    def __init__(self, store: SqlStore, cohort: int, said: Callable[[str], str]) -> None:
        self._store, self._cohort, self._said = store, cohort, said
        self._nobody = Nobody()
        self._cached = CachedModel(self._nobody, store)
        self._turns = itertools.count()
        self.name = self._cached.name

    def complete(self, prompts: list[Prompt], stop: Stop = NEVER) -> list[Completion]:
        replies = [
            replace(ANSWER, text=self._said(one.user), parameters=self._nobody.parameters(one))
            for one in prompts
        ]
        with self._store.begin() as tx:
            _, cohort = tx.cohorts.lock(self._cohort)
            tx.completions.save(
                [Turn(cohort, Asker.OPERATOR, next(self._turns), Charge(), prompts, replies)]
            )
        return self._cached.complete(prompts)


class TestACacheThatKnowsEverything(LanguageModelContract):
    @pytest.fixture
    def serve(self, store: SqlStore) -> Serve:
        cohort = a_cohort(store)
        return lambda said: Answered(store, cohort, said)


def test_a_reused_completion_is_no_source_for_others(store: SqlStore) -> None:
    answered(store, a_cohort(store), replace(ANSWER, reused=True))

    with store.begin() as tx:
        assert tx.completions.recall([CompletionKey(PROMPT.digest, 3, PARAMETERS)]) == [None]
