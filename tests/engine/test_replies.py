"""Replies through the engine: what cannot be used costs no evaluation, and is asked for again."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from app.config.models import ModelSettings
from app.config.settings import QueueSettings, RunSettings, SearchSettings
from app.domain.operator import Completion, Prompt
from app.domain.operators.diff import DIFF
from app.domain.operators.rewrite import REWRITE
from app.domain.operators.seed import SEED
from app.domain.problem import Job, Outcome
from app.domain.run import RunState
from app.domain.search.budget import Budget
from app.domain.search.cohort import State
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.protocols import NEVER, Stop
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.toy import ToySandbox, problem

BLOCK = "<<<<<<< SEARCH\nx = 0.0\n=======\nx = {}\n>>>>>>> REPLACE"


class Answering:
    """A model that answers from a function of the prompt, and keeps what it was asked."""

    name = "answering"

    def __init__(self, answer: Callable[[Prompt], Completion]) -> None:
        self.answer = answer
        self.asked: list[Prompt] = []

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.asked += prompts
        return [self.answer(prompt) for prompt in prompts]


class Recording(ToySandbox):
    """A sandbox that keeps what it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: set[bytes] = set()

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        self.ran |= {source for _, source in job.programs}
        return super().run(job)


def asking(
    ctx: Context, model: Answering, operator: str, repair_turns: int
) -> tuple[Context, object]:
    settings = RunSettings(
        search=SearchSettings(islands=1),
        llm=ModelSettings(model="answering", repair_turns=repair_turns),
        queue=QueueSettings(generating=1, evaluating=1),
    )
    new = replace(
        new_run(problem(), budget=3),
        operators={operator: 1.0},
        islands=1,
        settings=settings.model_dump(mode="json"),
    )
    operators = {one.name: one for one in (SEED, DIFF, REWRITE)}
    return replace(ctx, model=lambda run: model, operators=operators), new


@pytest.mark.parametrize("operator", ["diff", "rewrite"])
@pytest.mark.parametrize(
    ("reply", "kind", "asked"),
    [
        (Completion("```python\nx = 0.0  # better\n```\n" + BLOCK.format("0.0")), "unchanged", 2),
        (Completion("I'm sorry, but I can't help with that."), "refused", 1),
        (Completion("", finish="content_filter"), "refused", 1),
        (Completion("Zero is best."), "no_code", 2),
        (Completion(BLOCK.format("(1")), "syntax", 2),
        (Completion(BLOCK.format("1").replace("x = 0.0", "y = 7")), "bad_edit", 2),
        (Completion(BLOCK.format("1.0 +" * 3000 + "1")), "too_long", 2),
        (Completion(BLOCK[:30], finish="length"), "bad_edit", 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_reply_that_cannot_be_used_fails_by_its_kind_and_costs_no_evaluation(
    ctx: Context, operator: str, reply: Completion, kind: str, asked: int
) -> None:
    model, sandbox = Answering(lambda prompt: reply), Recording()
    asking_ctx, new = asking(replace(ctx, sandbox=sandbox), model, operator, 1)
    run_id = run_to_the_end(asking_ctx, problem(), new)

    with ctx.store.begin() as tx:
        run, failures, settled = (
            tx.runs.get(run_id),
            tx.history.failures(run_id),
            tx.history.settled(run_id),
        )
    assert run.state is RunState.FINISHED
    if reply.finish == "length" and operator == "rewrite":
        kind = "no_code"
    assert failures == {kind: 3}
    assert sandbox.ran == {b"x = 0.0\n"}  # the seed, and nobody else
    assert all(one.program is None for one in settled if one.state is State.FAILED)
    assert len(model.asked) == 3 * asked


def mended(prompt: Prompt) -> Completion:
    """Answers wrongly at first, and rightly once it is shown what was wrong."""
    if "# Your first answer" not in prompt.user:
        return Completion("```\nx == 1\n```\n" + BLOCK.replace("x = 0.0", "gone = 1"))
    assert "gone = 1" in prompt.user
    assert "matches nowhere" in prompt.user
    current = prompt.user.split("# The current program\n```python\n")[1].split("\n```")[0]
    return Completion(BLOCK.replace("x = 0.0", current).format(prompt.sample + 1.5))


def test_a_repair_turn_shows_what_did_not_apply_and_its_child_is_evaluated(ctx: Context) -> None:
    model = Answering(mended)
    ctx, new = asking(ctx, model, "diff", 1)
    run_id = run_to_the_end(ctx, problem(), new)

    with ctx.store.begin() as tx:
        assert tx.history.failures(run_id) == {}
        assert tx.history.states(run_id)[State.ADMITTED] == 3
    assert len(model.asked) == 6
    assert len({prompt.role for prompt in model.asked}) == 1


def repeating(prompt: Prompt) -> Completion:
    """Answers with one program, whatever the proposal, until it is asked for another."""
    x = prompt.sample + 2 if "An earlier answer made nothing new." in prompt.user else 1
    return Completion(f"```python\nx = {x}.0\n```")


def test_a_program_that_the_run_has_already_is_asked_for_once_more(ctx: Context) -> None:
    model, sandbox = Answering(repeating), Recording()
    ctx, new = asking(replace(ctx, sandbox=sandbox), model, "rewrite", 1)
    run_id = run_to_the_end(ctx, problem(), new)

    with ctx.store.begin() as tx:
        assert tx.history.cuts(run_id) == {}
        assert tx.history.states(run_id)[State.ADMITTED] == 3
    assert sandbox.ran == {b"x = 0.0\n", b"x = 1.0\n", b"x = 3.0\n", b"x = 4.0\n"}
    assert len(model.asked) == 5, "the first child is new"


def test_a_program_that_is_made_again_is_a_duplicate(ctx: Context) -> None:
    model = Answering(lambda prompt: Completion("```python\nx = 1.0\n```"))
    ctx, new = asking(ctx, model, "rewrite", 1)
    run_id = run_to_the_end(ctx, problem(), new)

    with ctx.store.begin() as tx:
        cut, failures = tx.history.cuts(run_id), tx.history.failures(run_id)
    assert sum([*cut.values(), *failures.values()]) == 2
    assert len(model.asked) == 5


def test_without_repair_turns_nobody_is_asked_twice(ctx: Context) -> None:
    model = Answering(mended)
    ctx, new = asking(ctx, model, "diff", 0)
    run_id = run_to_the_end(ctx, problem(), new)

    with ctx.store.begin() as tx:
        assert tx.history.failures(run_id) == {"bad_edit": 3}
    assert len(model.asked) == 3


class Dying(Answering):
    """A model whose worker dies when it is asked to repair for the first time."""

    died = False

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        if not self.died and "# Your first answer" in prompts[0].user:
            self.died = True
            raise SystemExit("killed")
        return super().complete(prompts)


def test_a_crash_between_two_turns_pays_for_neither_twice(ctx: Context) -> None:
    model = Dying(mended)
    ctx, new = asking(replace(ctx, pace=Pace(0.0, 0.0, attempts=50)), model, "diff", 1)
    run = lifecycle.start(ctx, problem(), new)
    with pytest.raises(SystemExit):
        ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
    assert len(model.asked) == 1

    for _ in range(10):
        steps.reap_all(ctx)
        steps.produce_all(ctx)
        ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]

    with ctx.store.begin() as tx:
        final, failures = tx.runs.get(run.id), tx.history.failures(run.id)
    assert (final.state, failures) == (RunState.FINISHED, {})
    assert len(model.asked) == 6


def test_a_prompt_holds_what_the_ledger_knows_of_the_lineage(ctx: Context) -> None:
    def climbing(prompt: Prompt) -> Completion:
        current = prompt.user.split("# The current program\n```python\n")[1].split("\n```")[0]
        to = "crash" if prompt.sample == 0 else str(prompt.sample + 1)
        return Completion(BLOCK.replace("x = 0.0", current).format(to))

    model = Answering(climbing)
    ctx, new = asking(ctx, model, "diff", 0)
    run_id = run_to_the_end(ctx, problem(), new)

    last = model.asked[-1].user
    with ctx.store.begin() as tx:
        best = tx.history.best(run_id)
        assert best is not None
        assert best.program is not None
        seed = problem().seeds[0].id
        line = tx.programs.ancestry(run_id, best.program, ancestors=3, failures=3)
        unlimited = tx.programs.ancestry(run_id, seed, ancestors=3, failures=3)
    assert [one.program.source for one in line.ancestors][-1:] == ["x = 0.0\n"]
    assert unlimited.ancestors == ()
    assert [one.failure.kind.value for one in line.failures] == ["runtime"]
    [failed] = line.failures
    assert failed.program is not None
    assert "crash" in failed.program.source
    assert "Failed (runtime):" in last
    assert "it crashed" not in last  # the words of a failure stay with people


@pytest.mark.parametrize(("enforce", "failures"), [(None, {"bad_edit": 3}), (False, {})])
def test_a_run_may_let_go_of_the_markers(
    ctx: Context, enforce: bool | None, failures: dict[str, int]
) -> None:
    """The line that the model edits stands outside the region."""
    source = "# EVOLVE-BLOCK-START\n# nothing\n# EVOLVE-BLOCK-END\nx = 0.0\n"
    toy = problem(seeds=(source,))

    def outside(prompt: Prompt) -> Completion:
        current = prompt.user.split("# EVOLVE-BLOCK-END\n")[-1].split("\n```")[0]
        return Completion(BLOCK.replace("x = 0.0", current).format(prompt.sample + 1.5))

    model = Answering(outside)
    ctx, new = asking(ctx, model, "diff", 0)
    parsed = RunSettings.model_validate(new.settings)
    search = replace(parsed.search, enforce_blocks=enforce, inspirations=0)
    settings = parsed.model_copy(update={"search": search}).model_dump(mode="json")
    run_id = run_to_the_end(ctx, toy, replace(new, settings=settings))

    with ctx.store.begin() as tx:
        assert tx.history.failures(run_id) == failures


def test_a_prompt_shows_as_many_programs_as_the_search_draws(ctx: Context) -> None:
    def numbered(prompt: Prompt) -> Completion:
        current = prompt.user.split("# The current program\n```python\n")[1].split("\n```")[0]
        return Completion(BLOCK.replace("x = 0.0", current).format(prompt.sample - 3))

    model = Answering(numbered)
    ctx, new = asking(ctx, model, "diff", 0)
    parsed = RunSettings.model_validate(new.settings)
    search = replace(parsed.search, top_programs=5, inspirations=0)
    settings = parsed.model_copy(update={"search": search}).model_dump(mode="json")
    run_to_the_end(ctx, problem(), replace(new, budget=Budget(8), settings=settings))

    assert max(prompt.user.count("### Program ") for prompt in model.asked) == 5
