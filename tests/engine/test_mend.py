"""A program that failed in the sandbox is mended by a model that is shown its error."""

from dataclasses import replace
from random import Random

import pytest

from app.adapters.model.providers.scripted import ScriptedModel
from app.config.settings import PromptSettings, RunSettings, SearchSettings
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Prompt
from app.domain.operators.diff import DIFF
from app.domain.operators.mend import MEND
from app.domain.operators.seed import SEED
from app.domain.problem import Job, Outcome
from app.domain.program import Program
from app.domain.search.cohort import State
from app.engine.context import Context
from app.ports.history import Settled
from app.ports.protocols import NEVER, Stop
from mock_llm.replies import mutating_reply
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import ToySandbox, problem

SEED_TEXT = "x = 0.5\nkeep 1\n"
FAULT = 'raise ValueError("planted")'
MESSAGE = "ValueError: planted api_key=sk-0123456789abcdef"
FRAME = "\nprogram line 2, in f\n"


class Faulty(ToySandbox):
    """Fails a program that holds the fault, with the message and the line of a real sandbox."""

    def __init__(self, detail: str, kind: FailureKind = FailureKind.RUNTIME) -> None:
        super().__init__()
        self._failure = Failure(kind, detail)

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        [(suffix, source)] = job.programs
        if FAULT.encode() in source:
            return Outcome(None, self._failure)
        return super().run(replace(job, programs=((suffix, source.split(b"\n")[0]),)))


def mending(ctx: Context, sandbox: Faulty, **prompts: bool) -> tuple[list[Settled], list[Prompt]]:
    """Runs `diff`, whose children all have the fault, and `mend`; returns what they made.

    The simulated model edits no other line of a language that it does not know.
    """
    asked: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        if "which failed" in prompt.user:
            asked.append(prompt)
            return mutating_reply(prompt.user, prompt.user, Random(prompt.sample))
        number = prompt.sample / 8
        return (
            f"<<<<<<< SEARCH\nx = 0.5\n=======\nx = {number}\n{FAULT}\n>>>>>>> REPLACE"
            if "x = 0.5" in prompt.user
            else "nothing"
        )

    toy = replace(problem(), seeds=(Program(SEED_TEXT, "toy"),), language="toy")
    settings = RunSettings(
        search=SearchSettings(islands=1, top_programs=0, inspirations=0),
        prompts=PromptSettings(**prompts),
    )
    new = replace(
        new_run(toy, budget=30, islands=1),
        operators={"diff": 0.5, "mend": 0.5},
        settings=settings.model_dump(mode="json"),
        strategy="map_elites",
    )
    ctx = replace(
        ctx,
        sandbox=sandbox,
        model=lambda run: ScriptedModel(answer),
        operators={"seed": SEED, "diff": DIFF, "mend": MEND},
    )
    run = run_to_the_end(ctx, toy, new)
    with ctx.store.begin() as tx:
        return [one for one in tx.history.settled(run) if not one.seed], asked


def admitted(settled: list[Settled]) -> list[Settled]:
    return [one for one in settled if one.state is State.ADMITTED]


def test_a_fault_is_mended_whose_line_the_prompt_shows(ctx: Context) -> None:
    settled, asked = mending(ctx, Faulty(MESSAGE + FRAME))

    made = admitted(settled)
    assert len(made) > 3
    assert {one.operator for one in made} == {"mend"}
    assert {one.parents for one in made} == {(Program(SEED_TEXT, "toy").id,)}
    assert all("line 2: raise ValueError" in prompt.user for prompt in asked)


def test_a_fault_is_not_mended_whose_line_is_hidden(ctx: Context) -> None:
    settled, asked = mending(ctx, Faulty(MESSAGE))

    assert admitted(settled) == []
    assert asked


@pytest.mark.parametrize("messages", [False, True])
def test_the_message_is_shown_where_the_setting_says_so_and_never_a_secret(
    ctx: Context, messages: bool
) -> None:
    _, asked = mending(ctx, Faulty(MESSAGE + FRAME), failure_messages=messages)

    assert asked
    assert all(("ValueError: planted api_key=" in prompt.user) == messages for prompt in asked)
    assert not any("sk-0123456789abcdef" in prompt.user for prompt in asked)


def test_a_violation_of_the_sandbox_is_not_mended(ctx: Context) -> None:
    settled, asked = mending(ctx, Faulty(MESSAGE + FRAME, FailureKind.SANDBOX_VIOLATION))

    assert asked == []
    assert any(one.operator == "mend" for one in settled), "it does what `diff` does"
