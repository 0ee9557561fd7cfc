"""The operator `directed`: a cohort's directions are asked for, recorded and paid for once."""

import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from random import Random

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.group_commit import GroupCommit
from app.adapters.store.sql import SqlStore
from app.domain.events import SETTLING, Directed, EventKind
from app.domain.operator import Completion, Prompt, Role
from app.domain.operators.directed import DIRECTED
from app.domain.prompting.directions import packaged
from app.domain.run import Run, RunState
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.protocols import NEVER, Stop, Unavailable
from app.ports.runs import NewRun
from tests.engine.conftest import new_run, run_to_the_end, table, with_process
from tests.engine.executors import UnreliableQueue, served
from tests.engine.test_tournament import game, number
from tests.engine.toy import problem

SIZE = 3
"""Proposals of a cohort."""
TOKENS = 7
ADVISED = (Role.STRATEGIST, Role.ADVERSARY)
VALUE = re.compile(r"Set x to (-?\d+\.\d+)")


class Killed(BaseException):
    """The process ends while a model is asked."""


class Team:
    """Gives three values as directions, follows them, finds a fault and mends it; counts.

    Attributes:
      dies: The number of the call at which the process ends, from 0; -1 for none.
      down: Ordinals whose builders are unavailable.
    """

    name = "team"

    def __init__(self, dies: int = -1) -> None:
        self.calls: list[list[Prompt]] = []
        self.answered: Counter[tuple[Role, int]] = Counter()
        self.dies = dies
        self.down: set[int] = set()

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.calls.append(list(prompts))
        if len(self.calls) - 1 == self.dies:
            raise Killed
        answered = {
            place: self._answer(prompt)
            for place, prompt in enumerate(prompts)
            if prompt.sample not in self.down or prompt.role is not Role.GENERATOR
        }
        if len(answered) < len(prompts):
            raise Unavailable("a part of it is down", answered=answered)
        return list(answered.values())

    def _answer(self, prompt: Prompt) -> Completion:
        self.answered[prompt.role, prompt.sample] += 1
        text = "It is not exact."
        if prompt.role is Role.STRATEGIST:
            # A strategist that is asked again answers something else.
            values = [len(self.calls) + n / 16 for n in range(1, SIZE + 1)]
            text = "".join(f"{n}. value: Set x to {x:.4f}.\n" for n, x in enumerate(values, 1))
        elif prompt.role is Role.GENERATOR:
            fixed = "# Its critique" in prompt.user
            [value] = VALUE.findall(prompt.user.split("# The direction")[1]) or ["0.5"]
            text = f"```python\nx = {value}{'  # again' * fixed}\n```"
        return Completion(text, self.name, completion_tokens=TOKENS, role=prompt.role)


def order(budget: int, roles: Sequence[Role], in_flight: int = 64) -> NewRun:
    """Returns a run of one island in cohorts of three."""
    new = new_run(problem(), budget=budget, in_flight=in_flight, islands=1)
    settings = {
        **new.settings,
        "llm": {**new.settings["llm"], "roles": {role.value: {} for role in roles}},
        "strategy": {"refinements": 0, "mutations": 2, "fresh": 1},
    }
    return replace(
        new, strategy="funsearch_lite", settings=settings, operators={DIRECTED.name: 1.0}
    )


def with_team(ctx: Context, team: Team, **changes: object) -> Context:
    operators = {**ctx.operators, DIRECTED.name: DIRECTED}
    pace = Pace(lease_seconds=0.0, redeliver_seconds=0.0, retry_seconds=0.0)
    return replace(
        ctx,
        model=lambda run: team,
        operators=operators,
        **{"executor": InlineExecutor(), "pace": pace, **changes},
    )


def driven(ctx: Context, budget: int, roles: Sequence[Role]) -> Run:
    """Runs to the end, whatever dies or is unavailable on the way."""
    run = lifecycle.start(ctx, problem(), order(budget, roles))
    for _ in range(20):
        with suppress(Killed, Unavailable):
            ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
        with ctx.store.begin() as tx:
            if tx.runs.get(run.id).state is not RunState.RUNNING:
                return run
        steps.reap(ctx, run.id)
    raise AssertionError("the run does not end")


def directed(ctx: Context, run: Run) -> list[Directed]:
    with ctx.store.begin() as tx:
        events = tx.events.read(run.id, limit=10_000, kinds=[EventKind.DIRECTED])
    return [event.fact for event in events if isinstance(event.fact, Directed)]


def followed(ctx: Context, run: Run) -> None:
    """Checks that every proposal settled once and had one direction, which its child follows."""
    with ctx.store.begin() as tx:
        events = tx.events.read(run.id, limit=10_000)
        proposals = [one for one in tx.history.settled(run.id) if not one.seed]
        programs = tx.programs.get([one.program for one in proposals if one.program])
        budget = tx.runs.get(run.id).budget.proposals
    ordinals = list(range(budget))
    settled = [e.data["proposal"] for e in events if e.kind in SETTLING]
    assert sorted(n for n in settled if n is not None) == ordinals  # None: incumbents rated anew
    facts = {fact.proposal: fact.text for fact in directed(ctx, run)}
    assert sorted(fact.proposal for fact in directed(ctx, run)) == ordinals
    for one in proposals:
        assert one.program is not None
        source = programs[one.program].source
        assert VALUE.findall(facts[one.ordinal]) == [source.split("x = ")[1].split()[0]]


def test_every_cohort_asks_once_and_every_child_follows_its_own_direction(ctx: Context) -> None:
    team = Team()
    ctx = with_team(ctx, team)

    run = driven(ctx, 3 * SIZE, [Role.STRATEGIST])

    followed(ctx, run)
    assert len({fact.text for fact in directed(ctx, run)}) == 3 * SIZE
    assert {(fact.category, fact.by) for fact in directed(ctx, run)} == {("value", "team")}
    roles = [[prompt.role for prompt in call] for call in team.calls]
    assert roles == [[Role.STRATEGIST], [Role.GENERATOR] * SIZE] * 3


def test_a_strategist_knows_how_the_directions_before_fared(ctx: Context) -> None:
    team = Team()
    ctx = with_team(ctx, team)

    driven(ctx, 2 * SIZE, [Role.STRATEGIST])

    first, second = (call[0].user for call in team.calls if call[0].role is Role.STRATEGIST)
    assert "None yet." in first
    for n in range(1, SIZE + 1):
        x = 1 + n / 16
        fitness, rise = x - 3.141592653589793, x  # the parent is x = 0.0
        assert f"value: Set x to {x:.4f}. → fitness {fitness:.6g}, +{rise:.3g} to" in second


def test_without_a_strategist_the_directions_are_packaged_and_are_events_too(ctx: Context) -> None:
    team = Team()
    ctx = with_team(ctx, team)

    run = driven(ctx, 2 * SIZE, [])

    facts = sorted(directed(ctx, run), key=lambda fact: fact.proposal)
    expected = [packaged(n) for n in range(2 * SIZE)]
    assert [(f.category, f.text, f.by) for f in facts] == [
        (one.category, one.text, "") for one in expected
    ]
    shown = {prompt.sample: prompt.user for call in team.calls for prompt in call}
    assert all(expected[n].text in shown[n] for n in range(2 * SIZE))


@pytest.mark.parametrize("dies", range(4), ids=["strategist", "builders", "critiques", "fixes"])
def test_who_dies_at_a_turn_pays_for_the_turns_before_it_once(ctx: Context, dies: int) -> None:
    team = Team(dies)
    ctx = with_team(ctx, team)

    run = driven(ctx, SIZE, ADVISED)

    followed(ctx, run)
    assert [call[0].role for call in team.calls].count(Role.STRATEGIST) == 1 + (dies == 0)
    assert len(team.calls) == 5, "one turn is asked twice"
    assert team.answered == Counter(
        {
            (Role.STRATEGIST, 0): 1,
            **{(Role.GENERATOR, n): 2 for n in range(SIZE)},
            **{(Role.ADVERSARY, n): 1 for n in range(SIZE)},
        }
    )
    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).tokens == (1 + 3 * SIZE) * TOKENS


def test_of_several_builders_those_that_answered_are_not_asked_again(ctx: Context) -> None:
    team = Team()
    team.down = {1}
    ctx = with_team(ctx, team)
    run = lifecycle.start(ctx, problem(), order(SIZE, [Role.STRATEGIST]))
    with pytest.raises(Unavailable, match="a part of it is down"):
        ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
    before = directed(ctx, run)

    team.down.clear()
    steps.reap(ctx, run.id)
    ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]

    assert directed(ctx, run) == before
    assert [[prompt.sample for prompt in call] for call in team.calls] == [[0], [0, 1, 2], [1]]
    followed(ctx, run)


def test_a_direction_is_an_event_before_its_child_is_asked_for(ctx: Context) -> None:
    class Watching(Team):
        seen: int | None = None

        def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
            if prompts[0].role is Role.GENERATOR and self.seen is None:
                with ctx.store.begin() as tx:
                    self.seen = len(tx.events.read(run.id, kinds=[EventKind.DIRECTED]))
            return super().complete(prompts)

    team = Watching()
    working = with_team(ctx, team)
    run = lifecycle.start(working, problem(), order(SIZE, [Role.STRATEGIST]))

    working.executor.drain(table(working), lambda: False)  # type: ignore[attr-defined]

    assert team.seen == SIZE


def test_a_generation_of_games_follows_the_directions_of_one_question(ctx: Context) -> None:
    team = Team()
    working = with_team(ctx, team)
    new = order(2 * SIZE, ADVISED)
    settings = {**new.settings, "strategy": {"entrants": SIZE}}

    run = run_to_the_end(working, game(), replace(new, strategy="tournament", settings=settings))

    roles = [[prompt.role for prompt in call] for call in team.calls]
    team_of_three = [[Role.GENERATOR] * SIZE, [Role.ADVERSARY] * SIZE, [Role.GENERATOR] * SIZE]
    assert roles == [[Role.STRATEGIST], *team_of_three] * 2
    with ctx.store.begin() as tx:
        generations, champion = tx.runs.get(run), tx.history.best(run)
        assert champion is not None
        [program] = tx.programs.get([champion.program or ""]).values()
    followed(ctx, generations)
    facts = [float(VALUE.findall(fact.text)[0]) for fact in directed(ctx, generations)]
    assert number(program) == max(facts), "the largest number wins"


class Unsteady(Team):
    """Takes longer than a lease, and fails at one builder in five."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = Random(1)
        self._lock = threading.Lock()

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        with self._lock:
            takes = self._rng.uniform(0.0, 0.06)
            down = {prompt.sample for prompt in prompts if self._rng.random() < 0.2}
        time.sleep(takes)
        with self._lock:
            self.down = down
            latency = float(len(self.calls))  # two answers are never the same one
            try:
                return [replace(one, latency_seconds=latency) for one in super().complete(prompts)]
            except Unavailable as error:
                answered = {
                    place: replace(one, latency_seconds=latency)
                    for place, one in error.answered.items()
                }
                raise Unavailable(str(error), answered=answered) from error


def test_workers_that_repeat_each_other_use_one_answer_and_book_every_one(
    ctx: Context, database: str
) -> None:
    budget, queue, team = 4 * SIZE, UnreliableQueue(1), Unsteady()
    pace = Pace(0.03, 0.05, 0.02, attempts=10_000)
    ctx = with_team(ctx, team, executor=queue, pace=pace)
    run = lifecycle.start(ctx, problem(), order(budget, ADVISED))
    with ExitStack() as stack:
        processes = []
        for _ in range(2):
            store = SqlStore(database)
            stack.callback(store.close)
            processes.append(with_process(replace(ctx, store=store), share=GroupCommit().share))
        served(queue, ctx, run, processes * 4, seconds=240, borne=(Unavailable,))

    followed(ctx, run)
    with ctx.store.begin() as tx:
        final = tx.runs.get(run.id)
        stored = {one.role: one.completions for one in tx.completions.accounts(run.id)}
    assert final.state is RunState.FINISHED
    assert stored == {"strategist": 4, "generator": 2 * budget, "adversary": budget}
    assert final.tokens == team.answered.total() * TOKENS
