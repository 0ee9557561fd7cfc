"""`evoq mock-llm`: a simulated model behind an OpenAI-compatible endpoint, until Ctrl-C."""

import asyncio
import errno
import ipaddress
import math
from dataclasses import dataclass
from pathlib import Path

from app.cli.interruption import Interruption
from app.cli.screen import Screen
from app.config.layers import UsageError
from mock_llm.chat_request import PREFIX
from mock_llm.draws import Amount, FaultRates, read_amount
from mock_llm.endpoint import NOTICE, Endpoint, Simulation
from mock_llm.engine import Speed
from mock_llm.replies import mutating, read_script, scripted
from mock_llm.server import listening, serve


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The command's options, as they were given."""

    host: str
    port: int
    models: tuple[str, ...]
    latency: str
    tokens_per_second: float | None
    batch_slowdown: float
    completion_tokens: str | None
    max_num_seqs: int
    max_num_queued_reqs: int | None
    rate_429: float
    retry_after: float | None
    rate_5xx: float
    rate_hang: float
    rate_garbage: float
    replies: Path | None
    seed: int


def mock_llm(wanted: Wanted, screen: Screen) -> None:
    """Serves until Ctrl-C.

    Raises:
      UsageError: An option means nothing, or the port is taken.
    """
    simulation = simulated(wanted)
    try:
        listener = listening(wanted.host, wanted.port)
    except OSError as error:
        raise _no_socket(wanted, error) from error
    port = listener.getsockname()[1]
    address = f"http://{asked_at(wanted.host)}:{port}/v1"
    screen.say(f"SIMULATED model at {address}: no real model answers here")
    for line in _described(wanted):
        screen.say(f"  {line}")
    screen.say(f"evoq run PROBLEM --set llm.model=mock --set llm.base_url={address}")
    screen.say("Ctrl-C ends it")
    screen.answer({"simulation": True, "notice": NOTICE, "base_url": address, "port": port})
    with Interruption() as stop:
        endpoint = asyncio.run(serve(simulation, listener, lambda: stop.asked))
    screen.say(_summary(endpoint))


def asked_at(host: str) -> str:
    """Returns the host part of an address at which this machine reaches a listener on `host`.

    Who listens on every address (0.0.0.0, ::) is reached at the loopback's.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return host if address.version == 4 else f"[{host}]"


def simulated(wanted: Wanted) -> Simulation:
    """Returns what the options describe.

    Raises:
      UsageError: One of them means nothing.
    """
    told = wanted.completion_tokens
    return Simulation(
        models=_models(wanted.models),
        latency=_amount("--latency", wanted.latency),
        speed=_speed(wanted),
        completion_tokens=None if told is None else _amount("--completion-tokens", told),
        faults=_faults(wanted),
        replies=mutating if wanted.replies is None else scripted(_script(wanted.replies)),
        seed=wanted.seed,
    )


def _amount(option: str, text: str) -> Amount:
    try:
        return read_amount(text)
    except ValueError as error:
        remedy = "For example 0.8, normal:0.8,0.2 or lognormal:0.8,0.5."
        raise UsageError(str(error), where=option, remedy=remedy) from error


def _models(names: tuple[str, ...]) -> frozenset[str]:
    models = frozenset(name.removeprefix(PREFIX) for name in names)
    if "" in models:
        remedy = "Give a name, or leave the option out to serve any."
        raise UsageError("a model has no name", where="--model", remedy=remedy)
    return models


def _speed(wanted: Wanted) -> Speed:
    for option, value in (
        ("--tokens-per-second", wanted.tokens_per_second),
        ("--batch-slowdown", wanted.batch_slowdown),
    ):
        if value is not None and not math.isfinite(value):
            raise UsageError(
                f"{value:g} is no number", where=option, remedy="For example 60, or 0.02."
            )
    return Speed(
        wanted.tokens_per_second,
        wanted.batch_slowdown,
        wanted.max_num_seqs,
        wanted.max_num_queued_reqs,
    )


def _faults(wanted: Wanted) -> FaultRates:
    asks = wanted.retry_after
    if asks is not None and not 0 <= asks < math.inf:
        remedy = "Give seconds, 0 or more."
        raise UsageError(f"{asks:g} is no time", where="--retry-after", remedy=remedy)
    if asks is not None and not wanted.rate_429:
        what, remedy = "no 429 is injected that could ask for it", "Add --rate-429 SHARE."
        raise UsageError(what, where="--retry-after", remedy=remedy)
    try:
        return FaultRates(
            wanted.rate_429,
            wanted.rate_5xx,
            wanted.rate_hang,
            wanted.rate_garbage,
            wanted.retry_after,
        )
    except ValueError as error:
        remedy = "Rates are shares of all requests: 0.1 is every tenth."
        raise UsageError(str(error), where="--rate-…", remedy=remedy) from error


def _script(path: Path) -> list[str]:
    try:
        return read_script(path)
    except (OSError, ValueError) as error:
        remedy = "One reply a line as a JSON string in a .jsonl file; any other file is one reply."
        raise UsageError(str(error), where="--replies", remedy=remedy) from error


def _no_socket(wanted: Wanted, error: OSError) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        what, remedy = "the port is taken", "Choose another one, or --port 0 for any that is free."
    else:
        what = error.strerror or str(error)
        remedy = "Give an address of this machine, and a port you may listen on."
    return UsageError(
        what, where="--host/--port", value=f"{wanted.host}:{wanted.port}", remedy=remedy
    )


def _described(wanted: Wanted) -> list[str]:
    speed = "" if wanted.tokens_per_second is None else f", then {wanted.tokens_per_second:g}/s"
    faults = str(_faults(wanted))
    return [
        f"latency {wanted.latency} s{speed}; {wanted.max_num_seqs} sequences at once",
        f"replies: {wanted.replies or 'edits of the program in the prompt'}",
        f"injected faults: {faults}",
    ]


def _summary(endpoint: Endpoint) -> str:
    measured = endpoint.metrics
    faults = sum(measured.injected.values())
    return (
        f"the simulation has ended: {measured.answered} answered, {faults} faults injected, "
        f"{measured.queue_full} refused, {measured.peak_running} sequences at once at most"
    )
