"""What viewers cost: a dashboard beside a run, with a page, a WebSocket client and a stalled one.

    python -m benchmarks.viewers                    # a page, a client that reads, one that does not
    python -m benchmarks.viewers --no-page --no-stalled
    python -m benchmarks.viewers --events 12000 --per-second 300  # written, in place of a search
    python -m benchmarks.viewers --pairs 5 --no-page --model-seconds 0.9

With a page, a key is pressed in it four times a second, and the time until its frame is painted is
measured.  `--pairs N` compares speed: N runs with these viewers and N without any, in turns.

Real: Postgres, Valkey, Celery workers and beat as processes, the dashboard in a process of its own,
Chromium.  Simulated: the model, which takes `--model-seconds` and has 64 slots, and the evaluator,
which costs nothing.  With `--events` nothing searches; a process writes that many settled proposals
to the ledger.  Prints one JSON document.
"""

import argparse
import itertools
import json
import math
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil
from playwright.sync_api import sync_playwright
from sqlalchemy import event
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from app.bootstrap import celery_executor, context, open_store
from app.config.settings import QueueSettings, RunSettings, SearchSettings
from app.dashboard.server import Place, serving
from app.domain.events import Refused
from app.domain.operator import Role
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import InFlightLimits
from benchmarks.simulated import SimulatedSandbox, problem
from benchmarks.stack import Stack, begin, running_stack

PATIENCE_SECONDS = 60.0
_KEY_SECONDS = 0.25
_MEASURE_KEYS = """() => {
  window.keys = []; window.slowest = 0;
  addEventListener('keydown', event => requestAnimationFrame(() => setTimeout(
    () => window.keys.push(performance.now() - event.timeStamp))), true);
  new PerformanceObserver(list => list.getEntries().forEach(
    entry => window.slowest = Math.max(window.slowest, entry.duration)
  )).observe({type: 'event', durationThreshold: 16});
}"""
"""Notes for each key the time until its frame is painted, and what the browser says of it: the
`duration` of its slowest `event` entry, from the input to the paint."""


class Client(threading.Thread):
    """Reads `/ws` of a run from its first event on.

    Attributes:
      frames: What came so far.
    """

    def __init__(self, base: str, run: int) -> None:
        super().__init__(daemon=True)
        self.frames: list[str | bytes] = []
        self._address = f"{base.replace('http', 'ws', 1)}/ws?run={run}"

    def run(self) -> None:
        """Reads until the dashboard ends."""
        with suppress(ConnectionClosed), connect(self._address) as socket_:
            for frame in socket_:
                self.frames.append(frame)


@dataclass(slots=True)
class Board:
    """A dashboard in a process of its own.

    Attributes:
      base: Its address.
    """

    base: str
    process: psutil.Process
    log: Path
    _backends: dict[int, float] = field(default_factory=dict)

    def cpu_seconds(self) -> float:
        """Returns the processor seconds of the process."""
        return _cpu(self.process)

    def ledger_cpu_seconds(self) -> float:
        """Returns the processor seconds of the Postgres processes that it has or had."""
        for pid in map(int, re.findall(r"backend (\d+)", self.log.read_text())):
            with suppress(psutil.NoSuchProcess):
                self._backends[pid] = _cpu(psutil.Process(pid))
        return sum(self._backends.values())

    def memory_mib(self) -> float:
        """Returns the memory that only this process has."""
        return float(self.process.memory_full_info().uss) / 2**20


class Keys(threading.Thread):
    """The page of a run in a browser, in which a key is pressed again and again.

    Attributes:
      milliseconds: From each key to the paint of its frame.
      slowest: The longest time from an input to its paint that the browser saw; 0 below 16 ms.
    """

    def __init__(self, base: str, run: int) -> None:
        super().__init__(daemon=True)
        self.milliseconds: list[float] = []
        self.slowest = 0.0
        self.opened = threading.Event()
        self._address = f"{base}/run/{run}"
        self._ended = threading.Event()

    def run(self) -> None:
        """Presses keys until `end`."""
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page()
            page.goto(self._address)
            page.wait_for_selector(".content:not([aria-busy=true])")
            page.wait_for_selector(".chart canvas")
            page.evaluate(_MEASURE_KEYS)
            self.opened.set()
            while not self._ended.is_set():
                page.keyboard.press("Tab")
                page.wait_for_timeout(1000 * _KEY_SECONDS)
            self.milliseconds = page.evaluate("window.keys")
            self.slowest = page.evaluate("window.slowest")
            browser.close()

    def end(self) -> dict[str, Any]:
        """Ends it and returns its figures, in milliseconds."""
        self._ended.set()
        self.join()
        ordered = sorted(self.milliseconds)
        return {
            "keys": len(ordered),
            "median": round(statistics.median(ordered), 1),
            "percentile_95": round(ordered[int(0.95 * len(ordered))], 1),
            "most": round(ordered[-1], 1),
            "most_as_the_browser_sees_it": self.slowest,
        }


def main() -> None:
    options = _arguments()
    if options.serve:
        _serve()
        return
    workers = () if options.events else options.workers
    environment = {"SIMULATED_MODEL_SECONDS": str(options.model_seconds)}
    with running_stack(workers, environment) as stack, _dashboard(stack) as board:
        if options.pairs:
            found = _paired(stack, board, options)
        else:
            found = _viewed(stack, board, options, _begin(stack, "viewed", options.proposals))
    load = [round(each, 1) for each in os.getloadavg()]
    print(json.dumps({"settings": vars(options), "load": load, **found}, indent=2))


def _begin(stack: Stack, name: str, proposals: int) -> Run:
    limits = InFlightLimits(64, 64)
    settings = RunSettings(
        search=SearchSettings(seed=1), queue=QueueSettings(generating=64, evaluating=64)
    )
    return begin(stack, name=name, settings=settings, proposals=proposals, limits=limits)


def _paired(stack: Stack, board: Board, options: argparse.Namespace) -> dict[str, Any]:
    """Compares runs with viewers and without, in turns, after one that is not counted."""
    _finish(stack, _begin(stack, "warming", 200))
    pairs = []
    for number in range(options.pairs):
        alone = _alone(stack, options, number) if number % 2 == 0 else None
        run = _begin(stack, f"viewed-{number}", options.proposals)
        found = _viewed(stack, board, options, run)
        alone = alone or _alone(stack, options, number)
        ratio = round(found["per_second"] / alone, 4)
        pairs.append({"ratio": ratio, "alone_per_second": round(alone, 2), **found})
    ratios = [pair["ratio"] for pair in pairs]
    return {"median_of_ratios": statistics.median(ratios), "ratios": ratios, "pairs": pairs}


def _alone(stack: Stack, options: argparse.Namespace, number: int) -> float:
    """Returns the settled proposals per second of a run that nobody views."""
    return _finish(stack, _begin(stack, f"alone-{number}", options.proposals))


def _viewed(stack: Stack, board: Board, options: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Follows a run to its end with the viewers; returns what they cost."""
    with ExitStack() as on:
        began = time.monotonic()
        memory = [board.memory_mib()]
        cpu, ledger_cpu = board.cpu_seconds(), board.ledger_cpu_seconds()
        healthy = Client(board.base, run.id)
        healthy.start()
        if options.stalled:
            on.enter_context(_stalled(board.base, run))
        keys = Keys(board.base, run.id) if options.page else None
        if keys:
            keys.start()
            keys.opened.wait(PATIENCE_SECONDS)
            memory = [board.memory_mib()]
            cpu, ledger_cpu, began = (
                board.cpu_seconds(),
                board.ledger_cpu_seconds(),
                time.monotonic(),
            )
        if options.events:
            speed = _write(stack, run, options.events, options.per_second, board, memory)
        else:
            speed = _finish(stack, run, board, memory)
        seconds, spent = time.monotonic() - began, board.cpu_seconds() - cpu
        ledger_spent = board.ledger_cpu_seconds() - ledger_cpu
        input_to_paint = keys.end() if keys else None
        with stack.store.begin() as tx:
            events = tx.runs.get(run.id).events
        while len(healthy.frames) < events and time.monotonic() - began < 600:
            time.sleep(0.01)
        behind = time.monotonic() - began - seconds
        memory.append(board.memory_mib())
        return {
            "seconds": round(seconds, 1),
            "per_second": round(speed, 2),
            "input_to_paint_ms": input_to_paint,
            "dashboard_share_of_a_core": round(spent / seconds, 4),
            "its_share_in_postgres": round(ledger_spent / seconds, 4),
            "dashboard_cpu_ms_per_event": round(1000 * spent / events, 3),
            "dashboard_mib": [round(each, 1) for each in _thinned(memory)],
            "events": events,
            "client_got": len(healthy.frames),
            "client_behind_seconds": round(behind, 2),
            "live_equals_replayed": healthy.frames == list(_replayed(board.base, run)),
        }


def _thinned(values: Sequence[float]) -> list[float]:
    """Returns at most about ten of the values, the first and the last among them."""
    return [*values[:-1][:: math.ceil(len(values) / 10)], values[-1]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--proposals", type=int, default=4000)
    parser.add_argument("--events", type=int, help="events to write; no search")
    parser.add_argument("--per-second", type=float, default=math.inf, help="of these events")
    parser.add_argument("--page", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--stalled", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--pairs", type=int, help="runs with viewers and without, in turns")
    parser.add_argument("--model-seconds", type=float, default=0.0, help="of one request")
    parser.add_argument("--workers", nargs="+", default=["gpu", "cpu,control"])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


@contextmanager
def _dashboard(stack: Stack) -> Iterator[Board]:
    """Yields a dashboard of the stack."""
    command = (sys.executable, "-m", "benchmarks.viewers", "--serve")
    path = stack.folder / "dashboard.log"
    with (
        path.open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        found = re.search(r"(http://127\.0\.0\.1:\d+)/", process.stdout.readline())
        if not found:
            raise SystemExit("the dashboard did not start")
        yield Board(found.group(1), psutil.Process(process.pid), path)
        process.terminate()


def _serve() -> None:
    """Serves the dashboard of the stack, which knows the simulated problem."""
    simulated = problem()
    store = open_store(os.environ["EVOQ_DATABASE_URL"], connections=4)
    event.listen(store._engine, "connect", _log_backend)
    broker = os.environ["EVOQ_REDIS_URL"]
    ctx = context(store, celery_executor(broker), SimulatedSandbox(0), keep_leases=False)
    ctx = replace(ctx, problem=lambda digest: simulated, limited=None)
    with serving(ctx, broker, Place(port=0)) as dashboard:
        print(dashboard.address, flush=True)
        dashboard.thread.join()


def _log_backend(connection: Any, record: Any) -> None:
    print("backend", connection.info.backend_pid, file=sys.stderr, flush=True)


@contextmanager
def _stalled(base: str, run: Run) -> Iterator[None]:
    """Connects a client that reads nothing, with a small buffer."""
    place = urlsplit(base)
    raw = socket.create_connection((place.hostname, place.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    address = f"{base.replace('http', 'ws', 1)}/ws?run={run.id}"
    with connect(address, sock=raw, max_queue=1, close_timeout=1, ping_interval=None):
        yield


def _finish(
    stack: Stack, run: Run, board: Board | None = None, memory: list[float] | None = None
) -> float:
    """Waits for the end of the run; returns its settled proposals per second.

    Appends the memory of the dashboard to `memory` once a second.
    """
    for turn in itertools.count(1):
        time.sleep(0.2)
        if turn % 5 == 0 and board is not None and memory is not None:
            memory.append(board.memory_mib())
        with stack.store.begin() as tx:
            current = tx.runs.get(run.id)
            if current.state is not RunState.RUNNING:
                [last] = tx.events.read(run.id, after=current.events - 1, limit=1)
                return current.proposals / last.seconds
    raise AssertionError


def _write(
    stack: Stack, run: Run, count: int, per_second: float, board: Board, memory: list[float]
) -> float:
    """Writes events of measured proposals, 50 in each transaction; returns how many per second.

    Appends the memory of the dashboard to `memory` after every thousand.
    """
    began = time.monotonic()
    for first in range(0, count, 50):
        with stack.store.begin() as tx:
            for number in range(first, min(first + 50, count)):
                tx.events.emit(run.id, _refused(number))
        if first % 1000 == 0:
            memory.append(board.memory_mib())
        time.sleep(max(0.0, began + (first + 50) / per_second - time.monotonic()))
    return count / (time.monotonic() - began)


def _refused(number: int) -> Refused:
    return Refused(
        proposal=number,
        program=f"{number:064x}",
        island=0,
        operator="diff",
        role=Role.GENERATOR,
        fitness=number % 97 / 97,
        cell=None,
    )


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _replayed(base: str, run: Run) -> Iterator[Any]:
    """Yields the frames of all events as `/api` gives them."""
    after = 0
    while True:
        address = f"{base}/api/runs/{run.id}/events?after={after}"
        with urlopen(address, timeout=PATIENCE_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
        if not lines:
            return
        yield from lines
        after += len(lines)


if __name__ == "__main__":
    main()
