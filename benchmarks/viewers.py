"""What viewers cost: a dashboard beside a run, with a page, a WebSocket client and a stalled one.

    python -m benchmarks.viewers                    # a page, a client that reads, one that does not
    python -m benchmarks.viewers --no-page --no-stalled
    python -m benchmarks.viewers --events 20000     # writes events in place of a search
    python -m benchmarks.viewers --events 6000 --per-second 300

Real: Postgres, Valkey, Celery workers and beat as processes, the dashboard in a process of its own,
Chromium.  Simulated: the model and the evaluator, which cost nothing.  With `--events` nothing
searches; a process writes that many settled proposals to the ledger.  Prints one JSON document.
"""

import argparse
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil
from playwright.sync_api import sync_playwright
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


def main() -> None:
    options = _arguments()
    if options.serve:
        _serve()
        return
    with running_stack(() if options.events else options.workers, {}) as stack, ExitStack() as on:
        base, process = on.enter_context(_dashboard(stack))
        limits = InFlightLimits(64, 64)
        settings = RunSettings(
            search=SearchSettings(seed=1), queue=QueueSettings(generating=64, evaluating=64)
        )
        run = begin(
            stack, name="viewed", settings=settings, proposals=options.proposals, limits=limits
        )
        healthy = Client(base, run.id)
        healthy.start()
        if options.stalled:
            on.enter_context(_stalled(base, run))
        if options.page:
            on.enter_context(_page(base, run))
        memory, cpu, began = process.memory_full_info().uss, _cpu(process), time.monotonic()
        if options.events:
            settled = _write(stack, run, options.events, options.per_second)
        else:
            settled = _finish(stack, run)
        seconds, spent = time.monotonic() - began, _cpu(process) - cpu
        with stack.store.begin() as tx:
            events = tx.runs.get(run.id).events
        while len(healthy.frames) < events and time.monotonic() - began < 600:
            time.sleep(0.01)
        behind = time.monotonic() - began - seconds
        replayed = list(_replayed(base, run))
        found = {
            "settings": vars(options),
            "load": os.getloadavg()[0],
            "seconds": round(seconds, 1),
            "per_second": round(settled / seconds, 1),
            "dashboard_share_of_a_core": round(spent / seconds, 4),
            "dashboard_cpu_ms_per_event": round(1000 * spent / events, 3),
            "dashboard_grew_mib": round((process.memory_full_info().uss - memory) / 2**20, 1),
            "events": events,
            "client_got": len(healthy.frames),
            "client_behind_seconds": round(behind, 2),
            "live_equals_replayed": healthy.frames == replayed,
        }
    print(json.dumps(found, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--proposals", type=int, default=4000)
    parser.add_argument("--events", type=int, help="events to write; no search")
    parser.add_argument("--per-second", type=float, default=math.inf, help="of these events")
    parser.add_argument("--page", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--stalled", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workers", nargs="+", default=["gpu", "cpu,control"])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


@contextmanager
def _dashboard(stack: Stack) -> Iterator[tuple[str, psutil.Process]]:
    """Yields the address and the process of a dashboard."""
    command = (sys.executable, "-m", "benchmarks.viewers", "--serve")
    with (
        (stack.folder / "dashboard.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        found = re.search(r"(http://127\.0\.0\.1:\d+)/", process.stdout.readline())
        if not found:
            raise SystemExit("the dashboard did not start")
        yield found.group(1), psutil.Process(process.pid)
        process.terminate()


def _serve() -> None:
    """Serves the dashboard of the stack, which knows the simulated problem."""
    simulated = problem()
    store = open_store(os.environ["EVOQ_DATABASE_URL"], connections=4)
    broker = os.environ["EVOQ_REDIS_URL"]
    ctx = context(store, celery_executor(broker), SimulatedSandbox(0), keep_leases=False)
    ctx = replace(ctx, problem=lambda digest: simulated)
    with serving(ctx, broker, Place(port=0)) as dashboard:
        print(dashboard.address, flush=True)
        dashboard.thread.join()


@contextmanager
def _stalled(base: str, run: Run) -> Iterator[None]:
    """Connects a client that reads nothing, with a small buffer."""
    place = urlsplit(base)
    raw = socket.create_connection((place.hostname, place.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    address = f"{base.replace('http', 'ws', 1)}/ws?run={run.id}"
    with connect(address, sock=raw, max_queue=1, close_timeout=1, ping_interval=None):
        yield


@contextmanager
def _page(base: str, run: Run) -> Iterator[None]:
    """Opens the page of the run in a browser."""
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{base}/run/{run.id}")
        page.wait_for_selector("main.content")
        yield
        browser.close()


def _finish(stack: Stack, run: Run) -> int:
    """Waits for the end of the run; returns its settled proposals."""
    while True:
        time.sleep(0.2)
        with stack.store.begin() as tx:
            current = tx.runs.get(run.id)
        if current.state is not RunState.RUNNING:
            return current.proposals


def _write(stack: Stack, run: Run, count: int, per_second: float) -> int:
    """Writes events of measured proposals, 50 in each transaction; returns how many."""
    began = time.monotonic()
    for first in range(0, count, 50):
        with stack.store.begin() as tx:
            for number in range(first, min(first + 50, count)):
                tx.events.emit(run.id, _refused(number))
        time.sleep(max(0.0, began + (first + 50) / per_second - time.monotonic()))
    return count


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
