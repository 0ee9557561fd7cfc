"""Judge: models are asked their opinion of a program, and its cohort advances."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.domain.evaluation import Evaluation
from app.domain.prompting.judging import (
    JudgedProgram,
    Judges,
    judge_prompts,
    judgement,
    without_judgement,
)
from app.domain.run import Run
from app.domain.search.budget import Charge
from app.domain.search.cohort import TrialId
from app.engine.ask import Overtaken, Unaffordable, ask
from app.engine.attempt import attempt
from app.engine.context import Context
from app.engine.evaluate import claim_trials, record
from app.ports.protocols import PromptTooLong, Stop, Stopped
from app.ports.records import Asker, LeasedTrial, TrialResult, Turn


def judge(ctx: Context, trial: TrialId) -> None:
    """Asks the run's judges about the program of a trial.

    Idempotent: the first evaluation recorded stays.

    Raises:
      Unavailable: See `attempt`.
    """
    attempt(ctx, "trial", [trial], claim_trials, _opinions, record)


def _opinions(
    ctx: Context, run: Run, leased: Sequence[LeasedTrial], stops: Sequence[Stop]
) -> Iterator[TrialResult | None]:
    judges = run.rules.asking.judges
    if judges is None:
        raise ValueError(
            f"trial {leased[0].id} asks for an opinion, and run {run.id} has no judges"
        )
    for leased_trial, stop in zip(leased, stops, strict=True):
        try:
            with ctx.tracing.span("judge", run, trials=[leased_trial.id]):
                opinion = _opinion(ctx, run, judges, leased_trial, stop)
            yield TrialResult(leased_trial.id, leased_trial.cohort, opinion)
        except (Overtaken, Stopped):
            yield None


def _opinion(ctx: Context, run: Run, judges: Judges, leased: LeasedTrial, stop: Stop) -> Evaluation:
    """Returns the judges' opinion; a judge whose answer is stored is not asked again.

    There is no opinion where the budget has no room for the prompts, or a judge for their length.
    """
    [player] = leased.trial.players
    with ctx.store.begin() as tx:
        _, cohort = tx.cohorts.lock(leased.cohort)
        member = cohort.member(player)
        if member is None:
            raise ValueError(f"trial {leased.id} judges no member of cohort {cohort.id}")
        answers = tx.completions.of_conversation(member.id, Asker.JUDGES)
    judged = JudgedProgram(leased.programs[player], cohort.evaluations(player), member.ordinal)
    instructions = ctx.problem(run.problem).instructions
    prompts = judge_prompts(judges, judged, run.rules.prompts, instructions)
    try:
        conversation = replace(cohort, members=(member,))
        known = answers.get(0, {})
        turn = Turn(conversation, Asker.JUDGES, 0, Charge(), prompts)
        replies = ask(ctx, run, turn, known, stop=stop)
    except (Unaffordable, PromptTooLong) as error:
        return without_judgement(judged, str(error))
    return judgement(judges, judged, replies)
