import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest
import redis
from pydantic import SecretStr

from app.adapters.queue.address import broker_url
from app.bootstrap import worker as bootstrap
from app.celery import (
    IDLE_SECONDS,
    MOST_WAITING,
    PRODUCE_SECONDS,
    REAP_SECONDS,
    Tick,
    WrongEnvironment,
    client,
    configuration,
    modules,
    refusal,
    report_tick,
    threads,
)
from app.config.places import LEAST, available_cores
from app.config.settings import Settings
from app.domain.search.shares import NEWCOMERS
from app.ports.protocols import Unavailable
from tests.integration.worker_double import install, until
from workers import lifecycle

CELERY = (sys.executable, "-m", "celery", "-A", "app")


class Running:
    """A Celery command, ended with the test."""

    def __init__(self, folder: Path, environment: dict[str, str], *arguments: str):
        self.log = folder / f"{arguments[0]}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*CELERY, *arguments],
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


@pytest.fixture
def celery(tmp_path: Path, valkey: str, broker: redis.Redis) -> Iterator[Any]:
    running: list[Running] = []

    def start(*arguments: str, **variables: str) -> Running:
        environment = install(tmp_path, EVOQ_REDIS_URL=valkey, **variables)
        running.append(Running(tmp_path, environment, *arguments))
        return running[-1]

    yield start
    for command in running:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


class Pools:
    """The pool and concurrency of each worker, as far as workers have reported them."""

    def __init__(self, valkey: str) -> None:
        self._inspect = client(valkey).control.inspect(timeout=2)
        self._pools: dict[str, tuple[str, int]] = {}

    def __call__(self) -> dict[str, tuple[str, int]]:
        for name, statistics in (self._inspect.stats() or {}).items():
            pool = statistics["pool"]
            self._pools[name.partition("@")[0]] = (pool["implementation"], pool["max-concurrency"])
        return self._pools


def test_a_worker_gets_pool_size_and_name_from_its_queues_unless_its_command_line_does(
    celery: Any, valkey: str
) -> None:
    celery("worker", "-Q", "gpu,cpu,control", EVOQ_EVALUATE_CONCURRENCY="5")
    celery("worker", "-Q", "gpu", "-c", "3", "-n", "mine@%h")
    threaded = "celery.concurrency.thread:TaskPool"
    expected = {"gpu-cpu-control": (threaded, 128 + 5 + NEWCOMERS + 2), "mine": (threaded, 3)}
    pools = Pools(valkey)
    until(lambda: pools() == expected, what="two workers with their pools")


def test_a_step_that_fails_or_meets_dead_machinery_leaves_the_worker_at_work(
    celery: Any, valkey: str, broker: redis.Redis
) -> None:
    worker = celery("worker", "-Q", "cpu,control")
    send(valkey, "evaluate", [13, 14, 15])
    until(lambda: set(broker.lrange("done:evaluate", 0, -1)) == {b"15"}, what="the healthy step")
    assert worker.end() == 0
    assert broker.llen("cpu") == 0, "a message was put back, so it was never acknowledged"
    log = worker.log.read_text()
    assert "ZeroDivisionError: a defect of ours" in log
    assert "evaluate 14: unavailable: nobody answers" in log
    assert broker.get("closed") == b"1"
    assert broker.get("worker time written") == b"1"


def test_beat_ticks_for_every_run_and_needs_no_writable_folder(
    celery: Any, broker: redis.Redis, tmp_path: Path
) -> None:
    worker = celery("worker", "-Q", "control", "-P", "solo")
    celery("beat")
    until(lambda: int(broker.get("ticks:produce") or 0) >= 4, what="four ticks of produce")
    until(lambda: int(broker.get("ticks:reap") or 0) >= 1, what="a tick of reap")
    assert "(solo)" in worker.log.read_text(), "not the pool that was asked for"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beat.log", "double", "worker.log"]


def test_runs_are_planned_every_half_second_and_a_late_tick_is_dropped() -> None:
    ticks = configuration({"EVOQ_REDIS_URL": "redis://127.0.0.1:1/0"})["beat_schedule"]
    seconds = {name: tick["schedule"].run_every.total_seconds() for name, tick in ticks.items()}
    assert seconds == {"produce": 0.5, "reap": 5.0, "sweep": 60.0}
    assert ticks["produce"]["options"] == {"expires": 1.0}


def test_beat_ticks_slowly_while_no_run_is_running(valkey: str, broker: redis.Redis) -> None:
    queue = client(valkey)
    tick = Tick(PRODUCE_SECONDS, app=queue)
    before = queue.now() - timedelta(seconds=10)
    assert tick.is_due(before) == (True, PRODUCE_SECONDS)
    began = server_seconds(broker)
    report_tick(queue, idle=True)
    ended = server_seconds(broker)
    assert tick.is_due(before) == (True, IDLE_SECONDS)
    assert Tick(REAP_SECONDS, app=queue).is_due(before) == (True, 2 * REAP_SECONDS)
    for key, otherwise in (
        ("evoq:idle", "it would be forgotten too early, or kept when a run begins"),
        ("evoq:tick", "planning would seem to have stopped"),
    ):
        # It was set between the two times, whatever has passed since.
        until_seconds = broker.pexpiretime(key) / 1000
        assert until_seconds - began > IDLE_SECONDS, otherwise
        assert until_seconds - ended <= 8, otherwise
    broker.delete("evoq:idle")
    report_tick(queue, idle=False)
    assert tick.is_due(before) == (True, PRODUCE_SECONDS)


def server_seconds(broker: redis.Redis) -> float:
    """Returns the time by the clock of Redis, in seconds since the epoch."""
    seconds, microseconds = broker.time()
    return float(seconds + microseconds / 1e6)


def test_messages_that_no_worker_takes_do_not_pile_up(valkey: str, broker: redis.Redis) -> None:
    """A tick would wait in Redis after its expiry, 1 KB each, until the memory is full."""
    queue = client(valkey)
    for number in range(MOST_WAITING + 50):
        broker.lpush("control", number)
    due = Tick(PRODUCE_SECONDS, app=queue).is_due(queue.now() - timedelta(seconds=10))
    assert due == (True, PRODUCE_SECONDS)
    waiting = [int(each) for each in broker.lrange("control", 0, -1)]
    assert waiting == list(reversed(range(50, MOST_WAITING + 50))), "not the newest"


def test_beat_ticks_at_its_pace_where_the_queue_does_not_answer() -> None:
    queue = client("redis://127.0.0.1:1/0")
    assert Tick(PRODUCE_SECONDS, app=queue).is_due(queue.now() - timedelta(seconds=10)) == (
        True,
        PRODUCE_SECONDS,
    )
    report_tick(queue, idle=True)


def test_a_worker_whose_database_has_no_schema_ends_with_one_line(
    tmp_path: Path, valkey: str, empty_database: str
) -> None:
    addresses = {"EVOQ_REDIS_URL": valkey, "EVOQ_DATABASE_URL": empty_database}
    done = subprocess.run(
        [*CELERY, "worker", "-Q", "control"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **addresses},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 1
    assert "this worker cannot work: the database's schema is at nothing" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("worker", "-Q", "control"), ("beat",)])
def test_a_process_that_the_queue_refuses_ends_with_one_line(
    tmp_path: Path, valkey: str, command: tuple[str, ...]
) -> None:
    scheme, _, place = valkey.partition("://")
    refused = f"{scheme}://nobody:wrong@{place.rpartition('@')[2]}"
    environment = install(tmp_path, EVOQ_REDIS_URL=refused)
    done = subprocess.run(
        [*CELERY, *command], env=environment, cwd=tmp_path, capture_output=True, text=True,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 1
    assert "this process cannot work: the queue (EVOQ_REDIS_URL) refuses" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[str]:
    """The address of a server whose certificate is for `ledger`, without its authority."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here, which makes the certificate")
    (tmp_path / "infra").mkdir()
    script = shutil.copy(
        Path(__file__).parents[2] / "infra" / "new-certificates", tmp_path / "infra"
    )
    subprocess.run([script, "ledger"], check=True, capture_output=True)
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(tmp_path / "tls/server.crt", tmp_path / "tls/server.key")

    def answer(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with contextlib.suppress(OSError), connection:
                    secured.wrap_socket(connection, server_side=True).recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        yield f"rediss://127.0.0.1:{listener.getsockname()[1]}/0"
        listener.shutdown(socket.SHUT_RDWR)


def test_a_certificate_of_the_queue_is_checked(certified: str, tmp_path: Path) -> None:
    unknown = client(certified)
    misnamed = client(f"{certified}?ssl_ca_certs={tmp_path}/tls/ca.crt")
    for application in (unknown, misnamed):
        # On a busy machine the handshake may take longer than a deployment waits for it.
        patient = {"socket_timeout": 60, "socket_connect_timeout": 60}
        application.conf.broker_transport_options |= patient

    assert "is not trusted: unable to get local issuer certificate" in refusal(unknown)
    assert "is not trusted: IP address mismatch" in refusal(misnamed)
    for application in (unknown, misnamed):
        # Without this kombu takes any certificate.
        assert application.conf.broker_use_ssl["ssl_cert_reqs"] is ssl.CERT_REQUIRED
    with pytest.raises(WrongEnvironment, match="/none', and there is no such file"):
        client(f"{certified}?ssl_ca_certs=/none")


def test_a_queue_that_is_away_is_waited_for() -> None:
    assert refusal(client("redis://127.0.0.1:1/0")) == ""


def test_a_ledger_that_refuses_the_worker_ends_it_before_it_takes_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bootstrap, "LEDGER_PATIENCE_SECONDS", 0.0)
    refused = Settings(database_url=SecretStr("postgresql+psycopg://evoq:wrong@127.0.0.1:1/evoq"))
    with pytest.raises(Unavailable, match="the database"):
        bootstrap.worker_context(refused)


def test_a_worker_without_a_sandbox_leaves_trials_in_the_queue_and_is_not_healthy(
    tmp_path: Path, valkey: str, broker: redis.Redis, database: str
) -> None:
    """With the real context: its sandboxes are containers, and no engine answers."""
    heartbeat = tmp_path / "heartbeat"
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "EVOQ_REDIS_URL": valkey,
        "EVOQ_DATABASE_URL": database,
        "EVOQ_SANDBOX__BACKEND": "docker",
        "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
        "EVOQ_HEARTBEAT_FILE": str(heartbeat),
    }
    worker = Running(tmp_path, environment, "worker", "-Q", "cpu,control")
    try:
        queues = client(valkey).control.inspect(timeout=2)

        def served() -> set[str]:
            return {
                each["name"] for found in (queues.active_queues() or {}).values() for each in found
            }

        until(lambda: served() == {"control"}, what="its end of consuming trials")
        until(lambda: "taking no step of the queues cpu" in worker.log.read_text(), what="the line")
        send(valkey, "evaluate", [1])
        heartbeat.unlink(missing_ok=True)
        until(lambda: served() == {"control"}, what="an answer after the message")
        assert broker.llen("cpu") == 1
        assert not heartbeat.exists()
        with psycopg.connect(database.replace("+psycopg", "")) as connection:
            [(fault,)] = connection.execute("SELECT fault FROM workers").fetchall()
        assert fault.startswith("no sandbox can be booted: ")
    finally:
        worker.end()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "EVOQ_REDIS_URL is not set"),
        ({"EVOQ_REDIS_URL": "amqp://guest@host"}, "must start with one of redis://"),
        (
            {"EVOQ_REDIS_URL": "redis://h", "EVOQ_GENERATE_CONCURRENCY": "many"},
            "EVOQ_GENERATE_CONCURRENCY must be a number of threads, 1 or more, not 'many'",
        ),
        (
            {
                "EVOQ_REDIS_URL": "redis://h",
                "EVOQ_EVALUATE_CONCURRENCY": "12",
                "EVOQ_SANDBOX__PLACES": "4",
            },
            "EVOQ_EVALUATE_CONCURRENCY is 12 and EVOQ_SANDBOX__PLACES is 4: both are",
        ),
        (
            {"EVOQ_REDIS_URL": "redis://h", "EVOQ_TASK_EVENTS": "perhaps"},
            "EVOQ_TASK_EVENTS must be true or false, not 'perhaps'",
        ),
        (
            {"EVOQ_REDIS_URL": "redis://h", "EVOQ_LOG_FORMAT": "xml"},
            "EVOQ_LOG_FORMAT must be text or json, not 'xml'",
        ),
    ],
)
def test_a_wrong_environment_is_named(variables: dict[str, str], message: str) -> None:
    with pytest.raises(WrongEnvironment) as refused:
        configuration(variables)
    assert message in str(refused.value)


def test_a_worker_in_a_wrong_environment_ends_with_one_line(tmp_path: Path) -> None:
    environment = {k: v for k, v in install(tmp_path).items() if not k.startswith("EVOQ_")}
    done = subprocess.run(
        [*CELERY, "worker", "-Q", "gpu"],
        env={**environment, "EVOQ_REDIS_URL": "redis://h", "EVOQ_LOG_FORMAT": "xml"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 2
    assert "EVOQ_LOG_FORMAT must be text or json, not 'xml'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_with_a_wrong_number_names_the_variable_and_ends(
    monkeypatch: pytest.MonkeyPatch, valkey: str
) -> None:
    monkeypatch.setenv("EVOQ_REDIS_URL", valkey)
    monkeypatch.setenv("EVOQ_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("EVOQ_LLM_MAX_IN_FLIGHT", "0")

    with pytest.raises(SystemExit) as ended:
        lifecycle._context_or_exit()

    assert str(ended.value).startswith(
        "this worker cannot work: EVOQ_LLM_MAX_IN_FLIGHT: input should be"
    )


def test_importing_the_application_needs_no_environment() -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("EVOQ_")}
    repository = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", "import app.celery; print(app.celery.app.main)"],
        env=clean,
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout == "evoqueue\n"


@pytest.mark.parametrize(
    ("given", "kombu"),
    [
        ("redis://:secret@host:6379/2", "redis://:secret@host:6379/2"),
        ("rediss://host/0?ssl_cert_reqs=required", "rediss://host/0?ssl_cert_reqs=required"),
        ("redis+socket:///run/redis.sock", "redis+socket:///run/redis.sock"),
        ("unix:///run/redis.sock?db=3", "redis+socket:///run/redis.sock?virtual_host=3"),
        ("unix://:a%2Fb@/run/redis.sock", "redis+socket://:a%2Fb@/run/redis.sock?virtual_host=0"),
    ],
)
def test_an_address_is_put_into_kombus_form(given: str, kombu: str) -> None:
    assert broker_url(given) == kombu


def test_a_wrong_address_is_refused_without_showing_its_password() -> None:
    with pytest.raises(ValueError, match="redis://") as refused:
        broker_url("postgres://user:hunter2@host/db")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ValueError, match="path of a socket"):
        broker_url("unix://")


@pytest.mark.parametrize(
    ("command", "loads"), [("worker", True), ("beat", False), ("flower", False)]
)
def test_only_workers_load_the_engine(command: str, loads: bool) -> None:
    with click.Context(click.Command(command), info_name=command):
        assert ("workers.tasks" in modules()) is loads


def test_a_worker_of_one_queue_has_the_threads_of_that_queue() -> None:
    places = max(LEAST, available_cores())
    assert threads(["gpu"], {}) == 128
    assert threads(["cpu"], {}) == places + NEWCOMERS
    assert threads(["cpu"], {"EVOQ_EVALUATE_CONCURRENCY": "5"}) == 5 + NEWCOMERS


def test_threads_of_a_mix_are_the_sum_of_its_queues() -> None:
    given = {"EVOQ_GENERATE_CONCURRENCY": "10", "EVOQ_EVALUATE_CONCURRENCY": "16"}
    assert threads(["gpu", "cpu", "control"], given) == 10 + 16 + NEWCOMERS + 2


def test_hot_steps_send_events_only_when_the_variable_is_true() -> None:
    quiet = configuration({"EVOQ_REDIS_URL": "redis://h"})["task_annotations"]
    loud = configuration({"EVOQ_REDIS_URL": "redis://h", "EVOQ_TASK_EVENTS": "true"})
    assert quiet["evaluate"] == {"send_events": False}
    assert loud["task_annotations"]["generate"] == {"send_events": True}


def send(valkey: str, step: Any, subjects: list[int]) -> None:
    from celery import Celery

    from app.adapters.queue.celery import CeleryExecutor

    application = Celery("sender", set_as_current=False)
    application.conf.update(configuration({"EVOQ_REDIS_URL": valkey}))
    CeleryExecutor(application).submit(step, subjects)
    application.close()
