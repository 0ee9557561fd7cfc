"""What every adapter of the LanguageModel port keeps to."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.operator import Prompt, Role
from app.ports.protocols import LanguageModel, Unavailable

Serve = Callable[[Callable[[str], str]], LanguageModel]
"""Returns a model whose answer is a function of the prompt's user text."""


class LanguageModelContract:
    """Inherit and define the fixture `serve`."""

    @pytest.fixture
    def serve(self) -> Serve:
        raise NotImplementedError

    def test_it_has_a_name(self, serve: Serve) -> None:
        assert serve(str.upper).name

    def test_no_prompts_give_no_completions(self, serve: Serve) -> None:
        assert serve(str.upper).complete([]) == []

    def test_there_is_one_completion_a_prompt_in_order(self, serve: Serve) -> None:
        model = serve(lambda text: f"<{text}>")
        prompts = [Prompt("", f"prompt {n}", sample=n) for n in range(20)]

        replies = model.complete(prompts)

        assert [reply.text for reply in replies] == [f"<prompt {n}>" for n in range(20)]

    def test_each_repeated_draw_of_one_text_is_answered(self, serve: Serve) -> None:
        replies = serve(str.upper).complete([Prompt("s", "again", sample=n) for n in range(3)])

        assert [reply.text for reply in replies] == ["AGAIN"] * 3

    def test_an_empty_answer_is_an_answer(self, serve: Serve) -> None:
        [reply] = serve(lambda _: "").complete([Prompt("", "anything")])

        assert reply.text == ""

    def test_a_completion_names_its_model_and_counts_nothing_negative(self, serve: Serve) -> None:
        [reply] = serve(str.upper).complete([Prompt("", "hello")])

        assert reply.model
        assert min(reply.prompt_tokens, reply.completion_tokens) >= 0
        assert 0 <= reply.cached_tokens <= reply.prompt_tokens
        assert min(reply.latency_seconds, reply.cost_usd or 0.0) >= 0.0

    @pytest.mark.parametrize("role", Role)
    def test_a_completion_names_its_role(self, serve: Serve, role: Role) -> None:
        [reply] = serve(str.upper).complete([Prompt("", "hello", role=role)])

        assert (reply.text, reply.role) == ("HELLO", role)

    def test_callers_in_several_threads_get_their_own_answers(self, serve: Serve) -> None:
        model = serve(lambda text: f"<{text}>")

        def ask(n: int) -> str:
            return model.complete([Prompt("", f"thread {n}", sample=n)])[0].text

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(40))) == [f"<thread {n}>" for n in range(40)]


class PartialAnswersContract(LanguageModelContract):
    """Inherit where `serve` may be given a function that raises `Unavailable` for a text."""

    def test_a_failed_call_holds_its_answers_by_position(self, serve: Serve) -> None:
        def said(text: str) -> str:
            if "lost" in text:
                raise Unavailable("no answer")
            return text.upper()

        texts = ["one", "lost", "three", "one", "lost too"]
        prompts = [Prompt("", text, sample=n) for n, text in enumerate(texts)]

        with pytest.raises(Unavailable) as caught:
            serve(said).complete(prompts)

        found = {place: one.text for place, one in caught.value.answered.items()}
        assert found == {0: "ONE", 2: "THREE", 3: "ONE"}
