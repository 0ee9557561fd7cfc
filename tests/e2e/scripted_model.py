"""A chat endpoint whose one reply is a program of the tests' problem.

Standard library only: it runs alone.
"""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECONDS = 1.0
"""Before an answer, so that a run that a test ends leaves the processors to others."""
REPLY = """```python
def point():
    return [1.0, 1.0, 1.0, 1.0]
```"""


class Endpoint(BaseHTTPRequestHandler):
    """`GET /health` and `POST /v1/chat/completions`."""

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(SECONDS)
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": REPLY},
        }
        self._answer(
            200,
            {
                "id": "scripted",
                "object": "chat.completion",
                "created": 0,
                "model": asked["model"],
                "choices": [choice | {"index": n} for n in range(asked.get("n") or 1)],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            },
        )

    def _answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


ThreadingHTTPServer(("0.0.0.0", 8000), Endpoint).serve_forever()
