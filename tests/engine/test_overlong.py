"""Prompts that are longer than their model takes: shortened, asked again, and failed alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.longest_prompt import LongestPrompt
from app.adapters.model.providers.overflow import overflow
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.queue.inline import InlineExecutor
from app.domain.events import EventKind
from app.domain.operator import Completion, Prompt, Role
from app.domain.operators.rewrite import REWRITE
from app.domain.operators.seed import SEED
from app.domain.prompting.tokens import estimated
from app.domain.run import Run, RunState
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, PromptTooLong, Stop
from tests.engine.conftest import new_run, table
from tests.engine.executors import RecordedMessages, planned
from tests.engine.test_judge import Bench, order
from tests.engine.test_partial_answers import TOKENS, asks_three
from tests.engine.toy import problem

WITH_NUMBERS = "prompt has {count} tokens, and the context size is {limit} tokens"
WITHOUT = "Input is too long for requested model."


class SmallContext:
    """Refuses prompts above so many characters in an endpoint's words, and answers the others."""

    name = "small"

    def __init__(
        self, chars: int, words: str = WITH_NUMBERS, never: Callable[[Prompt], bool] | None = None
    ) -> None:
        self.chars, self.words = chars, words
        self.never = never or (lambda prompt: False)
        self.asked: list[Prompt] = []
        self.refused: list[Prompt] = []
        self._longest = LongestPrompt(ModelSpec("small", base_url="http://here/v1"))

    @property
    def places(self) -> None:
        return None

    def parameters(self, prompt: Prompt) -> Mapping[str, Any]:
        return {}

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self._longest.check(prompts)
        for prompt in prompts:
            size = len(prompt.system + prompt.user)
            if size > self.chars or self.never(prompt):
                self.refused.append(prompt)
                words = self.words.format(count=size // 3, limit=self.chars // 3)
                found = overflow(400, ErrorBody(words), 16)
                assert found is not None
                raise self._longest.refused(prompt, 400, words, found)
            self._longest.answered(prompt)
        self.asked += prompts
        return [
            Completion(f"```python\nx = {prompt.sample / 7 + 0.1:.6f}\n```\n", self.name)
            for prompt in prompts
        ]


def worked(
    ctx: Context, model: SmallContext, budget: int = 20, name: str = "toy-run"
) -> tuple[Context, Run]:
    """Returns the context and the end of a run that asks a model for whole programs."""
    toy = problem()
    operators = {one.name: one for one in (SEED, REWRITE)}
    ctx = replace(ctx, model=lambda run: model, operators=operators, problem=lambda digest: toy)
    new = new_run(toy, budget=budget, islands=1)
    new = replace(new, operators={"rewrite": 1.0}, name=name)
    return ctx, went_on(ctx, lifecycle.start(ctx, toy, new).id)


def went_on(ctx: Context, run: int) -> Run:
    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), lambda: False)
    with ctx.store.begin() as tx:
        return tx.runs.get(run)


def failures(ctx: Context, run: Run) -> dict[str, int]:
    with ctx.store.begin() as tx:
        return tx.history.failures(run.id)


def room(ctx: Context) -> int:
    """Returns a number of characters that the first prompt has, and one with a history exceeds."""
    model = SmallContext(10**9)
    worked(ctx, model, budget=1)
    return len(model.asked[0].system + model.asked[0].user) + 100


def test_a_prompt_over_the_context_is_shortened_and_its_successors_are_not_refused(
    ctx: Context,
) -> None:
    model = SmallContext(room(ctx))
    _, run = worked(ctx, model, name="second")

    assert run.state is RunState.FINISHED
    assert "too_long" not in failures(ctx, run)
    assert any(prompt.left_out for prompt in model.asked)
    assert 1 <= len(model.refused) <= 3


def test_a_refusal_without_a_number_is_followed_by_shorter_and_shorter_prompts(
    ctx: Context,
) -> None:
    model = SmallContext(room(ctx), WITHOUT)
    _, run = worked(ctx, model, name="second")

    assert run.state is RunState.FINISHED
    assert "too_long" not in failures(ctx, run)
    assert 1 <= len(model.refused) <= 8


def test_a_prompt_that_cannot_be_shortened_fails_its_proposal_alone(ctx: Context) -> None:
    model = SmallContext(10**9, never=lambda prompt: prompt.sample == 4)
    ctx, run = worked(ctx, model)

    assert run.state is RunState.FINISHED
    assert failures(ctx, run)["too_long"] == 1
    with ctx.store.begin() as tx:
        [failed] = [one for one in tx.history.settled(run.id) if one.failure]
        events = tx.events.read(run.id, kinds=(EventKind.FAILED,))
    assert failed.failure is not None
    assert "the context size is" in failed.failure.detail
    assert "llm.model" in failed.failure.detail
    assert len(events) == 1
    assert {prompt.sample for prompt in model.asked} == set(range(20)) - {4}


def test_a_run_whose_every_prompt_is_too_long_is_paused_and_goes_on_with_another_model(
    ctx: Context,
) -> None:
    model = SmallContext(50)
    ctx, run = worked(ctx, model)

    assert run.state is RunState.PAUSED
    assert "the prompt of every proposal was too long so far" in run.reason
    assert failures(ctx, run) == {"too_long": 3}

    larger = SmallContext(10**9)
    ctx = replace(ctx, model=lambda run: larger)
    assert lifecycle.resume(ctx, run.id)
    ended = went_on(ctx, run.id)
    assert (ended.state, ended.proposals) == (RunState.FINISHED, 20)
    assert failures(ctx, ended) == {"too_long": 3}


class Half(SmallContext):
    """Answers the other prompts of a call in which one is too long."""

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        said = {"whole": "5", "half": "0.", "sign": "-"}
        long = next((prompt for prompt in prompts if self.never(prompt)), None)
        answered = {
            n: Completion(said[prompt.user], self.name, completion_tokens=TOKENS)
            for n, prompt in enumerate(prompts)
            if prompt is not long
        }
        self.asked += [prompt for prompt in prompts if prompt is not long]
        if long is not None:
            self.refused.append(long)
            raise PromptTooLong("too long", long, 0, answered=answered)
        return list(answered.values())


def test_what_was_answered_beside_a_prompt_that_is_too_long_is_paid_for_once(ctx: Context) -> None:
    model = Half(0, never=lambda prompt: prompt.user == "half")
    ctx = replace(asks_three(ctx, model), executor=RecordedMessages())  # type: ignore[arg-type]
    run, cohorts = planned(ctx, 1, "asked")

    steps.generate(ctx, *cohorts)

    assert [prompt.user for prompt in model.asked] == ["whole", "sign"]
    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).tokens == 2 * TOKENS


def test_a_program_that_is_too_long_for_a_judge_has_no_judgement(ctx: Context) -> None:
    class Strict(Bench):
        refused = 0

        def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
            if prompts[0].role is Role.JUDGE:
                self.refused += 1
                raise PromptTooLong("the context is full", prompts[0], 1)
            return super().complete(prompts, stop)

    judges = Strict()
    ctx = replace(ctx, model=lambda run: judges)
    toy = problem()
    run = went_on(ctx, lifecycle.start(ctx, toy, order()).id)

    assert (run.state, judges.refused > 0) == (RunState.FINISHED, True)
    with ctx.store.begin() as tx:
        assert tx.history.best(run.id) is not None


def test_each_new_length_is_shorter_than_the_prompt_that_was_refused() -> None:
    longest = LongestPrompt(ModelSpec("m"))
    prompt = Prompt("system", "word " * 400)
    lengths = []
    for words in (WITHOUT, WITH_NUMBERS.format(count=9, limit=900), WITHOUT):
        found = overflow(400, ErrorBody(words), 16)
        assert found is not None
        lengths.append(longest.refused(prompt, 400, words, found).longest)

    assert all(0 <= length < estimated("system" + prompt.user) for length in lengths)
