"""How soon a browser paints each page of the dashboard, and how soon the page is complete.

    python -m benchmarks.first_paint                    # every kind of run, each page once
    python -m benchmarks.first_paint --turns 3 --kinds starting long

Each page is opened in a browser session of its own, whose cache is empty, in Debian's Chromium.

Real: Postgres, the dashboard in a process of its own, the browser.  `starting` is `evoq run
examples/connect_four --no-model --dashboard`, whose pages are opened from the moment in which the
command prints their address, while its workers boot; the first one is the printed address itself.
The other runs are written to a ledger, and nobody works on them.  Prints one JSON document and a
table in Markdown: seconds until the first paint in the median and at most, and until the page
shows what it read.  Of each page it says on standard error when the document and its styles had
come.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from playwright.sync_api import Browser, sync_playwright

from app.adapters.store import schema
from app.adapters.store.sql import SqlStore
from app.domain.run import Run
from app.embedded.postgres import EmbeddedPostgres
from tests.integration.dashboard_runs import (
    address_of,
    breed,
    compare,
    hold_tournament,
    log,
    offer,
    settle,
    started,
)

REPOSITORY = Path(__file__).parents[1]
FAILURES, LONG = 1_000, 20_000
"""Proposals of the runs that are called failing and long."""
TOKEN = "paint"
_COMMAND = (sys.executable, "-c", "from app.cli import main; main()")
_PAINT = """() => performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"""
_ANSWERED = """() => {
  const styles = performance.getEntriesByType('resource').filter(e => e.name.endsWith('.css'));
  return [performance.getEntriesByType('navigation')[0].responseEnd / 1000,
    Math.max(0, ...styles.map(e => e.responseEnd)) / 1000];
}"""
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/")


@dataclass(frozen=True, slots=True)
class Opened:
    """One page that was opened.

    Attributes:
      paint: Seconds from the request to the first paint.
      complete: Seconds until it shows what it read.
    """

    page: str
    paint: float
    complete: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=1, help="how often each page is opened")
    parser.add_argument("--kinds", nargs="+", default=["starting", *_KINDS])
    options = parser.parse_args()
    found: dict[str, list[Opened]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        _warm(browser)
        if "starting" in options.kinds:
            found["starting"] = _starting(browser, options.turns)
        written = [kind for kind in _KINDS if kind in options.kinds]
        if written:
            with _ledger() as store, _dashboard(store) as base:
                for kind in written:
                    paths = _KINDS[kind](store)
                    found[kind] = [
                        _opened(browser, base, name, path)
                        for _ in range(options.turns)
                        for name, path in paths.items()
                    ]
        browser.close()
    table = {kind: _figures(opened) for kind, opened in found.items()}
    load = [round(each, 1) for each in os.getloadavg()]
    print(json.dumps({"settings": vars(options), "load": load, "seconds": table}, indent=2))
    print(_markdown(table))


def _warm(browser: Browser) -> None:
    """Opens a page that asks nobody for anything, so that the browser's own start is not timed."""
    session = browser.new_context()
    session.new_page().goto("data:text/html,<p>warm")
    session.close()


def _opened(browser: Browser, base: str, name: str, path: str) -> Opened:
    session = browser.new_context(viewport={"width": 1280, "height": 900})
    page = session.new_page()
    began = time.monotonic()
    page.goto(f"{base}{path}", wait_until="commit")
    page.wait_for_selector(".content:not([aria-busy=true])", timeout=60_000)
    complete = time.monotonic() - began
    paint = float(page.evaluate(_PAINT))
    document, styles = page.evaluate(_ANSWERED)
    session.close()
    parts = f"document {document:.2f}, styles {styles:.2f}, paint {paint:.2f}, all {complete:.2f}"
    print(f"{path}: {parts} s", file=sys.stderr)
    return Opened(name, round(paint, 3), round(complete, 3))


def _figures(opened: Sequence[Opened]) -> dict[str, dict[str, float]]:
    pages: dict[str, list[Opened]] = {}
    for each in opened:
        pages.setdefault(each.page, []).append(each)
    return {
        page: {
            "paint": round(statistics.median(each.paint for each in found), 2),
            "most": round(max(each.paint for each in found), 2),
            "complete": round(statistics.median(each.complete for each in found), 2),
        }
        for page, found in pages.items()
    }


def _markdown(table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    pages = list(dict.fromkeys(page for found in table.values() for page in found))
    lines = [f"| Page | {' | '.join(table)} |", f"|{'---|' * (1 + len(table))}"]
    for page in pages:
        cells = [
            f"{found[page]['paint']:.2f} ({found[page]['most']:.2f}), {found[page]['complete']:.2f}"
            if page in found
            else ""
            for found in table.values()
        ]
        lines.append(f"| {page} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _starting(browser: Browser, turns: int) -> list[Opened]:
    """Opens the pages of runs that have just been started."""
    opened: list[Opened] = []
    example = str(REPOSITORY / "examples" / "connect_four")
    command = (*_COMMAND, "run", example, "--no-model", "--iterations", "400", "--dashboard")
    for _ in range(turns):
        with (
            tempfile.TemporaryDirectory(prefix="evoq-paint-") as folder,
            _served(command, Path(folder), {}) as base,
        ):
            opened.append(_opened(browser, base, "the printed address", f"/?token={TOKEN}"))
            paths = ("", "/archive", "/tree", "/games")
            for path in paths:
                name = path.removeprefix("/") or "run"
                opened.append(_opened(browser, base, name, f"/run/1{path}"))
            opened.append(_opened(browser, base, "compare", "/compare?runs=1"))
            opened.append(_opened(browser, base, "system", "/system"))
    return opened


@contextmanager
def _served(command: Sequence[str], folder: Path, more: Mapping[str, str]) -> Iterator[str]:
    """Yields the address that a command prints; ends it afterwards."""
    environment = {**os.environ, "EVOQ_DASHBOARD_TOKEN": TOKEN, **more}
    with (
        (folder / "log").open("wb") as errors,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        found = next(filter(None, map(_ADDRESS.search, process.stdout)), None)
        if found is None:
            raise SystemExit(f"no dashboard: {(folder / 'log').read_text()[-2000:]}")
        try:
            yield found.group(1)
        finally:
            process.terminate()
        for _ in process.stdout:
            pass


@contextmanager
def _ledger() -> Iterator[SqlStore]:
    with tempfile.TemporaryDirectory(prefix="evoq-paint-") as folder:
        postgres = EmbeddedPostgres(Path(folder) / "postgres")
        url = postgres.start()
        schema.upgrade(url)
        store = SqlStore(url)
        yield store
        store.close()
        postgres.stop()


@contextmanager
def _dashboard(store: SqlStore) -> Iterator[str]:
    queue = "redis://127.0.0.1:9/0"  # nothing listens there
    more = {"EVOQ_DATABASE_URL": address_of(store), "EVOQ_REDIS_URL": queue}
    with (
        tempfile.TemporaryDirectory(prefix="evoq-paint-") as folder,
        _served((*_COMMAND, "dashboard", "--port", "0"), Path(folder), more) as base,
    ):
        yield base


def _live(store: SqlStore) -> dict[str, str]:
    run = started(store, REPOSITORY, "live")
    first = offer(store, run, "x = 1\n", -3.5, 0)
    offer(store, run, "x = 2\n", -2.5, 1)
    hold_tournament(store, run)
    return _paths(store, run, first)


def _finished(store: SqlStore) -> dict[str, str]:
    run = started(store, REPOSITORY, "finished")
    programs = [offer(store, run, f"x = {n}\n", -100.0 + n, n) for n in range(200)]
    hold_tournament(store, run)
    _finish(store, run)
    return _paths(store, run, programs[-1])


def _failing(store: SqlStore) -> dict[str, str]:
    """Writes a run whose proposals failed, all but the first."""
    run = started(store, REPOSITORY, "failing")
    program = offer(store, run, "x = 1\n", -3.5, 0)
    settle(store, run, 1, FAILURES)
    log(store, run, 1, FAILURES)
    with psycopg.connect(address_of(store)) as c:
        c.execute(
            "UPDATE proposals SET state = 'failed', failure_kind = 'runtime', fitness = NULL,"
            " program = NULL WHERE run = %s AND ordinal > 0",
            (run.id,),
        )
        c.execute(
            "UPDATE events SET kind = 'failed',"
            " data = data - 'fitness' - 'cell' || '{\"failure\": \"runtime\"}'"
            " WHERE run = %s AND kind = 'refused'",
            (run.id,),
        )
    return {**_paths(store, run, program), "proposal": f"/run/{run.id}/proposal/17"}


def _long(store: SqlStore) -> dict[str, str]:
    run = started(store, REPOSITORY, "long")
    best = breed(store, run, LONG)
    log(store, run, LONG + 1, 2 * LONG)
    compare(store, REPOSITORY)
    paths = _paths(store, run, best)
    return {**paths, "comparison": "/compare?of=arms", "runs": "/", "system": "/system"}


_KINDS: Mapping[str, Callable[[SqlStore], dict[str, str]]] = {
    "live": _live,
    "finished": _finished,
    "failing": _failing,
    "long": _long,
}


def _finish(store: SqlStore, run: Run) -> None:
    with psycopg.connect(address_of(store)) as c:
        c.execute("UPDATE runs SET state = 'finished' WHERE id = %s", (run.id,))


def _paths(store: SqlStore, run: Run, program: str) -> dict[str, str]:
    """Returns the address of each page of a run by its name."""
    base = f"/run/{run.id}"
    paths = {
        "run": base,
        "archive": f"{base}/archive",
        "program": f"{base}/program/{program}",
        "lineage": f"{base}/lineage/{program}",
        "tree": f"{base}/tree",
        "games": f"{base}/games",
        "compare": f"/compare?runs={run.id}",
        "play": f"{base}/play",
    }
    if played := _last_game(store, run):
        paths["game"] = f"{base}/games/{played}"
    return paths


def _last_game(store: SqlStore, run: Run) -> int | None:
    with psycopg.connect(address_of(store)) as c:
        found = c.execute(
            "SELECT max(seq) FROM events WHERE run = %s AND kind = 'played'", (run.id,)
        ).fetchone()
    return found[0] if found else None


if __name__ == "__main__":
    main()
