"""What a cheap first stage saves, and what it costs: `python -m benchmarks.fidelity`.

Row F-30 of document 002: a full evaluation of the best of a generation only is said to save 60 to
80 % of the evaluation at almost the same quality.  Bin packing with the numbers of that document:
4 instances of 10 to 20 items in the cheap stage, 10 of 50 to 100 in the full one.

Real: the recipe `funsearch_lite` with its phases, promotion, population and migration, the operator
`mutate`, and fingerprints.  In the place of ledger, queues and sandboxes there is this process.
The work is counted in items that were packed, which does not depend on the load of the machine.
"""

import argparse
import json
import multiprocessing
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from statistics import fmean, median
from typing import Any

from app.domain.evaluation import COMBINED, Evaluation, Failure, FailureKind
from app.domain.operator import Brief, Draft, Offspring, ProgramRecord
from app.domain.operators.mutate import mutated
from app.domain.program import Program, ProgramId, fingerprint
from app.domain.search.archive import Entrant, Island
from app.domain.search.cohort import Cohort, Member, State
from app.domain.search.recipes.funsearch_lite import FunSearchLite
from app.domain.search.strategy import RecipeInputs, Strategy
from benchmarks.search import LONGEST_SECONDS, a12, stuck

SEED = """\
# EVOLVE-BLOCK-START
def priority(item, room):
    score = 0.0 - room
    if room - item < 10.0:
        score = score * 0.5 + item * 0.1
    return score
# EVOLVE-BLOCK-END
"""
CAPACITY = 100
STAGES = ("cheap", "full")
ISLANDS = 3
Instances = Sequence[Sequence[int]]


@lru_cache
def instances(name: str) -> Instances:
    """Returns the instances of a stage, or those that no search sees."""
    rng = Random(f"fidelity/{name}")
    count, low, high = {"cheap": (4, 10, 20), "full": (10, 50, 100), "held out": (40, 50, 100)}[
        name
    ]
    return [[rng.randint(10, 60) for _ in range(rng.randint(low, high))] for _ in range(count)]


def bins(priority: Any, items: Sequence[int]) -> int:
    """Packs items in their order; an item goes to the bin of the highest priority with room."""
    rooms: list[float] = []
    for item in items:
        open_bins = [n for n, room in enumerate(rooms) if room >= item]
        offered = [(float(priority(item, rooms[n])), -n) for n in open_bins]
        if any(score != score for score, _ in offered):
            raise ValueError("a priority is not a number")
        fresh = (float(priority(item, CAPACITY)), -len(rooms))
        _, place = max([*offered, fresh])
        if -place == len(rooms):
            rooms.append(CAPACITY)
        rooms[-place] -= item
    return len(rooms)


def scored(program: Program, name: str) -> float | None:
    """Returns minus the mean of bins over the instances; None where the program fails."""
    space: dict[str, Any] = {}
    signal.signal(signal.SIGVTALRM, stuck)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_SECONDS)
    try:
        exec(compile(program.source, "<program>", "exec"), space)
        return -fmean(bins(space["priority"], items) for items in instances(name))
    except Exception:  # whatever a blind edit makes of a program is its failure
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@dataclass
class Run:
    """A run in memory.

    Attributes:
      work: Items that were packed.
    """

    strategy: Strategy
    seed: int
    islands: list[Island]
    programs: dict[ProgramId, Program]
    seen: set[str]
    work: int = 0
    full: int = 0

    def evaluate(self, program: ProgramId, stage: str) -> Evaluation:
        self.work += sum(map(len, instances(stage)))
        self.full += stage == "full"
        score = scored(self.programs[program], stage)
        if score is None:
            return Evaluation(failure=Failure(FailureKind.RUNTIME))
        return Evaluation(scores={program: {COMBINED: score}}, metrics={program: {stage: score}})

    def settle(self, cohort: Cohort) -> None:
        """Lets a cohort climb until its promotion asks for nothing more."""
        while True:
            island = self.islands[cohort.island]
            verdict = self.strategy.promotion(cohort, island)
            for program in verdict.admit:
                self.enter(cohort, program)
            done = {*verdict.cut, *verdict.fail}
            members = tuple(
                replace(m, state=State.CUT) if m.id in done or m.program in verdict.admit else m
                for m in cohort.members
            )
            trials = {t: self.evaluate(t.players[0], t.stage) for t in verdict.test}
            if not trials:
                return
            cohort = replace(cohort, members=members, trials={**cohort.trials, **trials})

    def enter(self, cohort: Cohort, program: ProgramId) -> None:
        member = cohort.member(program)
        generation = member.draft.generation if member and member.draft else 0
        evaluations = cohort.evaluations(program)
        fitness = cohort.fitness(program, STAGES)
        left = sum(not cohort.evaluations(program, stage) for stage in STAGES)
        length = len(self.programs[program].source)
        entrant = Entrant(program, fitness or 0.0, length, generation, evaluations, left)
        key = self.strategy.niche(entrant)
        islands = range(len(self.islands)) if cohort.seeding else (cohort.island,)
        for index in islands:
            self.offer(index, key, entrant.elite(key))

    def offer(self, index: int, key: Any, elite: Any) -> None:
        island = self.islands[index]
        cell = self.strategy.occupancy(island.cell(key), elite)
        self.islands[index] = replace(island, cells={**island.cells, key: cell})

    def children(self, island: int, first: int, size: int) -> Cohort:
        """Returns a generation whose members have their children."""
        members = []
        for ordinal in range(first, first + size):
            rng = Random(f"{self.seed}/{ordinal}")
            lineage = self.strategy.phase(ordinal).selection(self.islands[island], rng)
            draft: Draft = lineage.draft(ordinal, self.islands[island])
            parents = {*draft.parents, *draft.inspirations}
            known = {program: ProgramRecord(self.programs[program]) for program in parents}
            brief = Brief("", "python", (draft,), known, seed=f"{self.seed}/{ordinal}")
            child = mutated(brief, draft)
            member = Member(ordinal, ordinal, State.FAILED, draft)
            if isinstance(child, Offspring) and fingerprint(child.program) not in self.seen:
                self.seen.add(fingerprint(child.program))
                self.programs[child.program.id] = child.program
                member = replace(member, state=State.TESTING, program=child.program.id)
            members.append(member)
        return Cohort(first, 1, island, "mutate", tuple(members), {})


def searched(job: tuple[int, int, int]) -> dict[str, Any]:
    """Returns how a run ended: its arm is the number of programs that are evaluated in full."""
    top_k, seed, generations = job
    recipe = FunSearchLite(top_k=top_k, migration_interval=3)
    budget = generations * ISLANDS * recipe.generation
    strategy = recipe.strategy(RecipeInputs((), STAGES, (), ISLANDS, budget))
    first = Program(SEED)
    run = Run(strategy, seed, [Island(n) for n in range(ISLANDS)], {first.id: first}, set())
    seeding = Member(-1, -1, State.TESTING, None, first.id, seed=True)
    run.settle(Cohort(0, 1, 0, "seed", (seeding,), {}))
    for number in range(generations):
        if strategy.upkeep.due(number * ISLANDS):
            for move in strategy.upkeep.moves(run.islands, Random(seed)):
                run.offer(move.target, move.elite.cell, move.elite)
        for island in range(ISLANDS):
            ordinal = (number * ISLANDS + island) * recipe.generation
            run.settle(run.children(island, ordinal, recipe.generation))
    best = max((island.best(1)[0] for island in run.islands), key=lambda elite: elite.quality)
    held_out = scored(run.programs[best.program], "held out")
    values = {"fitness": best.fitness, "held_out": held_out, "work": run.work, "full": run.full}
    return {"top_k": top_k, "seed": seed, **values}


def report(rows: Sequence[Mapping[str, Any]], everything: int) -> None:
    """Prints a table: each arm beside the one that evaluates every program in full."""
    arms = {k: [row for row in rows if row["top_k"] == k] for k in {row["top_k"] for row in rows}}
    whole = arms[everything]
    alone = fmean(row["full"] for row in whole) * sum(map(len, instances("full")))
    print("| In full | Work | Against no cheap stage | Fitness | Held out | P(above all in full) |")
    print("|---|---|---|---|---|---|")
    for k in sorted(arms, reverse=True):
        work = fmean(row["work"] for row in arms[k])
        ends = [row["fitness"] for row in arms[k]]
        above, low, high = a12(ends, [row["fitness"] for row in whole])
        cells = [
            f"{k} of {everything}",
            f"{work:,.0f}",
            f"{100 * (work / alone - 1):+.0f} %",
            f"{median(ends):.3f}",
            f"{median(row['held_out'] for row in arms[k]):.3f}",
            f"{above:.2f} ({low:.2f} to {high:.2f})",
        ]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--generations", type=int, default=10)
    parser.add_argument("--top", type=int, nargs="+", default=[10, 5, 2])
    parser.add_argument("--json", action="store_true", help="one line for each run")
    options = parser.parse_args()
    everything = FunSearchLite().generation
    arms = [everything, *options.top]
    jobs = [(k, seed, options.generations) for seed in range(options.seeds) for k in arms]
    with multiprocessing.Pool(2) as pool:
        rows = pool.map(searched, jobs, chunksize=1)
    if options.json:
        for row in rows:
            print(json.dumps(row))
    report(rows, everything)


if __name__ == "__main__":
    main()
