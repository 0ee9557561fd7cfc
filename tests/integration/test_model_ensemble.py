"""Several models as one, and roles; over real HTTP where it matters."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from app.adapters.model.congestion.circuit_breaker import BreakerRules, CircuitBreaker
from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.ensemble import Ensemble, EnsembleModel, RoleModels
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.scripted import ScriptedModel
from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Completion, Prompt, Role
from app.ports.protocols import (
    NEVER,
    LanguageModel,
    Misconfigured,
    PromptTooLong,
    Stop,
    Unavailable,
)
from tests.contracts.language_model import PartialAnswersContract, Serve
from tests.integration.test_model_openai import Endpoint, Pauses, Reply, in_turn, refused, said


class Named:
    """Answers with its name, or with a fault."""

    def __init__(self, name: str, fault: Unavailable | None = None) -> None:
        self.name, self.fault, self.asked = name, fault, 0

    def parameters(self, prompt: Prompt) -> dict[str, Any]:
        return {"model": self.name}

    def complete(self, prompts: Any, stop: Stop = NEVER) -> list[Completion]:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return [Completion(self.name, self.name, role=prompt.role) for prompt in prompts]


def ensemble(*models: LanguageModel, weights: tuple[float, ...] = (), **rules: Any) -> Ensemble:
    given = weights or (1.0,) * len(models)
    members = [
        EnsembleModel(model, CircuitBreaker(BreakerRules(**rules)), weight)
        for model, weight in zip(models, given, strict=True)
    ]
    return Ensemble(members, seed=3)


def prompts(count: int) -> list[Prompt]:
    return [Prompt("", "hi", sample=n) for n in range(count)]


class TestEnsemble(PartialAnswersContract):
    @pytest.fixture
    def serve(self) -> Serve:
        return lambda answer: ensemble(
            ScriptedModel(lambda prompt: answer(prompt.user)),
            ScriptedModel(lambda prompt: answer(prompt.user)),
        )


class TestEnsembleWhoseFirstModelIsDown(PartialAnswersContract):
    @pytest.fixture
    def serve(self) -> Serve:
        return lambda answer: ensemble(
            Named("down", Unavailable("gone")), ScriptedModel(lambda prompt: answer(prompt.user))
        )


class TestRoleModels(PartialAnswersContract):
    @pytest.fixture
    def serve(self) -> Serve:
        def serve(answer: Any) -> RoleModels:
            model = ScriptedModel(lambda prompt: answer(prompt.user))
            return RoleModels({Role.GENERATOR: model, Role.JUDGE: model})

        return serve


def test_models_are_drawn_by_weight_and_the_same_way_each_time() -> None:
    model = ensemble(Named("often"), Named("seldom"), Named("never"), weights=(0.8, 0.2, 0.0))

    once = [reply.model for reply in model.complete(prompts(100))]
    again = [reply.model for reply in model.complete(prompts(100))]

    assert once == again
    assert 65 <= once.count("often") <= 92
    assert set(once) == {"often", "seldom"}


def test_a_prompt_for_one_of_the_models_goes_to_that_one_while_it_is_up() -> None:
    strict, mild = Named("strict"), Named("mild")
    model = ensemble(strict, mild)
    asked = [Prompt("", "hi", model=name) for name in ("mild", "strict", "mild", "nobody")]

    assert [each.model for each in model.complete(asked)][:3] == ["mild", "strict", "mild"]
    strict.fault = Unavailable("gone")
    assert [each.model for each in model.complete(asked[1:2])] == ["mild"]


class Half(Named):
    """Answers every other prompt, and one request more may be billed."""

    def complete(self, prompts: Any, stop: Stop = NEVER) -> list[Completion]:
        answered = dict(list(enumerate(super().complete(prompts)))[::2])
        raise Unavailable("half", unanswered=1, answered=answered)


def test_a_model_that_answers_a_part_leaves_the_rest_to_the_next() -> None:
    model = ensemble(Half("first"), Half("second"), Named("last"), weights=(1.0, 0.0, 0.0))

    replies = model.complete(prompts(5))

    assert [reply.model for reply in replies] == ["first", "second", "first", "last", "first"]
    assert [reply.unanswered for reply in replies] == [0, 0, 0, 2, 0]


def test_the_error_holds_the_answers_of_models_that_answered() -> None:
    model = ensemble(Half("first"), Half("second"), weights=(1.0, 0.0))

    with pytest.raises(Unavailable, match="no model is up") as caught:
        model.complete(prompts(5))

    answered = {place: one.model for place, one in caught.value.answered.items()}
    assert answered == {0: "first", 1: "second", 2: "first", 4: "first"}
    assert caught.value.unanswered == 2


def test_the_prompts_of_a_model_that_is_down_go_to_the_others() -> None:
    down = Named("down", Unavailable("gone"))
    model = ensemble(down, Named("up"), failures=3)

    replies = [model.complete([prompt])[0].model for prompt in prompts(40)]

    assert replies == ["up"] * 40
    assert down.asked == 3


def test_reserves_are_asked_in_order_and_only_when_the_others_are_down() -> None:
    first, second = Named("first"), Named("second")
    main = Named("main")
    model = ensemble(main, first, second, weights=(1.0, 0.0, 0.0))
    model.complete(prompts(10))
    assert first.asked == second.asked == 0

    main.fault = Unavailable("gone")

    assert [each.model for each in model.complete(prompts(2))] == ["first"] * 2
    assert second.asked == 0


def test_a_model_that_recovered_is_used_again() -> None:
    down = Named("down", Unavailable("gone"))
    model = ensemble(down, Named("reserve"), weights=(1.0, 0.0), failures=1, rest_seconds=0.05)
    assert model.complete(prompts(1))[0].model == "reserve"

    down.fault = None
    time.sleep(0.06)

    assert model.complete(prompts(1))[0].model == "down"


def test_when_all_models_are_down_the_error_holds_every_reason() -> None:
    model = ensemble(Named("a", Unavailable("a: gone")), Named("b", Misconfigured("b: no key")))

    with pytest.raises(Unavailable, match=r"no model is up: .*gone") as caught:
        model.complete(prompts(1))

    assert "b: no key" in str(caught.value)
    assert not isinstance(caught.value, Misconfigured)


def test_when_all_models_need_a_person_so_does_the_ensemble() -> None:
    model = ensemble(Named("a", Misconfigured("no key")), Named("b", Misconfigured("no model")))

    with pytest.raises(Misconfigured, match="no key"):
        model.complete(prompts(1))


def test_roles_of_one_call_are_asked_of_their_models_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=10)

    def met(name: str) -> LanguageModel:
        def answer(_: Prompt) -> str:
            meeting.wait()
            return name

        return ScriptedModel(answer)

    model = RoleModels({Role.GENERATOR: met("cheap"), Role.REFINER: met("strong")})
    asked = [
        Prompt("", "x", role=Role.REFINER),
        Prompt("", "x"),
        Prompt("", "x", role=Role.JUDGE),
    ]

    assert [each.text for each in model.complete(asked[:2])] == ["strong", "cheap"]


@pytest.fixture
def model_loop() -> Iterator[ModelLoop]:
    opened = ModelLoop()
    yield opened
    opened.close()


def over_http(model_loop: ModelLoop, *endpoints: Endpoint, **spec: Any) -> Ensemble:
    members = []
    for number, endpoint in enumerate(endpoints):
        breaker = CircuitBreaker(
            BreakerRules(failures=3, rest_seconds=600.0, longest_rest_seconds=600.0)
        )
        asked = ModelSpec(f"model {number}", base_url=endpoint.url, **spec)
        model = EndpointModel(OpenAIWire(asked), model_loop, breaker=breaker, sleep=Pauses())
        members.append(EnsembleModel(model, breaker, 1.0 if number == 0 else 0.0, reports=True))
    return Ensemble(members)


def test_an_endpoint_that_hangs_costs_three_time_outs_and_no_more(
    model_loop: ModelLoop,
) -> None:
    hanging, up = Endpoint(in_turn(Reply(hang_seconds=300.0))), Endpoint(in_turn(said("here")))
    hanging.waits = model_loop
    model = over_http(
        model_loop, hanging, up, timeout_seconds=50.0, deadline_seconds=500.0, retries=20
    )

    first = [each.text for each in model.complete(prompts(1))]
    later = [model.complete([prompt])[0].text for prompt in prompts(20)]
    hanging.close()
    up.close()

    assert (first, later) == (["here"], ["here"] * 20)
    assert len(hanging.asked) == 3


@pytest.mark.parametrize("reply", [refused(500), Reply(body=b"<html>")])
def test_a_dead_engine_is_left_after_three_failures(model_loop: ModelLoop, reply: Reply) -> None:
    dead, up = Endpoint(in_turn(reply)), Endpoint(in_turn(said("here")))
    model = over_http(model_loop, dead, up, retries=20)

    texts = Counter(model.complete([prompt])[0].text for prompt in prompts(30))
    dead.close()
    up.close()

    assert texts == {"here": 30}
    assert len(dead.asked) == 3


def test_prompts_refused_by_a_full_queue_go_to_the_next_model(
    model_loop: ModelLoop,
) -> None:
    full, up = Endpoint(in_turn(refused(503))), Endpoint(in_turn(said("here")))
    model = over_http(model_loop, full, up, retries=1)

    texts = [model.complete([prompt])[0].text for prompt in prompts(5)]
    full.close()
    up.close()

    assert texts == ["here"] * 5
    assert len(full.asked) == 10


def test_an_endpoint_with_an_hour_of_retry_after_receives_one_request(
    model_loop: ModelLoop,
) -> None:
    limited = Endpoint(in_turn(refused(429, Retry_After="3600")))
    up = Endpoint(in_turn(said("here")))
    model = over_http(model_loop, limited, up)

    texts = [model.complete([prompt])[0].text for prompt in prompts(5)]
    limited.close()
    up.close()

    assert texts == ["here"] * 5
    assert len(limited.asked) == 1


def test_a_prompt_that_can_be_shortened_is_not_given_to_a_model_with_a_larger_context():
    [long] = prompts(1)
    small = Named("small", PromptTooLong("too long", long, 5))
    large = Named("large")
    both = ensemble(small, large, weights=(1.0, 0.0))

    with pytest.raises(PromptTooLong) as caught:
        both.complete([long])

    assert (caught.value.longest, large.asked) == (5, 0)


def test_a_prompt_that_cannot_be_shortened_is_given_to_a_model_with_a_larger_context():
    shortest = Prompt("", "hi", shortest=True)
    small = Named("small", PromptTooLong("too long", shortest, 5))
    larger = Named("larger", PromptTooLong("too long, too", shortest, 9))
    large = Named("large")

    [answer] = ensemble(small, large, weights=(1.0, 0.0)).complete([shortest])
    with pytest.raises(PromptTooLong, match="too long, too"):
        ensemble(small, larger, weights=(1.0, 0.0)).complete([shortest])

    assert answer.text == "large"
