"""Back-pressure against two simulated stages: it keeps the slower busy and the other short.

A child is bred when a place at the simulated model is free for it, as in `app.engine.generate`.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass, field, replace

import pytest

from app.domain.search.back_pressure import (
    FIRST,
    LEAST,
    MOST,
    SMALL,
    Caps,
    Flow,
    InFlightLimits,
    batch,
    most_in_flight,
    plannable,
    reason,
    sized,
    window,
)

FREE = Caps()
STARTING = InFlightLimits(SMALL, SMALL)


@dataclass
class Stage:
    """Servers and a queue before them."""

    servers: int
    seconds: float
    spread: float = 0.3
    waiting: deque[int] = field(default_factory=deque)
    busy: int = 0
    worked: float = 0.0

    @property
    def held(self) -> int:
        return len(self.waiting) + self.busy


class Pipeline:
    """SIMULATION: proposals pass a model and an evaluation; planning looks at the last settled."""

    seen = 1.0
    """Share of an evaluation's time that the ledger knows of."""

    def __init__(
        self,
        model: Stage,
        evaluation: Stage,
        *,
        seed: int,
        caps: Caps = FREE,
        budget: int = 10**6,
        known: bool = True,
    ) -> None:
        self.stages = (model, evaluation)
        self.rng = random.Random(seed)
        self.caps = caps
        self.budget = budget
        self.known = known
        self.limits = STARTING
        self.drawn: set[int] = set()
        self.ages: list[int] = []
        self.now = 0.0
        self.took: dict[int, list[float]] = {}
        self.settled: list[tuple[float, int]] = []
        self.events: list[tuple[float, int, int, int]] = [(0.0, -1, 0, 0)]
        self.planned = 0
        self.samples: list[tuple[float, int, int, InFlightLimits]] = []

    def run(self, seconds: float) -> "Pipeline":
        while self.events[0][0] < seconds:
            self.now, kind, proposal, stage = heapq.heappop(self.events)
            if kind == -1:
                self.plan()
                heapq.heappush(self.events, (self.now + 0.5, -1, 0, 0))
            else:
                self.leave(proposal, stage)
        return self

    def plan(self) -> None:
        model, evaluation = self.stages
        most = most_in_flight(
            self.budget,
            len(self.settled),
            model=model.servers,
            sandbox=evaluation.servers if self.known else None,
        )
        self.limits = sized(self.flow(), self.caps, self.limits, most=most)
        free = plannable(
            self.limits,
            self.caps,
            generating=model.held,
            evaluating=evaluation.held,
            most=most,
        )
        for _ in range(min(free, self.budget - self.planned)):
            self.planned += 1
            self.took[self.planned] = [0.0, 0.0]
            self.enter(self.planned, 0)
        self.samples.append((self.now, model.held, evaluation.held, self.limits))

    def flow(self) -> Flow | None:
        unsettled = sum(stage.held for stage in self.stages)
        recent = self.settled[-window(unsettled) :]
        if len(recent) < 2:
            return None
        sample = recent[-32:]
        means = [sum(self.took[p][n] for _, p in sample) / len(sample) for n in (0, 1)]
        held = self.stages[1].busy
        return Flow(len(recent), self.now - recent[0][0], means[0], means[1] * self.seen, held)

    def enter(self, proposal: int, n: int) -> None:
        self.stages[n].waiting.append(proposal)
        self.serve(n)

    def serve(self, n: int) -> None:
        stage = self.stages[n]
        while stage.waiting and stage.busy < stage.servers:
            proposal = stage.waiting.popleft()
            if n == 0:
                self.ages.append(len(self.drawn))
                self.drawn.add(proposal)
            took = stage.seconds * self.rng.lognormvariate(-(stage.spread**2) / 2, stage.spread)
            stage.busy += 1
            self.took[proposal][n] = took
            heapq.heappush(self.events, (self.now + took, n, proposal, n))

    def leave(self, proposal: int, n: int) -> None:
        stage = self.stages[n]
        stage.busy -= 1
        stage.worked += self.took[proposal][n]
        self.serve(n)
        if n == 0 and self.rng.random() < 0.9:
            self.enter(proposal, 1)
        else:
            self.settled.append((self.now, proposal))
            self.drawn.discard(proposal)
            if len(self.settled) % max(1, self.limits.generating // 8) == 0:
                self.plan()

    def used(self, n: int, seconds: float) -> float:
        """Returns the share of a stage's servers that were busy in the `seconds` that follow."""
        stage = self.stages[n]
        before, since = stage.worked, self.now
        self.run(since + seconds)
        return (stage.worked - before) / seconds / stage.servers

    def mean(self, place: int, after: float) -> float:
        found = [sample[place] for sample in self.samples if sample[0] >= after]
        return sum(found) / len(found)  # type: ignore[arg-type]


MODEL_BOUND = [
    (Stage(32, 0.8), Stage(256, 2.0)),
    (Stage(128, 2.0), Stage(256, 1.0)),
    (Stage(4, 10.0), Stage(16, 0.05)),
    (Stage(64, 20.0, 0.8), Stage(16, 0.2)),
    (Stage(256, 4.0), Stage(512, 5.0)),
]
EVALUATION_BOUND = [
    (Stage(64, 0.8), Stage(16, 2.0)),
    (Stage(128, 10.0), Stage(16, 2.0)),
    (Stage(32, 0.5), Stage(4, 30.0)),
    (Stage(128, 2.0), Stage(64, 10.0, 0.8)),
    (Stage(64, 0.1), Stage(256, 8.0)),
]


def scaled(stages: tuple[Stage, Stage]) -> tuple[Pipeline, float]:
    """Returns a pipeline that has run for many passages, and how long that was."""
    model, evaluation = (Stage(s.servers, s.seconds, s.spread) for s in stages)
    pipeline = Pipeline(model, evaluation, seed=1)
    slowest = max(stage.seconds / stage.servers for stage in (model, evaluation))
    long = 12 * (model.seconds + evaluation.seconds) + 3 * 128 * slowest + 60
    return pipeline.run(long), long


@pytest.mark.parametrize("stages", MODEL_BOUND, ids=lambda s: f"{s[0].servers}x{s[1].servers}")
def test_a_slow_model_stays_busy_and_few_proposals_wait_for_evaluation(
    stages: tuple[Stage, Stage],
) -> None:
    pipeline, long = scaled(stages)
    assert pipeline.used(0, long) >= 0.97
    model, evaluation = pipeline.stages
    at_work = 0.9 * model.servers / model.seconds * evaluation.seconds
    assert pipeline.mean(2, long) <= 1.15 * at_work + 3
    assert pipeline.mean(1, long) <= 2.2 * model.servers + model.servers / model.seconds + 8


@pytest.mark.parametrize("stages", EVALUATION_BOUND, ids=lambda s: f"{s[0].servers}x{s[1].servers}")
def test_a_slow_evaluation_stays_busy_and_few_proposals_wait_for_the_model(
    stages: tuple[Stage, Stage],
) -> None:
    pipeline, long = scaled(stages)
    assert pipeline.used(1, long) >= 0.97
    model, evaluation = pipeline.stages
    per_second = evaluation.servers / evaluation.seconds / 0.9
    assert pipeline.mean(1, long) <= 1.15 * per_second * model.seconds + 3
    most = 2.2 * (evaluation.servers + per_second * model.seconds) + 1.2 * per_second + 20
    assert pipeline.mean(2, long) <= most


def test_limits_grow_when_a_stage_becomes_faster() -> None:
    model, evaluation = Stage(8, 1.0), Stage(512, 1.0)
    pipeline = Pipeline(model, evaluation, seed=3).run(60)
    assert pipeline.limits.generating < 40
    model.servers = 200
    pipeline.run(90)
    assert pipeline.used(0, 60) >= 0.95


def test_the_limit_of_evaluation_counts_trials_that_workers_hold() -> None:
    pipeline = Pipeline(Stage(64, 0.8), Stage(64, 2.0), seed=6)
    pipeline.seen = 0.0
    pipeline.run(60)
    assert pipeline.used(1, 60) >= 0.97
    assert pipeline.mean(2, 60) <= 64 * 3


def test_limits_follow_a_moving_bottleneck() -> None:
    model, evaluation = Stage(32, 1.0), Stage(128, 1.0)
    pipeline = Pipeline(model, evaluation, seed=4).run(60)
    assert pipeline.used(0, 30) >= 0.97
    evaluation.servers = 8
    pipeline.run(180)
    assert pipeline.used(1, 60) >= 0.97
    assert pipeline.mean(1, 180) <= 16
    assert model.busy <= 12


def test_a_limit_set_by_the_user_stays() -> None:
    caps = Caps(generating=5, evaluating=7)
    fast = Flow(1000, 7.0, 3.0, 4.0)
    assert sized(fast, caps, STARTING) == InFlightLimits(5, 7)
    assert sized(fast, Caps(generating=5), STARTING).evaluating > 400
    assert plannable(InFlightLimits(5, 7), caps, generating=0, evaluating=7) == 0
    assert plannable(InFlightLimits(5, 7), caps, generating=2, evaluating=6) == 3


def test_a_cap_is_never_exceeded_in_a_pipeline() -> None:
    caps = Caps(generating=5, evaluating=7)
    pipeline = Pipeline(Stage(64, 1.0), Stage(2, 1.0), seed=5, caps=caps).run(60)
    assert max(sample[1] for sample in pipeline.samples) <= 5
    assert max(sample[2] for sample in pipeline.samples) <= 7 + 5


def test_an_excess_under_evaluation_is_subtracted_from_generation() -> None:
    limits = InFlightLimits(20, 10)
    assert plannable(limits, FREE, generating=5, evaluating=10) == 15
    assert plannable(limits, FREE, generating=5, evaluating=20) == 5
    assert plannable(limits, FREE, generating=5, evaluating=30) == 0


def test_a_stage_may_hold_what_the_run_may_while_nothing_is_measured() -> None:
    assert sized(None, FREE, STARTING, most=20) == InFlightLimits(20, 20)
    assert sized(Flow(3, 1.0, 1.0, 1.0), Caps(5), STARTING, most=20) == InFlightLimits(5, 20)


def test_limits_stay_within_bounds_and_hold_a_cohort() -> None:
    assert sized(Flow(50, 1000.0, 1.0, 1.0), FREE, STARTING) == InFlightLimits(LEAST, LEAST)
    assert sized(Flow(50, 1000.0, 1.0, 1.0), FREE, STARTING, least=30) == InFlightLimits(30, 30)
    assert sized(Flow(5000, 1.0, 9.0, 9.0), FREE, STARTING) == InFlightLimits(MOST, MOST)


@pytest.mark.parametrize(
    ("seconds", "in_flight", "longest", "expected"),
    [
        (0.0, 64, 0.1, 8),
        (0.0, 1024, 0.1, 8),
        (0.0, 63, 0.1, 4),
        (0.0, 7, 0.1, 1),
        (0.012, 64, 0.1, 8),
        (0.02, 64, 0.1, 4),
        (0.04, 64, 0.1, 2),
        (0.04, 64, 0.25, 4),
        (0.1, 64, 0.1, 1),
        (0.1, 64, 0.25, 2),
        (0.5, 1024, 0.25, 1),
        (3600.0, 1024, 0.25, 1),
    ],
)
def test_a_message_names_as_many_steps_as_its_time_allows(
    seconds: float, in_flight: int, longest: float, expected: int
) -> None:
    assert batch(seconds, in_flight, longest) == expected


def test_each_stage_has_the_batch_of_its_own_speed() -> None:
    limits = sized(Flow(50, 10.0, 0.8, 0.001), FREE, InFlightLimits(64, 64))
    assert (limits.generate_batch, limits.evaluate_batch) == (1, 8)
    cohorts = sized(Flow(50, 10.0, 0.0, 0.001), FREE, InFlightLimits(64, 64), least=8)
    assert (cohorts.generate_batch, cohorts.evaluate_batch) == (1, 1)
    level = sized(Flow(50, 10.0, 0.04, 0.04), FREE, InFlightLimits(64, 64))
    assert (level.generate_batch, level.evaluate_batch) == (2, 4)


@pytest.mark.parametrize(("sandbox", "expected"), [(None, 8), (2, 8), (4, 8), (8, 4), (64, 1)])
def test_a_full_stage_has_two_messages_for_each_place_in_a_sandbox(
    sandbox: int | None, expected: int
) -> None:
    limits = sized(Flow(50, 10.0, 0.8, 0.001), FREE, InFlightLimits(64, 64), sandbox=sandbox)
    assert limits.evaluate_batch == expected


def test_proposals_that_settle_together_give_no_rate() -> None:
    burst = Flow(64, 0.001, 0.0, 60.0)
    assert burst.per_second == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("budget", "settled", "expected"),
    [
        (10, 0, FIRST),
        (10, 9, SMALL),
        (100, 0, FIRST),
        (100, 20, 12),
        (2000, 79, 80),
        (2000, 600, 250),
    ],
)
def test_a_small_run_learns_before_it_fills_the_machine(
    budget: int, settled: int, expected: int
) -> None:
    assert most_in_flight(budget, settled) == expected
    assert most_in_flight(budget, settled, model=600, sandbox=600) == expected


def test_a_run_begins_with_what_the_sandboxes_hold_and_doubles() -> None:
    assert most_in_flight(10**4, 0, model=128, sandbox=1) == FIRST
    assert most_in_flight(100, 5, model=32, sandbox=2) == 9
    assert most_in_flight(10**4, 0, model=128, sandbox=4) == 6
    assert most_in_flight(10**4, 0, model=128, sandbox=64) == 66
    assert most_in_flight(10**4, 66, model=128, sandbox=64) == 132


def test_a_run_has_no_more_in_flight_than_the_machine_can_hold() -> None:
    assert most_in_flight(10**6, 10**5, model=32, sandbox=4) == 38
    assert most_in_flight(10**6, 10**5, model=0, sandbox=4) == 6
    assert most_in_flight(10**6, 10**5, model=4000, sandbox=4000) == MOST


def test_what_a_run_may_have_in_flight_is_shared_by_its_stages() -> None:
    limits = InFlightLimits(20, 20)
    assert plannable(limits, FREE, generating=5, evaluating=10, most=20) == 5
    assert plannable(limits, Caps(generating=20), generating=5, evaluating=15, most=20) == 0
    assert plannable(limits, Caps(20, 20), generating=5, evaluating=15, most=20) == 15


LATENCIES = [(0.1, 0.05), (0.5, 0.05), (0.5, 5.0), (2.0, 1.0), (20.0, 0.2), (5.0, 30.0)]
"""Seconds at the model, and in a sandbox."""
CAPACITIES = [(1, 1), (4, 16), (32, 2), (32, 64), (128, 4)]
"""Places at the model, and in the sandboxes."""
SETTLED = 300
"""Proposals that settle while the rate of a run is measured."""


def bred(latencies: tuple[float, float], capacities: tuple[int, int]) -> tuple[int, float]:
    """Returns the age of the oldest population a child was bred from, and the share of the ideal
    rate that the run reached; of a run over some ten passages, and as many as settle `SETTLED`."""
    model = Stage(capacities[0], latencies[0])
    evaluation = Stage(capacities[1], latencies[1])
    ideal = min(model.servers / model.seconds, evaluation.servers / evaluation.seconds / 0.9)
    pipeline = Pipeline(model, evaluation, seed=11)
    long = 12 * sum(latencies) + 3 * sum(capacities) / ideal
    pipeline.run(long)
    before = len(pipeline.settled)
    pipeline.run(long + SETTLED / ideal)
    return max(pipeline.ages), (len(pipeline.settled) - before) / SETTLED


@pytest.mark.parametrize("capacities", CAPACITIES, ids=str)
@pytest.mark.parametrize("latencies", LATENCIES, ids=str)
def test_a_child_is_bred_from_a_population_that_is_no_older_than_the_machine_is_large(
    latencies: tuple[float, float], capacities: tuple[int, int]
) -> None:
    age, rate = bred(latencies, capacities)
    assert age <= sum(capacities) + 2
    assert rate >= 0.95


@pytest.mark.parametrize(("model", "evaluation"), [((0.5, 32), (0.05, 2)), ((2.0, 32), (5.0, 4))])
def test_a_run_of_a_hundred_is_many_generations_deep(
    model: tuple[float, int], evaluation: tuple[float, int]
) -> None:
    """The longest chain of children, where each is bred from the newest program there is."""
    (model_seconds, requests), (seconds, sandboxes) = model, evaluation
    pipeline = Pipeline(
        Stage(requests, model_seconds), Stage(sandboxes, seconds), seed=7, budget=100
    ).run(1000)
    assert len(pipeline.settled) == 100
    assert max(pipeline.ages[:FIRST]) < FIRST + 2
    assert max(pipeline.ages) < 12


def test_small_changes_do_not_change_a_limit() -> None:
    before = sized(Flow(100, 10.0, 2.0, 2.0), FREE, STARTING)
    assert sized(Flow(103, 10.0, 2.0, 2.0), FREE, before) == before


def test_the_reason_explains_the_limit() -> None:
    flow = Flow(101, 10.0, 0.8, 2.0)
    assert reason(flow, evaluating=False, cap=None) == "10/s × 0.8 s = 8 at work"
    assert reason(flow, evaluating=True, cap=None) == "10/s × 2 s = 20 at work"
    assert reason(replace(flow, testing=31), evaluating=True, cap=None) == "31 at work now"
    assert reason(flow, evaluating=False, cap=64) == "set"
    assert reason(None, evaluating=True, cap=None) == "nothing measured yet"
