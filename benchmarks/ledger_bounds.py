"""What bounds a deployment at its ledger: the row of a run, and the sessions of Postgres.

    python -m benchmarks.ledger_bounds

Real: an embedded Postgres, the ledger.  Threads of this process write events of one run, each batch
in a transaction of its own, as steps do; then sessions do what a worker does while it is idle.
Prints one JSON document.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from statistics import fmean

import psutil
import psycopg

from app.adapters.store import schema
from app.adapters.store.leases import CHANNEL
from app.adapters.store.sql import SqlStore
from app.domain.events import Noticed
from app.embedded.postgres import EmbeddedPostgres
from benchmarks.ledger_growth import GrowingRun

EVENTS = 8
"""Events of one transaction: a message names as many steps."""
SESSIONS = 50
SAMPLED = 0.01
"""Seconds between two looks at who waits for a lock."""


def main() -> None:
    options = _arguments()
    with (
        tempfile.TemporaryDirectory(prefix="evoq-bounds-") as name,
        EmbeddedPostgres(Path(name)) as url,
    ):
        schema.upgrade(url)
        growing = GrowingRun(url, Path(name) / "data", 4000)
        growing.advance(300)
        commits = {n: _commits(url, growing.run, n, options.seconds) for n in (1, 4, 16)}
        document = {
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "transactions_of_one_run_a_second": {n: rate for n, (rate, _) in commits.items()},
            "events_of_one_run_a_second": {n: EVENTS * rate for n, (rate, _) in commits.items()},
            "lock_wait_ms_of_a_transaction": {n: wait for n, (_, wait) in commits.items()},
            "mib_of_a_session": _session_mib(growing),
            "withdrawal_ms": _notified(url),
        }
        growing.close()
        print(json.dumps(document, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    return parser.parse_args()


def _commits(url: str, run: int, threads: int, seconds: float) -> tuple[float, float]:
    """Writes events of one run with so many threads, a batch in each transaction.

    Returns:
      The transactions a second, and the milliseconds that one of them waited for a lock: the mean
      number of sessions that wait, over the transactions a second (Little's law).
    """
    store = SqlStore(url, connections=threads + 1)
    counts, stop = [0] * threads, threading.Event()

    def write(thread: int) -> None:
        while not stop.is_set():
            with store.begin() as tx:
                for _ in range(EVENTS):
                    tx.events.emit(run, Noticed(text="measured"))
            counts[thread] += 1

    workers = [threading.Thread(target=write, args=(n,)) for n in range(threads)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    waiting = []
    while time.monotonic() - began < seconds:
        time.sleep(SAMPLED)
        with store.begin() as tx:
            waiting.append(tx.history.lock_waits().sessions)
    stop.set()
    for worker in workers:
        worker.join()
    took = time.monotonic() - began
    store.close()
    rate = sum(counts) / took
    return round(rate, 1), round(1000 * fmean(waiting) / rate, 1)


def _session_mib(growing: GrowingRun) -> float:
    """Returns the private memory of the session that has run every statement of a search."""
    with psycopg.connect(growing.address, autocommit=True) as c:
        found = c.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'evoqueue'"
        ).fetchall()
    return round(max(psutil.Process(pid).memory_full_info().uss for (pid,) in found) / 2**20, 1)


def _notified(url: str) -> float:
    """Returns the milliseconds from a withdrawal to the last of the sessions that hear of it."""
    store = SqlStore(url, connections=2)
    arrived: list[float] = []
    ready = threading.Barrier(SESSIONS + 1)

    def listen() -> None:
        notices = store.listen(CHANNEL, 30.0)
        next(notices)
        ready.wait()
        next(notices)
        arrived.append(time.monotonic())

    threads = [threading.Thread(target=listen) for _ in range(SESSIONS)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.monotonic()
    with store.begin() as tx:
        tx.leases.withdraw()
    for thread in threads:
        thread.join()
    store.close()
    return round(1000 * (max(arrived) - began), 1)


if __name__ == "__main__":
    main()
