"""The funnel of a run, as the ledger folds it."""

from collections.abc import Sequence
from dataclasses import replace

from app.domain.operator import Completion, Prompt
from app.domain.search.cohort import State
from app.engine.context import Context
from app.ports.history import Reached, Settled
from app.ports.protocols import NEVER, Stop
from app.reports.funnel import HEADINGS, NAMES, Funnel, read_funnel
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import ASKED, problem

REPLIES = ("x = 3.0\n", "x = 3.0\n", "x = crash\n", "x = 0.5\n", "x = 3.14\n", "x = -1.0\n")


class Telling:
    """Answers each proposal with the program of its ordinal."""

    name = "telling"
    places = None

    def parameters(self, prompt: Prompt) -> dict[str, str]:
        return {"model": self.name}

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        return [
            Completion(
                REPLIES[prompt.sample], self.name, prompt_tokens=20, completion_tokens=5,
                latency_seconds=0.5, role=prompt.role,
            )
            for prompt in prompts
        ]  # fmt: skip


def funnel_of(ctx: Context, run: int) -> Funnel:
    with ctx.store.begin() as tx:
        return read_funnel(tx, run)


def test_each_step_counts_the_proposals_that_came_so_far_and_their_tokens(ctx: Context) -> None:
    asked = replace(new_run(problem(), budget=len(REPLIES), islands=1), operators={ASKED.name: 1.0})
    run = run_to_the_end(replace(ctx, model=lambda run: Telling()), problem(), asked)

    [line] = (funnel := funnel_of(ctx, run)).lines

    assert (line.operator, line.model) == ("asked", "telling")
    counts = {reached: line.count(reached) for reached in Reached}
    assert counts == {
        Reached.ASKED: 6,
        Reached.ANSWERED: 6,
        Reached.USABLE: 6,
        Reached.NEW: 5,
        Reached.RAN: 4,
        Reached.MEASURED: 4,
        Reached.BETTER: line.count(Reached.BETTER),
        Reached.BEST: 2,
    }
    assert line.count(Reached.BETTER) >= 2
    assert line.erred == 1
    assert line.requests == 12
    assert [step.tokens for step in line.steps[:5]] == [300, 300, 300, 250, 200]
    assert line.steps[0].model_seconds == 6.0
    assert line.tokens_each(Reached.BEST) == 150.0
    assert funnel.total.steps == line.steps
    assert funnel.whole


def test_the_funnel_agrees_with_the_history_of_the_run(ctx: Context) -> None:
    run = run_to_the_end(ctx, problem(), new_run(problem(), budget=60, islands=1))
    with ctx.store.begin() as tx:
        settled = tx.history.settled(run)

    [line] = funnel_of(ctx, run).lines

    assert (line.operator, line.model) == ("nudge", "")
    children = [proposal for proposal in settled if not proposal.seed]
    admitted = [proposal for proposal in children if proposal.state is State.ADMITTED]
    assert line.count(Reached.ASKED) == line.count(Reached.ANSWERED) == 60
    assert line.erred == sum(proposal.failure is not None for proposal in children) > 0
    assert line.count(Reached.MEASURED) == len(admitted)
    assert line.count(Reached.BETTER) == len(_gains(settled, admitted))
    assert line.count(Reached.BEST) == _records(settled)


def test_a_row_has_a_cell_for_each_heading_and_several_lines_have_a_sum(ctx: Context) -> None:
    run = run_to_the_end(ctx, problem(), new_run(problem(), budget=6, islands=1))
    funnel = funnel_of(ctx, run)
    [line] = funnel.lines
    twice = Funnel((line, replace(line, model="other")), funnel.total)

    assert [len(row) for row in twice.rows()] == [len(HEADINGS)] * 3
    assert [row[:2] for row in twice.rows()][-1] == ("all", "–")
    assert len(funnel.rows()) == 1
    assert [step.name for step in line.steps] == list(NAMES.values())


def _gains(settled: Sequence[Settled], admitted: Sequence[Settled]) -> list[Settled]:
    born: dict[str, float] = {}
    for proposal in settled:
        if proposal.state is State.ADMITTED and proposal.program and proposal.fitness is not None:
            born.setdefault(proposal.program, proposal.fitness)
    return [p for p in admitted if p.fitness is not None and p.fitness > born[p.parents[0]]]


def _records(settled: Sequence[Settled]) -> int:
    best, records = None, 0
    for proposal in settled:
        if proposal.state is not State.ADMITTED or proposal.fitness is None:
            continue
        if best is not None and proposal.fitness > best:
            records += not proposal.seed
        best = proposal.fitness if best is None else max(best, proposal.fitness)
    return records
