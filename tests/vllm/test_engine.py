"""The provider `vllm` with the real engine inside this process."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

import pytest

from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.gates import Gates, ProcessLimits
from app.adapters.model.providers.spec import IN_PROCESS, ModelSpec
from app.adapters.model.providers.vllm import VllmModel
from app.adapters.model.providers.vllm_engine import (
    EngineRequest,
    GeneratedTexts,
    VllmEngine,
    VllmLaunch,
)
from app.domain.operator import Prompt, ReplyForm
from app.ports.protocols import Misconfigured, PromptTooLong, Unavailable
from tests.contracts.language_model import LanguageModelContract, Serve
from tests.vllm.engine_arguments import FRAGILE

# vLLM and torch warn of their own future; they are imported by the fixture, not by these modules.
pytestmark = pytest.mark.filterwarnings("ignore")


Ask = Callable[..., VllmModel]
"""Returns a model of the engine, asked with these differences."""


class Steered(VllmEngine):
    """An engine whose random model is made to say what a test wants: only that text is allowed."""

    wanted: Callable[[str], str] | None = None

    def submit(self, question: EngineRequest) -> "Future[GeneratedTexts]":
        if self.wanted is None:
            return super().submit(question)
        text = self.wanted(question.messages[-1]["content"])
        if text:
            steering: dict[str, object] = {"structured_outputs": {"choice": [text]}}
        else:
            tokenizer = cast(Any, self._engine).engine.get_tokenizer()
            steering = {"allowed_token_ids": [tokenizer.eos_token_id]}
        return super().submit(replace(question, sampling=question.sampling | steering))


@pytest.fixture(scope="session")
def engine(model: str, imported_once: None) -> Iterator[Steered]:
    said: list[str] = []
    lost: list[str] = []
    loaded = Steered(VllmLaunch(model, "tiny", FRAGILE), lost.append)
    loaded.start(said.append)
    assert said[0].startswith("vllm: loading")
    assert "ready after" in said[-1]
    assert "tiny: 0 running" in said[-1]
    yield loaded
    loaded.close()
    assert lost == []


@pytest.fixture(autouse=True)
def unsteered(engine: Steered) -> None:
    engine.wanted = None


@pytest.fixture(scope="session")
def model_loop(engine: Steered) -> Iterator[ModelLoop]:
    gates = Gates(ProcessLimits(), engine.queue)
    opened = ModelLoop(gates, gates.close)
    yield opened
    opened.close()


@pytest.fixture
def provider(engine: Steered, model_loop: ModelLoop) -> Ask:
    def provider(**fields: Any) -> VllmModel:
        shape = {"name": "tiny", "base_url": IN_PROCESS, "max_tokens": 32, "seeded": True}
        spec = ModelSpec(**{**shape, "deadline_seconds": 300.0, **fields})
        return VllmModel(spec, engine, model_loop, seed=1)

    return provider


class TestTheEngineInTheWorker(LanguageModelContract):
    @pytest.fixture
    def serve(self, engine: Steered, provider: Ask) -> Serve:
        def serve(answer: Callable[[str], str]) -> VllmModel:
            engine.wanted = answer
            return provider()

        return serve


def test_samples_of_one_text_are_one_request_and_differ(
    engine: Steered, provider: Ask, monkeypatch: pytest.MonkeyPatch
):
    asked: list[EngineRequest] = []
    real = engine.submit
    monkeypatch.setattr(engine, "submit", lambda q: asked.append(q) or real(q))

    replies = provider().complete([Prompt("s", "again", sample=n) for n in range(6)])

    assert [question.sampling["n"] for question in asked] == [6]
    assert len({reply.text for reply in replies}) > 3
    assert replies[0].prompt_tokens > 0
    assert [reply.prompt_tokens for reply in replies[1:]] == [0] * 5
    assert all(reply.completion_tokens > 0 for reply in replies)


def test_the_same_prompt_and_sample_are_answered_alike(engine: Steered, provider: Ask):
    first, again, other = (
        provider().complete([Prompt("s", "again", sample=sample)])[0] for sample in (1, 1, 2)
    )

    assert first.text == again.text != other.text
    assert first.parameters == again.parameters


def test_a_reply_goes_on_from_its_opening_and_keeps_to_its_grammar(
    engine: Steered, provider: Ask, monkeypatch: pytest.MonkeyPatch
):
    asked: list[EngineRequest] = []
    real = engine.submit
    monkeypatch.setattr(engine, "submit", lambda q: asked.append(q) or real(q))
    form = ReplyForm("x = ", stops=(";",), ending=";\n", grammar='root ::= [0-9] [0-9] ";"')

    replies = provider().complete([Prompt("s", "again", sample=n, form=form) for n in range(3)])

    assert all(re.fullmatch(r"x = [0-9]{2};\n", reply.text) for reply in replies), replies
    assert [request.messages[-1]["role"] for request in asked] == ["assistant"]


def test_a_grammar_that_the_engine_cannot_read_leaves_the_reply_free(
    provider: Ask, caplog: pytest.LogCaptureFixture
):
    form = ReplyForm(grammar="root ::= nowhere")

    [reply] = provider().complete([Prompt("s", "again", form=form)])

    assert reply.completion_tokens > 0
    assert "takes no bound replies" in caplog.text


def test_a_limit_on_tokens_is_kept_and_reported(engine: Steered, provider: Ask):
    [reply] = provider(max_tokens=5).complete([Prompt("", "hello")])

    assert (reply.finish, reply.completion_tokens) == ("length", 5)


def test_a_prompt_that_does_not_fit_is_refused_as_too_long(engine: Steered, provider: Ask):
    with pytest.raises(PromptTooLong, match="maximum context length"):
        provider().complete([Prompt("", "z" * 40_000)])


def test_a_request_without_an_answer_in_time_is_unavailable_and_frees_its_slot(
    engine: Steered, provider: Ask
):
    with pytest.raises(Unavailable):
        provider(max_tokens=8000, deadline_seconds=0.2).complete([Prompt("", "hello")])

    provider().complete([Prompt("", "and on")])
    assert "0 running" in engine.health()


def test_a_dead_engine_is_unavailable_and_is_rebuilt_for_the_next(engine: Steered, provider: Ask):
    long_and_seeded = Prompt("", "z" * 6000)

    with pytest.raises(Unavailable, match="died"):
        provider().complete([long_and_seeded])
    [reply] = provider().complete([Prompt("", "hello")])

    assert reply.completion_tokens > 0
    assert "tiny: 0 running" in engine.health()


def test_a_missing_model_is_reported_before_any_step(tmp_path):
    with pytest.raises(Misconfigured, match="cannot load"):
        VllmEngine(VllmLaunch(str(tmp_path), "none", FRAGILE)).start()


def test_a_folder_that_is_not_there_is_not_taken_for_a_name_on_the_hub(tmp_path):
    with pytest.raises(Misconfigured, match="there is no such folder"):
        VllmEngine(VllmLaunch(str(tmp_path / "typo"), "none", FRAGILE)).start()


def test_too_little_memory_is_reported_with_the_variable_to_change(model: str):
    greedy = FRAGILE.replace("64M", "50000G")
    with pytest.raises(Misconfigured, match="memory, context and devices are in EVOQ_VLLM_ARGS"):
        VllmEngine(VllmLaunch(model, "tiny", greedy)).start()


def test_unknown_arguments_are_reported_before_any_step(model: str):
    with pytest.raises(Misconfigured, match="cannot load it: it does not take EVOQ_VLLM_ARGS"):
        VllmEngine(VllmLaunch(model, "tiny", "--no-such-argument 1")).start()
