"""How well arms of the search do on problems of our own: `python -m benchmarks.search`.

Real: recipes, selection, islands, cells, admission with its refusal of clones, migration, the
learning of ranges, the parents that operators choose, briefs, operators, prompts and replies, and
the fingerprints that cut duplicates.  In the place of the ledger there is this process's memory;
in the place of queues and workers a first-in, first-out line of `--in-flight` proposals, one of
which is settled before the next is drawn, or with `--machine` a model and sandboxes of so many
places over discrete events, with what `most_in_flight` lets the run have in flight.  Programs are
evaluated in this process, without a sandbox: their texts come from the seeds below and from blind
edits only.

SIMULATED: the model of the edits `model` answers prompts of `diff` and `rewrite` by blind edits, as
`evoq mock-llm` does.  With the edits `paired` there are no operators and no prompts: the n-th child
of a program is the same in all arms of a seed, so that arms that agree on parents end alike and
differences within a seed are those of the choice of parents.
"""

import argparse
import heapq
import json
import math
import multiprocessing
import random
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any

import numpy as np

from app.adapters.tuning.cma import ask
from app.config.checks import axes_of
from app.config.mix import OF_FEW_NUMBERS, WITH_A_MODEL, WITHOUT_A_MODEL
from app.config.rules import islands_of, rules_of
from app.config.settings import RunSettings
from app.domain.evaluation import COMBINED, Evaluation, Failure, FailureKind, Trial
from app.domain.operator import (
    Aim,
    Ancestry,
    Child,
    Completion,
    Draft,
    FailedChild,
    MeasuredPoint,
    Offspring,
    ProgramRecord,
)
from app.domain.operators import operators
from app.domain.problem import Axis, Job, Outcome, Problem
from app.domain.program import Program, ProgramId, fingerprint
from app.domain.run import Run, RunState
from app.domain.search.archive import Cell, Entrant, IslandView, learnt
from app.domain.search.back_pressure import InFlightLimits, most_in_flight
from app.domain.search.budget import Budget
from app.domain.search.features import BUILT_IN, COMPLEXITY, DIVERSITY
from app.domain.search.promotion import separated
from app.domain.search.strategy import RecipeInputs, Strategy
from app.engine.admission import Admission
from app.engine.briefing import brief_of, draft_of
from mock_llm.replies import edit, mutating_reply
from tests.islands import Island

OPERATORS = operators(ask)
EDITS: Mapping[str, Mapping[str, float]] = {
    "mutate": {"mutate": 1.0},
    "shipped": WITHOUT_A_MODEL,
    "quarter": OF_FEW_NUMBERS,
    "model": WITH_A_MODEL,
    "paired": {"diff": 1.0},
}
SPREAD = 0.3
"""Of durations around their mean (lognormal)."""
LONGEST_SECONDS = 0.5
"""CPU time of one evaluation: a blind edit can make a power of powers."""


@dataclass(frozen=True)
class Task:
    """A problem of ours.

    Attributes:
      seed: The initial program.
      score: Returns the metrics of a program: its fitness, and its features on axes of its own.
      noise: Standard deviation of the measured fitness around the true one.
      axes: Axes of the grid.
    """

    name: str
    seed: str
    score: Callable[[SimpleNamespace], Mapping[str, float]]
    noise: float = 0.0
    axes: tuple[Axis, ...] = (Axis(COMPLEXITY, scaled=True), Axis(DIVERSITY, scaled=True))


PROBLEMS = Path(__file__).parent / "problems"
EXAMPLE = Path(__file__).parents[1] / "examples" / "function_minimization" / "initial_program.py"
LUCKY = 33
"""With these draws the initial program is far above its mean, as it is in a sandbox: few children
are better."""


def _folder(name: str) -> Task:
    """Returns the task of a folder of `PROBLEMS`, whose evaluator is imported into this process."""
    folder = PROBLEMS / name
    spec = spec_from_file_location(f"evaluator_of_{name}", folder / "evaluator.py")
    assert spec is not None
    assert spec.loader is not None
    evaluator = module_from_spec(spec)
    spec.loader.exec_module(evaluator)
    return Task(name, (folder / "initial_program.py").read_text(), evaluator.score)


def _valleys(program: SimpleNamespace) -> Mapping[str, float]:
    random.seed(LUCKY)
    points = [program.search(-5.0, 5.0) for _ in range(10)]
    if any(abs(value) > 5.0 for point in points for value in point):
        raise ValueError("outside")
    values = (
        math.sin(x) * math.cos(y) + math.sin(x * y) + (x * x + y * y) / 20.0 for x, y in points
    )
    return {COMBINED: -fmean(values)}


TASKS = {
    task.name: task
    for task in (
        replace(_folder("trap"), axes=(Axis("ones", 17, -0.5, 16.5),)),
        replace(_folder("constants"), name="noisy", noise=0.1),
        *map(_folder, ("formula", "nk", "sorting", "constants")),
        Task("valleys", EXAMPLE.read_text(), _valleys),
        _folder("packing"),
    )
}


Repeat = Callable[[Sequence[float]], bool]
"""Returns whether a program with these measurements is measured once more."""


def stuck(signum: int, frame: object) -> None:
    raise TimeoutError(f"more than {LONGEST_SECONDS} s")


def evaluated(
    task: Task, program: Program, seed: int, seeds: Sequence[Program], more: Repeat
) -> tuple[Evaluation, int]:
    """Returns what a program measures, and how often it was measured.

    With noise, fitness is the mean of the measurements, and the true one is an artifact.
    """
    names: dict[str, Any] = {}
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_SECONDS)
    try:
        try:
            exec(compile(program.source, "<program>", "exec"), names)
            measured = task.score(SimpleNamespace(**names))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        truth = measured[COMBINED]
        if not math.isfinite(truth) or isinstance(truth, complex):
            raise ValueError(f"no fitness: {truth}")
    except Exception as error:
        failure = Failure(FailureKind.RUNTIME, f"{type(error).__name__}: {error}")
        return Evaluation(failure=failure), 1
    rng = Random(f"{seed}/{program.id}")
    fitnesses = [truth + rng.gauss(0.0, task.noise)]
    while more(fitnesses):
        fitnesses.append(truth + rng.gauss(0.0, task.noise))
    fitness = fmean(fitnesses)
    own = {
        axis.name: BUILT_IN[axis.name](program, fitness, seeds)
        for axis in task.axes
        if axis.name in BUILT_IN
    }
    evaluation = Evaluation(
        {program.id: {COMBINED: fitness}},
        {program.id: {COMBINED: fitness}},
        {program.id: {**measured, **own}},
        {"truth": repr(truth)},
    )
    return evaluation, len(fitnesses)


@dataclass
class Memory:
    """A run's ledger in memory; it is its own transaction, of the parts that are used here."""

    seeds: Sequence[Program]
    islands: list[Island]
    known: dict[ProgramId, Program] = field(default_factory=dict)
    parent: dict[ProgramId, ProgramId] = field(default_factory=dict)
    entrants: dict[ProgramId, Entrant] = field(default_factory=dict)
    home: dict[ProgramId, Draft] = field(default_factory=dict)
    changes: dict[ProgramId, str] = field(default_factory=dict)
    families: dict[str, list[tuple[ProgramId, tuple[float, ...]]]] = field(default_factory=dict)
    order: dict[ProgramId, int] = field(default_factory=dict)
    fallen: list[tuple[Draft, FailedChild]] = field(default_factory=list)
    bred: Counter[ProgramId] = field(default_factory=Counter)
    repeats: Counter[ProgramId] = field(default_factory=Counter)

    @property
    def programs(self) -> "Memory":
        return self

    @property
    def archive(self) -> "Memory":
        return self

    def island(self, run: int, index: int, *, lock: bool = False) -> Island:
        return replace(self.islands[index], children=self.bred, duplicates=self.repeats)

    def put_cell(self, run: int, island: int, cell: Cell, *, seen: IslandView | None) -> bool:
        before = self.islands[island]
        cells = {**before.cells, cell.key: cell}
        self.islands[island] = replace(before, cells=cells, admitted=before.admitted + 1)
        return True

    def clear_island(self, run: int, island: int, *, reset: bool) -> None:
        before = self.islands[island]
        self.islands[island] = Island(before.index, before.epoch + reset)

    def get(self, ids: Sequence[ProgramId]) -> Mapping[ProgramId, Program]:
        return {program: self.known[program] for program in ids}

    def records(
        self, run: int, ids: Sequence[ProgramId], *, measured: bool = True
    ) -> dict[ProgramId, ProgramRecord]:
        return {program: self._record(program) for program in ids}

    def _record(self, program: ProgramId) -> ProgramRecord:
        entrant = self.entrants.get(program)
        source, changes = self.known[program], self.changes.get(program, "")
        if entrant is None:
            return ProgramRecord(source, changes=changes)
        metrics = {COMBINED: entrant.fitness}
        return ProgramRecord(source, entrant.fitness, metrics, entrant.features, {}, changes)

    def children(self, run: int, parent: ProgramId, limit: int) -> tuple[ProgramRecord, ...]:
        found = [child for child in reversed(self.entrants) if self.parent.get(child) == parent]
        return tuple(self._record(child) for child in found[:limit])

    def ancestry(self, run: int, program: ProgramId, *, ancestors: int, failures: int) -> Ancestry:
        line = [program]
        while len(line) <= ancestors and line[-1] in self.parent:
            line.append(self.parent[line[-1]])
        fallen = [child for draft, child in reversed(self.fallen) if draft.parents[0] in line]
        forebears = tuple(self._record(one) for one in line[1:])
        return Ancestry(forebears, tuple(fallen[:failures]))

    def failed(
        self, run: int, island: int, *, epoch: int, kinds: Collection[FailureKind], limit: int
    ) -> list[Aim]:
        aims = [
            Aim(draft.parents[0], draft.generation, (child.program.id,))
            for draft, child in reversed(self.fallen)
            if child.program and draft.island == island and child.failure.kind in kinds
        ]
        return aims[:limit]

    def failed_child(self, run: int, program: ProgramId) -> FailedChild | None:
        children = (child for _, child in reversed(self.fallen))
        return next((c for c in children if c.program and c.program.id == program), None)

    def born_since(self, run: int, family: str, program: ProgramId, most: int) -> int:
        born = self.order[program]
        kin = self.families.get(family, [])
        return min(most, sum(self.order[child] > born for child, _ in kin))

    def points(self, run: int, family: str, limit: int) -> tuple[MeasuredPoint, ...]:
        crashed = {child.program.id for _, child in self.fallen if child.program is not None}
        kin = [
            MeasuredPoint(numbers, self.entrants[child].fitness if child in self.entrants else None)
            for child, numbers in reversed(self.families.get(family, []))
            if child in self.entrants or child in crashed
        ]
        return tuple(kin[:limit])

    def best(self) -> Entrant:
        return max(self.entrants.values(), key=lambda entrant: entrant.quality)


@dataclass(frozen=True)
class Machine:
    """A simulated model and sandboxes: seconds of a request and of a trial, and places of each."""

    model_seconds: float
    requests: int
    trial_seconds: float
    sandboxes: int

    def order(self, budget: int, seed: int) -> Iterator[int]:
        """Yields the order in which a run draws and settles: n as it is drawn, ~n as it settles."""
        rng = Random(f"{seed}/machine")
        stages = (self.model_seconds, self.requests), (self.trial_seconds, self.sandboxes)
        waiting: tuple[deque[int], deque[int]] = (deque(), deque())
        busy, planned, settled, now = [0, 0], 0, 0, 0.0
        events: list[tuple[float, int, int]] = []
        while settled < budget:
            room = most_in_flight(budget, settled, model=self.requests, sandbox=self.sandboxes)
            while planned < min(budget, settled + room):
                waiting[0].append(planned)
                planned += 1
            for stage, (seconds, places) in enumerate(stages):
                while waiting[stage] and busy[stage] < places:
                    proposal = waiting[stage].popleft()
                    busy[stage] += 1
                    if stage == 0:
                        yield proposal
                    took = seconds * rng.lognormvariate(-(SPREAD**2) / 2, SPREAD)
                    heapq.heappush(events, (now + took, proposal, stage))
            now, proposal, stage = heapq.heappop(events)
            busy[stage] -= 1
            if stage == 0:
                waiting[1].append(proposal)
            else:
                settled += 1
                yield ~proposal


def in_line(budget: int, in_flight: int) -> Iterator[int]:
    """Yields what `Machine.order` yields, for a line of so many proposals in flight."""
    for n in range(budget + in_flight):
        if n >= in_flight:
            yield ~(n - in_flight)
        if n < budget:
            yield n


POINTS = {*range(10, 101, 10), 200, 300, 1000, 2000}
"""Settled proposals after which the best is noted."""


@dataclass(frozen=True)
class Outcomes:
    """What a search came to.

    Attributes:
      curve: True fitness of the best after `POINTS` proposals, and at the end.
      deepest: The largest generation.
      first: Children of the initial programs.
      failed, duplicates: Children that failed, and that were cut as duplicates.
      cells: Occupied cells at the end.
      trials: Measurements, those of the initial program included.
    """

    curve: Mapping[str, float]
    deepest: int
    first: int
    failed: int
    duplicates: int
    cells: int
    trials: int


class Search:
    """One run of one arm."""

    def __init__(self, task: Task, arm: str, edits: str, budget: int, seed: int) -> None:
        self.task, self.budget, self.seed = task, budget, seed
        self.start = Program(task.seed)
        settings = RunSettings.model_validate({"budget": {"proposals": budget}, **ARMS[arm]})
        strategy, islands = settings.search.strategy, islands_of(settings)
        stored = settings.model_dump(mode="json")
        rules = rules_of(strategy, stored)
        self.problem = Problem(
            task.name, "0" * 64, "benchmark", {}, {}, "Raise the score.", (self.start,),
            _no_job, _no_reading, axes=task.axes,
        )  # fmt: skip
        axes = task.axes if arm == "before" else axes_of(self.problem, settings)
        self.run = Run(
            1, task.name, "0" * 64, task.name, strategy, stored, rules,
            EDITS[edits], axes, seed, islands, Budget(budget), InFlightLimits(8, 8),
            RunState.RUNNING,
        )  # fmt: skip
        self.paired = edits == "paired"
        self.memory = Memory((self.start,), [Island(n) for n in range(islands)])
        self.taken = {(0, fingerprint(self.start))}
        self.measured = self.failed = self.duplicates = self.first = self.deepest = self.trials = 0
        self.truth: dict[ProgramId, float] = {}
        self._enter(self.start, -1, Draft(-1, 0, 0, 0, ()))

    def strategy(self) -> Strategy:
        recipe = self.run.rules.recipe
        assert recipe is not None
        islands = self.run.islands
        inputs = RecipeInputs(self.run.axes, ("evaluate",), (), islands, self.budget)
        return recipe.strategy(inputs)

    def done(self, order: Iterator[int]) -> Outcomes:
        """Spends the budget, in the order of `Machine.order`."""
        flying: dict[int, tuple[Draft, Child]] = {}
        curve: dict[str, float] = {}
        settled = 0
        for turn in order:
            if turn >= 0:
                flying[turn] = self._bred(turn)
                continue
            draft, child = flying.pop(~turn)
            self._settle(draft, child)
            settled += 1
            if settled in POINTS or settled == self.budget:
                curve[str(settled)] = self.truth[self.memory.best().program]
        cells = sum(island.size for island in self.memory.islands)
        return Outcomes(
            curve, self.deepest, self.first, self.failed, self.duplicates, cells, self.trials
        )

    def _bred(self, ordinal: int) -> tuple[Draft, Child]:
        strategy = self.strategy()
        if strategy.upkeep.due(ordinal):
            admission = Admission(self.memory, self.run, strategy)  # type: ignore[arg-type]
            rng = self.run.rng(ordinal, "upkeep")
            islands = tuple(self.memory.island(1, n) for n in range(self.run.islands))
            for move in strategy.upkeep.moves(islands, rng):
                if move.reset:
                    admission.clear(move.target, reset=True)
                admission.offer(move.elite, move.target, admission.epoch(move.target))
        operator = OPERATORS[self.run.draw_operator(ordinal)]
        island = self.memory.island(1, ordinal % self.run.islands)
        draft = draft_of(self.memory, self.run, strategy, operator, island, ordinal)  # type: ignore[arg-type]
        born = self.memory.bred[draft.parents[0]]
        self.memory.bred[draft.parents[0]] += 1
        if self.paired:
            return draft, self._nth_child(draft.parents[0], born)
        brief = brief_of(self.memory.programs, self.run, self.problem, operator, (draft,))  # type: ignore[arg-type]
        talk = operator.converse(brief)
        replies: list[Completion] | None = None
        rng = self.run.rng(ordinal, "model")
        while True:
            try:
                prompts = talk.send(replies) if replies is not None else next(talk)
            except StopIteration as finished:
                [child] = finished.value
                break
            replies = [
                Completion(mutating_reply(f"{prompt.system}\n{prompt.user}", prompt.user, rng))
                for prompt in prompts
            ]
        if isinstance(child, Offspring) and child.point:
            kin = self.memory.families.setdefault(child.point.family, [])
            self.memory.order.setdefault(child.program.id, ordinal)
            kin.append((child.program.id, child.point.numbers))
        return draft, child

    def _nth_child(self, parent: ProgramId, born: int) -> Child:
        rng = Random(f"{self.task.name}/{self.seed}/{parent}/{born}")
        edited = edit(self.memory.known[parent], rng)
        if edited is None:
            return Failure(FailureKind.UNCHANGED, "no edit changes the program")
        text, note = edited
        return Offspring(Program(text, "python"), note)

    def _settle(self, draft: Draft, child: Child) -> None:
        self.deepest = max(self.deepest, draft.generation)
        self.first += draft.parents[0] == self.start.id
        if isinstance(child, Failure):
            self.failed += 1
            self.memory.fallen.append((draft, FailedChild(child)))
            return
        claim = (draft.epoch, fingerprint(child.program))
        if claim in self.taken:
            self.duplicates += 1
            self.memory.repeats[draft.parents[0]] += 1
            return
        self.taken.add(claim)
        self.memory.known.setdefault(child.program.id, child.program)
        self.memory.parent.setdefault(child.program.id, draft.parents[0])
        self.memory.changes.setdefault(child.program.id, child.changes)
        self._enter(child.program, draft.ordinal, draft)

    def _enter(self, program: Program, ordinal: int, draft: Draft) -> None:
        best = self.memory.islands[draft.island].best(1)
        most = self.run.rules.search.measurements
        evaluation, times = evaluated(
            self.task,
            program,
            self.seed,
            (self.start,),
            lambda done: len(done) < most and not (best and separated(done, best[0].fitness)),
        )
        self.trials += times
        self.memory.known[program.id] = program
        if evaluation.failure:
            self.failed += 1
            self.memory.fallen.append(
                (
                    draft,
                    FailedChild(
                        evaluation.failure, program, self.memory.changes.get(program.id, "")
                    ),
                )
            )
            return
        self.truth[program.id] = float(evaluation.artifacts["truth"])
        fitness = evaluation.scores[program.id][COMBINED]
        entrant = Entrant(program.id, fitness, len(program.source), draft.generation, (evaluation,))
        self.memory.entrants[program.id] = entrant
        self.memory.order.setdefault(program.id, ordinal)
        self.memory.home[program.id] = draft
        self.measured += 1
        if ordinal < 0:
            axes = learnt(self.run.axes, [entrant.features], provisional=True)
            self.run = replace(self.run, axes=axes)
        self._offer(entrant)
        provisional = any(axis.provisional for axis in self.run.axes)
        if provisional and self.measured >= self.run.rules.grid_after:
            self._regrid()

    def _offer(self, entrant: Entrant) -> None:
        admission = Admission(self.memory, self.run, self.strategy())  # type: ignore[arg-type]
        home = self.memory.home[entrant.program]
        for island in (home.island,) if entrant.generation else range(self.run.islands):
            admission.offer(entrant, island, home.epoch)

    def _regrid(self) -> None:
        entrants = list(self.memory.entrants.values())
        axes = learnt(self.run.axes, [entrant.features for entrant in entrants])
        self.run = replace(self.run, axes=axes)
        for island in range(self.run.islands):
            self.memory.clear_island(1, island, reset=False)
        for entrant in entrants:
            self._offer(entrant)


def _no_job(trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
    raise AssertionError("programs are evaluated in this process")


def _no_reading(
    trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome
) -> Evaluation:
    raise AssertionError("programs are evaluated in this process")


OPENEVOLVE = {
    "islands": 5, "archive_size": 500, "migration_interval": 50,
    "exploration_ratio": 0.2, "exploitation_ratio": 0.7,
}  # fmt: skip
"""The search before its defaults were measured: 100 of its at most 100 cells an island."""
FIVE = {"islands": 1, "archive_size": 5, "exploration_ratio": 0.2, "exploitation_ratio": 0.7}
ARMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "map_elites": {"search": {}},
    "funsearch": {"search": {"strategy": "funsearch"}},
    "cold": {"search": {"strategy": "funsearch"}, "strategy": {"temperature": 0.01}},
    "greedy": {"search": {"strategy": "greedy"}},
    "random": {"search": {"strategy": "random"}},
    "before": {"search": OPENEVOLVE},
    "uniform": {"search": FIVE},
    **{f"measured{n}": {"search": {"measurements": n}} for n in (3, 5, 10)},
    "random5": {"search": {"strategy": "random", "measurements": 5}},
    **{f"patience{n}": {"search": {}, "strategy": {"patience": n}} for n in (5, 10, 40)},
}
"""Settings that an arm has in place of the defaults."""


SearchJob = tuple[str, str, str, int, int, str]
"""Arm, task, edits, budget, seed, and what is in flight: a number, or a machine."""


def one(job: SearchJob) -> dict[str, Any]:
    """Runs one search; returns its row."""
    arm, task, edits, budget, seed, in_flight = job
    signal.signal(signal.SIGVTALRM, stuck)
    sys.setrecursionlimit(3000)
    began = time.process_time()
    order = (
        in_line(budget, int(in_flight))
        if in_flight.isdigit()
        else Machine(*json.loads(in_flight)).order(budget, seed)
    )
    outcomes = Search(TASKS[task], arm, edits, budget, seed).done(order)
    return {
        "arm": arm, "task": task, "edits": edits, "budget": budget, "seed": seed,
        "in_flight": in_flight, "cpu": round(time.process_time() - began, 2),
        **{name: getattr(outcomes, name) for name in outcomes.__dataclass_fields__},
    }  # fmt: skip


def key(row: Mapping[str, Any]) -> SearchJob:
    return (
        row["arm"], row["task"], row["edits"], row["budget"], row["seed"], row["in_flight"]
    )  # fmt: skip


def a12(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Returns the probability that one of ours is better, ties halved, and its 95 % interval.

    Source: Vargha & Delaney 2000; the interval is a percentile bootstrap over both samples.
    """
    table = np.sign(np.subtract.outer(np.array(ours), np.array(theirs))) / 2 + 0.5
    rng = np.random.default_rng(1)
    rows = rng.integers(len(ours), size=(2000, len(ours), 1))
    columns = rng.integers(len(theirs), size=(2000, 1, len(theirs)))
    low, high = np.percentile(table[rows, columns].mean(axis=(1, 2)), (2.5, 97.5))
    return float(table.mean()), float(low), float(high)


def within_seeds(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Returns the share of seeds in which ours is better, ties halved, and half its 95 % interval.

    The n-th of both are of the same seed; of unequally many, those of the first seeds count.
    """
    signs = np.sign([mine - other for mine, other in zip(ours, theirs, strict=False)]) / 2 + 0.5
    return float(signs.mean()), float(1.96 * signs.std() / math.sqrt(len(signs)))


def report(rows: Sequence[Mapping[str, Any]], subject: str, budget: int) -> Iterator[str]:
    """Yields the lines of the table: medians of each arm, and the subject's A12 against it."""
    rows = [row for row in rows if row["budget"] == budget]
    for edits in dict.fromkeys(row["edits"] for row in rows):
        for task in dict.fromkeys(row["task"] for row in rows):
            mine = [r for r in rows if r["edits"] == edits and r["task"] == task]
            ends = {
                arm: [r["curve"][str(budget)] for r in mine if r["arm"] == arm]
                for arm in dict.fromkeys(r["arm"] for r in mine)
            }
            for arm, values in ends.items():
                low, mid, high = np.percentile(values, (25, 50, 75))
                text = f"{edits:8} {task:10} {arm:12} n={len(values):2} "
                text += f"{mid:.4g} [{low:.4g}, {high:.4g}]"
                text += f"  deepest {median(r['deepest'] for r in mine if r['arm'] == arm):g}"
                text += f"  of the seed {median(r['first'] for r in mine if r['arm'] == arm):g}"
                text += f"  cells {median(r['cells'] for r in mine if r['arm'] == arm):g}"
                if arm != subject and subject in ends:
                    value, under, over = a12(ends[subject], values)
                    text += f"  A12 {value:.2f} [{under:.2f}, {over:.2f}]"
                    if edits == "paired":
                        value, half = within_seeds(ends[subject], values)
                        text += f"  in a seed {value:.2f} ± {half:.2f}"
                yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", nargs="+", default=["map_elites", "greedy", "random"],
                        choices=list(ARMS))  # fmt: skip
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--edits", nargs="+", default=["mutate"], choices=list(EDITS))
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--machine", type=float, nargs=4, metavar="N",
                        help="in the place of --in-flight: seconds of a request, requests at once, "
                             "seconds of a trial, sandboxes")  # fmt: skip
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--subject", default="map_elites", help="the arm that is compared")
    parser.add_argument("--results", type=Path, default=Path("search-results.jsonl"),
                        help="file that keeps finished searches; read again to go on")  # fmt: skip
    options = parser.parse_args()
    done: list[dict[str, Any]] = []
    if options.results.exists():
        done = [json.loads(line) for line in options.results.read_text().splitlines()]
    in_flight = str(options.in_flight)
    if options.machine:
        seconds, requests, trial, sandboxes = options.machine
        in_flight = json.dumps([seconds, int(requests), trial, int(sandboxes)])
    jobs = [
        (arm, task, edits, options.budget, seed, in_flight)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for edits in options.edits
        for task in options.tasks
        for arm in options.arms
    ]
    wanted = set(jobs)
    left = [job for job in jobs if job not in {key(row) for row in done}]
    with multiprocessing.Pool(options.processes) as pool, options.results.open("a") as file:
        for row in pool.imap_unordered(one, left):
            done.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    rows = sorted((row for row in done if key(row) in wanted), key=lambda row: jobs.index(key(row)))
    print("\n".join(report(rows, options.subject, options.budget)))
    print(f"{sum(row['cpu'] for row in rows):.0f} s of CPU")


if __name__ == "__main__":
    main()
