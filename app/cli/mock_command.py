"""The command `evoq mock-llm` and its options; what it does is imported when it is asked for."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import Debug, Json
from app.cli.screen import Screen

Rate = Annotated[float, typer.Option(metavar="SHARE", help="Share of all requests, 0 to 1.")]


def mock_llm(
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")
    ] = 8400,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="Serve this name only; may be repeated."),
    ] = None,
    latency: Annotated[
        str,
        typer.Option(
            "--latency",
            metavar="SECONDS",
            help="To the first token, or to the end without a speed: 0.8, normal:0.8,0.2 (mean, "
            "deviation) or lognormal:0.8,0.5 (median, sigma).",
        ),
    ] = "0.8",
    tokens_per_second: Annotated[
        float | None,
        typer.Option("--tokens-per-second", min=0.001, help="Of one sequence alone."),
    ] = None,
    batch_slowdown: Annotated[
        float,
        typer.Option(
            "--batch-slowdown", min=0, help="How much longer each further sequence makes a step."
        ),
    ] = 0.02,
    completion_tokens: Annotated[
        str | None,
        typer.Option(
            "--completion-tokens", metavar="N", help="Simulated length, as --latency; the text's."
        ),
    ] = None,
    max_num_seqs: Annotated[
        int, typer.Option("--max-num-seqs", min=1, help="Sequences that run together.")
    ] = 256,
    max_num_queued_reqs: Annotated[
        int | None,
        typer.Option("--max-num-queued-reqs", min=0, help="In flight; 503 above. None: no limit."),
    ] = None,
    rate_429: Rate = 0.0,
    retry_after: Annotated[
        float | None,
        typer.Option("--retry-after", metavar="SECONDS", help="What a 429 asks for; else nothing."),
    ] = None,
    rate_5xx: Rate = 0.0,
    rate_hang: Rate = 0.0,
    rate_garbage: Rate = 0.0,
    replies: Annotated[
        str | None,
        typer.Option(
            "--replies", metavar="FILE", help="Scripted; else edits of the prompt's program."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of every draw.")] = 0,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `main`
) -> None:
    """Serves a SIMULATED language model, OpenAI-compatible, until Ctrl-C.

    For demos, tests and benchmarks without a key or a GPU. Its replies are real SEARCH/REPLACE
    edits or whole programs, drawn from the syntax tree of the program in the prompt: no model runs.
    """
    from app.cli.mock_llm import Wanted
    from app.cli.mock_llm import mock_llm as act

    wanted = Wanted(
        host=host,
        port=port,
        models=tuple(model or ()),
        latency=latency,
        tokens_per_second=tokens_per_second,
        batch_slowdown=batch_slowdown,
        completion_tokens=completion_tokens,
        max_num_seqs=max_num_seqs,
        max_num_queued_reqs=max_num_queued_reqs,
        rate_429=rate_429,
        retry_after=retry_after,
        rate_5xx=rate_5xx,
        rate_hang=rate_hang,
        rate_garbage=rate_garbage,
        replies=Path(replies) if replies else None,
        seed=seed,
    )
    act(wanted, Screen(json=as_json))
