"""What a sandbox claims, compared with what a program in it could in fact do."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.adapters.sandbox.docker import DockerSandbox
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job, Limits, Mode, Outcome
from tests.contracts.sandbox import last_outcome
from tests.integration.test_sandbox_docker import docker_sandbox
from tests.integration.test_sandbox_process import sandbox_behind
from workers.harness import landlock

LIMITS = Limits(
    wall_seconds=60.0, cpu_seconds=30.0, memory_mib=256, file_bytes=24 << 20, processes=24
)
ABSTRACT = "evoq-test-of-claims"
EVALUATOR = f"""
import importlib.util, os, socket
listening = socket.socket(socket.AF_UNIX)
try:
    listening.bind("\\0{ABSTRACT}-" + str(os.getpid()))
    listening.listen()
except OSError: pass

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {{"combined_score": 0.0, **module.probe(os.getpid(), os.getppid())}}
""".encode()
HIDDEN = "marmot-hidden"
PROBLEM = Evaluator("claims", {"evaluator.py": EVALUATOR, "hidden.txt": HIDDEN.encode()})

PROBE = """
import ctypes, glob, mmap, os, signal, socket

def works(action, *arguments):
    try:
        return bool(action(*arguments) is not False)
    except (OSError, MemoryError, ValueError):
        return False

def contains(path, what):
    with open(path, "rb") as file: return what in file.read(1 << 16)

def write(path):
    with open(path, "w") as file: file.write("x")

def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one: one.connect(address)

def any_process(what):
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    return any(works(contains, f"/proc/{pid}/cmdline", what) for pid in pids)

def large_file():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("large", "wb") as file:
        for _ in range(25): file.write(bytes(1 << 20))

def many_descriptors():
    kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(257)]

def hidden():
    places = [os.getcwd()]
    while places[-1] != "/": places.append(os.path.dirname(places[-1]))
    return any(works(contains, p + "/eval/files/hidden.txt", b"marmot-hidden") for p in places)

def probe(evaluator, evaluators_zygote):
    libc, io_setup = ctypes.CDLL(None), 206 if os.uname().machine == "x86_64" else 0
    abstract = [f"\\0{ABSTRACT}-{pid}" for pid in (evaluator, evaluators_zygote)]
    return {
        "memory": works(mmap.mmap, -1, 1 << 29, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
        "large file": works(large_file),
        "descriptors": works(many_descriptors),
        "files of the machine": works(contains, "{FOLDER}/readable", b""),
        "writing outside": works(write, "{FOLDER}/written"),
        "closing files to others": works(os.chmod, "{FOLDER}/readable", 0o777),
        "processes of the machine": works(any_process, b"pytest"),
        "TCP": works(connect, socket.AF_INET, ("127.0.0.1", {PORT})),
        "UDP": works(connect, socket.AF_INET, ("192.0.2.1", 9), socket.SOCK_DGRAM),
        "a socket of the machine": works(connect, socket.AF_UNIX, "{FOLDER}/socket"),
        "the evaluator's files": hidden(),
        "the evaluator's arguments": works(contains, f"/proc/{evaluator}/cmdline", b""),
        "the evaluator's signals": works(os.kill, evaluator, 0),
        "the evaluator's sockets": any(works(connect, socket.AF_UNIX, name) for name in abstract),
        "a forbidden call": libc.syscall(io_setup, 1, ctypes.byref(ctypes.c_ulong())) == 0,
    }
"""
FORKING = """
import os, time
def probe(*_):
    made = 0
    try:
        while made < 100:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            made += 1
    except OSError: pass
    return {"made": float(made)}
"""
WRITING = """
import time
def probe(*_):
    for n in range(16):
        with open(f"f{n}", "wb") as file:
            for _ in range(16): file.write(bytes(1 << 20))
    time.sleep(60)  # until somebody looks
"""
HOLDING = """
import os, time
def probe(*_):
    for _ in range(10):
        if os.fork() == 0:
            held = b"x" * (60 << 20)
            time.sleep(60)
    time.sleep(60)
"""
ALONE = "programs apart from the evaluator and the worker"
MEANING = {
    "limits of CPU, memory, files and output, and a deadline": (
        "memory", "large file", "descriptors",
    ),
    "the machine's files out of sight": (
        "files of the machine", "writing outside", "closing files to others",
    ),
    "the machine's processes out of sight": ("processes of the machine",),
    "no network": ("TCP", "UDP", "a socket of the machine"),
    "the evaluator's processes and abstract sockets out of sight": (
        "the evaluator's arguments", "the evaluator's sockets",
    ),
    ALONE: ("the evaluator's files", "the evaluator's signals"),
    "system call filter": ("a forbidden call",),
}  # fmt: skip
"""What a program cannot do where a protection is claimed.  That its processor time ends is part of
the contract of every sandbox (`tests/contracts/sandbox.py`)."""
ENDED_BY = {
    "a bound on all files of a trial": (WRITING, FailureKind.OUTPUT_LIMIT),
    "memory limit of all processes together by a cgroup": (HOLDING, FailureKind.MEMORY),
}
"""Programs that a protection ends, and as what."""


@dataclass(frozen=True)
class Outside:
    """What of this machine a program should not reach.

    Attributes:
      folder: A directory that anyone may write, with a file and a socket.
      port: Of a TCP listener.
    """

    folder: Path
    port: int


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    with outside_of_sandboxes() as made:
        yield made


@contextlib.contextmanager
def outside_of_sandboxes() -> Iterator[Outside]:
    """Makes a folder, a socket and a listener for the time of the block."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        (folder / "readable").write_text("")
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(str(folder / "socket"))
        local.listen()
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for path in (folder, *folder.iterdir()):
            path.chmod(0o777)
        yield Outside(folder, listener.getsockname()[1])


KINDS = ("privileged", "unprivileged", "bare", pytest.param("docker", marks=pytest.mark.docker))


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[DockerSandbox | ProcessSandbox]:
    kind = request.param
    opened = docker_sandbox() if kind == "docker" else sandbox_behind(kind)
    yield opened
    opened.close()


def run(sandbox: DockerSandbox | ProcessSandbox, source: str, limits: Limits = LIMITS) -> Outcome:
    job = Job(PROBLEM, "evaluate", ((".py", source.encode()),), limits, Mode.GUARDED)
    return last_outcome(sandbox, job)


def claims(sandbox: DockerSandbox | ProcessSandbox) -> dict[str, bool]:
    return {protection.name: protection.on for protection in sandbox.protections()}


def metrics(outcome: Outcome) -> dict[str, float]:
    assert outcome.failure is None, outcome
    assert outcome.result is not None
    found: dict[str, float] = json.loads(outcome.result)["metrics"]
    return found


def probe(outside: Outside) -> str:
    source = PROBE.replace("{FOLDER}", str(outside.folder)).replace("{PORT}", str(outside.port))
    return source.replace("{ABSTRACT}", ABSTRACT)


def test_without_a_sandbox_the_probe_can_do_it(outside: Outside, tmp_path: Path) -> None:
    source = f"{probe(outside)}\nimport json\nprint(json.dumps(probe({os.getpid()}, 0)))"
    command = [sys.executable, "-c", source]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    done = {what for what, worked in json.loads(printed.stdout).items() if worked}

    elsewhere = {"UDP", "the evaluator's files", "the evaluator's sockets", "a forbidden call"}
    assert {what for meant in MEANING.values() for what in meant} - done <= elsewhere


def broken_claims(
    sandbox: DockerSandbox | ProcessSandbox, outside: Outside
) -> dict[str, list[str]]:
    """Returns what a program could do in spite of each protection that is claimed."""
    done = metrics(run(sandbox, probe(outside)))
    claimed = {name for name, on in claims(sandbox).items() if on and name in MEANING}
    broken = {name: [what for what in MEANING[name] if done[what]] for name in claimed}
    return {name: what for name, what in broken.items() if what}


def test_a_probe_can_do_nothing_that_is_claimed_to_be_impossible(
    sandbox: DockerSandbox | ProcessSandbox, outside: Outside
) -> None:
    assert broken_claims(sandbox, outside) == {}


def test_the_processes_of_a_program_are_no_more_than_claimed(
    sandbox: DockerSandbox | ProcessSandbox,
) -> None:
    if claims(sandbox)["a bound on the processes of a trial"]:
        assert 0 < metrics(run(sandbox, FORKING))["made"] < LIMITS.processes


@pytest.mark.parametrize("claim", ENDED_BY)
def test_what_is_claimed_to_be_bounded_together_is_bounded(
    sandbox: DockerSandbox | ProcessSandbox, claim: str
) -> None:
    source, kind = ENDED_BY[claim]
    if claims(sandbox)[claim]:
        failure = run(sandbox, source).failure
        assert failure is not None
        assert failure.kind is kind


@pytest.mark.skipif(not landlock.has_scopes(), reason="Landlock hides no sockets here: Linux 6.12")
def test_what_landlock_can_hide_here_is_claimed(sandbox: DockerSandbox | ProcessSandbox) -> None:
    assert claims(sandbox)["the evaluator's processes and abstract sockets out of sight"]


def test_every_claim_is_compared(sandbox: DockerSandbox | ProcessSandbox) -> None:
    compared = {*MEANING, *ENDED_BY, "a bound on the processes of a trial"}

    assert set(claims(sandbox)) == compared
