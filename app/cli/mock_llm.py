"""`evoq mock-llm`: a simulated model behind an OpenAI-compatible endpoint, until Ctrl-C."""

import asyncio
import errno
import ipaddress
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.cli.interruption import Interruption
from app.cli.options import Debug, Json
from app.cli.output import Screen
from app.config.layers import UsageError
from mock_llm.chat_request import PREFIX
from mock_llm.draws import Amount, FaultRates, read_amount
from mock_llm.endpoint import Simulation
from mock_llm.engine import Speed
from mock_llm.event_stream import NOTICE
from mock_llm.replies import Replies, mutating, read_script, scripted
from mock_llm.server import listening, serve

Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 means any free one.")
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME", help="Serve this name only; may be repeated."),
]
Latency = Annotated[
    str,
    typer.Option(
        "--latency",
        metavar="SECONDS",
        help="Time to the first token, or to the end without --tokens-per-second: 0.8, "
        "normal:0.8,0.2 (mean, deviation) or lognormal:0.8,0.5 (median, sigma).",
    ),
]
TokensPerSecond = Annotated[
    float | None,
    typer.Option("--tokens-per-second", min=0.001, help="Speed of a sequence that runs alone."),
]
BatchSlowdown = Annotated[
    float,
    typer.Option(
        "--batch-slowdown", min=0, help="Share by which each further sequence slows a step."
    ),
]
CompletionTokens = Annotated[
    str | None,
    typer.Option(
        "--completion-tokens",
        metavar="N",
        help="Simulated length, written as --latency; the length of the text by default.",
    ),
]
MaxSequences = Annotated[
    int, typer.Option("--max-num-seqs", min=1, help="Number of sequences that run together.")
]
MaxQueued = Annotated[
    int | None,
    typer.Option(
        "--max-num-queued-reqs",
        min=0,
        help="Requests in flight above which 503 is returned; no limit by default.",
    ),
]
Rate = Annotated[float, typer.Option(metavar="SHARE", help="Share of all requests, 0 to 1.")]
RetryAfter = Annotated[
    float | None,
    typer.Option(
        "--retry-after", metavar="SECONDS", help="Retry-After of a 429; no header by default."
    ),
]
Script = Annotated[
    str | None,
    typer.Option(
        "--replies",
        metavar="FILE",
        help="Replies to return; edits of the prompt's program by default.",
    ),
]


def mock_llm(
    host: Host = "127.0.0.1",
    port: Port = 8400,
    model: Models = None,
    latency: Latency = "0.8",
    tokens_per_second: TokensPerSecond = None,
    batch_slowdown: BatchSlowdown = 0.02,
    completion_tokens: CompletionTokens = None,
    max_num_seqs: MaxSequences = 256,
    max_num_queued_reqs: MaxQueued = None,
    rate_429: Rate = 0.0,
    retry_after: RetryAfter = None,
    rate_5xx: Rate = 0.0,
    rate_hang: Rate = 0.0,
    rate_garbage: Rate = 0.0,
    replies: Script = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of all random draws.")] = 0,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Serves a SIMULATED language model, OpenAI-compatible, until Ctrl-C.

    For demos, tests and benchmarks without a key or a GPU. Its replies are real SEARCH/REPLACE
    edits or whole programs, drawn from the syntax tree of the program in the prompt: no model runs.

    Examples:
      evoq mock-llm --port 8400
      evoq run my_problem --set llm.model=mock --set llm.base_url=http://127.0.0.1:8400/v1
      evoq mock-llm --latency lognormal:0.8,0.5 --rate-429 0.1 --retry-after 1 --rate-hang 0.02
      evoq mock-llm --latency 0.05 --tokens-per-second 60 --completion-tokens normal:600,150
      evoq mock-llm --replies replies.jsonl --latency 0
    """
    screen = Screen(json=as_json)
    for option, value in (
        ("--tokens-per-second", tokens_per_second),
        ("--batch-slowdown", batch_slowdown),
    ):
        if value is not None and not math.isfinite(value):
            raise _usage_error(f"{value:g} is no number", option, "For example 60, or 0.02.")
    simulation = Simulation(
        models=_models(model or ()),
        latency=_amount("--latency", latency),
        speed=Speed(tokens_per_second, batch_slowdown, max_num_seqs, max_num_queued_reqs),
        completion_tokens=None
        if completion_tokens is None
        else _amount("--completion-tokens", completion_tokens),
        faults=_faults(rate_429, rate_5xx, rate_hang, rate_garbage, retry_after),
        replies=_replies(Path(replies) if replies else None),
        seed=seed,
    )
    speed = "" if tokens_per_second is None else f", then {tokens_per_second:g}/s"
    description = [
        f"latency {latency} s{speed}; {max_num_seqs} sequences at once",
        f"replies: {replies or 'edits of the program in the prompt'}",
        f"injected faults: {simulation.faults}",
    ]
    _serve(simulation, host, port, description, screen)


def _serve(
    simulation: Simulation, host: str, port: int, description: list[str], screen: Screen
) -> None:
    """Serves the simulation until Ctrl-C.

    Raises:
      UsageError: The port is taken, or the address is not one of this machine.
    """
    try:
        listener = listening(host, port)
    except OSError as error:
        raise _no_socket(host, port, error) from error
    free_port = listener.getsockname()[1]
    address = f"http://{reachable_host(host)}:{free_port}/v1"
    screen.say(f"SIMULATED model at {address}: no real model answers here")
    for line in description:
        screen.say(f"  {line}")
    screen.say(f"evoq run PROBLEM --set llm.model=mock --set llm.base_url={address}")
    screen.say("Ctrl-C ends it")
    screen.answer({"simulation": True, "notice": NOTICE, "base_url": address, "port": free_port})
    with Interruption() as interruption:
        endpoint = asyncio.run(serve(simulation, listener, lambda: interruption.requested))
    counts = endpoint.metrics
    screen.say(
        f"the simulation has ended: {counts.answered} answered, "
        f"{sum(counts.injected.values())} faults injected, {counts.queue_full} refused, "
        f"{counts.peak_running} sequences at once at most"
    )


def reachable_host(host: str) -> str:
    """Returns the host part of an address at which this machine reaches a listener on `host`.

    A listener on every address (0.0.0.0, ::) is reached on the loopback interface.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return host if address.version == 4 else f"[{host}]"


def _models(names: Sequence[str]) -> frozenset[str]:
    models = frozenset(name.removeprefix(PREFIX) for name in names)
    if "" in models:
        remedy = "Give a name, or leave the option out to serve any."
        raise _usage_error("a model has no name", "--model", remedy)
    return models


def _amount(option: str, text: str) -> Amount:
    try:
        return read_amount(text)
    except ValueError as error:
        remedy = "For example 0.8, normal:0.8,0.2 or lognormal:0.8,0.5."
        raise _usage_error(str(error), option, remedy) from error


def _faults(
    rate_429: float,
    rate_5xx: float,
    rate_hang: float,
    rate_garbage: float,
    retry_after: float | None,
) -> FaultRates:
    if retry_after is not None and not 0 <= retry_after < math.inf:
        what = f"{retry_after:g} is no time"
        raise _usage_error(what, "--retry-after", "Give seconds, 0 or more.")
    if retry_after is not None and not rate_429:
        what = "no 429 is injected that could carry it"
        raise _usage_error(what, "--retry-after", "Add --rate-429 SHARE.")
    try:
        return FaultRates(rate_429, rate_5xx, rate_hang, rate_garbage, retry_after)
    except ValueError as error:
        remedy = "Rates are shares of all requests: 0.1 is every tenth."
        raise _usage_error(str(error), "--rate-…", remedy) from error


def _replies(script: Path | None) -> Replies:
    if script is None:
        return mutating
    try:
        return scripted(read_script(script))
    except (OSError, ValueError) as error:
        remedy = "One reply a line as a JSON string in a .jsonl file; any other file is one reply."
        raise _usage_error(str(error), "--replies", remedy) from error


def _no_socket(host: str, port: int, error: OSError) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        what, remedy = "the port is taken", "Choose another one, or --port 0 for any that is free."
    else:
        what = error.strerror or str(error)
        remedy = "Give an address of this machine, and a port you may listen on."
    return _usage_error(what, "--host/--port", remedy, value=f"{host}:{port}")


def _usage_error(what: str, where: str, remedy: str, *, value: str = "") -> UsageError:
    return UsageError(what, where=where, value=value, remedy=remedy)
