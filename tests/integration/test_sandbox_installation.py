"""What a problem's dependencies can reach while they are installed, and when they are used."""

import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.isolated import CommandLimits
from app.adapters.sandbox import installation
from app.adapters.sandbox.engine import engine_client
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.images import LABEL_OF_PROBLEM, Images
from app.adapters.sandbox.installation import default_index, pip_settings, places
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.adapters.sandbox.relay import Relay
from app.domain.problem import Evaluator, Job, Mode
from app.ports.protocols import Misconfigured, Unavailable
from tests.contracts.sandbox import LIMITS, SQUARE, metrics, problem
from tests.integration.test_sandbox_docker import OWNER, require_engine

SECRET = "marmot-9127-hidden"
POOL = PoolSettings(max_sandboxes=1, spares=0)
BOUND = 64
"""Of the processes of an installation here; to reach that of a deployment takes seconds."""
FORKS = 100
"""More than that, and no danger where nothing bounds them."""

PROJECT = b"""
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "marmot"
version = "1.0"
"""

BACKEND = """
import glob, json, os, signal, socket, time, urllib.request, zipfile

FACTS = json.load(open(os.path.join(os.path.dirname(__file__), "facts.json")))
SECRET = FACTS["secret"]


def found(paths):
    leaks = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                if SECRET.encode() in file.read():
                    leaks.append(path)
        except OSError:
            pass
    return leaks


def succeeds(act):
    try:
        act()
        return True
    except Exception:
        return False


def connect(family, address):
    with socket.socket(family) as one:
        one.settimeout(3)
        one.connect(address)


def forks():
    children = []
    try:
        while len(children) < FACTS["forks"]:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)


def leave_a_process():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(600)
        os._exit(0)


def findings():
    leave_a_process()
    return {
        "environments": found(glob.glob("/proc/[0-9]*/environ")),
        "files": found([FACTS["file"], *glob.glob(os.path.expanduser("~/*"))]),
        "processes": len(glob.glob("/proc/[0-9]*")),
        "signal": succeeds(lambda: os.kill(FACTS["pid"], signal.SIGTERM)),
        "planted": succeeds(lambda: open(FACTS["plant"], "w").close()),
        "loopback": succeeds(lambda: connect(socket.AF_INET, ("127.0.0.1", FACTS["port"]))),
        "abstract": succeeds(lambda: connect(socket.AF_UNIX, "\\0" + FACTS["abstract"])),
        "engine": succeeds(lambda: connect(socket.AF_UNIX, "/var/run/docker.sock")),
        "proxy": succeeds(
            lambda: urllib.request.urlopen("http://127.0.0.1:%d/" % FACTS["port"], timeout=3)
        ),
        "forks": forks(),
    }


def build_wheel(directory, settings=None, metadata=None):
    about = "Metadata-Version: 2.1\\nName: marmot\\nVersion: 1.0\\n"
    kind = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    name = "marmot-1.0-py3-none-any.whl"
    start = open(os.path.join(os.path.dirname(__file__), "start.py")).read()
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        archive.writestr("marmot.json", json.dumps(findings()))
        archive.writestr("marmot_start.py", start.replace("FILE", repr(FACTS["file"])))
        archive.writestr("marmot.pth", "import marmot_start\\n")
        archive.writestr("marmot-1.0.dist-info/METADATA", about)
        archive.writestr("marmot-1.0.dist-info/WHEEL", kind)
        archive.writestr("marmot-1.0.dist-info/RECORD", "")
    return name
"""

START = b"""
import os
PROCESSES = sum(name.isdigit() for name in os.listdir("/proc"))
LEAKED = os.path.exists(FILE)
"""
"""What runs when the interpreter of the environment starts."""

EVALUATOR = b"""
import marmot_start

def evaluate(path):
    return {"combined_score": 1.0, "leaked": float(marmot_start.LEAKED),
            "processes": float(marmot_start.PROCESSES)}
"""


@pytest.fixture
def secrets(tmp_path: Path) -> Iterator[dict[str, object]]:
    """A process, a file and servers of this user that nothing that is installed may reach."""
    file = tmp_path / "dot_env"
    file.write_text(SECRET)
    file.chmod(0o644)
    sleeper = subprocess.Popen(["sleep", "300"], env={"EVOQ_DATABASE_URL": SECRET})
    abstract = f"evoq-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as named,
    ):
        named.bind(f"\0{abstract}")
        named.listen()
        yield {
            "secret": SECRET,
            "file": str(file),
            "pid": sleeper.pid,
            "plant": str(tmp_path / "planted"),
            "port": server.getsockname()[1],
            "abstract": abstract,
            "forks": FORKS,
        }
    assert sleeper.poll() is None, "a process of this user was ended"
    sleeper.kill()
    sleeper.wait()


def evil(facts: dict[str, object]) -> Evaluator:
    files = {
        "evaluator.py": EVALUATOR,
        "requirements.txt": b"./evil\n",
        "evil/pyproject.toml": PROJECT,
        "evil/backend.py": BACKEND.encode(),
        "evil/start.py": START,
        "evil/facts.json": json.dumps(facts).encode(),
    }
    return Evaluator("evil", files)


def findings_of(python: str) -> dict[str, object]:
    [path] = Path(python).parents[1].glob("lib/python*/site-packages/marmot.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found


def assert_nothing_reached(found: dict[str, object]) -> None:
    processes, forks = found.pop("processes"), found.pop("forks")
    assert isinstance(processes, int)
    assert processes < 10, "processes outside are visible"
    assert isinstance(forks, int)
    assert forks < BOUND
    assert not any(found.values()), found


def require_isolation(level: str) -> None:
    sandbox = ProcessSandbox(POOL, levels=(level, "bare"))
    protections = {one.name: one.on for one in sandbox.protections()}
    sandbox.close()
    if not protections["the machine's files out of sight"]:
        pytest.skip(f"this kernel or user does not permit {level} isolation")


ALWAYS = "app.adapters.sandbox.installation._ALWAYS"
"""The packages of every environment; those of the next two tests go without, which are large."""


@pytest.mark.slow
def test_a_build_backend_reaches_nothing_of_the_worker(
    secrets: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ALWAYS, ())
    monkeypatch.setattr(installation, "_LIMITS", CommandLimits(processes=BOUND))
    level = "privileged" if os.geteuid() == 0 else "unprivileged"
    require_isolation(level)
    environments = Environments(folder=tmp_path / "cache")
    of = evil(secrets)
    python = environments.interpreter(of)
    assert_nothing_reached(findings_of(python))
    assert not (tmp_path / "planted").exists()
    assert "is refused" in Path(f"{Path(python).parents[1]}.log").read_text()

    sandbox = ProcessSandbox(POOL, environments=environments, levels=(level, "bare"))
    job = Job(of, "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)
    seen = metrics(sandbox.run(job))
    sandbox.close()
    assert seen["leaked"] == 0.0
    assert seen["processes"] < 10


INSTALL = """
import encodings.idna, json, os, shutil, sys  # once it is another user, it can import nothing
from pathlib import Path
from app.adapters.sandbox import bundle, environments, installation
from app.domain.problem import Evaluator
python, cache, bound = sys.argv[1:]
files = {name: text.encode() for name, text in json.load(sys.stdin).items()}
bundle.harness_frame()
installation._ALWAYS = ()
installation._LIMITS = installation.CommandLimits(processes=int(bound))
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
os.environ["HOME"] = cache
made = environments.Environments(python, folder=Path(cache))
print(made.interpreter(Evaluator("evil", files)))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_build_backend_reaches_nothing_of_a_user_without_privileges(
    secrets: dict[str, object],
) -> None:
    python = "/usr/bin/python3"
    if subprocess.run([python, "-m", "ensurepip", "--version"], capture_output=True).returncode:
        pytest.skip(f"there is no {python} with ensurepip, which another user can run")
    of = evil(secrets)
    with tempfile.TemporaryDirectory() as cache:
        os.chown(cache, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", INSTALL, python, cache, str(BOUND)],
            cwd=Path(__file__).parents[2],
            input=json.dumps({name: text.decode() for name, text in of.files.items()}),
            env={**os.environ, "EVOQ_SECRET": SECRET},
            capture_output=True,
            text=True,
            timeout=200,
        )
        if "nothing here isolates" in done.stderr:
            pytest.skip(f"this kernel permits the user no isolation: {done.stderr[-600:]}")
        assert done.returncode == 0, done.stderr
        assert_nothing_reached(findings_of(done.stdout.strip()))


def test_without_isolation_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.adapters.sandbox.isolated_command._LEVELS", ())
    of = Evaluator("local", {"evaluator.py": EVALUATOR, "requirements.txt": b"marmot\n"})
    with pytest.raises(Misconfigured) as caught:
        Environments(folder=tmp_path).interpreter(of)
    for words in ("namespaces cannot be had", "sandbox.unisolated_builds=true", "sandbox.image"):
        assert words in str(caught.value)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".lock", ".log"]


def test_an_environment_is_not_used_without_isolation(tmp_path: Path) -> None:
    class Made(Environments):
        def interpreter(self, evaluator: Evaluator) -> str:
            return str(tmp_path / "bin" / "python")

    sandbox = ProcessSandbox(POOL, environments=Made(), levels=("bare",), engine=())
    job = Job(Evaluator("x", {"evaluator.py": EVALUATOR}), "evaluate", (), LIMITS, Mode.GUARDED)
    with pytest.raises(Misconfigured, match="packages that run code when their interpreter starts"):
        sandbox.run(job)
    sandbox.close()


@pytest.mark.parametrize("permitted", [True, False])
def test_no_evaluator_runs_where_it_could_open_the_socket_of_an_engine(
    permitted: bool, tmp_path: Path
) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        path.chmod(0o666)
        place = str(path) if permitted else str(tmp_path / "none.sock")
        sandbox = ProcessSandbox(POOL, levels=("bare",), engine=(place,))
        job = Job(problem(), "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)
        if permitted:
            with pytest.raises(Misconfigured, match="which makes it root"):
                sandbox.run(job)
        else:
            assert sandbox.run(job).failure is None
        sandbox.close()


# In an engine.


@pytest.fixture
def images() -> Iterator[Images]:
    require_engine()
    made = Images(owner=OWNER)
    yield made
    with engine_client(60.0) as engine:
        for row in engine.images(filters={"label": [LABEL_OF_PROBLEM, f"evoqueue.owner={OWNER}"]}):
            engine.remove_image(row["Id"], force=True)


READ = "import glob; print(open(glob.glob('/usr/local/lib/*/site-packages/marmot.json')[0]).read())"


@pytest.mark.docker
@pytest.mark.slow
def test_a_build_backend_reaches_nothing_of_the_worker_in_an_engine(
    secrets: dict[str, object], images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.adapters.sandbox.images._PROCESSES", BOUND)
    tag = images.of(evil(secrets))

    with engine_client(60.0) as engine:
        reader = engine.create_container(tag, entrypoint=["python3", "-S", "-c", READ])["Id"]
        engine.start(reader)
        engine.wait(reader)
        found = json.loads(engine.logs(reader))
        engine.remove_container(reader)
        config = engine.inspect_image(tag)["Config"]
    assert_nothing_reached(found)
    assert (config["Entrypoint"] or [], config["Cmd"]) == ([], ["python3"])


@pytest.mark.docker
def test_an_installation_in_an_engine_ends_at_its_deadline() -> None:
    require_engine()
    files = evil({}).files | {"evil/backend.py": b"import time\ntime.sleep(300)\n"}
    began = time.monotonic()
    with pytest.raises(Unavailable, match="takes more than 6 s"):
        Images(owner=OWNER, build_seconds=6.0).of(Evaluator("silent", files))
    assert time.monotonic() - began < 60.0
    with engine_client(20.0) as engine:
        filters = {"label": ["evoqueue.sandbox=build", f"evoqueue.owner={OWNER}"]}
        assert engine.containers(all=True, filters=filters) == []


# The way to the package index.


class Index(http.server.BaseHTTPRequestHandler):
    """Answers each request with its path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def index() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def relay_to(*allowed: tuple[str, int]) -> Iterator[tuple[int, list[str]]]:
    said: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))
    relay = Relay(frozenset(allowed), "the package index", said.append)
    serving = threading.Thread(target=relay.serve, args=(listener,))
    serving.start()
    yield listener.getsockname()[1], said
    listener.shutdown(socket.SHUT_RDWR)
    serving.join()


def ask(port: int, request: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(request.encode())
        answer = b""
        while piece := sock.recv(65_536):
            answer += piece
        return answer


def test_the_relay_leads_to_the_index(index: int) -> None:
    with relay_to(("127.0.0.1", index)) as (port, said):
        head = f"GET http://127.0.0.1:{index}/simple/x/?a=b HTTP/1.1"
        answer = ask(port, f"{head}\r\nHost: x\r\nConnection: keep-alive\r\n\r\n")
        assert answer.startswith(b"HTTP/1.0 200")
        assert answer.endswith(b"/simple/x/?a=b")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
            sock.sendall(f"CONNECT 127.0.0.1:{index} HTTP/1.1\r\n\r\n".encode())
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
            sock.sendall(b"GET /inside HTTP/1.0\r\n\r\n")
            answer = b""
            while piece := sock.recv(65_536):
                answer += piece
            assert answer.endswith(b"/inside")
    assert said == []


@pytest.mark.parametrize(
    "request_line",
    [
        "GET http://127.0.0.1:{other}/ HTTP/1.1",
        "CONNECT 127.0.0.1:{other} HTTP/1.1",
        "GET http://localhost:{index}/ HTTP/1.1",
        "GET /simple/ HTTP/1.1",
        "GET http://127.0.0.1:99999/ HTTP/1.1",
    ],
)
def test_the_relay_leads_nowhere_else(index: int, request_line: str) -> None:
    with relay_to(("127.0.0.1", index)) as (port, said):
        line = request_line.format(index=index, other=index + 1)
        assert ask(port, f"{line}\r\n\r\n").startswith(b"HTTP/1.1 403")
    [refused] = said
    assert "is refused" in refused


def test_an_idle_relay_ends_with_its_listener() -> None:
    with relay_to() as (port, _), socket.create_connection(("127.0.0.1", port)):
        pass


def test_places_of_an_index() -> None:
    default = ("https://default.example/packages", "files.example")
    assert places({}, default) == {("default.example", 443), ("files.example", 443)}
    assert places({"no_index": "1"}, default) == frozenset()
    pip = {"index_url": "http://me:key@Mirror.example:8080/simple", "find_links": "/opt/wheels"}
    assert places(pip, default, ("torch.example", "git.example:8443")) == {
        ("mirror.example", 8080),
        ("torch.example", 443),
        ("git.example", 8443),
    }


def test_pip_names_its_default_index() -> None:
    address, files = default_index(sys.executable)
    assert address.startswith("https://")
    assert "." in files
    with pytest.raises(Unavailable, match="did not name its default index"):
        default_index("/bin/true")


def test_settings_of_pip_come_from_its_files_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://a.example/packages\nproxy = http://p\nretries = 2\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_RETRIES", "7")
    found = pip_settings(sys.executable)
    assert found["index_url"] == "https://a.example/packages"
    assert found["retries"] == "7"
    assert "proxy" not in found


def test_settings_of_pip_come_from_the_environment_where_the_interpreter_has_no_pip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/packages")
    with pytest.raises(Unavailable, match="pip of /bin/false"):
        pip_settings("/bin/false")
    found = pip_settings("/bin/false", sys.executable)
    assert found["index_url"] == "https://index.example/packages"
