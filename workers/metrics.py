"""`/metrics` of a worker: how long its steps take and how they end, in Prometheus's format."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)

from app.ports.protocols import Unavailable

STEPS = ("produce", "generate", "evaluate", "judge", "reap", "sweep")
_OUTCOMES = ("done", "unavailable", "raised")
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 900.0)


class StepMetrics:
    """The steps of one process.

    Attributes:
      registry: What is served.
      deleted_runs, removed_rows: Counted by the step `sweep`.
    """

    def __init__(self) -> None:
        """Has seen no step yet."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._seconds = Histogram(
            "evoq_step_seconds",
            "Time of a message's steps; outcome: done, unavailable or raised.",
            ["step", "outcome"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        # Each series exists from the start, because a rate needs the value before the first one.
        for step in STEPS:
            for outcome in _OUTCOMES:
                self._seconds.labels(step, outcome)
        self._in_progress = Gauge(
            "evoq_steps_in_progress", "Messages being handled.", ["step"], registry=self.registry
        )
        self.deleted_runs = Counter(
            "evoq_deleted_runs",
            "Runs that this worker deleted by the limits of the ledger: age or size.",
            ["reason"],
            registry=self.registry,
        )
        for reason in ("age", "size"):
            self.deleted_runs.labels(reason)
        self.removed_rows = Counter(
            "evoq_removed_rows",
            "Rows of deleted runs, and logged prompts, that this worker removed, by table.",
            ["table"],
            registry=self.registry,
        )

    @contextmanager
    def of(self, step: str) -> Iterator[None]:
        """Measures a step for as long as the context is open; exceptions pass."""
        began, outcome = time.perf_counter(), "raised"
        with self._in_progress.labels(step).track_inprogress():
            try:
                yield
                outcome = "done"
            except Unavailable:
                outcome = "unavailable"
                raise
            finally:
                self._seconds.labels(step, outcome).observe(time.perf_counter() - began)


step_metrics = StepMetrics()


def serve(address: str) -> int:
    """Serves the metrics of this process from a thread; returns the port.

    Args:
      address: As `0.0.0.0:9464`; port 0 takes a free one.

    Raises:
      ValueError: It is no address, or cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(
            f"EVOQ_METRICS_ADDRESS: {address!r} is no address with a port; write 127.0.0.1:9464"
        )
    try:
        server, _ = start_http_server(int(port), host.strip("[]"), step_metrics.registry)
    except OSError as error:
        raise ValueError(
            f"EVOQ_METRICS_ADDRESS: cannot listen on {address} ({error.strerror}); each worker of "
            f"a machine needs a port of its own"
        ) from error
    return int(server.server_port)
