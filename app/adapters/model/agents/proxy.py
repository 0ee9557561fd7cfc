"""The model's address for one agent: passes requests on, holds the key, and counts the tokens.

It speaks what the endpoint speaks: the interface of OpenAI, and that of Anthropic where the
endpoint has it.  The key, the model's name and the host are ours, whatever the agent sends.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

import httpx2

from app.adapters.model.agents.hosted import fetched, without_hosted
from app.domain.operator import Prompt
from app.domain.search.budget import most_tokens
from app.ports.protocols import Unavailable

_ANSWERED = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
"""Paths that are passed on, each with a request in JSON that names a model."""
_ASKED = ("/v1/models",)
_LONGEST_REPLY = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Fields of a request that bound its reply, which is no longer than the tokens that are left."""
_LEFT_OUT = {"n", "best_of", "background", "service_tier"}
"""Fields of a request that ask for several replies, one that is not counted, or a dearer one."""
_BOUND_BY = {"/v1/responses": "max_output_tokens"}
"""The field of these that an endpoint reads, by path; `max_tokens` for the others."""
TRY = "/evoq/try"
_MOST_BODY_BYTES = 16 << 20
_MOST_CONNECTIONS = 16
_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 600.0
_BYTES_A_TOKEN = 3
"""Of a reply that its endpoint does not count; text and code have about four."""
_FIELDS = ("accept", "anthropic-beta", "anthropic-version", "content-type", "openai-beta")
"""Header fields of a request that are passed on; the others are ours."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The endpoint that answers.

    Attributes:
      base_url: Its address, with `/v1` where it has that.
      model: The name by which it knows the model.
      longest_reply: Tokens of a reply where a request does not bound it; None leaves that to the
        endpoint.
      reasons: Whether the model takes `max_completion_tokens` in the place of `max_tokens`.
    """

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    longest_reply: int | None = None
    reasons: bool = False

    def url(self, path: str) -> str:
        """Returns where a request with a path such as `/v1/messages` goes."""
        return self.base_url.rstrip("/").removesuffix("/v1") + path

    def bound(self, path: str) -> str:
        """Returns the field that bounds the reply to a request at a path."""
        if self.reasons and path == "/v1/chat/completions":
            return "max_completion_tokens"
        return _BOUND_BY.get(path, "max_tokens")

    @property
    def credentials(self) -> dict[str, str]:
        """The header fields of the key, for either interface."""
        if not self.api_key:
            return {}
        return {"Authorization": f"Bearer {self.api_key}", "x-api-key": self.api_key}


@dataclass(slots=True)
class Account:
    """The tokens of one agent.

    Attributes:
      most: Tokens that it may use.
      of_run: Returns how many its run's budget has left, without its own; None for any number.
      prompt, completion: Tokens used.
      requests: How many were admitted.
      uncounted: How many of them their endpoint did not count.
    """

    most: int
    of_run: Callable[[], int | None] = lambda: None
    prompt: int = 0
    completion: int = 0
    requests: int = 0
    uncounted: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[int, "Admitted"] = field(default_factory=dict)
    _closed: bool = False

    @property
    def used(self) -> int:
        return self.prompt + self.completion

    def admit(self, prompt: int, reply: int | None) -> "Admitted | str":
        """Returns a request that still fits, which counts as a whole until it ends; else why not.

        Args:
          prompt: Most tokens of its prompt.
          reply: Most tokens of its reply; None where nothing bounds it.

        Raises:
          Unavailable: The ledger, which has the run's budget, does not answer.
        """
        of_run = self.of_run()
        most = self.most if of_run is None else min(self.most, of_run)
        with self._lock:
            room = most - self.used - sum(each.tokens for each in self._open.values()) - prompt
            if self._closed or room < 1:
                whose = "proposal" if most == self.most else "run"
                return f"the {whose}'s budget of {most} tokens is spent"
            self.requests += 1
            shorter = None if reply is None else max(1, min(reply, room))
            self._open[self.requests] = Admitted(self.requests, prompt, shorter)
            return self._open[self.requests]

    def settle(self, request: "Admitted", usage: "Usage") -> None:
        """Counts an admitted request as its endpoint did, or by its bytes where that says nothing.

        A request that the end of the agent has counted before is not counted again.
        """
        with self._lock:
            if self._open.pop(request.number, None) is None:
                return
            counted = usage.ended and None not in (usage.prompt, usage.completion)
            self.uncounted += not counted
            self.prompt += request.prompt if usage.prompt is None else usage.prompt
            # A reply that breaks off may be billed as a whole.
            read = usage.bytes_read // _BYTES_A_TOKEN
            least = 0 if counted else read if usage.ended else request.reply or read
            self.completion += max(usage.completion or 0, least)

    def close(self) -> None:
        """Counts the requests that go on as a whole, since they may be billed; admits no more."""
        with self._lock:
            self._closed = True
            for request in self._open.values():
                self.uncounted += 1
                self.prompt += request.prompt
                self.completion += request.reply or 0
            self._open.clear()


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that an agent may make.

    Attributes:
      number: Its number among those of the agent, from 1.
      prompt: Most tokens of its prompt.
      reply: Most tokens of its reply; None where nothing bounds it.
    """

    number: int
    prompt: int
    reply: int | None

    @property
    def tokens(self) -> int:
        return self.prompt + (self.reply or 0)


TryProgram = Callable[[Mapping[str, str]], Mapping[str, Any]]
"""Measures files by path; returns what the agent is shown."""


class AgentProxy:
    """Serves the requests of one agent.

    Args:
      upstream: The endpoint; None where the agent has no model.
      account: Counts its tokens.
      try_program: Measures a draft; None where it cannot be measured here.
      report: Gets a line for each request that is refused.
    """

    def __init__(
        self,
        upstream: Upstream | None,
        account: Account,
        try_program: TryProgram | None,
        report: Callable[[str], None],
    ) -> None:
        self.upstream, self.account = upstream, account
        self.try_program, self.report = try_program, report
        self._left_out: set[str] = set()
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        timeout = httpx2.Timeout(_SILENT_SECONDS, connect=_CONNECT_SECONDS)
        self.client = httpx2.Client(timeout=timeout)

    def serve(self, listener: socket.socket) -> None:
        """Serves until the listener is shut down."""
        with listener, self.client:
            while True:
                self._slots.acquire()
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def allowed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns a request without what the provider would host, which is reported once."""
        own = without_hosted(body)
        if left_out := [name for name in own.left_out if name not in self._left_out]:
            self._left_out.update(left_out)
            self.report(
                f"{', '.join(left_out)} is left out of requests: the agent's network is its model "
                f"alone, and the provider would search or run code for it"
            )
        return own.body

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            # The second: the agent has ended meanwhile, and the client was closed.
            with connection, suppress(OSError, RuntimeError):
                _Handler(connection, ("agent", 0), cast("Any", self))
        finally:
            self._slots.release()


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = _SILENT_SECONDS

    @property
    def _proxy(self) -> AgentProxy:
        return cast("AgentProxy", self.server)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the agent's output has what it says of its requests."""

    def do_GET(self) -> None:
        """Answers which models there are."""
        upstream = self._proxy.upstream
        if upstream is None or self._path() not in _ASKED:
            self._refuse(404, f"the agent's network has no {self.path[:200]}")
            return
        model = {"id": upstream.model, "object": "model", "owned_by": "evoqueue"}
        self._answer(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Passes a request on to the endpoint, or measures a draft."""
        path, body = self._path(), self._body()
        if body is None:
            return
        if path == TRY:
            self._try(body)
        elif self._proxy.upstream is None:
            self._refuse(404, "the agent has no model: agent.network is off")
        elif path not in _ANSWERED:
            self._refuse(404, f"the agent's network has no {self.path[:200]}")
        else:
            self._pass_on(self._proxy.upstream, path, body)

    def _path(self) -> str:
        path = self.path.partition("?")[0]
        return path if path.startswith(("/v1/", "/evoq/")) else f"/v1{path}"

    def _body(self) -> dict[str, Any] | None:
        try:
            size = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            size = -1
        if not 0 < size <= _MOST_BODY_BYTES:
            self._refuse(413, f"a request has 1 to {_MOST_BODY_BYTES} bytes, and says so")
            return None
        try:
            body = json.loads(self.rfile.read(size))
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self._refuse(400, "the request is no JSON object")
            return None
        return body

    def _try(self, body: dict[str, Any]) -> None:
        files = body.get("files")
        if self._proxy.try_program is None:
            self._refuse(404, "drafts cannot be measured here")
        elif not isinstance(files, dict) or not all(isinstance(t, str) for t in files.values()):
            self._refuse(400, "`files` is an object of texts by path")
        else:
            texts = {path: text.encode("utf-8", "replace").decode() for path, text in files.items()}
            self._answer(200, self._proxy.try_program(texts))

    def _pass_on(self, upstream: Upstream, path: str, body: dict[str, Any]) -> None:
        if address := fetched(body):
            self._refuse(403, f"the model may not fetch {address[:200]}: send the contents")
            return
        body = {**self._proxy.allowed(body), "model": upstream.model}
        for name in _LEFT_OUT & body.keys():
            del body[name]
        if body.get("stream") and path in ("/v1/chat/completions", "/v1/completions"):
            options = body.get("stream_options")
            given = options if isinstance(options, dict) else {}
            body["stream_options"] = {**given, "include_usage": True}
        account, text = self._proxy.account, json.dumps(body)
        asked = [body.pop(name) for name in _LONGEST_REPLY if name in body]
        bounds = [each for each in asked if type(each) is int]
        reply = min(bounds, default=upstream.longest_reply)
        try:
            request = account.admit(most_tokens(Prompt("", text)), reply)
        except Unavailable as error:
            self._refuse(503, f"the run's budget cannot be read: {error}")
            return
        if isinstance(request, str):
            self._refuse(403, request)
            return
        if request.reply is not None:
            body[upstream.bound(path)] = request.reply
        counted = Usage()
        try:
            self._exchange(upstream, path, json.dumps(body).encode(), counted)
        except httpx2.HTTPError as error:
            if isinstance(error, httpx2.ConnectError):
                counted.count_nothing()
            self._refuse(502, f"the model cannot be reached: {type(error).__name__}")
        finally:
            account.settle(request, counted)

    def _exchange(self, upstream: Upstream, path: str, text: bytes, counted: "Usage") -> None:
        kept = {name: self.headers[name] for name in _FIELDS if name in self.headers}
        fields = {**kept, **upstream.credentials, "Content-Type": "application/json"}
        client = self._proxy.client
        with client.stream("POST", upstream.url(path), content=text, headers=fields) as reply:
            self.send_response(reply.status_code)
            self.send_header("Content-Type", reply.headers.get("content-type", "application/json"))
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            for piece in counted.reading(reply.iter_bytes()):
                self.wfile.write(piece)
                self.wfile.flush()
        if reply.status_code != 200:
            counted.count_nothing()

    def _refuse(self, status: int, why: str) -> None:
        self._proxy.report(why)
        # OpenAI's and Anthropic's libraries both read the message, and repeat no 403 or 404.
        error = {"type": "invalid_request_error", "message": why}
        with suppress(OSError):
            self._answer(status, {"type": "error", "error": error})

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@dataclass(slots=True)
class Usage:
    """The tokens that an endpoint counted for one request.

    Attributes:
      prompt, completion: None without a count.
      bytes_read: Of the reply.
      ended: Whether the reply was read to its end.
    """

    prompt: int | None = None
    completion: int | None = None
    bytes_read: int = 0
    ended: bool = False

    def count_nothing(self) -> None:
        """Counts nothing where the endpoint did not: it bills no request that it refuses."""
        self.prompt, self.completion = self.prompt or 0, self.completion or 0
        self.ended = True

    def reading(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yields the bytes of a reply, and reads the counts in its JSON or its events."""
        rest = b""
        for piece in pieces:
            self.bytes_read += len(piece)
            yield piece
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    self._read(line[5:])
            if len(rest) > _MOST_BODY_BYTES:
                rest = b""
        self._read(rest.removeprefix(b"data:"))
        self.ended = True

    def _read(self, text: bytes) -> None:
        if b'"usage"' not in text:
            return
        with suppress(ValueError):
            document = json.loads(text)
            if isinstance(document, dict):
                for place in (document, document.get("message"), document.get("response")):
                    if isinstance(place, dict) and isinstance(place.get("usage"), dict):
                        self._count(place["usage"])

    def _count(self, usage: dict[str, Any]) -> None:
        """Takes the counts of OpenAI's two interfaces or Anthropic's; the last ones hold."""
        cached = sum(
            _number(usage.get(name)) or 0
            for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
        )
        prompt = _number(usage.get("prompt_tokens"), usage.get("input_tokens"))
        reply = _number(usage.get("completion_tokens"), usage.get("output_tokens"))
        if prompt is not None:
            self.prompt = prompt + cached
        if reply is not None:
            self.completion = reply


def _number(*values: Any) -> int | None:
    return next((value for value in values if type(value) is int and value >= 0), None)
