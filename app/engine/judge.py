"""Judge: models are asked what they think of a program, and its cohort takes the next step."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.evaluation import Evaluation
from app.domain.operator import Completion
from app.domain.prompting.judging import Case, Judges, opinion, questions, unheard
from app.domain.run import Run
from app.domain.search.cohort import Cohort, TrialId
from app.engine.ask import Overtaken, Unaffordable, ask
from app.engine.context import Context
from app.engine.evaluate import Result, record
from app.engine.faults import broken, misconfigured
from app.ports.ledger import Exhausted
from app.ports.protocols import Misconfigured, Unavailable
from app.ports.records import TrialResult

FIRST_TURN = 1000
"""Turns of a cohort's conversation from here on are its judges', one a member."""


def judge(ctx: Context, trial_id: TrialId) -> None:
    """Makes one trial of opinion: idempotent, and the first result recorded wins.

    Raises:
      Unavailable: The model or the ledger could not be reached; the lease has been given back.
    """
    try:
        claimed = _claim(ctx, trial_id)
    except Exhausted as error:
        broken(ctx, "trial", error)
        return
    if claimed is None:
        return
    run = claimed.run
    with ctx.work(run.id):
        try:
            with ctx.keep("trial", trial_id):
                evaluation = _opinion(ctx, claimed)
        except Overtaken:
            return
        except Unavailable as error:
            with ctx.store.begin() as tx:
                tx.leases.release([], [trial_id], ctx.pace.retry_seconds)
                tx.runs.explain(run.id, f"waiting: {error}")
            if isinstance(error, Misconfigured):
                misconfigured(ctx, run, error)
                return
            raise
        record(ctx, run, [Result(TrialResult(trial_id, claimed.cohort.id, evaluation))])


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A trial of opinion this worker has leased.

    Attributes:
      heard: What judges answered when this step ran before, by place.
    """

    run: Run
    cohort: Cohort
    judges: Judges
    case: Case
    turn: int
    heard: Mapping[int, Completion]


def _claim(ctx: Context, trial_id: TrialId) -> _Claimed | None:
    with ctx.store.begin() as tx:
        found = tx.trials.claim([trial_id], ctx.pace.lease_seconds, attempts=ctx.pace.attempts)
        if not found:
            return None
        [(run, leased)] = found
        [player] = leased.trial.players
        _, cohort = tx.cohorts.lock(leased.cohort)
        heard = tx.completions.of_cohort(cohort.id)
    judges, member = run.rules.asking.judges, cohort.member(player)
    if judges is None or member is None:
        raise ValueError(f"trial {trial_id} asks for an opinion that run {run.id} does not want")
    turn = FIRST_TURN + cohort.members.index(member)
    case = Case(leased.programs[player], cohort.evaluations(player), member.ordinal)
    return _Claimed(run, cohort, judges, case, turn, heard.get(turn, {}))


def _opinion(ctx: Context, claimed: _Claimed) -> Evaluation:
    """Asks the judges that were not heard before; none is where the budget has no room for it."""
    run = claimed.run
    instructions = ctx.problem(run.problem).instructions
    prompts = questions(claimed.judges, claimed.case, run.rules.prompts, instructions)
    try:
        replies = ask(ctx, run, claimed.cohort, claimed.turn, prompts, claimed.heard)
    except Unaffordable as error:
        return unheard(claimed.case, str(error))
    return opinion(claimed.judges, claimed.case, replies)
