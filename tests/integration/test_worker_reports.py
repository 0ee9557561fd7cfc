"""What the workers of a run report: traces, to a collector by OTLP over HTTP, and their time."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.integration.cli import Evoq, kept_stack, problem_folder
from tests.integration.worker_double import until

PRICES = ("--set", "prices.cpu_usd_per_hour=3600", "--set", "prices.gpu_usd_per_hour=7200")


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


def test_the_workers_of_a_run_send_one_trace_of_each_proposal_and_charge_their_time_to_it(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = problem_folder(tmp_path / "sum")
    with listening() as collector:
        # Of this process, too, as of a shell: so the workers are forked.
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        result = evoq("run", folder, "--iterations", 12, "--name", "timed", "--json", *PRICES)
        until(collector.whole, what="a whole trace")
    with kept_stack(tmp_path / ".evoq", workers=False):
        costs = evoq("show", "timed", "--json").json["costs"]
        shown = evoq("show", "timed").out
        everything = evoq("costs", "--json").json

    assert result.code == 0, result.err
    first = collector.whole()[0]
    assert first["generate"] != first["evaluate"]
    assert (everything["runs"], everything["tokens"]) == (1, 0)
    assert everything["workers"]["busy"] == costs["workers"]
    assert {time["kind"] for time in everything["workers"]["idle"]} == {"cpu", "gpu"}
    workers = {time["kind"]: time for time in costs["workers"]}
    assert set(workers) == {"cpu", "gpu"}  # the embedded gpu worker plans and reaps too
    for kind, usd_per_second in (("cpu", 1.0), ("gpu", 2.0)):
        assert 0 < workers[kind]["seconds"] < 600
        assert workers[kind]["cost_usd"] == pytest.approx(workers[kind]["seconds"] * usd_per_second)
    assert costs["models_usd"] == 0.0
    assert costs["cost_usd"] == pytest.approx(costs["workers_usd"])
    assert "none: no model has answered" in shown
    assert "for each measured program" in shown
