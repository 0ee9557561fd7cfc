"""A model's endpoint in this process, which records what it is asked."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROMPT_TOKENS, COMPLETION_TOKENS = 100, 20
"""Of each request, as the endpoint counts."""


@dataclass
class Endpoint:
    """What was asked, and what is answered.

    Attributes:
      asked: Path, body and header fields of each request.
      replies: Path to the type and the text of an answer; others have no choice, and the usage.
    """

    url: str
    asked: list[tuple[str, dict[str, Any], Mapping[str, str]]] = field(default_factory=list)
    replies: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, body, _ in self.asked]

    def answer(self, body: dict[str, Any]) -> Mapping[str, Any]:
        """Returns the answer to a request where none is set for its path."""
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
        return {"choices": [], "usage": usage}


@contextmanager
def serving(kind: type[Endpoint] = Endpoint) -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            default = ("application/json", json.dumps(endpoint.answer(body)).encode())
            endpoint.asked.append((self.path, body, dict(self.headers)))
            content_type, text = endpoint.replies.get(self.path, default)
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = kind(f"http://127.0.0.1:{server.server_port}/v1")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
