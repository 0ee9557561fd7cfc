"""Whole runs against endpoints that refuse what Anthropic's and Google's refuse."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import pytest

from app.adapters.model.choose import Providers
from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.sql import SqlStore
from app.config.models import ModelSettings
from app.domain.operator import Prompt
from app.domain.run import Run, RunState
from app.engine import steps
from app.engine.context import Context
from app.ports.protocols import LanguageModel, Unavailable
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.toy import ASKED, problem
from tests.integration.test_model_openai import Endpoint, Reply, refused, said

KEY = "key-0123456789"
GEMINI_KNOWS = {
    *("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "n"),
    *("stop", "stream", "stream_options", "reasoning_effort", "response_format", "tools"),
    *("tool_choice", "presence_penalty", "user"),
}


def anthropic(body: Mapping[str, Any]) -> Reply:
    """Refuses what the compatible endpoint of the Claude models refuses; ignores what it ignores.

    Source: https://platform.claude.com/docs/en/api/openai-sdk.
    """
    if body.get("n", 1) != 1:
        return refused(400, "n: Input should be 1", "invalid_request_error")
    if "temperature" in body and "top_p" in body:
        both = "`temperature` and `top_p` cannot both be specified for this model."
        return refused(400, both, "invalid_request_error")
    if body["model"] == "claude-without-temperature" and "temperature" in body:
        return refused(400, "`temperature` is deprecated for this model.", "invalid_request_error")
    if not 0.0 <= body.get("temperature", 1.0) <= 1.0:
        return refused(400, "temperature: range: 0..1", "invalid_request_error")
    return _answered(body)


def gemini(body: Mapping[str, Any]) -> Reply:
    """Refuses every name it does not know, and several candidates; its errors are lists.

    Source: https://github.com/algorithmicsuperintelligence/openevolve/issues/105 and
    https://github.com/Vali-98/ChatterUI/issues/227 (texts and shape of the refusals).
    """
    unknown = sorted(set(body) - GEMINI_KNOWS)
    if unknown:
        return _invalid(
            *(
                f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
                for name in unknown
            )
        )
    if body.get("n", 1) != 1:
        return _invalid("Multiple candidates is not enabled for this model")
    return _answered(body)


def _invalid(*messages: str) -> Reply:
    error = {"code": 400, "message": "\n".join(messages), "status": "INVALID_ARGUMENT"}
    return Reply(400, json.dumps([{"error": error}]).encode())


def _answered(body: Mapping[str, Any]) -> Reply:
    text = f"x = {len(body['messages'][-1]['content']) / 7:.4f}\n"
    return said(text, usage={"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 30})


@pytest.fixture
def served() -> Iterator[Callable[..., tuple[Endpoint, Callable[[Run], LanguageModel]]]]:
    """Opens an endpoint, and returns it with the models of runs that ask it."""
    opened: list[Any] = []

    def serve(
        store: SqlStore, answer: Callable[[Mapping[str, Any]], Reply], key: str = KEY
    ) -> tuple[Endpoint, Callable[[Run], LanguageModel]]:
        endpoint = Endpoint(answer, key=key)
        providers = Providers(store, {"ANTHROPIC_API_KEY": KEY, "GEMINI_API_KEY": KEY}.get)
        opened.extend((providers, endpoint))
        built: list[LanguageModel] = []

        def models(run: Run) -> LanguageModel:
            settings = ModelSettings(**{**run.settings["llm"], "base_url": endpoint.url})
            built.extend([] if built else [providers.model(settings, run.seed)])
            return built[0]

        return endpoint, models

    yield serve
    for one in opened:
        one.close()


def run_with(ctx: Context, serve: Callable[[Run], LanguageModel], **llm: Any) -> Run:
    order = new_run(problem(), budget=10)
    llm_section = asdict(ModelSettings(temperature=0.9, **llm))
    settings = {**order.settings, "llm": {**llm_section, "repair_turns": 0}}
    order = replace(order, settings=settings, operators={ASKED.name: 1.0})
    run = run_to_the_end(replace(ctx, model=serve), problem(), order)
    with ctx.store.begin() as tx:
        return tx.runs.get(run)


@pytest.mark.parametrize(
    ("provider", "endpoint", "model", "more"),
    [
        ("anthropic", anthropic, "claude", {}),
        ("anthropic", anthropic, "claude", {"top_p": 0.9, "reasoning_effort": "low"}),
        ("anthropic", anthropic, "claude-without-temperature", {}),
        ("gemini", gemini, "models/gemini", {"top_p": 0.9, "reasoning_effort": "low"}),
    ],
)
def test_a_run_ends_at_an_endpoint_that_refuses_what_the_real_one_refuses(
    ctx: Context, store: SqlStore, served: Any, provider: str, endpoint: Any, model: str, more: Any
):
    there, models = served(store, endpoint)

    run = run_with(ctx, models, provider=provider, model=model, **more)

    assert (run.state, run.proposals) == (RunState.FINISHED, 10)
    learning = 1 if provider == "anthropic" and (more or "without" in model) else 0
    assert len(there.asked) == 20 + learning
    assert run.tokens == 20 * 30  # what was thought is in the total alone
    assert set(there.paths) == {"/v1/chat/completions"}


@pytest.mark.parametrize("answer", [anthropic, gemini])
def test_the_endpoints_of_these_tests_do_refuse(answer: Callable[..., Reply]):
    plain = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

    assert answer(plain).status == 200
    assert answer({**plain, "n": 2}).status == 400
    assert gemini({**plain, "seed": 1}).status == 400
    assert anthropic({**plain, "temperature": 1.5}).status == 400


def test_a_wrong_key_pauses_the_run_and_names_the_variable(
    ctx: Context, store: SqlStore, served: Any
):
    _, models = served(store, anthropic, "another")

    run = run_with(ctx, models, provider="anthropic", model="claude")

    assert run.state is RunState.PAUSED
    assert "ANTHROPIC_API_KEY" in run.reason
    assert KEY not in run.reason


def test_googles_delay_is_in_the_body_and_is_waited_out(store: SqlStore, served: Any):
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    error = {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [info]}
    limited = Reply(429, json.dumps([{"error": error}]).encode())
    _, models = served(store, lambda _: limited)
    settings = {"provider": "gemini", "model": "m", "deadline_seconds": 30.0}
    run = replace(new_run(problem()), settings={"llm": settings})

    with pytest.raises(Unavailable, match="HTTP 429, after 1 attempt"):
        models(run).complete([Prompt("", "hi")])


def test_models_that_are_down_leave_a_run_to_the_next_and_are_asked_no_more(
    ctx: Context, store: SqlStore
):
    with (
        closing(Endpoint(lambda _: refused(500))) as dead,
        closing(Endpoint(_answered)) as up,
        closing(Providers(store, {}.get)) as providers,
    ):
        models = [{"name": "main", "base_url": dead.url}, _reserve(up)]
        run = run_with(ctx, _shared(providers), models=models, retry_delay_seconds=0.01)

    assert (run.state, run.proposals) == (RunState.FINISHED, 10)
    assert len(up.asked) == 20
    assert len(dead.asked) == 3


def test_while_all_models_are_down_proposals_wait_and_none_is_lost_or_blamed(
    ctx: Context, store: SqlStore
):
    well = [False]
    with (
        closing(Endpoint(lambda body: _answered(body) if well[0] else refused(503))) as shaky,
        closing(Providers(store, {}.get)) as providers,
    ):
        changes = {"models": [_reserve(shaky, 1.0), _reserve(shaky)], "retries": 0}
        later = replace(ctx, model=_shared(providers), problem=lambda _: problem())
        with pytest.raises(Unavailable, match="no model is up"):
            run_with(ctx, later.model, **changes)
        with store.begin() as tx:
            [run_id] = tx.runs.running()
            assert "no model is up" in tx.runs.get(run_id).reason
            assert [one for one in tx.history.settled(run_id) if one.ordinal >= 0] == []

        well[0] = True
        with store.begin() as tx:
            tx.leases.forget_attempts(run_id)
        steps.reap(later, run_id)
        assert isinstance(ctx.executor, InlineExecutor)
        ctx.executor.drain(table(later), lambda: False)

    with store.begin() as tx:
        assert (tx.runs.get(run_id).state, tx.runs.get(run_id).proposals) == (RunState.FINISHED, 10)
        assert not tx.history.failures(run_id)


def _reserve(endpoint: Endpoint, weight: float = 0.0) -> dict[str, Any]:
    return {"name": f"model of weight {weight:g}", "base_url": endpoint.url, "weight": weight}


def _shared(providers: Providers) -> Callable[[Run], LanguageModel]:
    built: list[LanguageModel] = []

    def models(run: Run) -> LanguageModel:
        if not built:
            built.append(providers.model(ModelSettings(**run.settings["llm"]), run.seed))
        return built[0]

    return models
