"""Promotion: which members of a cohort are tested further, admitted, or cut.

A promotion is called each time a member has its child, and each time one of the cohort's trials
ends.  It is pure, and a trial that is already planned is not planned again, so that a second call
is harmless.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev
from typing import Any, TypeAlias

from app.domain.digits import number_texts
from app.domain.evaluation import NO_CASES, Cases, Trial
from app.domain.finite import mean, scaled
from app.domain.program import ProgramId
from app.domain.search.archive import IslandView, Quality
from app.domain.search.cohort import Cohort, ProposalId, Verdict
from app.domain.search.gates import AtLeast, Gate

Promotion: TypeAlias = Callable[[Cohort, IslandView], Verdict]

Gates: TypeAlias = Sequence[float | Gate]
"""`gates[i]` leads from the stage i to the next; a number is an absolute threshold."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A gate that a program did not pass, and the fitness that was compared with it."""

    stage: str
    fitness: float | None
    gate: Gate

    def document(self) -> dict[str, Any]:
        """Returns it as JSON values; the threshold is a number, or the text of another gate."""
        threshold = self.gate.threshold if isinstance(self.gate, AtLeast) else str(self.gate)
        return {"stage": self.stage, "fitness": self.fitness, "threshold": threshold}

    def __str__(self) -> str:
        threshold = self.gate.threshold if isinstance(self.gate, AtLeast) else None
        score, least = number_texts([self.fitness, threshold])
        measured = "no fitness" if self.fitness is None else f"fitness {score}"
        gate = str(self.gate) if threshold is None else f"the threshold {least}"
        return f"stops after {self.stage} with {measured}, below {gate}"


def shortfall(
    stages: Sequence[str],
    gates: Gates,
    index: int,
    score: float | None,
    island: IslandView | None = None,
) -> Shortfall | None:
    """Returns the gate between `stages[index]` and the next that a fitness does not pass.

    None where there is no gate or no next stage.  Without an island, as for a seed, a gate that
    compares programs lets every one pass.
    """
    if index >= min(len(gates), len(stages) - 1):
        return None
    given, stage = gates[index], stages[index]
    gate = AtLeast(given) if isinstance(given, int | float) else given
    recent = island.recent(stage, gate.window) if island and gate.window else ()
    short = score is None or not gate.passes(score, recent)
    return Shortfall(stage, score, gate) if short else None


def cascade(stages: tuple[str, ...], gates: Gates = (), cases: Cases = NO_CASES) -> Promotion:
    """Each member climbs alone: from `stages[i]` to the next if it passes `gates[i]`.

    All trials of a stage are planned at once, and the next stage follows when they have ended.

    Fitness is folded over the stages passed so far, later measurements overriding earlier ones.  A
    stage without a gate promotes every program that did not fail.

    Below a gate a seed is admitted with the fitness it reached, because a run begins with its
    seeds; so is a child while its island has no program that was measured at every stage, because
    it may be a step towards the gate.  Later such children are cut.
    """

    def promotion(cohort: Cohort, field: IslandView) -> Verdict:
        test: list[Trial] = []
        admit: list[ProgramId] = []
        cut: list[ProposalId] = []
        fail: list[ProposalId] = []
        for member in cohort.living:
            if member.program is None:
                continue
            begun = {trial.stage for trial in cohort.trials if member.program in trial.players}
            for index, stage in enumerate(stages):
                trials = cases.trials(stage, (member.program,))
                if missing := [trial for trial in trials if trial not in cohort.trials]:
                    test += missing
                    break
                if any(cohort.trials[trial] is None for trial in trials):
                    break
                if not cohort.passed(member.program, stage, whole=cases.whole):
                    fail.append(member.id)
                    break
                repeats = stage == cases.repeated and not cohort.late
                if repeats and (more := _repetition(cohort, member.program, cases, field)):
                    test += [trial for trial in more if trial not in cohort.trials]
                    break
                if begun & {*stages[index + 1 :]}:
                    # The program passed the gate, whatever the newest programs are now.
                    continue
                score = cohort.fitness(member.program, stages[: index + 1])
                if shortfall(stages, gates, index, score, None if cohort.seeding else field):
                    if score is not None and (cohort.seeding or not _measured_whole(field)):
                        admit.append(member.program)
                    else:
                        cut.append(member.id)
                    break
            else:
                admit.append(member.program)
        return Verdict(tuple(test), tuple(admit), tuple(cut), tuple(fail))

    return promotion


def _repetition(
    cohort: Cohort, program: ProgramId, cases: Cases, field: IslandView
) -> tuple[Trial, ...]:
    """Returns the trials of the next repetition, which may be under way; () once it is enough."""
    done = cohort.measurements(program, cases.repeated)
    last = max(t.repetition for t in cohort.trials if program in t.players)
    trials = cases.trials(cases.repeated, (program,), last)
    if any(cohort.trials.get(trial) is None for trial in trials):
        return trials
    best = [elite.fitness for elite in field.best(1) if elite.program != program]
    if len(done) >= cases.measurements or (best and separated(done, best[0])):
        return ()
    return cases.trials(cases.repeated, (program,), last + 1)


_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31)
"""Quantiles of Student's t for a two-sided bound of 95 %, from one degree of freedom on."""


def separated(measured: Sequence[float], other: float) -> bool:
    """Returns whether the 95 % confidence interval of a mean excludes a value.

    Never for a single measurement; measurements that do not differ at all are without noise.
    """
    if len(measured) < 2:
        return False
    bound = _STUDENT[min(len(measured) - 2, len(_STUDENT) - 1)]
    *known, compared = scaled((*measured, other))
    half = bound * stdev(known) / math.sqrt(len(known))
    return half == 0 or abs(mean(known) - compared) > half


Room: TypeAlias = Callable[[int], int]
"""Returns how many of so many programs go on to a stage."""


def top(k: int, stages: tuple[str, ...], gates: Gates = (), cases: Cases = NO_CASES) -> Promotion:
    """Each member is measured at the first stage; the best `k` of the cohort climb the others.

    The others are cut; see `narrowing`.
    """
    return narrowing({1: lambda ready: k}, stages, gates, cases)  # noqa: ARG005


def narrowing(
    rooms: Mapping[int, Room], stages: tuple[str, ...], gates: Gates = (), cases: Cases = NO_CASES
) -> Promotion:
    """Each member climbs alone, but only the best of those that are ready go on to some stages.

    The others are cut once every member is ready, has dropped out, or has no child.  Fitness of the
    stages before decides; ties: the older.  A gate holds besides.  Seeds, and programs of a problem
    with one stage, are not ranked.

    Args:
      rooms: By the index of a stage, how many go on to it; where there is none, all.
      stages: Of the problem.
      gates: Between them.
      cases: Of the trials.
    """
    climb = cascade(stages, gates, cases)

    def promotion(cohort: Cohort, field: IslandView) -> Verdict:
        verdict = climb(cohort, field)
        if cohort.seeding:
            return verdict
        for index in sorted(rooms.keys() & {*range(1, len(stages))}):
            verdict = _narrowed(cohort, verdict, stages, index, rooms[index])
        return verdict

    return promotion


def _narrowed(
    cohort: Cohort, verdict: Verdict, stages: tuple[str, ...], index: int, room: Room
) -> Verdict:
    """Returns a verdict by which the best of a cohort alone go on to `stages[index]`."""
    before = stages[:index]
    ready = [trial for trial in verdict.test if trial.stage == stages[index]]
    others = tuple(trial for trial in verdict.test if trial.stage != stages[index])
    waits = cohort.pending or any(cohort.waits_at(stage) for stage in before)
    if waits or any(trial.measures in before for trial in others):
        return replace(verdict, test=others)
    ranked = sorted(
        dict.fromkeys(player for trial in ready for player in trial.players),
        key=lambda player: cohort.fitness(player, before) or 0.0,
        reverse=True,
    )
    kept = ranked[: room(len(ranked))]
    test = (*others, *(trial for trial in ready if {*trial.players} <= {*kept}))
    dropped = _members(cohort, [player for player in ranked if player not in kept])
    return replace(verdict, test=test, cut=(*verdict.cut, *dropped))


def best_of(
    k: int, climb: Promotion, stages: tuple[str, ...], *, improving: bool = False
) -> Promotion:
    """Admits the best `k` of those that `climb` admits, when it has decided on the whole cohort.

    The others are cut.  Ties: the older.

    Args:
      k: How many are admitted at most.
      climb: Decides who is measured further, and who drops out.
      stages: Of the problem.
      improving: Whether only a member that is better than its parents is admitted.
    """

    def promotion(cohort: Cohort, field: IslandView) -> Verdict:
        verdict = climb(cohort, field)
        if cohort.seeding:
            return verdict
        decided = {*verdict.cut, *verdict.fail, *_members(cohort, verdict.admit)}
        if cohort.pending or any(member.id not in decided for member in cohort.living):
            return replace(verdict, admit=())
        ranked = sorted(verdict.admit, key=lambda p: _quality(cohort, p, stages), reverse=True)
        kept = [p for p in ranked if not improving or better(cohort, p, stages, field)][:k]
        dropped = _members(cohort, [player for player in verdict.admit if player not in kept])
        return replace(verdict, admit=tuple(kept), cut=(*verdict.cut, *dropped))

    return promotion


def first_better(climb: Promotion, stages: tuple[str, ...]) -> Promotion:
    """Admits the first member that is measured at every stage and better than its parents.

    All others are cut then, wherever they are; one that is no better is cut at once.
    """

    def promotion(cohort: Cohort, field: IslandView) -> Verdict:
        verdict = climb(cohort, field)
        if cohort.seeding:
            return verdict
        won = [p for p in verdict.admit if better(cohort, p, stages, field)][:1]
        lost = _members(cohort, [player for player in verdict.admit if player not in won])
        if won:
            settled = {*verdict.fail, *_members(cohort, won)}
            members = (*cohort.living, *cohort.pending)
            return replace(
                verdict,
                test=(),
                admit=tuple(won),
                cut=tuple(member.id for member in members if member.id not in settled),
            )
        return replace(verdict, admit=(), cut=(*verdict.cut, *lost))

    return promotion


def better(cohort: Cohort, player: ProgramId, stages: tuple[str, ...], field: IslandView) -> bool:
    """Returns whether a member is better than its parents; than the best where they are gone."""
    member = cohort.member(player)
    parents = member.draft.parents if member and member.draft else ()
    elites = [elite for parent in parents if (elite := field.elite(parent)) is not None]
    others = elites or field.best(1)
    return all(_quality(cohort, player, stages) > elite.quality for elite in others)


def _quality(cohort: Cohort, player: ProgramId, stages: tuple[str, ...]) -> Quality:
    """Returns what a member is compared by that was measured at some stage."""
    fitness = cohort.fitness(player, stages)
    assert fitness is not None, f"{player[:8]} of cohort {cohort.id} was not measured"
    return Quality(-sum(not cohort.evaluations(player, stage) for stage in stages), fitness)


def _members(cohort: Cohort, players: Sequence[ProgramId]) -> tuple[ProposalId, ...]:
    """Returns the living members whose children these are; an incumbent is no member."""
    return tuple(member.id for player in players if (member := cohort.member(player)))


def at_deadline(promotion: Promotion, cohort: Cohort, field: IslandView) -> Verdict:
    """Returns the verdict on a cohort whose deadline has passed, by what was measured until then.

    Members that are not measured to their end are withdrawn, and the promotion decides on the
    others as if it had never waited for them; so are those that it would test further.
    """
    withdrawn = {*cohort.unfinished}
    while True:
        left = cohort.without(withdrawn)
        verdict = promotion(left, field)
        living = {member.id: member.program for member in left.living}
        further = {player for trial in verdict.test for player in trial.players}
        tested = {member for member, program in living.items() if program in further}
        if not verdict.test:
            decided = {*verdict.cut, *verdict.fail}
            open_ = {m for m, program in living.items() if program not in verdict.admit} - decided
            return replace(verdict, withdraw=tuple(sorted(withdrawn | open_)))
        withdrawn |= tested or {*living}


def _measured_whole(island: IslandView) -> bool:
    """Returns whether an island holds a program that was measured at every stage."""
    return any(elite.quality.whole for elite in island.best(1))
