import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from app import celery
from app.config.places import places
from app.embedded.children import LOG_BYTES, EmbeddedError, Identity, read_record
from app.embedded.forks import Imports
from app.embedded.stack import LOCK, EmbeddedStack, Endpoints, attach
from app.embedded.supervisor import Supervisor
from app.embedded.worker_set import Flower, RestartedProcess, WorkerSet, worker_processes
from tests.integration.worker_double import install, until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the other platforms have no death signal to test"
)
REPOSITORY = Path(__file__).parents[2]
WORKERS = {"worker-gpu", "worker-cpu-1", "beat"}
SERVERS = {"postgres", "valkey"}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The folder of a stack; every process that a failing test leaves there is killed."""
    folder = tmp_path / ".evoq"
    yield folder
    for identity in identities(folder).values():
        running = identity.running()
        if running is not None:
            running.kill()


@pytest.fixture
def make(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., EmbeddedStack]:
    """Makes stacks whose workers are forked: their interpreter variables are those of here."""
    environment = install(tmp_path)
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])

    def build(**more: object) -> EmbeddedStack:
        options: dict[str, object] = {
            "workers": WorkerSet(generators=4),
            "environment": environment,
            **more,
        }
        return EmbeddedStack(root, **options)  # type: ignore[arg-type]

    return build


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """A stack with forked workers that runs, for the tests after which all of it runs again."""
    folder = tmp_path_factory.mktemp("kept")
    environment = install(folder, NOTED="of the worker")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", environment["PYTHONPATH"])
        stack = EmbeddedStack(
            folder / ".evoq", workers=WorkerSet(generators=4), environment=environment
        )
        stack.start()
    yield stack
    stack.stop()


@pytest.fixture
def kept_root(kept: EmbeddedStack) -> Path:
    """The folder of the stack that runs."""
    return kept._root


def identities(root: Path) -> dict[str, Identity]:
    """Returns the processes of a folder's stack without its supervisor, by name."""
    records = [
        *(root / "pids").glob("*.pid"),
        root / "postgres" / "postgres.pid",
        root / "valkey" / "valkey.pid",
    ]
    identities = [read_record(record) for record in records]
    return {identity.name: identity for identity in identities if identity is not None}


def living(processes: dict[str, Identity]) -> set[str]:
    return {name for name, identity in processes.items() if identity.running() is not None}


def supervisor_of(root: Path) -> psutil.Process:
    found = {
        process.pid: process
        for process in psutil.process_iter(["cmdline", "ppid"])
        if (process.info["cmdline"] or [])[1:4] == ["-m", "app.embedded.supervisor", str(root)]
    }
    # A forked process has the command line of the supervisor.
    [supervisor] = [process for process in found.values() if process.info["ppid"] not in found]
    return supervisor


def client_elsewhere(root: Path, environment: dict[str, str]) -> "subprocess.Popen[str]":
    """Keeps a stack running from another process; returns once it is up."""
    program = (
        "import sys, time; from pathlib import Path; "
        "from app.embedded.stack import EmbeddedStack as S; s = S(Path(sys.argv[1])); "
        "print(s.start().redis_url, flush=True); time.sleep(600)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", program, str(root)],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    with started.stdout as output:
        assert output.readline().startswith("unix://")
    return started


def test_a_stack_is_prepared_works_for_all_its_clients_and_ends_with_the_last(
    root: Path, make: Callable[..., EmbeddedStack]
) -> None:
    prepared: list[str] = []

    def prepare(database_url: str) -> None:
        assert not living(identities(root)) - SERVERS
        prepared.append(database_url)

    first, second = make(prepare=prepare), make()
    assert attach(root) is None
    with pytest.raises(EmbeddedError, match="has not been started"):
        first.check()
    endpoints = first.start(workers=False)
    assert prepared == [endpoints.database_url]
    assert attach(root) == endpoints
    servers = identities(root)
    assert living(servers) == SERVERS

    assert second.start() == endpoints
    with redis.Redis.from_url(endpoints.redis_url) as client:
        until(lambda: int(client.get("ticks:produce") or 0) >= 2, what="two ticks of produce")
    processes = identities(root)
    assert living(processes) == WORKERS | SERVERS
    first.stop()
    second.check()
    assert living(servers) == SERVERS
    session = os.getsid(0)
    assert session not in {os.getsid(identity.pid) for identity in processes.values()}

    second.stop()
    assert living(processes) == set()
    assert attach(root) is None
    assert sorted(path.name for path in (root / "log").iterdir()) == [
        "beat.log",
        "postgres.log",
        "supervisor.log",
        "valkey.log",
        "worker-cpu-1.log",
        "worker-gpu.log",
    ]


def test_no_supervisor_is_started_while_another_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would end at once, and another would be started after it, again and again."""

    def refuse(root: Path, *, workers: bool) -> None:
        raise EmbeddedError("started")

    monkeypatch.setattr("app.embedded.stack._start_supervisor", refuse)
    with (tmp_path / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        EmbeddedStack(tmp_path).begin()
    with pytest.raises(EmbeddedError, match="started"):
        EmbeddedStack(tmp_path).begin()


@pytest.mark.timing
def test_workers_end_with_a_killed_supervisor_and_all_with_the_next_client_that_is_killed(
    root: Path, tmp_path: Path, make: Callable[..., EmbeddedStack]
) -> None:
    stack = make()
    stack.start()
    processes = identities(root)
    supervisor_of(root).kill()
    until(lambda: not living(processes) - SERVERS, what="the workers' end")
    with pytest.raises(EmbeddedError, match="has ended"):
        stack.check()
    stack.stop()

    client = client_elsewhere(root, install(tmp_path))
    again = identities(root)
    assert living(again) == WORKERS | SERVERS
    assert living(processes) == set()

    client.kill()
    client.wait()
    until(lambda: not living(again), what="the end of every process")


@pytest.mark.timing
def test_processes_that_outlived_their_supervisor_are_ended_by_the_next_start(
    root: Path, make: Callable[..., EmbeddedStack]
) -> None:
    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (root / "pids").mkdir(parents=True)
    started = psutil.Process(sleeper.pid).create_time()
    record = {"name": "worker-cpu-9", "pid": sleeper.pid, "started": started}
    (root / "pids" / "worker-cpu-9.pid").write_text(json.dumps(record))
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    record = {"name": "worker-cpu-8", "pid": stranger.pid, "started": started - 3600}
    (root / "pids" / "worker-cpu-8.pid").write_text(json.dumps(record))
    stack = make()
    try:
        stack.start(workers=False)
        assert sleeper.wait(60) == -signal.SIGTERM
        assert stranger.poll() is None, "a process that reuses the number was ended"
    finally:
        stack.stop()
        for process in (sleeper, stranger):
            process.kill()
            process.wait()


def forked(identity: Identity) -> bool:
    """Returns whether a process was forked, and so has the command line of its supervisor."""
    process = psutil.Process(identity.pid)
    parent = process.parent()
    return parent is not None and process.cmdline() == parent.cmdline()


def test_a_forked_worker_has_its_own_environment_and_nothing_of_the_supervisor(
    kept_root: Path,
) -> None:
    supervisor_only = {"supervisor.lock", "supervisor.sock", "supervisor.log"}
    endpoints = attach(kept_root)
    assert endpoints is not None
    with redis.Redis.from_url(endpoints.redis_url) as client:
        until(lambda: int(client.get("ticks:produce") or 0) >= 1, what="a tick of produce")
        environment = client.hgetall("environment:produce")
    supervisor = supervisor_of(kept_root)
    files = {Path(file.path).name for file in supervisor.open_files()}
    assert "supervisor.lock" in files
    for name in WORKERS:
        process = psutil.Process(identities(kept_root)[name].pid)
        assert forked(identities(kept_root)[name])
        assert not {Path(file.path).name for file in process.open_files()} & supervisor_only
        assert not {
            unix.laddr for unix in process.net_connections("unix") if "supervisor" in unix.laddr
        }
        assert process.cwd() == str(kept_root)
        status = (Path("/proc") / str(process.pid) / "status").read_text()
        assert "SigBlk:\t0000000000000000" in status
    assert environment[b"NOTED"] == b"of the worker"
    assert environment[b"EVOQ_REDIS_URL"] == endpoints.redis_url.encode()
    assert b"NOTED" not in environment.keys() & os.environb.keys()


@pytest.mark.timing
def test_a_worker_whose_interpreter_would_differ_is_not_forked_and_comes_back_too(
    root: Path, tmp_path: Path, valkey: str, broker: redis.Redis
) -> None:
    environment = install(tmp_path, PYTHONUTF8="0", EVOQ_REDIS_URL=valkey)
    specs = {spec.name: spec for spec in worker_processes(WorkerSet(generators=4), environment)}
    root.mkdir()
    worker = RestartedProcess(specs["worker-cpu-1"], root, Imports())
    first = identities(root)["worker-cpu-1"]
    psutil.Process(first.pid).kill()

    def returned() -> bool:
        worker.restart_if_due()
        found = identities(root).get("worker-cpu-1")
        return found is not None and found != first

    until(returned, what="its return")
    until(lambda: celery.client(valkey).control.ping(timeout=1), what="its answer")
    again = identities(root)["worker-cpu-1"]
    assert psutil.Process(again.pid).cmdline()[1:3] == ["-m", "celery"]
    worker.stop()
    assert living({"worker-cpu-1": again}) == set()


@pytest.mark.timing
def test_a_killed_worker_and_a_killed_server_come_back(
    kept: EmbeddedStack, kept_root: Path
) -> None:
    root = kept_root
    before = identities(root)
    for name in ("worker-cpu-1", "valkey"):
        psutil.Process(before[name].pid).kill()
    until(
        lambda: (
            living(identities(root)) == WORKERS | SERVERS
            and identities(root)["worker-cpu-1"] != before["worker-cpu-1"]
            and identities(root)["valkey"] != before["valkey"]
        ),
        what="their return",
    )
    endpoints = attach(root)
    assert endpoints is not None
    with redis.Redis.from_url(endpoints.redis_url) as client:
        client.delete("ticks:produce")
        until(lambda: int(client.get("ticks:produce") or 0) >= 2, what="two ticks of produce")
    kept.check()
    assert forked(identities(root)["worker-cpu-1"])


@pytest.mark.timing
def test_a_worker_that_cannot_be_started_for_a_while_comes_back(
    kept: EmbeddedStack, kept_root: Path
) -> None:
    root = kept_root
    before = identities(root)["worker-cpu-1"]
    log = root / "log" / "worker-cpu-1.log"
    log.unlink()
    log.mkdir()  # as on a full disk, nothing can be written there
    psutil.Process(before.pid).kill()
    supervisor_log = root / "log" / "supervisor.log"
    until(
        lambda: "cannot start worker-cpu-1" in supervisor_log.read_text(), what="the failing start"
    )
    log.rmdir()
    until(lambda: living(identities(root)) == WORKERS | SERVERS, what="its return")
    assert identities(root)["worker-cpu-1"] != before
    kept.check()


@pytest.mark.slow
def test_a_worker_that_never_lives_is_given_up_with_the_reason(
    tmp_path: Path, make: Callable[..., EmbeddedStack]
) -> None:
    stack = make(environment=install(tmp_path, DOUBLE_FAULT="the model has no key"))
    stack.start()

    def given_up() -> bool:
        try:
            stack.check()
        except EmbeddedError as error:
            return "worker" in str(error) and "the model has no key" in str(error)
        return False

    until(given_up, 240, "the report")
    stack.stop()


def test_a_log_that_has_grown_begins_anew_while_its_server_goes_on(kept_root: Path) -> None:
    log, past = (kept_root / "log" / name for name in ("postgres.log", "postgres.log.1"))
    with log.open("ab", buffering=0) as output:
        output.write(b"x" * (LOG_BYTES - log.stat().st_size))
        output.write(b"the last line\n")
    until(lambda: log.stat().st_size < LOG_BYTES, what="a log within its bound")

    endpoints = attach(kept_root)
    assert endpoints is not None
    with psycopg.connect(endpoints.database_url.replace("+psycopg", "")) as connection:
        connection.execute("DO $$ BEGIN RAISE WARNING 'written afterwards'; END $$")

    assert past.stat().st_size == LOG_BYTES
    assert past.read_bytes().endswith(b"the last line\n")
    until(lambda: b"written afterwards" in log.read_bytes(), what="the server's line")
    assert b"\0" not in log.read_bytes()


def test_flower_names_a_port_in_use_and_answers_its_own_user_only(kept_root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        stack = EmbeddedStack(kept_root, flower=Flower(port, "ann", "secret"))
        with pytest.raises(EmbeddedError, match=rf"127\.0\.0\.1:{port}: .*choose another port"):
            stack.start(workers=False)

    port = free_port()
    stack = EmbeddedStack(kept_root, flower=Flower(port, "ann", "secret"))
    stack.start(workers=False)

    def status(user: str) -> int:
        done = subprocess.run(
            [
                *(sys.executable, "-c"),
                "import sys, urllib.request as u, urllib.error as e, base64\n"
                "r = u.Request(sys.argv[1]); c = base64.b64encode(sys.argv[2].encode()).decode()\n"
                "r.add_header('Authorization', 'Basic ' + c)\n"
                "try: print(u.urlopen(r).status)\n"
                "except e.HTTPError as x: print(x.code)\n"
                "except e.URLError: print(0)\n",
                *(f"http://127.0.0.1:{port}/api/queues/length", user),
            ],
            capture_output=True,
            text=True,
        )
        return int(done.stdout)

    until(lambda: status("ann:secret") == 200, what="Flower's answer", pause_seconds=1.0)
    assert status("ann:guess") == 401
    stack.stop()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=r"cannot keep a stack in .*file"):
        EmbeddedStack(tmp_path / "file" / ".evoq").start()


def test_the_next_start_finds_the_rows_of_the_last_or_the_client_hears_the_servers_fault(
    root: Path, make: Callable[..., EmbeddedStack]
) -> None:
    def rows(stack: EmbeddedStack, statement: str) -> object:
        database = stack.start(workers=False).database_url.replace("+psycopg", "")
        with psycopg.connect(database) as connection:
            return connection.execute(statement).rowcount

    first, second = make(), make()
    assert rows(first, "CREATE TABLE kept AS SELECT 1 AS n") == 1
    first.stop()
    assert rows(second, "SELECT n FROM kept") == 1
    second.stop()
    (root / "postgres" / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedError, match="the data was written by another Postgres version"):
        make().start(workers=False)


def test_a_client_that_joins_while_the_last_one_leaves_keeps_the_stack(tmp_path: Path) -> None:
    answer = Endpoints("postgresql://", "unix://")
    supervisor = Supervisor(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        leaving, joining = (socket.socket(socket.AF_UNIX) for _ in range(2))
        for client in (leaving, joining):
            client.connect(str(tmp_path / "s"))

        supervisor._accept(listener, answer)
        [connection] = supervisor._clients
        with Connection(leaving.detach()) as first, Connection(joining.detach()) as second:
            assert first.recv() == answer
            first.send(None)
            supervisor._receive(connection, answer)
            supervisor._accept(listener, answer)

            assert second.recv() == answer
            assert len(supervisor._clients) == 1
            with pytest.raises(EOFError):
                first.recv()
            for client in supervisor._clients:
                client.close()


@pytest.mark.parametrize("cores", [1, 2, 4, 16, 64, 256])
def test_a_worker_set_has_a_place_for_every_core(cores: int) -> None:
    workers = WorkerSet.of(cores, places({}, cores))
    assert workers.trials == max(4, cores)
    assert 1 <= workers.evaluators <= 8
    assert _places_of(workers, {}) == workers.trials


@pytest.mark.parametrize("variable", ["EVOQ_EVALUATE_CONCURRENCY", "EVOQ_SANDBOX__PLACES"])
def test_the_places_that_a_person_sets_are_those_of_all_evaluators_together(variable: str) -> None:
    environment = {variable: "13"}
    workers = WorkerSet.of(64, places(environment, 64))
    assert workers.evaluators == 8
    assert _places_of(workers, environment) == 13


@pytest.mark.parametrize(("given", "nice"), [({}, "10"), ({"EVOQ_NICE": "3"}, "3")])
def test_workers_let_other_programs_go_first(given: dict[str, str], nice: str) -> None:
    processes = worker_processes(WorkerSet(), given)
    assert {process.environment["EVOQ_NICE"] for process in processes} == {nice}


def _places_of(workers: WorkerSet, environment: dict[str, str]) -> int:
    processes = worker_processes(workers, environment)
    return sum(
        places(process.environment, 999)
        for process in processes
        if process.name.startswith("worker-cpu")
    )


def free_port() -> int:
    """Returns a port below those that the kernel assigns, so that no other program gets it."""
    for port in random.sample(range(10_000, 16_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
