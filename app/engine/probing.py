"""Probing: of programs that behave alike, only the first is measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.evaluation import Trial
from app.domain.problem import Problem
from app.domain.run import Run
from app.domain.search.cohort import Cohort, Member, ProposalId, State
from app.ports.programs import Programs


@dataclass(frozen=True, slots=True)
class Probed:
    """A cohort as its promotion sees it: members count as pending until they were probed.

    Attributes:
      test: The probes to be made.
      alike: Members that behave like a program of the run.
      fail: Members whose probe failed.
    """

    cohort: Cohort
    test: tuple[Trial, ...] = ()
    alike: tuple[ProposalId, ...] = ()
    fail: tuple[ProposalId, ...] = ()


def claim_behaviours(
    programs: Programs, run: Run, problem: Problem, cohorts: Sequence[Cohort]
) -> list[Probed]:
    """Claims the behaviour of each member whose probe has ended and who has no other trial yet.

    The promotion has to plan a trial for such a member at once.  Seeds claim, and are never alike.
    """
    if not problem.probe:
        return [Probed(cohort) for cohort in cohorts]
    claims = {
        member.id: claim
        for cohort in cohorts
        for member in cohort.living
        if (claim := _claim(problem, cohort, member))
    }
    free = programs.claim_fingerprints(run.id, sorted({*claims.values()}))
    taken = set()
    for member, claim in claims.items():
        if claim in free:
            free.remove(claim)
        else:
            taken.add(member)
    return [_probed(problem, cohort, taken) for cohort in cohorts]


def _probed(problem: Problem, cohort: Cohort, taken: set[ProposalId]) -> Probed:
    alike = () if cohort.seeding else tuple(m.id for m in cohort.living if m.id in taken)
    living = [member for member in cohort.living if member.program]
    waiting = [m for m in living if cohort.trials.get(_probe(problem, m)) is None]
    failed = cohort.failed(problem.probe)
    hidden = {*alike, *failed, *(member.id for member in waiting)}
    members = tuple(
        replace(member, state=State.PLANNED, program=None) if member in waiting else member
        for member in cohort.members
        if member.id not in hidden or member in waiting
    )
    trials = (_probe(problem, member) for member in waiting)
    test = tuple(trial for trial in trials if trial not in cohort.trials)
    return Probed(replace(cohort, members=members), test, alike, failed)


def _probe(problem: Problem, member: Member) -> Trial:
    return Trial(problem.probe, (member.program or "",))


def _claim(problem: Problem, cohort: Cohort, member: Member) -> tuple[int, str] | None:
    """Returns an epoch and a behaviour; None where there is none, or where it was claimed before.

    It cannot be taken for a fingerprint, and stands behind all of them in the order of claims.
    """
    evaluation = cohort.trials.get(_probe(problem, member))
    stages = {trial.stage for trial in cohort.trials if member.program in trial.players}
    if evaluation is None or evaluation.failure or stages != {problem.probe}:
        return None
    return (member.draft.epoch if member.draft else 0, f"~{evaluation.behaviour}")
