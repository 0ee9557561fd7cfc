"""Promotion: who of a cohort is tested further, admitted, or cut.

A promotion is called each time one of the cohort's trials ends.  It is pure, and a trial that is
already planned is not planned again, so judging twice is harmless.
"""

from collections.abc import Callable
from typing import TypeAlias

from app.domain.evaluation import Trial
from app.domain.program import ProgramId
from app.domain.search.archive import IslandView
from app.domain.search.cohort import Cohort, ProposalId, Verdict

Promotion: TypeAlias = Callable[[Cohort, IslandView], Verdict]


def cascade(stages: tuple[str, ...], thresholds: tuple[float, ...] = ()) -> Promotion:
    """Each member climbs alone: from `stages[i]` to the next if its fitness >= `thresholds[i]`.

    Fitness is folded over the stages passed so far, later measurements overriding earlier ones.  A
    stage without a threshold lets everyone through who did not fail.
    """

    def promotion(cohort: Cohort, field: IslandView) -> Verdict:  # noqa: ARG001  a Promotion
        test: list[Trial] = []
        admit: list[ProgramId] = []
        cut: list[ProposalId] = []
        fail: list[ProposalId] = []
        for member in cohort.living:
            if member.program is None:
                continue
            for rung, stage in enumerate(stages):
                trial = Trial(stage, (member.program,))
                if trial not in cohort.trials:
                    test.append(trial)
                    break
                if cohort.trials[trial] is None:
                    break
                if not cohort.passed(member.program, stage):
                    fail.append(member.id)
                    break
                score = cohort.fitness(member.program, stages[: rung + 1])
                short = rung < len(thresholds) and (score is None or score < thresholds[rung])
                if short and rung + 1 < len(stages):
                    cut.append(member.id)
                    break
            else:
                admit.append(member.program)
        return Verdict(tuple(test), tuple(admit), tuple(cut), tuple(fail))

    return promotion
