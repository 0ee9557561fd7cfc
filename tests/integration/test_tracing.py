"""Traces of a real run: its workers send them to a collector, by OTLP over HTTP."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.adapters.store.schema import upgrade
from app.embedded.stack import EmbeddedStack
from tests.integration.cli import Evoq, problem_folder
from tests.integration.worker_double import until


class Collector:
    """Keeps the name of each span it receives with the worker that sent it, by trace."""

    def __init__(self) -> None:
        self.traces: dict[bytes, dict[str, str]] = defaultdict(dict)
        self.address = ""

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            described = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    worker = described["service.instance.id"]
                    self.traces[span.trace_id][span.name] = worker

    def whole(self) -> list[dict[str, str]]:
        """Returns the traces of which every part has arrived."""
        parts = {"produce", "generate", "enter", "evaluate", "record", "proposal"}
        return [spans for spans in list(self.traces.values()) if parts <= set(spans)]


@contextmanager
def listening() -> Iterator[Collector]:
    collector = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    collector.address = f"http://127.0.0.1:{server.server_port}"
    yield collector
    server.shutdown()
    server.server_close()


def test_the_workers_of_a_run_send_one_trace_of_each_proposal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("EVOQ_DATABASE_URL", "EVOQ_REDIS_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("EVOQ_SANDBOX__BACKEND", "process")
    folder = problem_folder(tmp_path / "traced")
    with listening() as collector:
        # Of this process, too, as of a shell: so the workers are forked.
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        with EmbeddedStack(tmp_path / ".evoq", upgrade):
            result = Evoq(capsys)("run", folder, "--iterations", "6", "--name", "traced")
            assert result.code == 0, result.err
            until(collector.whole, what="a whole trace")

        first = collector.whole()[0]
        assert first["generate"] != first["evaluate"]
