"""Whole runs against the real vLLM: as a server, and inside the worker, which is killed."""

import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from app.embedded.valkey import EmbeddedValkey
from tests.integration.cli import Evoq, problem_folder
from tests.ports import free_port
from tests.vllm import processes
from tests.vllm.engine_arguments import SOUND
from tests.vllm.server import gauge, healthy, vllm_server

PROPOSALS = 80
AT_ONCE = 64
"""Conversations that vLLM has to run at once."""
RUNNING = "vllm:num_requests_running"
WINDOW = tuple(f"llm.{bound}_in_flight=96" for bound in ("min", "target", "max"))
"""It does not adapt: to grow to that many took 450 proposals, and other tests show it."""


class WorkerSet:
    """The processes of a deployment, each with a log; the ledger and the queue are others'."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.running: list[Any] = []

    def start(self, name: str, command: str, **variables: str) -> Any:
        started = processes.start(
            "celery",
            ["-A", "app", *shlex.split(command)],
            {**self.environment, **variables},
            self.folder / f"{name}.log",
        )
        self.running.append(started)
        return started

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def end(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            processes.end(process)


@pytest.fixture
def workers(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported_once: None
) -> Iterator[WorkerSet]:
    """A deployment without a worker for the queue `gpu`."""
    with EmbeddedValkey(tmp_path / "valkey") as broker:
        monkeypatch.setenv("EVOQ_DATABASE_URL", database)
        monkeypatch.setenv("EVOQ_REDIS_URL", broker)
        monkeypatch.setenv("EVOQ_SANDBOX__BACKEND", "process")
        monkeypatch.setenv("EVOQ_QUEUE__LEASE_SECONDS", "10")
        monkeypatch.chdir(tmp_path)
        started = WorkerSet(tmp_path, dict(os.environ))
        started.start("cpu", "worker -Q cpu,control --without-gossip --without-mingle")
        started.start("beat", "beat")
        yield started
        started.end()


@pytest.fixture
def ask(database: str) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Asks the ledger."""
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as connection:

        def ask(statement: str) -> list[tuple[Any, ...]]:
            return connection.execute(statement).fetchall()  # type: ignore[arg-type]

        yield ask


def submit(capsys: pytest.CaptureFixture[str], folder: Path, *settings: str) -> None:
    limits = ("queue.generating=256", "queue.evaluating=256")
    shape = ("llm.max_tokens=96", "llm.repair_turns=0", *limits, f"budget.proposals={PROPOSALS}")
    shape = (*shape, *WINDOW, "search.operators={rewrite: 1}")
    options = [text for setting in (*shape, *settings) for text in ("--set", setting)]
    said = Evoq(capsys)("run", problem_folder(folder / "problem"), *options, "--detach", "--json")
    assert said.code == 0, said.err


def follow(ask: Callable[[str], list[tuple[Any, ...]]], metrics: str, until: float) -> float:
    """Waits for the end of the run; returns the most requests vLLM said were running at once."""
    most, deadline = 0.0, time.monotonic() + 500
    while ask("SELECT state FROM runs") == [("running",)]:
        most = max(most, gauge(metrics, RUNNING))
        if most >= until:
            return most
        assert time.monotonic() < deadline, ask("SELECT state, reason, proposals FROM runs")
        time.sleep(0.3 if most < AT_ONCE else 1.0)
    return most


def assert_settled_exactly(ask: Callable[[str], list[tuple[Any, ...]]]) -> None:
    assert ask("SELECT state FROM runs") == [("finished",)], ask("SELECT reason FROM runs")
    ordinals = ask("SELECT ordinal FROM proposals WHERE ordinal >= 0 ORDER BY ordinal")
    assert ordinals == [(n,) for n in range(PROPOSALS)]
    assert ask("SELECT count(*) FROM proposals WHERE settled_at IS NULL") == [(0,)]
    numbers = ask("SELECT seq FROM events ORDER BY seq")
    assert numbers == [(n,) for n in range(1, len(numbers) + 1)]
    paid = ask("SELECT count(*), min(prompt_tokens), min(completion_tokens) FROM completions")
    [(completions, prompt_tokens, completion_tokens)] = paid
    assert completions >= PROPOSALS
    assert prompt_tokens > 0
    assert completion_tokens > 0


def test_a_run_completes_against_a_server_with_64_conversations_in_flight(
    workers: WorkerSet, ask, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with vllm_server(model, tmp_path / "server.log") as base_url:
        workers.start("gpu", "worker -Q gpu --without-gossip", EVOQ_GENERATE_CONCURRENCY="96")
        submit(capsys, tmp_path, "llm.provider=vllm", "llm.model=tiny", f"llm.base_url={base_url}")
        most = follow(ask, base_url.replace("/v1", "/metrics"), until=1e9)

    assert most >= AT_ONCE, workers.log("gpu")[-2000:]
    assert_settled_exactly(ask)


def test_a_worker_with_the_engine_inside_is_killed_and_nothing_is_lost(
    workers: WorkerSet, ask, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    port = free_port()
    variables = {
        "EVOQ_VLLM_MODEL": model,
        "EVOQ_VLLM_NAME": "tiny",
        "EVOQ_VLLM_ARGS": SOUND,
        "EVOQ_VLLM_METRICS_PORT": str(port),
        "EVOQ_GENERATE_CONCURRENCY": "96",
    }
    metrics = f"http://127.0.0.1:{port}/metrics"
    first = workers.start("gpu", "worker -Q gpu", **variables)
    loaded(metrics, first, workers)
    assert "vllm: ready after" in workers.log("gpu")
    submit(capsys, tmp_path, "llm.provider=vllm", "llm.model=tiny")

    most = follow(ask, metrics, until=AT_ONCE)
    engine = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.join()
    unsettled = ask("SELECT count(*) FROM proposals WHERE settled_at IS NULL")
    _, alive = psutil.wait_procs(engine, timeout=90)
    second = workers.start("gpu", "worker -Q gpu", **variables)
    loaded(metrics, second, workers)
    follow(ask, metrics, until=1e9)

    assert most >= AT_ONCE
    assert unsettled[0][0] > 0, "the worker was killed too late"
    assert alive == [], "the engine outlived its worker"
    assert_settled_exactly(ask)


def loaded(metrics: str, worker: Any, workers: WorkerSet) -> None:
    deadline = time.monotonic() + 600
    while not healthy(metrics):
        assert worker.is_alive(), workers.log("gpu")[-3000:]
        assert time.monotonic() < deadline, workers.log("gpu")[-3000:]
        time.sleep(1.0)
