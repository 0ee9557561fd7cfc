"""Judge: models are asked their opinion of a program, and its cohort advances."""

from dataclasses import replace

from app.domain.evaluation import Evaluation
from app.domain.prompting.judging import JudgedProgram, judge_prompts, judgement, without_judgement
from app.domain.run import Run
from app.domain.search.budget import Charge
from app.domain.search.cohort import TrialId
from app.engine.ask import Unaffordable, ask
from app.engine.context import Context
from app.engine.evaluate import claim_trials, record_results
from app.engine.lease import lease, leased
from app.ports.completions import Asker, Turn
from app.ports.protocols import PromptTooLong, Stop
from app.ports.trials import LeasedTrial, TrialResult


def judge(ctx: Context, trial: TrialId) -> None:
    """Asks the run's judges about the program of a trial.

    Idempotent: the first evaluation recorded stays.

    Raises:
      Unavailable: See `app.engine.lease.leased`.
    """
    claimed = lease(ctx, "trial", [trial], claim_trials)
    if not claimed:
        return
    with leased(ctx, "trial", claimed) as work:
        # A run whose recipe is not installed here is paused before it costs anything.
        ctx.recipe(work.run)
        results: list[TrialResult] = []
        for subject, stop in work:
            with work.attempt(subject, stop), ctx.tracing.span("judge", work.run, trials=[trial]):
                opinion = ask_judges(ctx, work.run, subject, stop)
                results.append(TrialResult(trial, subject.cohort, opinion))
        if results:
            record_results(ctx, work.run, results)


def ask_judges(ctx: Context, run: Run, leased: LeasedTrial, stop: Stop) -> Evaluation:
    """Returns the judges' opinion; a judge whose answer is stored is not asked again.

    There is no opinion where the budget has no room for the prompts, or a judge for their length.

    Raises:
      Postponed: Another worker saved replies first.
      Stopped: The trial was withdrawn.
    """
    judges = run.rules.asking.judges
    if judges is None:
        raise ValueError(f"trial {leased.id} asks for an opinion, and run {run.id} has no judges")
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
        turn = Turn(conversation, Asker.JUDGES, 0, Charge(), prompts)
        replies = ask(ctx, run, turn, answers.get(0, {}), stop=stop)
    except (Unaffordable, PromptTooLong) as error:
        return without_judgement(judged, str(error))
    return judgement(judges, judged, replies)
