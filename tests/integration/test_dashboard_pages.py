"""The pages in Debian's Chromium: live, finished, hostile and long runs."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
import pytest
import redis
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)
from sqlalchemy import make_url

from app.adapters.problems.loading import reload
from app.adapters.queue.inline import InlineExecutor
from app.adapters.queue.live_moves import LiveMoves
from app.adapters.sandbox.lazy import LazySandbox
from app.adapters.store.sql import SqlStore
from app.bootstrap.ledger import context
from app.config.settings import SandboxSettings
from app.domain.events import Improved
from app.domain.program import Program
from app.domain.run import Run
from app.engine import lifecycle
from app.reports.ledger_file import read_ledger, verified, write_ledger
from tests.engine.conftest import new_run
from tests.engine.test_small_gains import BEST_TEXT, START_TEXT, interpret
from tests.engine.test_small_gains import SEED as SMALL_SEED
from tests.engine.toy import problem
from tests.integration.dashboard_runs import (
    LONG,
    address_of,
    breed,
    compare,
    finished,
    hold_tournament,
    log,
    offer,
    play,
    settle,
    started,
)

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no chromium: `apt-get install chromium-headless-shell` brings what draws no window",
)

TOKEN = "browser-token"
HOSTILE = (
    "x = '</pre><script>window.harmed = 1</script><img src=x onerror=\"window.harmed = 2\">'\n"
    "{{ constructor.constructor('window.harmed = 3')() }} ${window.harmed = 4} `a` ```\n"
    "access = 'user\u202e \u2066// only admins\u2069 \u2066'\n"
    "a\x1b[31mred\x07\u200bhidden\u2028line &amp; &lt;b&gt;\n"
) + "y" * 1_000_000
"""Markup, templates, text that turns its direction, control characters, and a line of 1 MB."""


@dataclass
class Visit:
    """A page that is watched for what must not happen."""

    page: Page
    base: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def written(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def failed(self, error: Error) -> None:
        self.errors.append(str(error))

    def requested(self, request: Request) -> None:
        own = (self.base, self.base.replace("http", "ws", 1), "data:", "blob:")
        if not request.url.startswith(own):
            self.foreign.append(request.url)

    def open(self, path: str) -> Locator:
        """Opens a page and returns its content, once it is drawn."""
        self.page.goto(f"{self.base}{path}")
        self.page.wait_for_selector(".content:not([aria-busy=true])")
        return self.page.locator(".content")

    def first_paint_seconds(self) -> float:
        found = self.page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        return float(found) / 1000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=30_000)  # a crowded machine; every other wait ends as soon as it may
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """One window for all tests: Chromium takes longer to open one than to draw most pages.

    It keeps the scripts that it has compiled.
    """
    with closing(browser.new_context()) as session:
        yield session.new_page()


@pytest.fixture(scope="module")
def served(
    migrated_database: str, valkey: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a dashboard in a process of its own: NiceGUI differs under pytest."""
    folder = tmp_path_factory.mktemp("dashboard")
    environment = {
        **os.environ,
        "EVOQ_DATABASE_URL": migrated_database,
        "EVOQ_REDIS_URL": valkey,
        "EVOQ_DASHBOARD_TOKEN": TOKEN,
    }
    command = [sys.executable, "-c", "from app.cli import main; main()", "dashboard", "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = re.search(r"(http://127\.0\.0\.1:\d+)/", line)
            assert found, line
            yield found.group(1)
        finally:
            process.terminate()


@pytest.fixture
def visit(page: Page, served: str) -> Iterator[Visit]:
    with visiting(page, served) as visited:
        yield visited


@contextmanager
def visiting(page: Page, base: str, width: int = 1280) -> Iterator[Visit]:
    """Visits a dashboard as somebody new; at the end nothing wrong has happened in the window."""
    page.context.clear_cookies()
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="light")
    page.set_default_timeout(60_000)
    visited = Visit(page, base)
    watching = (
        ("console", visited.written),
        ("pageerror", visited.failed),
        ("request", visited.requested),
    )
    for event, watch in watching:
        page.on(event, watch)
    yield visited
    page.goto("about:blank")
    for event, watch in watching:
        page.remove_listener(event, watch)
    assert visited.foreign == []
    assert visited.errors == []


@pytest.fixture
def run(store: SqlStore, repository: Path) -> Run:
    """A run of a real problem that nobody works on."""
    return started(store, repository, "shown")


def test_a_live_run_is_redrawn_and_can_be_paused_by_who_has_the_token(
    visit: Visit, store: SqlStore, run: Run
):
    offer(store, run, "x = 1\n", -3.5, 0)
    main = visit.open(f"/?token={TOKEN}")
    expect(visit.page).to_have_url(f"{visit.base}/")
    main.get_by_role("link", name="shown").click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text("shown")
    expect(main).to_contain_text("-3.5")
    assert visit.first_paint_seconds() < 10

    newest = offer(store, run, "x = 2\n", -2.25, 1)
    expect(main.get_by_role("region", name="Improvements")).to_contain_text("-2.25")
    expect(main.get_by_role("region", name="Improvements")).to_contain_text(newest[:12])
    expect(main.get_by_role("region", name="Operators")).to_contain_text("2 (100%)")
    expect(main.get_by_role("region", name="Funnel")).to_contain_text("with an error")

    expect(main.get_by_role("button")).to_have_text(["Pause", "Cancel"])
    main.get_by_role("button", name="Pause").press("Enter")
    expect(main.locator(".state")).to_have_text("paused")
    expect(main).to_contain_text("paused on the dashboard")
    with store.begin() as tx:
        assert tx.runs.get(run.id).state.value == "paused"
    main.get_by_role("button", name="Resume").click()
    expect(visit.page.get_by_text("no worker would work on shown")).to_be_visible()


def test_a_page_says_so_while_the_ledger_does_not_answer_and_goes_on_when_it_does(
    visit: Visit, store: SqlStore, run: Run
):
    ledger = make_url(address_of(store))
    elsewhere = ledger.set(database="postgres").render_as_string(hide_password=False)
    name = f'"{ledger.database}"'
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    offer(store, run, "x = 1\n", -3.5, 0)
    main = visit.open(f"/run/{run.id}")
    notice = main.get_by_text("This page goes on as soon as it answers.")
    expect(main).to_contain_text("-3.5")
    expect(notice).to_be_hidden()

    store.close()  # the connections of this process are not the ones to cut
    with psycopg.connect(elsewhere, autocommit=True) as operator:
        operator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            operator.execute(cut, [ledger.database])
            expect(notice).to_be_visible()
        finally:
            operator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        expect(notice).to_be_hidden()
        offer(store, run, "x = 2\n", -2.25, 1)
        expect(main).to_contain_text("-2.25")

        store.close()
        operator.execute(cut, [ledger.database])
        offer(store, run, "x = 3\n", -1.125, 2)
        expect(main.get_by_role("region", name="Improvements")).to_contain_text("-1.125")


def test_what_a_page_is_about_is_painted_without_a_script(browser: Browser, served: str, run: Run):
    with (
        closing(browser.new_context(java_script_enabled=False)) as without,
        visiting(without.new_page(), served) as visited,
    ):
        visited.page.goto(f"{served}/run/{run.id}")
        expect(visited.page.get_by_role("heading", level=1)).to_have_text("shown")
        expect(visited.page.get_by_role("link", name="System")).to_be_visible()


def test_without_the_token_nothing_on_a_page_changes_a_run(visit: Visit, run: Run):
    main = visit.open(f"/run/{run.id}")

    expect(main).to_contain_text("Read only")
    expect(main.get_by_role("button")).to_have_count(0)


def test_hostile_text_of_a_program_is_shown_as_text(visit: Visit, store: SqlStore, run: Run):
    parent = offer(store, run, "x = 0\n", -9.0, 0)
    hostile = offer(store, run, HOSTILE.replace("\x00", ""), -8.0, 1)
    with psycopg.connect(
        store._engine.url.set(drivername="postgresql").render_as_string(False)
    ) as c:
        c.execute("UPDATE proposals SET parents = %s WHERE program = %s", ([parent], hostile))

    main = visit.open(f"/run/{run.id}/program/{hostile[:16]}")

    source = main.get_by_role("region", name="Source")
    expect(source).to_contain_text("</pre><script>window.harmed = 1</script><img src=x onerror")
    expect(source).to_contain_text("{{ constructor.constructor('window.harmed = 3')() }}")
    expect(source).to_contain_text(r"user\u202e \u2066// only admins\u2069")
    expect(source).to_contain_text(r"a\x1b[31mred\x07\u200bhidden\u2028line &amp; &lt;b&gt;")
    expect(source).to_contain_text("more characters")
    expect(main.get_by_role("region", name="Difference")).to_contain_text("+x = '</pre><script>")
    assert visit.page.evaluate("window.harmed") is None
    overflow = "document.documentElement.scrollWidth - window.innerWidth"
    assert visit.page.evaluate(overflow) <= 0


def test_a_program_of_several_files_is_shown_as_a_tree_with_a_difference_for_each(
    visit: Visit, store: SqlStore, run: Run
):
    first = {"src/main.py": "x = 0\n", "src/other.py": "y = 0\n", "params.json": "{}\n"}
    parent = Program.of_files(first)
    child = Program.of_files({**first, "src/main.py": "x = '<b>1</b>'\n"})
    with store.begin() as tx:
        tx.programs.put([parent, child])
    settle(store, run, 0, 0, parent.id)
    settle(store, run, 1, 1, child.id)
    with psycopg.connect(address_of(store)) as connection:
        connection.execute(
            "UPDATE proposals SET parents = %s WHERE program = %s", ([parent.id], child.id)
        )

    main = visit.open(f"/run/{run.id}/program/{child.id[:16]}")

    expect(main.get_by_role("region", name="Files")).to_contain_text("main.py  (changed)")
    expect(main.get_by_role("region", name="Files")).not_to_contain_text("other.py  (changed)")
    expect(main.get_by_role("region", name="Difference")).to_contain_text("+x = '<b>1</b>'")
    main.get_by_text("params.json", exact=True).last.click()
    expect(main.get_by_role("region", name="Source").first).to_be_visible()


def test_thousands_of_proposals_are_drawn_and_the_page_answers(
    visit: Visit, store: SqlStore, run: Run
):
    offer(store, run, "x = 3\n", -1.5, 0)
    settle(store, run, 1, LONG)
    log(store, run, 1, LONG)

    main = visit.open(f"/run/{run.id}")

    expect(main).to_contain_text(f"{LONG + 1:,}of {2 * LONG:,} (50%)")
    failures = main.get_by_role("region", name="Failures")
    expect(failures).to_contain_text("250")
    expect(failures).to_contain_text("ValueError: <b>bad</b>")
    expect(main.get_by_role("region", name="Operators")).to_contain_text(f"{LONG + 1:,}")
    expect(main.locator(".chart canvas").first).to_be_visible()
    log(store, run, LONG + 1, LONG + 40)
    expect(main.get_by_role("region", name="Operators")).to_contain_text(f"{LONG + 41:,}")


def test_the_arms_of_a_comparison_are_drawn_with_what_differs(
    visit: Visit, store: SqlStore, repository: Path
):
    compare(store, repository)

    main = visit.open("/compare")
    main.get_by_role("link", name="arms (small, wide)").click()

    expect(visit.page).to_have_url(f"{visit.base}/compare?of=arms")
    arms = main.get_by_role("region", name="Arms on")
    expect(arms).to_contain_text("-29")
    expect(arms).to_contain_text("1.00 [")
    expect(main.get_by_role("region", name="Settings that differ")).to_contain_text(
        "search.islands"
    )
    expect(main.get_by_role("region", name="Runs that are left out")).to_contain_text("running")
    expect(main.locator(".chart canvas").first).to_be_visible()


def test_the_tree_of_thousands_of_programs_shows_what_led_to_improvements(
    visit: Visit, store: SqlStore, run: Run
):
    from app.dashboard.pages.tree import MOST_DRAWN  # not above: every process collects this file

    best = breed(store, run, LONG)

    main = visit.open(f"/run/{run.id}/tree")

    tree = main.get_by_role("region", name="Tree")
    expect(tree.get_by_role("link", name=best[:12])).to_be_visible()
    expect(main).to_contain_text("programs of 5,000 that were measured")
    expect(main).to_contain_text("(51, marked by ★)")
    assert tree.locator("li").count() == MOST_DRAWN
    side = tree.locator("ol summary").first
    side.press("Enter")
    expect(tree.locator("ol details[open] li").first).to_be_visible()
    older = tree.locator("> details")
    older.locator("summary").first.press("Enter")
    expect(older.locator("li.best").first).to_be_visible()
    with store.begin() as tx:
        tx.events.emit(run.id, Improved(program=best, fitness=300.0, settled=LONG))
    expect(main).to_contain_text("1 new since this page was drawn")
    tree.get_by_role("link", name=best[:12]).click()
    expect(visit.page).to_have_url(re.compile(f"/program/{best[:12]}"))


def test_the_games_of_a_run_are_shown_live_and_replayed(
    page: Page, served: str, store: SqlStore, run: Run
):
    a, _, c = hold_tournament(store, run)
    with visiting(page, served, width=400) as visited:
        visited.page.emulate_media(color_scheme="dark")
        main = visited.open(f"/run/{run.id}")
        main.get_by_role("link", name="Games", exact=True).press("Enter")
        expect(visited.page.get_by_role("heading", level=1)).to_have_text(f"Games of {run.name}")

        boards = main.get_by_role("region", name="Boards").locator(".board")
        expect(boards.nth(0)).to_contain_text(f"{c[:8]} – {a[:8]}")
        expect(boards.nth(0)).to_contain_text("being played")
        expect(boards.nth(1)).to_contain_text("waiting")
        expect(boards.nth(2)).to_contain_text("1 – 0")
        expect(boards.nth(2)).to_contain_text("{{ 7*7 }}")
        expect(main.get_by_role("region", name="Crosstable")).to_contain_text("1.5/2")
        expect(main.get_by_role("region", name="Directions")).to_contain_text("<img src=x")
        expect(main.get_by_role("region", name="Directions")).to_contain_text(r"\u202e")
        expect(main.get_by_role("region", name="Ratings")).to_contain_text(a[:8])

        with psycopg.connect(address_of(store)) as connection:
            connection.execute(
                "UPDATE trials SET leased_until = 'infinity' WHERE run = %s", [run.id]
            )
        expect(boards.nth(1)).to_contain_text("being played")
        ended = main.get_by_role("region", name="Games that ended")
        ended.get_by_role("link", name="game").nth(1).click()
        visited.page.wait_for_url(re.compile(r"/games/\d+$"))
        picture = main.locator(".picture svg")
        expect(picture.locator("circle")).to_have_count(42)
        expect(main).to_contain_text(
            r"after move 3 of 3: <img src=x onerror='window.harmed = 5'>\u"
        )
        visited.page.set_viewport_size({"width": 1280, "height": 900})
        main.get_by_role("button", name="Back").press("Enter")
        expect(main).to_contain_text("after move 2 of 3: 4 by the second player")
        visited.page.keyboard.press("ArrowLeft")
        expect(main).to_contain_text("after move 1 of 3: 3 by the first player")
        expect(picture.locator("circle[fill='#d64545']")).to_have_count(1)
        assert visited.page.evaluate("window.harmed") is None


def test_a_recorded_game_is_played_at_a_pace_that_a_viewer_chooses(
    visit: Visit, store: SqlStore, run: Run
):
    columns = "1212121"
    hold_tournament(store, run)
    with store.begin() as tx:
        game = replace(play(1, "a" * 64, "b" * 64, 0), moves=tuple(columns))
        tx.events.emit(run.id, game)
    with store.begin() as tx:
        number = tx.events.read(run.id)[-1].seq
    main = visit.open(f"/run/{run.id}/games/{number}?ply=0")
    discs = main.locator(".picture svg circle[fill='#d64545'], .picture svg circle[fill='#f2c230']")
    position = main.get_by_role("slider", name="Position")
    expect(main).to_contain_text("before the first of 7 moves")

    # One move a second, at first, leaves time to see the button before the game is over.
    main.get_by_role("button", name="Play", exact=True).click()
    expect(main.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    main.get_by_role("combobox", name="Speed").click()
    visit.page.get_by_role("option", name="5 moves a second", exact=True).click()
    expect(main).to_contain_text("after move 7 of 7: 1 by the first player")
    expect(discs).to_have_count(7)
    expect(main.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect(position).to_have_attribute("aria-valuenow", "7")

    position.locator("[tabindex='0']").focus()
    visit.page.keyboard.press("PageDown")
    expect(discs).to_have_count(0)
    visit.page.keyboard.press("ArrowRight")
    expect(discs).to_have_count(1)
    main.get_by_role("button", name="Next").click()
    expect(discs).to_have_count(2)
    main.get_by_role("button", name="Play", exact=True).click()
    main.get_by_role("button", name="Back").click()
    expect(main.get_by_role("button", name="Play", exact=True)).to_be_visible()


def test_a_board_follows_a_game_that_is_played(
    visit: Visit,
    store: SqlStore,
    run: Run,
    broker: redis.Redis,
    valkey: str,
    monkeypatch: pytest.MonkeyPatch,
):
    # After a second without an answer of Redis no move would be shown for ten.
    monkeypatch.setattr("app.adapters.queue.live_moves._SECONDS", 60.0)
    a, _, c = hold_tournament(store, run)
    with psycopg.connect(address_of(store)) as connection:
        at_work = "SELECT id FROM trials WHERE run = %s AND leased_until IS NOT NULL"
        [[trial]] = connection.execute(at_work, [run.id]).fetchall()
    moves = LiveMoves(valkey)
    main = visit.open(f"/run/{run.id}/games")
    board = main.get_by_role("region", name="Boards").locator(".board").nth(0)
    expect(board).to_contain_text(f"{c[:8]} – {a[:8]}")
    expect(board.locator(".blank")).to_have_text("being played")

    moves.show(trial, ["4"])
    expect(board.locator("svg circle[fill='#d64545']")).to_have_count(1)
    expect(board).to_contain_text("being played, move 1: 4")
    moves.show(trial, ["4", "4", "3"])
    expect(board.locator("svg circle[fill='#d64545']")).to_have_count(2)
    expect(board.locator("svg circle[fill='#f2c230']")).to_have_count(1)
    expect(board.locator("svg rect[fill='none']")).to_have_count(1)  # the last move

    moves.show(trial, ["4", "4", "<img src=x onerror='window.harmed = 6'>\u202e"])
    expect(board).to_contain_text("move 3: <img src=x onerror='")
    moves.show(trial, ["\u202e<b>x"])
    expect(board).to_contain_text(r"move 1: \u202e<b>x")
    assert visit.page.evaluate("window.harmed") is None
    broker.set(f"evoq:moves:{trial}", "\xff nonsense")
    expect(board.locator(".blank")).to_have_text("being played")


def test_pages_without_games_say_what_to_do(visit: Visit, run: Run):
    main = visit.open(f"/run/{run.id}/games")
    expect(main).to_contain_text("No game has been played in this run.")
    main = visit.open(f"/run/{run.id}/games/12")
    expect(main).to_contain_text("shown has no game 12")
    main = visit.open(f"/run/{run.id}/games?generation=7")
    expect(main).to_contain_text("has no generation 7")
    main = visit.open(f"/run/{run.id}/play?token={TOKEN}")
    expect(main).to_contain_text("The dashboard of a deployment runs no programs.")
    main = visit.open(f"/run/{run.id}")
    expect(main.get_by_role("link", name="Games", exact=True)).to_be_hidden()


def test_every_page_of_an_imported_run_opens_fits_each_screen_and_loads_nothing_from_elsewhere(
    visit: Visit, store: SqlStore, run: Run, repository: Path, tmp_path: Path
):
    compare(store, repository)
    program = offer(store, run, "def f():\n    return " + " + ".join("1" * 200) + "\n", -1.25, 0)
    hold_tournament(store, run)
    with psycopg.connect(address_of(store)) as c:
        c.execute("UPDATE runs SET state = 'finished' WHERE id = %s", (run.id,))
    path = tmp_path / "run.ledger.gz"
    with path.open("wb") as file, store.begin() as tx:
        write_ledger(store, tx.runs.get(run.id), file)
    copy = read_ledger(store, verified(path, reload), "imported")
    base = f"/run/{copy.id}"
    pages = {
        "/": "imported",
        base: "-1.25",
        f"{base}/archive?island=0": program[:12],
        f"{base}/program/{program}": "def f",
        f"{base}/lineage/{program}": program[:12],
        f"{base}/tree": program[:12],
        f"{base}/games": "1 – 0",
        f"/compare?runs={copy.id}": "imported",
        "/compare?of=arms": "arms",
        "/system": "Installation",
        "/run/nobody": "nobody",
    }

    for shown, text in pages.items():
        open_fitting(visit, shown, text)
    main = visit.open(f"{base}/games")
    main.get_by_role("region", name="Boards").get_by_role("link", name="Replay").last.click()
    expect(main).to_contain_text("after move 3 of 3")
    open_fitting(visit, visit.page.url.removeprefix(visit.base), "after move 3 of 3")


def open_fitting(visit: Visit, path: str, text: str) -> None:
    """Opens a page on a narrow dark screen, and widens it: nothing is wider than the screen."""
    for width, scheme in ((400, "dark"), (1280, "light")):
        visit.page.set_viewport_size({"width": width, "height": 900})
        visit.page.emulate_media(color_scheme=scheme)
        if width == 400:
            expect(visit.open(path)).to_contain_text(text)
        assert visit.page.evaluate("innerWidth") == width
        wide = visit.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, path


def test_a_run_whose_problem_cannot_be_read_says_so_once(visit: Visit, store: SqlStore):
    toy = problem()  # its format is one that no version knows
    ctx = context(store, InlineExecutor(), LazySandbox(SandboxSettings()), keep_leases=False)
    run = lifecycle.start(ctx, toy, new_run(toy))
    program = offer(store, run, "x = 8\n", -1.75, 0)

    main = visit.open(f"/run/{run.id}")

    notice = main.get_by_text("This version cannot read the problem of this run")
    expect(notice).to_have_count(1)
    expect(notice).to_contain_text("unknown format of a problem (toy)")
    expect(main).to_contain_text("-1.75")
    offer(store, run, "x = 9\n", -1.5, 1)
    expect(main).to_contain_text("-1.5")
    expect(notice).to_have_count(1)
    expect(visit.open(f"/run/{run.id}/program/{program}")).to_contain_text("x = 8")


def test_every_page_tells_a_best_from_a_start_that_is_nearly_the_same(
    visit: Visit, store: SqlStore
):
    toy = replace(problem(), interpret=interpret)
    order = replace(new_run(toy, islands=1), strategy="funsearch_lite", name="small-gain")
    strategy = {"mutations": 4, "top_k": 2}
    settings = {**order.settings, "strategy": strategy}
    run = finished(store, toy, replace(order, settings=settings))
    base, name = f"/run/{run.id}", "small-gain"
    with store.begin() as tx:
        best = tx.history.best(run.id)
    assert best is not None
    pages = {
        "/": BEST_TEXT,
        base: BEST_TEXT,
        f"{base}/archive": START_TEXT,
        f"{base}/program/{best.program}": f"{BEST_TEXT}",
        f"{base}/program/{Program(SMALL_SEED).id}": START_TEXT,
        f"{base}/proposal/{best.ordinal}": BEST_TEXT,
        f"{base}/lineage/{best.program}": START_TEXT,
        f"{base}/tree": START_TEXT,
        f"/compare?runs={run.id}": BEST_TEXT,
    }

    for path, text in pages.items():
        main = visit.open(path)
        expect(main).to_contain_text(text)
        expect(main).to_contain_text(name if path == "/" or "compare" in path else BEST_TEXT[:10])
        assert not re.search(r"\b2\.635\b", main.inner_text()), path


def test_the_generations_of_a_run_are_drawn(visit: Visit, store: SqlStore, run: Run):
    toy = problem()
    order = replace(new_run(toy, islands=1), strategy="funsearch_lite", name="in-generations")
    settings = {**order.settings, "strategy": {"mutations": 4, "top_k": 2}}
    drawn = finished(store, toy, replace(order, settings=settings))

    main = visit.open(f"/run/{drawn.id}")
    chart = main.get_by_role("img", name="Scores and proposals of generations")
    expect(chart.locator("canvas")).to_be_visible()
    chart.hover()
    expect(chart).to_contain_text("mean of the 5 fittest")
    expect(chart).to_contain_text("with a fitness")
    expect(visit.open(f"/run/{run.id}").get_by_role("img").first).to_be_visible()
    expect(visit.page.get_by_text("Generations", exact=True)).to_have_count(0)


def test_the_system_shows_leases_disk_and_what_the_installation_lacks(visit: Visit, run: Run):
    main = visit.open("/system")

    flight = main.get_by_role("region", name="In flight")
    expect(flight.get_by_role("link", name=f"run {run.id}")).to_be_visible()
    expect(flight).to_contain_text("run out")
    expect(main).to_contain_text("iB of ")
    checks = main.get_by_role("region", name="Installation")
    expect(checks).to_contain_text("Python")
    expect(checks).to_contain_text("free for")


def test_a_cell_of_the_archive_opens_its_elite(visit: Visit, store: SqlStore, run: Run):
    program = offer(store, run, "x = 4\n", -1.0, 0)
    main = visit.open(f"/run/{run.id}/archive")
    chart = main.locator(".chart")
    expect(main.get_by_role("region", name="Fittest cells")).to_contain_text("3, 4")

    box = chart.bounding_box()
    assert box is not None
    left, right, top, bottom = 88, 16, 48, 56  # the margins of the heat map
    across = left + (box["width"] - left - right) * 3.5 / 10
    down = top + (box["height"] - top - bottom) * (1 - 4.5 / 10)
    chart.click(position={"x": across, "y": down})

    expect(visit.page).to_have_url(re.compile(f"/program/{program[:12]}"))
