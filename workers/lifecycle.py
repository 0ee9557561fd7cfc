"""The life of a worker process: its context, and the work at its start and at its end."""

import contextlib
import functools
import gc
import importlib
import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import Any

from celery import concurrency, signals

from app.adapters.sandbox.choose import clear_orphans
from app.adapters.store.workers import WorkerTimeRecorder
from app.bootstrap.process import WorkerProcess
from app.bootstrap.worker import with_worker_time, worker_context, worker_engine
from app.celery import app
from app.config.settings import Settings
from app.domain.search.fleets import kind_of
from app.engine.context import Context
from app.ports.protocols import Unavailable
from workers.intake import intake
from workers.metrics import serve
from workers.tracing import tracing

_PREFORK = concurrency.get_implementation("prefork")
_building = threading.Lock()

log = logging.getLogger(__name__)


_COLLECTED_AFTER = 20_000, 20, 50
"""Thresholds of the garbage collector: steps make few cycles, and each collection stops all of a
worker's threads."""
_SWITCH_SECONDS = 0.02
"""How long one thread computes while others wait for the interpreter's lock; Python's own is 5 ms.
`notebooks/laboratory.md`, "Longer turns of threads", has the gain with a model over HTTP; a worker
with the engine inside was not measured, and keeps Python's."""

_DRAIN_SECONDS = {"gpu": 50.0, "others": 20.0}
"""Less than the deployment waits before it kills a worker, 60 s and 30 s."""


@functools.cache
def _build() -> tuple[Context, WorkerTimeRecorder]:
    ctx = worker_context()
    ctx = replace(ctx, tracing=tracing(os.environ, ctx.store, _print))
    built = with_worker_time(ctx, app.amqp.queues.consume_from, intake.report)
    gc.collect()
    # Modules that a worker has imported by now stay until it ends.
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)
    return built


def context() -> Context:
    """Returns the context of this process, built at first use and by one thread only.

    Raises:
      Unavailable: The environment lacks something that a context needs, or a port does not answer.
    """
    with _building:
        return _build()[0]


def _context_or_exit() -> Context:
    """Returns the context, or ends the worker with one line instead of a traceback.

    The supervisor of the worker starts it again.
    """
    try:
        return context()
    except Unavailable as error:
        raise SystemExit(f"this worker cannot work: {error}") from error


@signals.worker_init.connect
def prepare(sender: Any, **_: Any) -> None:
    """Builds the worker's context: wrong settings and an unusable ledger end it at its start.

    A worker that generates loads the model that `EVOQ_VLLM_MODEL` names.  One that evaluates
    removes what killed workers left: opening the sandbox does so too, but not before the first
    trial.
    """
    _context_or_exit()
    if not os.environ.get("EVOQ_VLLM_MODEL"):
        sys.setswitchinterval(_SWITCH_SECONDS)
    _lower_priority(Settings().nice)
    _serve_metrics()
    kinds = {kind_of(queue) for queue in sender.app.amqp.queues.consume_from}
    if "gpu" in kinds:
        _load_model(sender)
    if "cpu" in kinds:
        _clear_orphans()


def _lower_priority(nice: int | None) -> None:
    """Lets other programs of the machine go first, those of other sessions too.

    Linux schedules each session as one group of processes (`sched_autogroup`), within which alone
    their `nice` values count; a trial, which begins a session of its own, takes that of this one.
    """
    if nice is None:
        return
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))
    # Some kernels have no `autogroup` file.
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:
        group.write(str(nice))


def _serve_metrics() -> None:
    address = Settings().metrics_address
    if address is not None:
        try:
            serve(address)
        except ValueError as error:
            raise SystemExit(f"this worker cannot work: {error}") from error


def _load_model(sender: Any) -> None:
    engine = worker_engine()
    if engine is not None:
        if concurrency.get_implementation(sender.pool_cls) is _PREFORK:
            raise SystemExit(
                "this worker cannot work: EVOQ_VLLM_MODEL needs the pool `threads`, as it is "
                "without --pool; forked processes have no engine"
            )
        try:
            engine.start(_print)
        except Unavailable as error:
            raise SystemExit(f"this worker cannot work: {error}") from error


def _clear_orphans() -> None:
    try:
        removed = clear_orphans(Settings().sandbox)
    except Unavailable as error:
        log.warning("sandbox: the containers of killed workers were not removed: %s", error)
        return
    if removed:
        log.warning("sandbox: removed %d containers that killed workers left", removed)


@signals.worker_ready.connect
def open_intake(sender: Any, **_: Any) -> None:
    """Lets the worker stop consuming what it cannot serve."""
    intake.opened(sender)


@signals.worker_ready.connect
def import_models(sender: Any, **_: Any) -> None:
    """Imports the client of models, half a second, while the first programs are measured elsewhere.

    Only a worker that generates asks a model.  A step that needs the client before that waits for
    the rest of the import.
    """
    if "gpu" in map(kind_of, sender.app.amqp.queues.consume_from):
        threading.Thread(
            target=importlib.import_module,
            args=("app.adapters.model.choose",),
            name="import models",
            daemon=True,
        ).start()


@signals.worker_ready.connect
def wake_on_signals(sender: Any, **_: Any) -> None:
    """Has a signal end the wait of the worker's loop for events.

    Python repeats an interrupted wait, so a worker that is asked to end would go on waiting for
    Redis first, for seconds.
    """
    # Some pools have no event loop.
    if sender.hub is None:
        return
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    sender.hub.add_reader(reader, _drain, reader)


def _drain(reader: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(reader, 4096)


@signals.worker_shutting_down.connect
def give_back_leases(**_: Any) -> None:
    """Lets the steps go on for a while once the worker was asked to end, then stops them.

    What they have not done another worker can begin at once, and not after the leases expire.
    """
    seconds = Settings().drain_seconds
    if seconds is None:
        gpu = any(queue.startswith("gpu") for queue in app.amqp.queues.consume_from)
        seconds = _DRAIN_SECONDS["gpu" if gpu else "others"]
    timer = threading.Timer(seconds, _stop_steps)
    timer.daemon = True
    timer.start()


def _stop_steps() -> None:
    with _building:
        if _build.cache_info().currsize:
            process = _build()[0].process
            assert isinstance(process, WorkerProcess)
            process.drain()


@signals.worker_shutdown.connect
def close_engine(**_: Any) -> None:
    """Ends the engine, after the last step."""
    engine = worker_engine()
    if engine is not None:
        engine.close()


@signals.worker_shutdown.connect
def close_sandbox(**_: Any) -> None:
    """Ends this worker's warm sandboxes, after the last step."""
    context().sandbox.close()


@signals.worker_shutdown.connect
def write_worker_time(**_: Any) -> None:
    """Writes the worker time since the last interval, if this process ever had a context."""
    with _building:
        if _build.cache_info().currsize:
            _build()[1].close()


@signals.worker_shutdown.connect
def send_spans(**_: Any) -> None:
    """Sends the spans that are left, if this process ever had a context; the last of its work."""
    with _building:
        if _build.cache_info().currsize:
            _build()[0].tracing.close()


def _print(line: str) -> None:
    """Prints, because the log of a worker that starts has no handler yet."""
    print(line, file=sys.stderr, flush=True)
