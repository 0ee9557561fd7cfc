"""Refusals of prompts that are too long, in the words of the endpoints that are in use."""

import json
from typing import Any

import pytest

from app.adapters.model.providers import error_body
from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.overflow import Overflow, overflow

MAX_TOKENS = 512


def read(status: int, body: Any, max_tokens: int = MAX_TOKENS) -> Overflow | None:
    text = body if isinstance(body, str) else json.dumps(body)
    return overflow(status, error_body.read(text), max_tokens)


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("endpoint", "status", "body", "counted", "room"),
    [
        (
            "OpenAI",
            400,
            said(
                "This model's maximum context length is 8192 tokens. However, your messages "
                "resulted in 9000 tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
            ),
            9000,
            8192 - 512,
        ),
        (
            "OpenAI, with the completion",
            400,
            said(
                "This model's maximum context length is 4096 tokens. However, you requested 5000 "
                "tokens (904 in the messages, 4096 in the completion). Please reduce the length "
                "of the messages or completion."
            ),
            904,
            0,
        ),
        (
            "OpenAI, input",
            400,
            said(
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted "
                "in 300,012 tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
            ),
            300_012,
            272_000,
        ),
        (
            "vLLM 0.9",
            400,
            {
                "object": "error",
                "message": "This model's maximum context length is 4096 tokens. However, you "
                "requested 6512 tokens (6000 in the messages, 512 in the completion). Please "
                "reduce the length of the messages or completion.",
                "type": "BadRequestError",
                "code": 400,
            },
            6000,
            4096 - 512,
        ),
        (
            "vLLM, output",
            400,
            said(
                "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum "
                "context length is 4096 tokens and your request has 904 input tokens (4096 > 4096 "
                "- 904). None"
            ),
            904,
            0,
        ),
        (
            "vLLM, newest",
            400,
            said(
                "You passed 5000 input tokens and requested 512 output tokens. However, the "
                "model's context length is only 4096 tokens, resulting in a maximum input length "
                "of 3584 tokens. Please reduce the length of the input prompt."
            ),
            5000,
            3584,
        ),
        (
            "vLLM, decoder",
            400,
            said(
                "The decoder prompt (length 5000) is longer than the maximum model length of 4096. "
                "Make sure that `max_model_len` is no smaller than the number of text tokens."
            ),
            5000,
            4096 - 512,
        ),
        (
            "llama.cpp",
            400,
            said(
                "the request exceeds the available context size. try increasing the context size "
                "or enable context shift",
                type="exceed_context_size_error",
                n_prompt_tokens=700,
                n_ctx=640,
            ),
            700,
            640 - 160,
        ),
        (
            "llama.cpp, newer",
            400,
            said("request (5000 tokens) exceeds the available context size (4096 tokens), try ..."),
            5000,
            4096 - 512,
        ),
        (
            "Ollama",
            400,
            {"error": "the input length exceeds the context length"},
            None,
            None,
        ),
        (
            "Ollama, 500",
            500,
            {"error": "input length exceeds maximum context length"},
            None,
            None,
        ),
        (
            "TGI",
            422,
            {
                "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= "
                "4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
                "error_type": "validation",
            },
            4000,
            4096 - 512,
        ),
        (
            "TGI, inputs",
            422,
            {"error": "`inputs` must have less than 1024 tokens. Given: 2000"},
            2000,
            1024,
        ),
        (
            "Anthropic",
            400,
            said("prompt is too long: 210000 tokens > 200000 maximum"),
            210_000,
            200_000,
        ),
        (
            "Anthropic, with max_tokens",
            400,
            said(
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, "
                "decrease input length or `max_tokens` and try again"
            ),
            190_000,
            180_000,
        ),
        (
            "Gemini",
            400,
            said(
                "The input token count (1100000) exceeds the maximum number of tokens allowed "
                "(1048576).",
                status="INVALID_ARGUMENT",
            ),
            1_100_000,
            1_048_576,
        ),
        (
            "Mistral",
            400,
            {
                "object": "error",
                "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model "
                "with 32768 maximum context length",
            },
            40_000,
            32_768 - 512,
        ),
        (
            "OpenRouter",
            400,
            said(
                "This endpoint's maximum context length is 32768 tokens. However, you requested "
                "about 40512 tokens (40000 of text input, 512 in the output). Please reduce the "
                "length of either one, or use the middle-out transform."
            ),
            40_000,
            32_768 - 512,
        ),
        (
            "SGLang",
            400,
            said(
                "The input (5000 tokens) is longer than the model's context length (4096 tokens)."
            ),
            5000,
            4096 - 512,
        ),
        (
            "SGLang, total",
            400,
            said(
                "Requested token count exceeds the model's maximum context length of 4096 tokens. "
                "You requested a total of 6512 tokens: 6000 tokens from the input messages and 512 "
                "tokens for the completion."
            ),
            6000,
            4096 - 512,
        ),
        (
            "LM Studio",
            400,
            {
                "error": "Trying to keep the first 5000 tokens when context the overflows. "
                "However, the model is loaded with context length of only 4096 tokens"
            },
            None,
            4096 - 512,
        ),
        (
            "xAI",
            400,
            {
                "error": "This model's maximum prompt length is 131072 but the request contains "
                "537812 tokens."
            },
            537_812,
            131_072,
        ),
        (
            "Fireworks",
            400,
            said("The prompt is too long: 200000, model maximum context length: 131072"),
            200_000,
            131_072 - 512,
        ),
        (
            "Moonshot",
            400,
            said(
                "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)"
            ),
            9000 - 512,
            8192 - 512,
        ),
        (
            "Qwen",
            400,
            said("InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]"),
            None,
            30_720,
        ),
        (
            "Groq, by the minute",
            413,
            said(
                "Request too large for model `m` in organization `o` on tokens per minute (TPM): "
                "Limit 6000, Requested 8000, please reduce your message size and try again.",
                type="tokens",
                code="rate_limit_exceeded",
            ),
            8000 - 512,
            6000 - 512,
        ),
        (
            "OpenAI, by the minute",
            429,
            said(
                "Request too large for m in organization o on tokens per min (TPM): Limit 10000, "
                "Requested 12000. The input or output tokens must be reduced."
            ),
            12_000 - 512,
            10_000 - 512,
        ),
        (
            "GitHub",
            413,
            said("Request body too large for m model. Max size: 8000 tokens."),
            None,
            8000,
        ),
        ("Bedrock", 400, {"message": "Input is too long for requested model."}, None, None),
        ("Zhipu", 400, said("Prompt exceeds max length"), None, None),
        ("a proxy", 413, "<html><title>413 Request Entity Too Large</title></html>", None, None),
        (
            "tabbyAPI",
            400,
            said("Prompt length 5000 is greater than max_seq_len 4096"),
            5000,
            4096 - 512,
        ),
        (
            "LiteLLM",
            400,
            said(
                "litellm.ContextWindowExceededError: litellm.BadRequestError: prompt has 677 "
                "tokens, and the context size is 640 tokens"
            ),
            677,
            640 - 160,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_a_prompt_that_is_too_long_is_recognised_with_its_numbers(
    endpoint: str, status: int, body: Any, counted: int | None, room: int | None
) -> None:
    found = read(status, body)

    assert found is not None, endpoint
    assert (found.counted, found.room) == (counted, room), endpoint


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            400,
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        ),
        (
            400,
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` "
            "is less than the `context_window` for this model",
        ),
        (400, "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens"),
        (400, "Unsupported parameter: 'max_tokens' is not supported with this model."),
        (404, "The model `m` does not exist"),
        (401, "Incorrect API key provided: too long"),
        (429, "Rate limit reached for m on tokens per min (TPM): Limit 6000, Used 5000"),
        (500, "CUDA out of memory"),
        (503, "The queue is too long, try again later"),
    ],
)
def test_another_refusal_is_none(status: int, message: str) -> None:
    assert overflow(status, ErrorBody(message), MAX_TOKENS) is None
