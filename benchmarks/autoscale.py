"""The fleet that an autoscaler keeps for runs, by what it reads; SIMULATED but for the recording.

    python -m benchmarks.autoscale                 # records for a minute, then prints the table
    python -m benchmarks.autoscale --start 600     # a model that takes ten minutes to load

Real: the recorded run (Postgres, Valkey, Celery, the engine, with a simulated model and sandbox),
whose times of steps the traces have, and the functions that plan (`app.domain.search`), measure and
advise (`app.domain.scaling`).  Simulated: time, workers, and the autoscaler: KEDA 2.x polls every
30 s, starts the first replica, and removes the last 300 s after the last activity; Kubernetes'
HorizontalPodAutoscaler does the rest every 15 s, with its default tolerance of 10 %, at most four
replicas or twice as many at once, and the highest recommendation of 300 s before it removes any.
KEDA itself does not run.
"""

import argparse
import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import psycopg

from app.config.settings import RunSettings
from app.domain.run import RunState
from app.domain.scaling import Fleet, Goal, Load
from app.domain.scaling import sized as fleets_sized
from app.domain.search.back_pressure import (
    FEWEST_MEASURED,
    SMALL,
    Caps,
    Flow,
    InFlightLimits,
    most_in_flight,
    plannable,
    sized,
    unplaced,
    window,
)
from app.domain.search.shares import share
from benchmarks.stack import begin, running_stack

POLL_SECONDS, COOLDOWN_SECONDS = 30.0, 300.0
SYNC_SECONDS, STABLE_SECONDS, TOLERANCE = 15.0, 300.0, 0.1
PLAN_SECONDS, REAP_SECONDS, REPEAT_SECONDS = 0.5, 5.0, 30.0
PLACES = {"gpu": 32, "cpu": 8}
MOST = {"gpu": 8, "cpu": 40}
SLOWER = 10.0
"""Factor of the recorded times: 2 s at the model are 20 s, as of a long answer of a large model."""
RECORDED_SECONDS = {"gpu": 2.0, "cpu": 1.0}
SAMPLED = 32


@dataclass(frozen=True, slots=True)
class Recording:
    """A real run on a fixed fleet.

    Attributes:
      seconds: Of each proposal at the model, and in the sandbox.
      took: From its start to its end.
      demand: Mean of `evoq_demand` by queue.
    """

    seconds: Sequence[tuple[float, float]]
    took: float
    demand: dict[str, float]


@dataclass(slots=True, eq=False)
class Step:
    """A proposal in one stage."""

    run: "SimulatedRun"
    queue: str
    seconds: float
    after: float
    repeat_at: float = 0.0


@dataclass(slots=True, eq=False)
class SimulatedRun:
    """A run: its plans, and what has settled.

    Attributes:
      times: Of its proposals at the model and in the sandbox.
      settled: When each settled, with its two times.
    """

    name: str
    starts: float
    budget: int
    times: Iterable[tuple[float, float]]
    planned: int = 0
    seeded: bool = False
    begun_at: float | None = None
    ended_at: float | None = None
    in_stage: dict[str, int] = field(default_factory=lambda: {"gpu": 0, "cpu": 0})
    settled: list[tuple[float, float, float]] = field(default_factory=list)
    limits: InFlightLimits = field(default_factory=lambda: InFlightLimits(SMALL, SMALL))
    unplaced: int = 0

    @property
    def unsettled(self) -> int:
        return sum(self.in_stage.values())

    def flow(self, now: float, testing: int) -> Flow | None:
        """Returns what the ledger measures of the newest settled proposals."""
        n = min(len(self.settled), window(self.unsettled))
        if n < 2:
            return None
        newest = self.settled[-min(n, SAMPLED) :]
        means = [sum(one[at] for one in newest) / len(newest) for at in (1, 2)]
        return Flow(n, now - self.settled[-n][0], means[0], means[1], testing)

    def places(self, queue: str) -> int:
        """Returns what `evoq_demand` counts of the run."""
        plans = self.planned < self.budget
        return max(plans, self.in_stage[queue] + plans * self.unplaced * (queue == "gpu"))


@dataclass(slots=True, eq=False)
class Worker:
    """A replica; it is paid for from its creation."""

    created: float
    ready: float
    steps: set[Step] = field(default_factory=set)


@dataclass(slots=True)
class Workers:
    """The replicas of a queue, and its messages."""

    queue: str
    start_seconds: float
    replicas: list[Worker] = field(default_factory=list)
    messages: deque[Step] = field(default_factory=deque)
    waiting: set[Step] = field(default_factory=set)
    paid: float = 0.0
    active_at: float = 0.0
    recommended: deque[tuple[float, int]] = field(default_factory=deque)

    def scale(self, wanted: int, now: float, *, ready: bool = False) -> None:
        """Creates or removes replicas; a removed one gives its steps back, and their work is lost.

        Those that are not ready go first, then the youngest, as in Kubernetes.
        """
        while len(self.replicas) < wanted:
            self.replicas.append(Worker(now, now + (0.0 if ready else self.start_seconds)))
        while len(self.replicas) > wanted:
            removed = max(self.replicas, key=lambda one: (one.ready > now, one.created))
            self.replicas.remove(removed)
            self.paid += now - removed.created
            for step in removed.steps:
                self.enqueue(step, now)

    def enqueue(self, step: Step, now: float) -> None:
        step.repeat_at = now + REPEAT_SECONDS
        self.waiting.add(step)
        self.messages.append(step)

    def repeat(self, now: float, *, bounded: bool) -> None:
        """Enqueues again what nobody has begun for 30 s, as `reap` does."""
        overdue = [step for step in self.waiting if step.repeat_at < now]
        full = bounded and len(self.messages) >= len(self.waiting)
        for step in overdue:
            step.repeat_at = now + REPEAT_SECONDS
            if not full:
                self.messages.append(step)

    def capacity(self, now: float) -> int | None:
        ready = sum(worker.ready <= now for worker in self.replicas)
        return ready * PLACES[self.queue] if ready else None

    def dispatch(self, now: float) -> list[tuple[Worker, Step]]:
        """Begins steps on free places; a message of a step that was begun before is dropped."""
        begun = []
        for worker in self.replicas:
            while worker.ready <= now and self.messages and len(worker.steps) < PLACES[self.queue]:
                step = self.messages.popleft()
                if step in self.waiting:
                    self.waiting.remove(step)
                    worker.steps.add(step)
                    begun.append((worker, step))
        return begun

    def autoscale(self, metric: float, target: float, now: float) -> None:
        """Sets the replicas as the HorizontalPodAutoscaler does."""
        current = len(self.replicas)
        if not current:
            self.recommended.clear()
            return
        off = abs(metric / (target * current) - 1.0) > TOLERANCE
        wanted = math.ceil(metric / target) if off else current
        wanted = max(1, min(wanted, MOST[self.queue]))
        self.recommended.append((now, wanted))
        while self.recommended[0][0] < now - STABLE_SECONDS:
            self.recommended.popleft()
        highest = max(replicas for _, replicas in self.recommended)
        down = min(current, highest)
        self.scale(min(wanted, max(2 * current, current + 4)) if wanted > current else down, now)


Metric = Callable[["Simulation", str, float], float]


@dataclass(frozen=True, slots=True)
class Policy:
    """What an autoscaler reads.

    Attributes:
      metric: Returns the value for a queue; None for a fleet of fixed size.
      target: The value a replica; None for that of its places.
      bounded: Whether `reap` leaves a full queue alone.
      fixed: Replicas of a fixed fleet, by queue.
    """

    name: str
    metric: Metric | None = None
    target: float | None = None
    bounded: bool = True
    fixed: dict[str, int] = field(default_factory=dict)


class Simulation:
    """Runs on fleets that a policy scales, event by event."""

    def __init__(self, runs: Sequence[SimulatedRun], policy: Policy, start_seconds: float) -> None:
        """Begins with no worker, or with a fixed fleet that is ready."""
        self.runs, self.policy = runs, policy
        self.fleets = {
            "gpu": Workers("gpu", start_seconds),
            "cpu": Workers("cpu", min(start_seconds, 10.0)),
        }
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()
        self.demanded: dict[str, list[int]] = {queue: [] for queue in self.fleets}
        for queue, replicas in policy.fixed.items():
            self.fleets[queue].scale(replicas, 0.0, ready=True)

    def go(self, horizon: float) -> None:
        """Simulates so many seconds, and pays for every replica until then."""
        self._every(PLAN_SECONDS, self._plan)
        self._every(REAP_SECONDS, self._reap)
        if self.policy.metric is not None:
            self._every(POLL_SECONDS, self._poll)
            self._every(SYNC_SECONDS, self._sync)
        while self._events and self._events[0][0] <= horizon:
            now, _, act = heapq.heappop(self._events)
            act(now)
            for fleet in self.fleets.values():
                for worker, step in fleet.dispatch(now):
                    self._begin(worker, step, now)
        for fleet in self.fleets.values():
            fleet.scale(0, horizon)

    def running(self, now: float) -> list[SimulatedRun]:
        return [run for run in self.runs if run.starts <= now and run.ended_at is None]

    def demand(self, queue: str, now: float) -> int:
        """Returns what `evoq_demand` would."""
        return sum(run.places(queue) for run in self.running(now))

    def advice(self, queue: str, now: float) -> int:
        """Returns what `evoq scale --all` would, with the most that the autoscaler allows."""
        loads = []
        for run in self.running(now):
            flow = run.flow(now, 0)
            left = run.budget - run.planned
            most = most_in_flight(
                run.budget, len(run.settled), sandbox=self.fleets["cpu"].capacity(now)
            )
            seconds = None
            if flow is not None and flow.settled >= FEWEST_MEASURED:
                seconds = {"gpu": flow.generating_seconds, "cpu": flow.evaluating_seconds}
            places = {name: run.places(name) for name in PLACES}
            coming = {"gpu": left + run.in_stage["gpu"], "cpu": left + run.unsettled}
            in_flight = min(most, left + run.unsettled)
            load = Load(run.name, in_flight, left + run.unsettled, seconds, places, coming)
            loads.append(load)
        fleets = [Fleet(name, places=places) for name, places in PLACES.items()]
        sizes = fleets_sized(loads, fleets, Goal(most=MOST)).fleets
        return next(size.replicas for size in sizes if size.queue == queue)

    def _every(self, seconds: float, act: Callable[[float], None]) -> None:
        def again(now: float) -> None:
            act(now)
            self._at(now + seconds, again)

        self._at(0.0, again)

    def _at(self, moment: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), act))

    def _begin(self, worker: Worker, step: Step, now: float) -> None:
        run = step.run
        if step.queue == "gpu" and step.seconds and run.begun_at is None:
            run.begun_at = now

        def end(then: float) -> None:
            if step not in worker.steps or worker not in self.fleets[step.queue].replicas:
                return
            worker.steps.remove(step)
            run.in_stage[step.queue] -= 1
            if step.queue == "gpu":
                self._enqueue(Step(run, "cpu", step.after, step.seconds), then)
            elif not run.seeded:
                run.seeded = True
            else:
                run.settled.append((then, step.after, step.seconds))
                if len(run.settled) == run.budget:
                    run.ended_at = then

        self._at(now + step.seconds, end)

    def _enqueue(self, step: Step, now: float) -> None:
        step.run.in_stage[step.queue] += 1
        self.fleets[step.queue].enqueue(step, now)

    def _plan(self, now: float) -> None:
        running = self.running(now)
        if running:
            for queue, demanded in self.demanded.items():
                demanded.append(self.demand(queue, now))
        for run in running:
            if not run.seeded:
                if not run.unsettled:
                    # The seed: it asks no model.
                    self._enqueue(Step(run, "gpu", 0.0, next(iter(run.times))[1]), now)
                continue
            for _ in range(self._plannable(run, running, now)):
                generating, evaluating = next(iter(run.times))
                self._enqueue(Step(run, "gpu", generating, evaluating), now)
                run.planned += 1

    def _plannable(self, run: SimulatedRun, running: Sequence[SimulatedRun], now: float) -> int:
        """Returns what `produce` would plan, by the functions that it calls."""
        at_work = [s for worker in self.fleets["cpu"].replicas for s in worker.steps]
        flow = run.flow(now, sum(step.run is run for step in at_work))
        places = {}
        for queue, fleet in self.fleets.items():
            places[queue] = fleet.capacity(now)
            total = places[queue]
            if total is not None and len(running) > 1:
                numbers = {n: one.in_stage[queue] for n, one in enumerate(running)}
                weights = dict.fromkeys(numbers, 1.0)
                places[queue] = share(list(running).index(run), weights, numbers, total)
        model, sandbox = places["gpu"], places["cpu"]
        settled = len(run.settled)
        most = most_in_flight(run.budget, settled, model=model, sandbox=sandbox)
        run.limits = sized(flow, Caps(), run.limits, most=most, sandbox=sandbox)
        stages = {"generating": run.in_stage["gpu"], "evaluating": run.in_stage["cpu"]}
        free = plannable(run.limits, Caps(), **stages, most=most)
        left = run.budget - run.planned
        beyond = most_in_flight(run.budget, settled, sandbox=sandbox)
        more = unplaced(flow, run.limits, Caps(), **stages, most=beyond, free=free)
        run.unplaced = min(more, max(0, left - free))
        return min(left, max(free, not run.unsettled))

    def _reap(self, now: float) -> None:
        for fleet in self.fleets.values():
            fleet.repeat(now, bounded=self.policy.bounded)

    def _poll(self, now: float) -> None:
        """Does what KEDA does: the first replica, and the last."""
        for queue, fleet in self.fleets.items():
            if self._metric(queue, now) > 0:
                fleet.active_at = now
                if not fleet.replicas:
                    fleet.scale(1, now)
            elif fleet.replicas and now - fleet.active_at > COOLDOWN_SECONDS:
                fleet.scale(0, now)

    def _sync(self, now: float) -> None:
        for queue, fleet in self.fleets.items():
            target = self.policy.target or PLACES[queue]
            fleet.autoscale(self._metric(queue, now), target, now)

    def _metric(self, queue: str, now: float) -> float:
        assert self.policy.metric is not None
        return self.policy.metric(self, queue, now)


POLICIES = (
    Policy("fixed fleet", fixed=MOST),
    Policy("queue length", lambda s, queue, now: len(s.fleets[queue].messages), bounded=False),
    Policy("queue length, bounded", lambda s, queue, now: len(s.fleets[queue].messages)),
    Policy("`evoq_demand`", Simulation.demand),
    Policy("`/api/scale`", Simulation.advice, target=1.0),
)
TRACES: dict[str, Sequence[tuple[float, int]]] = {
    "steady": [(60.0, 6000)],
    "bursty": [(60.0 + 1200.0 * n, 300) for n in range(6)],
    "a run that ends": [(60.0, 1500)],
}
"""Start and budget of each run."""
HORIZON = 7200.0


def record(proposals: int) -> Recording:
    """Records a real run on 32 places at the simulated model and 16 in simulated sandboxes."""
    environment = {
        "SIMULATED_MODEL_SECONDS": str(RECORDED_SECONDS["gpu"]),
        "SIMULATED_EVALUATION_SECONDS": str(RECORDED_SECONDS["cpu"]),
        "SIMULATED_MODEL_SLOTS": "32",
        "SIMULATED_EVALUATION_SLOTS": "16",
        "EVOQ_GENERATE_CONCURRENCY": "32",
        "EVOQ_EVALUATE_CONCURRENCY": "16",
    }
    with running_stack(["cpu,control", "gpu"], environment) as stack:
        while True:
            with stack.store.begin() as tx:
                if {"gpu", "cpu"} <= {worker.kind for worker in tx.workers.live()}:
                    break
            time.sleep(0.5)
        run = begin(
            stack,
            name="recorded",
            settings=RunSettings(),
            proposals=proposals,
            limits=InFlightLimits(SMALL, SMALL),
        )
        began, samples = time.monotonic(), list[tuple[int, int]]()
        address = stack.database_url.replace("+psycopg", "")
        with psycopg.connect(address, autocommit=True) as connection:
            while True:
                ask = "SELECT evoq_demand('gpu'), evoq_demand('cpu')"
                samples += connection.execute(ask).fetchall()
                with stack.store.begin() as tx:
                    if tx.runs.get(run.id).state is not RunState.RUNNING:
                        break
                time.sleep(0.5)
            took = time.monotonic() - began
            seconds = connection.execute(_SECONDS).fetchall()
        means = [sum(column) / len(samples) for column in zip(*samples, strict=True)]
        demand = dict(zip(("gpu", "cpu"), means, strict=True))
        return Recording([(float(a), float(b)) for a, b in seconds], took, demand)


_SECONDS = """
    SELECT (SELECT sum(latency_seconds) FROM completions WHERE completions.proposal = proposals.id),
        (SELECT sum(wall_seconds) FROM trials
            WHERE trials.cohort = proposals.cohort AND proposals.program = ANY(players))
    FROM proposals WHERE NOT seed AND state = 'admitted' ORDER BY ordinal
"""


def simulated(
    recording: Recording,
    trace: Sequence[tuple[float, int]],
    policy: Policy,
    start_seconds: float,
    *,
    slower: float = SLOWER,
    horizon: float = HORIZON,
) -> Simulation:
    times = itertools.cycle([(a * slower, b * slower) for a, b in recording.seconds])
    runs = [SimulatedRun(str(n), at, budget, times) for n, (at, budget) in enumerate(trace)]
    simulation = Simulation(runs, policy, start_seconds)
    simulation.go(horizon)
    return simulation


def row(name: str, simulation: Simulation) -> str:
    """Returns a line of the table of a trace."""
    runs = simulation.runs
    needed = sum(one[1] for run in runs for one in run.settled) / PLACES["gpu"]
    paid = simulation.fleets["gpu"].paid
    waits = [run.begun_at - run.starts for run in runs if run.begun_at is not None]
    ends = [run.ended_at - run.starts for run in runs if run.ended_at is not None]
    ended = f"{sum(ends) / len(ends) / 60:.1f} min" if len(ends) == len(runs) else "not ended"
    return (
        f"| {name} | {paid:,.0f} | {needed:,.0f} | {needed / paid:.0%} | "
        f"{sum(waits) / max(1, len(waits)):.0f} s | {ended} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=float, default=180.0, help="seconds until a GPU is ready")
    parser.add_argument("--proposals", type=int, default=400, help="of the recorded run")
    options = parser.parse_args()
    recording = record(options.proposals)
    fixed = Policy("", fixed={"gpu": 1, "cpu": 2})
    same = simulated(recording, [(0.0, options.proposals)], fixed, 0.0, slower=1.0, horizon=600.0)
    [run] = same.runs
    print(
        f"recorded: {len(recording.seconds)} proposals in {recording.took:.1f} s, mean demand "
        f"{recording.demand['gpu']:.1f} at models, {recording.demand['cpu']:.1f} in sandboxes; "
        f"the same run simulated: {run.ended_at or math.nan:.1f} s, "
        + ", ".join(f"{sum(each) / len(each):.1f}" for each in same.demanded.values())
    )
    for trace, runs in TRACES.items():
        print(f"\n**{trace}**\n")
        print("| Policy | GPU-seconds paid | needed | used | first token after | run ends after |")
        print("|---|---|---|---|---|---|")
        for policy in POLICIES:
            print(row(policy.name, simulated(recording, runs, policy, options.start)))


if __name__ == "__main__":
    main()
