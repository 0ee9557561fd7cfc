"""Any order, loss, duplication and delay of steps gives the archive that the events describe."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.evaluation import Evaluation, Trial
from app.domain.events import (
    SETTLING,
    Admitted,
    Closed,
    Founded,
    Moved,
    Played,
    Refused,
)
from app.domain.operator import Brief, Completion, Conversation, Offspring, Operator, Prompt
from app.domain.operators.seed import SEED
from app.domain.problem import Axis, Job, Outcome, Problem
from app.domain.program import Program
from app.domain.run import Run, RunState
from app.domain.search.archive import (
    CellKey,
    Entrant,
    IslandView,
    best,
    grid,
)
from app.domain.search.cohort import Cohort, CutReason, Verdict
from app.domain.search.promotion import Promotion, cascade
from app.domain.search.recipes import RECIPES
from app.domain.search.recipes.map_elites import neighbours
from app.domain.search.strategy import Barrier, Lineage, RecipeInputs, Strategy, fixed
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.engine.process import Alone
from app.ports.protocols import NEVER, Stop
from tests.engine.conftest import new_run, table, with_process
from tests.engine.test_tournament import game
from tests.engine.toy import NUDGE, ToySandbox, interpret, prepare, problem
from tests.islands import Island

ISLANDS = 2
PLACES = 2
AXES = (Axis("x", 12, -4.0, 8.0), Axis("length", 4, 6.0, 18.0))
SEEDS = ("x = 0.0\n", "x = 1.5\n")
NAMES = itertools.count()
DEADLINE = 3600.0
EXAMPLES = max(1, settings().max_examples // 100)
"""1, and 30 with `--hypothesis-profile=exploring`: each example is a run."""


def top_half(stages: tuple[str, ...]) -> Promotion:
    """Returns the promotion that waits for every member and admits the better half."""
    climb = cascade(stages)

    def promotion(cohort: Cohort, island: IslandView) -> Verdict:
        verdict = climb(cohort, island)
        if cohort.seeding:
            return verdict
        waits = cohort.pending or cohort.running or verdict.test
        if waits:
            return replace(verdict, admit=(), cut=())
        ranked = sorted(verdict.admit, key=lambda p: cohort.fitness(p, stages) or 0.0, reverse=True)
        kept = tuple(ranked[: (len(ranked) + 1) // 2])
        cut = tuple(m.id for m in cohort.living if m.program in ranked and m.program not in kept)
        return replace(verdict, admit=kept, cut=cut)

    return promotion


def first_success(stages: tuple[str, ...]) -> Promotion:
    """Returns the promotion that admits the first success and cuts all others, bred or not."""
    climb = cascade(stages)

    def promotion(cohort: Cohort, island: IslandView) -> Verdict:
        verdict = climb(cohort, island)
        if cohort.seeding or not verdict.admit:
            return verdict
        winner, failed = verdict.admit[0], set(verdict.fail)
        others = (*cohort.living, *cohort.pending)
        cut = tuple(m.id for m in others if m.program != winner and m.id not in failed)
        return Verdict(admit=(winner,), cut=cut, fail=verdict.fail)

    return promotion


PROMOTIONS: dict[str, Callable[[tuple[str, ...]], Promotion]] = {
    "cascade": cascade,
    "top half": top_half,
    "first success": first_success,
}


def answering(brief: Brief) -> Conversation:
    replies = yield [Prompt("", "a number", draft.ordinal) for draft in brief.drafts]
    return [Offspring(Program(reply.text)) for reply in replies]


class Network:
    """Messages in no order, some lost and some twice; a port that is called delivers others.

    So that a step is interrupted, where it holds no transaction, by any number of other steps.
    """

    name = "network"

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._messages: list[tuple[Any, int]] = []
        self._depth = 0
        self.answers: dict[Any, Callable[..., None]] = {}
        self.pass_time: Callable[[], None] = lambda: None
        self._sandbox = ToySandbox()

    def submit(
        self, step: Any, subjects: Sequence[int], *, together: int = 1, fleet: str = ""
    ) -> None:
        for subject in subjects:
            copies = self._rng.choice((0, 1, 1, 1, 2))
            self._messages += [(step, subject)] * copies

    def queued(self, step: Any, fleet: str = "") -> int:
        return sum(name == step for name, _ in self._messages)

    def deliver(self) -> bool:
        """Answers a message; returns whether there was one."""
        if not self._messages:
            return False
        step, subject = self._messages.pop(self._rng.randrange(len(self._messages)))
        self.answers[step](subject)
        if self._rng.random() < 0.05:
            self.pass_time()
        return True

    def _interrupted(self) -> None:
        if self._depth < 4:
            self._depth += 1
            for _ in range(self._rng.choice((0, 0, 1, 2))):
                self.deliver()
            self._depth -= 1

    @contextmanager
    def keep(self, kind: str, subject: int) -> Iterator[Stop]:
        self._interrupted()
        yield NEVER

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self._interrupted()
        texts = [self._program() for _ in prompts]
        crashing = self._rng.random() < 0.1
        return [Completion("x = crash\n" if crashing else text, "network") for text in texts]

    def _program(self) -> str:
        """Returns a program; many have the metrics of another one that is longer or shorter."""
        return f"{'x' * self._rng.randint(1, 9)} = {self._rng.randint(-4, 8)}.0\n"

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        self._interrupted()
        return self._sandbox.run(job)

    def close(self) -> None: ...


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def register(
        size: int, promotion: str, refuse_clones: bool, deadline_seconds: float | None = None
    ) -> None:
        @dataclass(frozen=True)
        class Ranked:
            def strategy(self, inputs: RecipeInputs) -> Strategy:
                return Strategy(
                    grid(inputs.axes),
                    best(PLACES),
                    lambda island, rng: Lineage(island.uniform(1, rng)),
                    PROMOTIONS[promotion](inputs.stages),
                    neighbours(3, 0.5),
                    size=fixed(size),
                    barrier=Barrier.NONE,
                    refuse_clones=refuse_clones,
                    deadline_seconds=deadline_seconds,
                )

        monkeypatch.setitem(RECIPES, "ranked", Ranked)  # type: ignore[arg-type]

    return register


def ended(
    ctx: Context,
    network: Network,
    budget: int,
    strategy: str = "ranked",
    toy: Problem | None = None,
    **parameters: Any,
) -> Run:
    toy = toy or problem(axes=AXES, seeds=SEEDS)
    new = new_run(toy, budget=budget, in_flight=16, islands=ISLANDS)
    new = replace(
        new,
        name=f"interleaved-{next(NAMES)}",
        strategy=strategy,
        settings={**new.settings, "strategy": parameters},
        operators={"answering": 0.5, "nudge": 0.5},
    )
    run = lifecycle.start(ctx, toy, new)
    for _ in range(5000):
        if not network.deliver():
            steps.reap(ctx, run.id)
            steps.produce(ctx, run.id)
        with ctx.store.begin() as tx:
            run = tx.runs.get(run.id)
        if run.state is not RunState.RUNNING:
            break
    assert run.state is RunState.FINISHED, run
    return run


@dataclass(frozen=True)
class Replay:
    """What the events of a run, one after the other, make of its archive.

    Attributes:
      archive: Programs and their fitness by island and cell.
      epochs: How often each island was reset.
    """

    archive: dict[tuple[int, CellKey], list[tuple[str, float]]]
    epochs: tuple[int, ...]


def replayed(ctx: Context, run: Run) -> Replay:
    """Returns the archive that the events make; checks each decision."""
    strategy = ctx.strategy(run)
    islands = [Island(n) for n in range(ISLANDS)]
    with ctx.store.begin() as tx:
        facts = [event.fact for event in tx.events.read(run.id, limit=10_000)]
        offered = [f for f in facts if isinstance(f, Founded | Admitted | Refused | Moved)]
        programs = tx.programs.get([fact.program for fact in offered])
        placed = tx.history.placed(run.id, 10_000)
    epochs = {proposal.ordinal: proposal.epoch for proposal, _ in placed}
    generations = {proposal.ordinal: proposal.generation for proposal, _ in placed}
    seeds = {fact.program for fact in offered if isinstance(fact, Founded)}
    for fact in offered:
        program = programs[fact.program]
        if isinstance(fact, Moved):
            moved = islands[fact.source].elite(fact.program)
            assert moved is not None, fact
            generation = moved.generation
        else:
            assert fact.proposal is not None
            generation = generations[fact.proposal]
        entrant = Entrant(
            program.id, fact.fitness, len(program.source), generation, (measured(program),)
        )
        island = islands[fact.island]
        if isinstance(fact, Moved) and fact.reset:
            island = Island(fact.island, island.epoch + 1)
        key = strategy.niche(entrant)
        before, elite = island.cell(key), entrant.elite(key)
        open_to_clones = before.occupants or not strategy.refuse_clones or fact.program in seeds
        clone = not open_to_clones and island.twin(elite) is not None
        late = isinstance(fact, Admitted | Refused) and epochs[fact.proposal] != island.epoch
        after = before if clone or late else strategy.occupancy(before, elite)
        assert (after is not before) == (fact.cell is not None), fact
        clone = clone and not late
        assert not isinstance(fact, Refused) or clone == (fact.clone_of is not None), fact
        cells = {**island.cells, key: after} if after.occupants else island.cells
        islands[fact.island] = replace(island, cells=cells)
    archive = {
        (island.index, key): [(elite.program, elite.fitness) for elite in cell.occupants]
        for island in islands
        for key, cell in island.cells.items()
    }
    return Replay(archive, tuple(island.epoch for island in islands))


def measured(program: Program) -> Evaluation:
    """Returns what the toy problem measures of a program that does not crash."""
    trial = Trial("evaluate", (program.id,))
    programs = {program.id: program}
    return interpret(trial, programs, ToySandbox().run(prepare(trial, programs)))


def interrupted(ctx: Context, network: Network, toy: Problem | None = None) -> Context:
    """Returns the context whose messages and ports are the network's."""
    toy = toy or problem(axes=AXES, seeds=SEEDS)
    ctx = replace(
        ctx,
        model=lambda run: network,
        sandbox=network,
        executor=network,
        problem=lambda digest: toy,
        operators={"seed": SEED, "nudge": NUDGE, "answering": Operator("answering", answering)},
        pace=Pace(0.0, 0.0, 0.0, attempts=10_000),
    )
    ctx = with_process(ctx, keep_lease=network.keep, share=Alone().share)
    network.answers = dict(table(ctx))
    return ctx


def deadlines_pass(ctx: Context, database: str) -> Callable[[], None]:
    """Returns what lets the deadline of every cohort pass that is begun."""

    def pass_time() -> None:
        with psycopg.connect(database.replace("+psycopg", "")) as connection:
            connection.execute(
                "UPDATE proposals SET begun_at = begun_at - %s * interval '1 second'", (DEADLINE,)
            )
        steps.produce_all(ctx)

    return pass_time


def check(ctx: Context, run: Run, budget: int) -> Replay:
    """Makes sure that each proposal settled once, and that the archive is what events describe."""
    with ctx.store.begin() as tx:
        states = tx.history.states(run.id)
        stored: dict[tuple[int, CellKey], list[tuple[str, float]]] = {}
        for island, elite in tx.archive.elites(run.id):
            stored.setdefault((island, elite.cell), []).append((elite.program, elite.fitness))
        epochs = tuple(island.epoch for island in tx.archive.islands(run.id))
        settled = tx.history.settled(run.id, limit=1000)
        events = tx.events.read(run.id, limit=10_000)
    returned = sum(proposal.cut is CutReason.RETURNED for proposal in settled)
    assert sum(states.values()) == run.proposals == budget
    assert run.ordinals == budget + returned
    assert len({one.ordinal for one in settled}) == len(settled) == run.ordinals + len(SEEDS)
    counts = Counter(e.data["proposal"] for e in events if e.kind in SETTLING)
    assert counts == dict.fromkeys(range(run.ordinals), 1)
    replay = replayed(ctx, run)
    assert (stored, epochs) == (replay.archive, replay.epochs)
    return replay


@pytest.mark.parametrize("promotion", list(PROMOTIONS))
@given(size=st.integers(1, 10), seed=st.integers(0, 2**32), refuse_clones=st.booleans())
@settings(max_examples=3 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_archive_is_that_of_the_sequential_replay_of_the_events(
    ctx: Context,
    recipe: Callable[[int, str, bool], None],
    promotion: str,
    size: int,
    seed: int,
    refuse_clones: bool,
) -> None:
    network = Network(Random(seed))
    recipe(size, promotion, refuse_clones)
    ctx = interrupted(ctx, network)

    run = ended(ctx, network, budget=2 * size + 7)

    check(ctx, run, 2 * size + 7)


@pytest.mark.parametrize("promotion", list(PROMOTIONS))
@given(size=st.integers(2, 10), seed=st.integers(0, 2**32))
@settings(max_examples=2 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_so_is_that_of_cohorts_that_are_judged_at_their_deadline_at_any_moment(
    ctx: Context, recipe: Callable[..., None], database: str, promotion: str, size: int, seed: int
) -> None:
    network = Network(Random(seed))
    recipe(size, promotion, False, deadline_seconds=DEADLINE)
    ctx = interrupted(ctx, network)
    network.pass_time = deadlines_pass(ctx, database)

    run = ended(ctx, network, budget=2 * size + 7)

    check(ctx, run, 2 * size + 7)


BUSY: dict[str, dict[str, Any]] = {
    "beam": {"width": 2, "children": 2, "deadline_seconds": DEADLINE},
    "best_of_n": {"n": 3, "deadline_seconds": DEADLINE},
    "cascaded": {"deadline_seconds": DEADLINE},
    "funsearch": {"reset_interval": 3, "temperature_period": 4, "cluster_size": 2},
    "funsearch_lite": {
        **{"refinements": 1, "mutations": 2, "fresh": 1, "top_k": 2},
        **{"population": 4, "elites": 2, "migration_interval": 1, "deadline_seconds": DEADLINE},
    },
    "reflexion": {"attempts": 2, "parents": 2, "deadline_seconds": DEADLINE},
    "speculate": {"racers": 3, "deadline_seconds": DEADLINE},
    "tree_of_thoughts": {"breadth": 2, "thoughts": 1, "depth": 1, "deadline_seconds": DEADLINE},
}
"""Parameters with which what a recipe does seldom happens in a short run."""


STEADY = {"steady": True}


ALONE = [name for name in RECIPES if name != "tournament"]
"""The recipes that measure each program alone."""


@pytest.mark.parametrize(
    ("recipe_name", "parameters"),
    [*((name, BUSY.get(name, {})) for name in ALONE), ("funsearch_lite", STEADY)],
)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=2 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_archive_of_every_recipe_is_that_of_the_events(
    ctx: Context, database: str, recipe_name: str, parameters: dict[str, Any], seed: int
) -> None:
    network = Network(Random(seed))
    ctx = interrupted(ctx, network)
    network.pass_time = deadlines_pass(ctx, database)

    budget = 24 if recipe_name == "funsearch" else 14  # whose islands are reset

    run = ended(ctx, network, budget, recipe_name, **parameters)

    replay = check(ctx, run, budget)
    assert recipe_name != "funsearch" or sum(replay.epochs) >= 3


@pytest.mark.parametrize("pairing", ["round_robin", "podium", "bracket"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=2 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_generations_of_a_tournament_are_decided_by_their_games_in_any_order(
    ctx: Context, pairing: str, seed: int
) -> None:
    network, toy = Network(Random(seed)), game()
    ctx = interrupted(ctx, network, toy)

    run = ended(ctx, network, 9, "tournament", toy, entrants=3, pairing=pairing)

    with ctx.store.begin() as tx:
        settled = tx.history.settled(run.id, limit=1000)
        events = tx.events.read(run.id, limit=10_000)
    numbers = [e.data["proposal"] for e in events if e.kind in SETTLING]
    counts = Counter(number for number in numbers if number is not None)  # None: an incumbent
    assert counts == dict.fromkeys(range(run.ordinals), 1)
    returned = sum(one.cut is CutReason.RETURNED for one in settled)
    assert run.proposals == run.budget.proposals == run.ordinals - returned
    played = [event.fact for event in events if isinstance(event.fact, Played)]
    closed = [event.fact for event in events if isinstance(event.fact, Closed)]
    seats = Counter((one.cohort, one.first, one.second, one.game) for one in played)
    assert set(seats.values()) == {1}
    assert len({one.cohort for one in closed}) == len(closed)
    decided = 0
    for one in closed:
        shares = shares_of([each for each in played if each.cohort == one.cohort])
        if pairing == "round_robin" and {*one.podium} <= {*shares}:
            assert [shares[p] for p in one.podium] == sorted(shares.values(), reverse=True)[:2]
            decided += 1
    assert decided or pairing != "round_robin"


def shares_of(games: Sequence[Played]) -> dict[str, float]:
    """Returns each player's share of the points."""
    points: dict[str, list[float]] = {}
    for each in games:
        points.setdefault(each.first, []).append(each.score or 0.0)
        points.setdefault(each.second, []).append(1.0 - (each.score or 0.0))
    return {player: sum(own) / len(own) for player, own in points.items()}
