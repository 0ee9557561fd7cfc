"""`evoq run` on the embedded stack, and everything that looks at a run afterwards."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest

from app.adapters.store.sql import SqlStore
from app.domain.run import RunState
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.stack import attach
from app.reports.folder import draw
from evoqueue import evolve
from tests.integration import dashboard_runs
from tests.integration.cli import CONFIG, EVALUATOR, STAGED, Evoq, problem_folder
from tests.integration.conftest import SHAPING, not_drawn
from tests.integration.forked import Command
from tests.integration.worker_double import until

FILES = {
    *("best_program.py", "best.json", "metrics.jsonl", "metrics.csv"),
    *("evolution.png", "failures.png", "archive.png", "settings.json"),
}
SLOW_EVALUATOR = EVALUATOR.replace("    spec =", "    time.sleep(1.5)\n    spec =", 1)
SECONDS = 240
ENDLESS = 100_000
"""Proposals of a run that is interrupted, however late."""


@dataclass(frozen=True)
class KeptStack:
    """A stack that `evoq up` keeps running.

    Attributes:
      dashboard: The address with the token.
    """

    folder: Path
    process: "subprocess.Popen[str]"
    dashboard: str


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[KeptStack]:
    """The stack that every command of this module joins; its process is not forked from pytest,
    under which NiceGUI differs."""
    folder = tmp_path_factory.mktemp("cli")
    environment = {name: text for name, text in os.environ.items() if name not in SHAPING}
    environment |= {"PYTHONPATH": str(repository), "EVOQ_SANDBOX__BACKEND": "process"}
    environment["EVOQ_EVALUATE_CONCURRENCY"] = "2"  # each problem boots so many sandboxes
    with subprocess.Popen(
        [sys.executable, "-c", "from app.cli import main; main()", "up", "--json"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        document = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        yield KeptStack(folder, process, document["dashboard"])
        process.terminate()


@pytest.fixture(scope="module")
def place(kept: KeptStack) -> Path:
    """The folder of the stack that is kept up."""
    return kept.folder


@pytest.fixture
def deployment(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same servers and workers, named by their addresses."""
    found = attach(place / ".evoq")
    assert found is not None
    monkeypatch.setenv("EVOQ_DATABASE_URL", found.database_url)
    monkeypatch.setenv("EVOQ_REDIS_URL", found.redis_url)


def test_a_run_installs_requirements_whatever_image_the_environment_names(
    evoq: Evoq, place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVOQ_SANDBOX__IMAGE", "evoqueue-sandbox:1")
    folder = problem_folder(place / "requiring")
    (folder / "requirements.txt").write_text("./missing\n")

    result = evoq("run", folder, "--iterations", "2", "--name", "requiring")

    assert result.code != 0
    assert "requirements.txt, line 1: './missing' is not in the problem's folder" in result.err


VALIDATION = """

def evaluate_validation(program_path):
    measured = evaluate(program_path)
    return {"combined_score": -abs(measured["value"] - 9.0), "unseen": measured["value"]}
"""


def test_a_run_exports_the_best_by_validation_and_shows_both_scores(evoq: Evoq, place: Path):
    folder = problem_folder(place / "validated", evaluator=EVALUATOR + VALIDATION)
    (folder / "references").mkdir()
    (folder / "references" / "published.py").write_text("def value():\n    return 9.0\n")

    result = evoq("run", folder, "--iterations", "12", "--name", "chosen")
    document = evoq("show", "chosen", "--json").json
    shown = evoq("show", "chosen").out
    alone = evoq("evaluate", folder, folder / "initial_program.py", "--validation", "--json").json

    assert result.code == 0, result.err
    assert "validation, on data that the search never saw" in result.out
    assert "unseen" in result.out
    assert "by search" in shown
    assert "published" in shown
    searched = [one for one in document["validated"] if one["ordinal"] is not None]
    assert document["best"]["validation"]["fitness"] == max(one["fitness"] for one in searched)
    assert document["best"]["fitness"] == searched[0]["search_fitness"]
    assert (place / "runs/chosen/best_program.py").read_text() == document["best"]["source"]
    assert [one["fitness"] for one in document["validated"] if one["names"] == ["published"]] == [0]
    assert alone[0]["fitness"] == -5.5


def test_a_run_ends_with_its_document_and_files_and_can_be_shown(
    evoq: Evoq, place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("app.reports.folder.draw", draw)
    folder = problem_folder(place / "sum")

    result = evoq("run", folder, "--iterations", "12", "--seed", "5", "--name", "first", "--json")

    document = result.json
    assert result.code == 0, result.err
    assert (document["run"], document["state"], document["iterations"]) == ("first", "finished", 12)
    assert document["admitted"] + document["cut"] + sum(document["failures"].values()) == 12
    assert document["best"]["fitness"] >= -6.5
    assert document["best"]["metrics"]["combined_score"] == document["best"]["fitness"]
    assert document["baselines"]["initial program"]["fitness"] == -6.5
    assert document["verified"] is True
    assert document["wall_seconds"] > 0
    out = Path(document["out"])
    assert {path.name for path in out.iterdir()} == FILES
    for picture in out.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert (out / "best_program.py").read_text() == document["best"]["source"]
    snapshot = json.loads((out / "settings.json").read_text())
    assert snapshot["seed"] == 5
    held = snapshot["settings"]
    assert held["sandbox"]["wall_seconds"] == 20  # the problem's
    assert held["sandbox"]["backend"] == "process"  # the workers', who are not this command's
    assert held["search"]["operators"] == {"tune": 0.25, "mutate": 0.75}  # of few numbers
    assert {worker["kind"] for worker in snapshot["workers"]} >= {"gpu", "cpu"}

    listed = evoq("list-runs", "--json")
    assert listed.code == 0, listed.err
    assert ("first", 12) in [(run["run"], run["iterations"]) for run in listed.json]

    shown = evoq("show", "first", "--json").json
    later = {"out": shown["out"], "costs": shown["costs"]}  # workers write what they spent later
    # It is not running, it is no game, and its age is that of another moment.
    later |= {"worked_on": None, "waiting": "", "ratings": None}
    later["elapsed_seconds"] = shown["elapsed_seconds"]
    assert {**document, **later} == shown

    exported = place / "exported.py"
    assert evoq("export-best", "first", "--out", exported).code == 0
    assert exported.read_text() == document["best"]["source"]
    assert evoq("export-best", "first").out == document["best"]["source"]
    exported.write_text("mine")
    for command in ("export-best", "metrics"):
        refused = evoq(command, "first", "--out", exported)
        assert (refused.code, "would be overwritten" in refused.err) == (2, True)
    assert exported.read_text() == "mine"

    programs = place / "programs"
    answer = evoq("export-programs", "first", "--out", programs, "--json").json
    index = [json.loads(line) for line in (programs / "programs.jsonl").read_text().splitlines()]
    best = next(line for line in index if line["program"] == document["best"]["program"])
    assert (programs / best["file"]).read_text() == document["best"]["source"]
    files = {path.name for path in programs.iterdir()} - {"programs.jsonl"}
    assert {line["file"] for line in index} == files
    assert answer["programs"] == len(files) == len({line["program"] for line in index})
    again = evoq("export-programs", "first", "--out", programs)
    assert (again.code, "is not empty" in again.err) == (2, True)

    ledger = place / "first.ledger.gz"
    assert evoq("export", "first", "--out", ledger).code == 0
    taken = evoq("import", ledger)
    assert (taken.code, "a run named 'first' exists" in taken.err) == (1, True)
    assert evoq("import", ledger, "--name", "travelled", "--json").json["state"] == "finished"
    assert evoq("show", "travelled", "--json").json["best"] == document["best"]
    ledger.write_bytes(ledger.read_bytes()[:1000])
    broken = evoq("import", ledger, "--name", "broken")
    assert (broken.code, "cannot be imported" in broken.err) == (2, True)

    lines = [json.loads(line) for line in evoq("metrics", "first").out.splitlines()]
    assert sorted(line["ordinal"] for line in lines) == list(range(-1, 12))
    table = list(csv.DictReader(io.StringIO(evoq("metrics", "first", "--format", "csv").out)))
    assert len(table) == 13

    assert sum(line["boot_seconds"] > 0 for line in lines) >= 1
    assert all(line["peak_memory_mib"] > 1 for line in lines if line["fitness"] is not None)
    program = evoq("show", "first", "--program", document["best"]["program"][:12], "--json").json
    assert program["source"] == document["best"]["source"]
    [trial] = program["trials"]
    assert trial["metrics"] == document["best"]["metrics"]
    assert trial["wall_seconds"] > 0 < trial["cpu_seconds"]
    assert trial["peak_memory_mib"] > 1
    assert trial["boot_seconds"] >= 0
    assert evoq("show", "first", "--program", "zz").code == 2
    child = next(line for line in lines if line["ordinal"] >= 0 and line["fitness"] is not None)
    made = ("show", "first", "--program", child["program"])
    document_of_child = evoq(*made, "--diff", "--reply", "--artifacts", "--json").json
    assert f"--- {child['parent'][:12]}" in document_of_child["diff"]
    assert document_of_child["replies"] == []
    assert "no model was asked for it" in evoq(*made, "--reply").out
    assert evoq("show", "first", "--reply", "--json").json["error"]["where"] == "--reply"

    monkeypatch.setattr("app.reports.folder.draw", not_drawn)
    plotted = evoq("plot", "first", "--out", place / "pictures", "--json").json
    assert {Path(file).name for file in plotted["files"]} == {
        "evolution.png",
        "failures.png",
        "archive.png",
    }

    assert evoq("plot", "first").code == 0  # its own folder
    assert evoq("plot", "first", "--out", place / "pictures").code == 2

    assert evoq("watch", "first", "--json").json["state"] == "finished"
    assert evoq("pause", "first").code == 1
    assert evoq("cancel", "first", "--json").json["error"]["kind"] == "failed"
    assert evoq("show", "second", "--json").code == 1

    again = evoq("run", folder, "--name", "first", "--json")
    assert again.code == 1
    assert "first" in again.json["error"]["what"]

    longer = evoq("resume", "first", "--iterations", "15", "--json")
    assert (longer.code, longer.json["iterations"]) == (0, 15)
    shorter = evoq("resume", "first", "--iterations", "9")
    assert shorter.code == 0
    assert "first goes no further: budget of 15 proposals spent; a larger" in shorter.err
    assert Path(longer.json["out"]) == out


def test_a_cascade_whose_seed_is_below_its_threshold_runs_its_proposals(evoq: Evoq, place: Path):
    score = "10 + evaluate(program_path)['combined_score']"
    strict = STAGED.replace('"combined_score": 0.0', f'"combined_score": {score}')
    config = f"{CONFIG}  cascade_thresholds: [4.0]\n"
    folder = problem_folder(place / "steep", evaluator=strict, config=config)

    result = evoq("run", folder, "--iterations", "20", "--seed", "5", "--name", "steep", "--json")

    document = result.json
    assert result.code == 0, result.err
    assert (document["state"], document["iterations"]) == ("finished", 20)
    assert document["baselines"]["initial program"]["fitness"] == 3.5
    assert document["best"]["fitness"] is not None
    assert any("fitness 3.5, below the threshold 4" in notice for notice in document["notices"])
    assert document["cut"] + document["admitted"] + sum(document["failures"].values()) == 20


def test_a_run_without_json_prints_the_best_program_beside_the_baselines(evoq: Evoq, place: Path):
    result = evoq("run", problem_folder(place / "plain"), "--iterations", "3", "--name", "plain")

    assert result.code == 0, result.err
    assert "protections on" in result.out
    assert "plain finished: 3/3 proposals" in result.out
    assert "best program of plain" in result.out
    assert "def value():" in result.out
    assert "initial program" in result.out


def test_a_run_whose_seeds_all_fail_is_failed_with_the_reason(evoq: Evoq, place: Path):
    folder = problem_folder(place / "dead", evaluator="def evaluate(path):\n    return 'good'\n")

    result = evoq("run", folder, "--name", "dead", "--json")

    assert result.code == 1
    assert result.json["state"] == "failed"
    assert "seed" in result.json["reason"]
    assert "evoq check" in result.err


@pytest.mark.usefixtures("evoq")
def test_a_search_of_the_python_interface_runs_on_workers(place: Path):
    folder = problem_folder(place / "called")

    search = evolve(folder, iterations=6, name="called")
    counts = [progress.done for progress in search]

    result = search.result()
    assert (result.run, result.state, result.proposals) == ("called", "finished", 6)
    assert counts[-1] == 6
    assert result.fitness is not None
    assert result.fitness >= result.baselines["initial program"] == -6.5


class Refusing(BaseHTTPRequestHandler):
    """A model's endpoint that accepts no key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"error": {"message": "wrong key"}}).encode()
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""


class Failing(Refusing):
    """A model's endpoint that is always overloaded."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(500)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of an endpoint that accepts no key."""
    with serving(Refusing) as address:
        yield address


@contextmanager
def serving(endpoint: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("way", [(), ("--reproducible",)], ids=["workers", "inline"])
def test_a_model_that_refuses_the_key_pauses_the_run_with_the_reason(
    evoq: Evoq, refusing: str, tmp_path: Path, request: pytest.FixtureRequest, way: tuple[str, ...]
):
    folder = problem_folder(tmp_path / "asking")
    name = "-".join(["asking", *(option.strip("-") for option in way)])
    if way:
        request.getfixturevalue("servers")

    result = evoq(
        *("run", folder, "--name", name, "--iterations", "4", "--json", *way),
        *("--set", "llm.model=m", "--set", f"llm.base_url={refusing}"),
    )

    assert result.code == 1
    assert result.json["state"] == "paused"
    assert "key" in result.json["reason"]
    assert f"evoq resume {name}" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("text", ["0", "many"])
def test_a_variable_that_the_workers_could_not_use_is_named_before_they_start(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
):
    folder = problem_folder(tmp_path / "knobs")
    monkeypatch.setenv("EVOQ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EVOQ_LLM_PARALLEL_GENERATIONS", text)

    result = evoq("run", folder, "--iterations", "4")

    assert result.code == 2
    assert "EVOQ_LLM_PARALLEL_GENERATIONS" in result.err
    assert repr(text) in result.err


def test_a_detached_run_is_submitted_to_the_stack_that_is_up(evoq: Evoq, place: Path):
    folder = problem_folder(place / "left")

    result = evoq("run", folder, "--iterations", "4", "--name", "left", "--detach", "--json")
    assert (result.code, result.json["state"]) == (0, "running")
    watched = evoq("watch", "left", "--json")

    assert watched.code == 0, watched.err
    assert watched.json["iterations"] == 4


def test_a_run_is_submitted_to_a_deployment_and_followed(
    evoq: Evoq, deployment: None, place: Path, monkeypatch: pytest.MonkeyPatch
):
    elsewhere = place / "client"
    elsewhere.mkdir()
    folder = problem_folder(place / "far")
    monkeypatch.chdir(elsewhere)

    order = ["run", folder, "--iterations", "5", "--json"]
    refused = evoq(*order, "--set", "sandbox.runtime=runsc")
    result = evoq(*order, "--name", "far", "--out", "mine")

    assert refused.code == 2
    assert "EVOQ_SANDBOX__RUNTIME" in refused.err
    assert result.code == 0, result.err
    assert (result.json["state"], result.json["iterations"]) == ("finished", 5)
    assert "EVOQ_SANDBOX__BACKEND of this environment: without effect" in result.err
    assert "sandbox: " in result.err, result.err
    assert {path.name for path in (elsewhere / "mine").iterdir()} == FILES
    left = evoq(*order, "--name", "farther", "--detach")
    assert left.code == 0, left.err
    assert evoq("watch", "farther", "--json").json["iterations"] == 5
    assert evoq("cancel", "farther").code == 1


def test_a_queue_that_is_down_is_found_before_the_run(
    evoq: Evoq, deployment: None, place: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = problem_folder(place / "deaf")
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")

    result = evoq("run", folder, "--name", "deaf", "--json")

    assert result.code == 1
    assert "EVOQ_REDIS_URL" in result.json["error"]["what"]
    assert evoq("show", "deaf", "--json").code == 1


def test_an_outdated_schema_is_an_error_with_the_remedy(
    evoq: Evoq, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVOQ_DATABASE_URL", empty_database)
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")

    result = evoq("list-runs", "--json")
    examined = evoq("doctor", "--json")

    assert result.code == 1
    assert "alembic upgrade head" in result.json["error"]["what"]
    assert examined.code == 1
    found = {finding["name"]: finding for finding in examined.json}
    assert "alembic upgrade head" in found["schema"]["remedy"]
    assert not found["Redis"]["ok"]


@pytest.mark.slow
@pytest.mark.usefixtures("servers")
def test_the_same_seed_gives_the_same_run_in_one_process(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = problem_folder(tmp_path / "again")
    monkeypatch.chdir(tmp_path)

    results = [
        evoq("run", folder, "--reproducible", "--seed", "9", "--name", name, "--json")
        for name in ("one", "two")
    ]

    assert [result.code for result in results] == [0, 0], results[0].err
    varying = {"run", "id", "out", "wall_seconds", "elapsed_seconds", "funnel"}
    one, two = ({k: v for k, v in result.json.items() if k not in varying} for result in results)
    assert one == two
    columns = ("ordinal", "operator", "state", "failure", "fitness", "program", "parent", "island")
    rows = [
        [tuple(row[column] for column in columns) for row in evoq("metrics", name, "--json").json]
        for name in ("one", "two")
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 13


@pytest.mark.usefixtures("servers")
def test_a_run_in_one_process_pauses_what_a_killed_command_left(
    evoq: Evoq, kept_servers: Path, repository: Path, tmp_path: Path
):
    """Else it would work on the trials of that run, whose turn it is, and never end."""
    found = attach(kept_servers)
    assert found is not None
    store = SqlStore(found.database_url)
    left = dashboard_runs.started(store, repository, "left-behind")

    result = evoq("run", problem_folder(tmp_path / "p"), "--reproducible", "--iterations", "2")

    assert result.code == 0, result.err
    assert "left-behind was left unfinished" in result.err
    with store.begin() as tx:
        assert tx.runs.get(left.id).state is RunState.PAUSED
    store.close()


def test_a_run_in_one_process_finds_the_same_programs_beside_a_stack_that_is_up(
    evoq: Evoq, kept_servers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its trials last long enough for the beat of the idle stack to plan, if it did."""
    evaluator = f"import time\n{SLOW_EVALUATOR.replace('1.5', '0.5')}"
    folder = problem_folder(tmp_path / "beside", evaluator=evaluator)

    def found(name: str) -> list[object]:
        run = evoq("run", folder, "--reproducible", "--seed", "9", "--name", name, "--json")
        assert run.code == 0, run.err
        rows = evoq("metrics", name, "--json").json
        return [[row[key] for key in ("ordinal", "fitness", "program", "parent")] for row in rows]

    beside = found("beside-up")
    monkeypatch.setenv("EVOQ_HOME", str(kept_servers))
    assert found("without-up") == beside
    assert len(beside) == 13


@pytest.mark.timeout(600)
def test_a_run_in_one_process_is_paused_for_the_next_command_and_left_by_workers(
    evoq: Evoq, place: Path, kept: KeptStack
):
    folder = problem_folder(place / "own", evaluator=f"import time\n{SLOW_EVALUATOR}")

    order = ("run", folder, "--reproducible", "--iterations", ENDLESS, "--name", "own")
    with started(place, *order) as process:
        await_line(place, rf"own running: [1-9]\d*/{ENDLESS} ")
        refused = evoq("resume", "own")
        paused = evoq("pause", "own")
        document = json.loads(process.rest(SECONDS))
    assert (refused.code, paused.code) == (1, 0), refused.err + paused.err
    assert "end it with `evoq pause own`" in refused.err
    assert document["state"] == "paused"

    request = Request(kept.dashboard.replace("/?", "/api/runs/own/resume?"), method="POST")
    with pytest.raises(HTTPError) as caught:
        urlopen(request, timeout=30)
    assert "`evoq resume own` continues it" in json.loads(caught.value.read())["detail"]

    budget = document["iterations"] + 2
    longer = evoq("resume", "own", "--iterations", budget, "--json")
    assert longer.code == 0, longer.err
    ends_at_exactly(budget, longer.json)


@contextmanager
def started(place: Path, *arguments: object) -> Iterator[Command]:
    """Runs a command in a folder, in whose file `progress` are its messages."""
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    process = Command(
        [*arguments, "--json"],
        errors=os.open(place / "progress", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        folder=place,
        environment={**os.environ, "PYTHONPATH": paths, "EVOQ_SANDBOX__BACKEND": "process"},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.rest(SECONDS)


def await_line(place: Path, pattern: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not re.search(pattern, (place / "progress").read_text()):
        assert time.monotonic() < deadline, (place / "progress").read_text()
        time.sleep(0.1)


@contextmanager
def ledger_of(home: Path) -> Iterator[SqlStore]:
    """The ledger of a stack that nobody uses."""
    with EmbeddedPostgres(home / "postgres") as address, closing(SqlStore(address)) as store:
        yield store


def left_behind(home: Path) -> list[str]:
    processes = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
        if any(str(home) in text for text in words):
            processes.append(" ".join(words))
    return processes


FEW = ("--set", "queue.generating=4", "--set", "queue.evaluating=4")


def ends_at_exactly(budget: int, document: dict[str, object]) -> None:
    """Checks a run that was left unfinished and then got so many proposals."""
    assert (document["state"], document["iterations"]) == ("finished", budget)
    with (Path(str(document["out"])) / "metrics.csv").open(newline="") as file:
        ordinals = [int(row["ordinal"]) for row in csv.DictReader(file)]
    assert sorted(ordinals) == list(range(-1, budget))


def test_an_interrupted_run_is_paused_and_ends_at_exactly_its_budget(evoq: Evoq, place: Path):
    folder = problem_folder(place / "long", evaluator=f"import time\n{SLOW_EVALUATOR}")

    with started(place, "run", folder, "--iterations", ENDLESS, "--name", "long", *FEW) as process:
        await_line(place, rf"long running: \d+/{ENDLESS} .*, rate \d")
        metrics = place / "runs" / "long" / "metrics.jsonl"
        until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 1, SECONDS)
        process.send_signal(signal.SIGINT)
        document = json.loads(process.rest(SECONDS))
    assert (process.poll(), document["state"]) == (1, "paused")
    assert "evoq resume long" in (place / "progress").read_text()

    budget = document["iterations"] + 8
    longer = evoq("resume", "long", "--iterations", budget, "--json")
    assert longer.code == 0, longer.err
    ends_at_exactly(budget, longer.json)


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_whose_command_is_killed_ends_at_exactly_its_budget(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("app.reports.folder.draw", not_drawn)  # before the commands are forked
    folder = problem_folder(tmp_path / "long", evaluator=f"import time\n{SLOW_EVALUATOR}")
    order = ("run", folder, "--iterations", ENDLESS, "--name", "long", *FEW)

    with started(tmp_path, *order) as first:
        await_line(tmp_path, rf"long running: [1-9]\d*/{ENDLESS} ")
        first.send_signal(signal.SIGKILL)
        first.rest(SECONDS)

    with ledger_of(tmp_path / ".evoq") as store:
        with store.begin() as tx:
            found = tx.runs.named("long")
        assert found is not None
        assert found.state is RunState.RUNNING, "it was not killed"
        dashboard_runs.started(store, repository, "another")  # whose command was killed, too
    budget = found.proposals + 4
    with started(tmp_path, "resume", "long", "--iterations", budget) as second:
        document = json.loads(second.rest(SECONDS))
    assert second.poll() == 0
    ends_at_exactly(budget, document)
    assert "another was left unfinished" in (tmp_path / "progress").read_text()
    assert left_behind(tmp_path / ".evoq") == []


@pytest.mark.parametrize("way", [(), ("--reproducible",)], ids=["workers", "inline"])
def test_a_model_that_does_not_answer_pauses_the_run_and_spends_nothing(
    evoq: Evoq, tmp_path: Path, request: pytest.FixtureRequest, way: tuple[str, ...]
):
    folder = problem_folder(tmp_path / "waiting")
    name = "-".join(["waiting", *(option.strip("-") for option in way)])
    if way:
        request.getfixturevalue("servers")

    with serving(Failing) as address:
        result = evoq(
            *("run", folder, "--name", name, "--iterations", "4", "--json", *way),
            *("--set", "llm.model=m", "--set", f"llm.base_url={address}"),
            *("--set", "llm.retries=0", "--set", "queue.patience_seconds=8"),
        )

    assert result.code == 1
    assert result.json["state"] == "paused"
    assert result.json["iterations"] == 0
    assert "500" in result.json["reason"]
    assert f"evoq resume {name}" in result.err
    assert "Traceback" not in result.err


def test_results_that_cannot_be_written_are_still_in_the_ledger(
    evoq: Evoq, place: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = problem_folder(place / "full")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "best.json")

    with monkeypatch.context() as patch:
        patch.setattr("app.reports.folder.write", full)
        result = evoq("run", folder, "--iterations", "2", "--name", "full", "--json")
    again = evoq("resume", "full", "--json")

    assert result.code == 1
    assert "best.json" in result.json["error"]["what"]
    assert "No space left" in result.json["error"]["what"]
    assert "`evoq resume full --out DIR`" in result.err
    assert (again.code, again.json["iterations"]) == (0, 2)
    assert {path.name for path in Path(again.json["out"]).iterdir()} == FILES


def test_arms_are_compared_and_a_stopped_comparison_goes_on(evoq: Evoq, place: Path):
    folder = problem_folder(place / "arms")
    order = ["compare", folder, "--arms", "greedy", "--arm", "one:search.islands=1"]
    order += ["--iterations", "4", "--at-once", "3", "--name", "mine", "--json"]
    first = evoq(*order, "--seeds", "1")
    assert first.code == 0, first.err
    result = evoq(*order, "--seeds", "2")
    assert result.code == 0, result.err

    [problem] = result.json["problems"]
    assert problem["problem"] == "arms"
    assert list(problem["arms"]) == ["greedy", "one", "random"]
    runs = {run["run"]: run for arm in problem["arms"].values() for run in arm["runs"]}
    assert set(runs) == {f"mine.arms.{a}.{s}" for a in problem["arms"] for s in (1, 2)}
    assert all(len(run["curve"]) == 5 and run["curve"][0] == -6.5 for run in runs.values())
    assert {run["seed"] for run in problem["arms"]["one"]["runs"]} == {1, 2}
    assert result.json["differing_settings"]["search.islands"] == {
        "greedy": 2, "one": 1, "random": 2
    }  # fmt: skip
    written = {path.name for path in (place / "runs" / "mine").iterdir()}
    assert written == {"comparison.json", "comparison.md", "comparison.html", "arms.png"}
    listed = [run["run"] for run in evoq("list-runs", "--json").json if "mine." in run["run"]]
    assert sorted(listed) == sorted(runs), "the runs of the first command were begun once more"

    changed = evoq(*order, "--seeds", "1", "--set", "search.islands=4")
    assert changed.code == 2
    assert "mine.arms.greedy.1" in changed.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--arms", "gready"], "gready"),
        (["--arm", "one"], "NAME:KEY=VALUE"),
        (["--arm", "one:budget.proposals=3"], "--iterations"),
        (["--arm", "one:search.seed=3"], "--seed"),
        (["--arm", "a b:search.islands=3"], "a b"),
        (["--name", "a.b"], "a.b"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(
    evoq: Evoq, place: Path, options: list[str], named: str
):
    folder = place / "refused"
    if not folder.exists():
        problem_folder(folder)
    refused = evoq("compare", folder, "--iterations", "4", "--seeds", "1", *options)
    assert refused.code == 2
    assert named in refused.err


def test_the_dashboard_of_the_stack_that_is_kept_up_shows_its_runs_and_no_other_keeps_it(
    evoq: Evoq, kept: KeptStack
):
    second = evoq("up", "--json")
    runs = evoq("list-runs", "--json").json
    with urlopen(kept.dashboard.replace("/?", "/api/runs?"), timeout=30) as answer:
        shown = json.loads(answer.read())

    assert (second.code, second.json["error"]["kind"]) == (1, "failed")
    assert {run["run"] for run in shown} == {run["run"] for run in runs}


def test_the_stack_that_is_kept_up_ends_with_an_interrupt(kept: KeptStack):
    """The last of this module."""
    kept.process.send_signal(signal.SIGINT)

    assert kept.process.wait(SECONDS) == 0
    assert left_behind(kept.folder / ".evoq") == []
