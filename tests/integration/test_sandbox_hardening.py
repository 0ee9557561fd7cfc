"""How the engine confines the container of a sandbox."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.sandbox.containers import IMAGE
from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox, profile
from app.adapters.sandbox.pool import PoolSettings
from app.domain.problem import EvaluatorBroken, Job, Mode
from app.ports.protocols import Misconfigured, Sandbox
from tests.contracts.sandbox import LIMITS, SQUARE, metrics, problem
from tests.integration.test_sandbox_docker import OWNER, docker_sandbox, require_engine

OURS = IMAGE / "seccomp.json"
LOOK = b"""
import ctypes, os, socket

# While the evaluator is imported, the container's own filter is the only one.
def look():
    lines = open("/proc/1/status").read().splitlines()
    status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
    libc = ctypes.CDLL(None, use_errno=True)
    refused = {}
    for name, number in (("io_uring_setup", 425), ("keyctl", 250), ("ptrace", 101), ("bpf", 321)):
        ctypes.set_errno(0)
        libc.syscall(number, 0, 0, 0, 0)
        refused[name] = ctypes.get_errno() == 1
    for family in (16, 17, 38, 40):
        try:
            socket.socket(family, socket.SOCK_RAW).close()
            refused[str(family)] = False
        except OSError:
            refused[str(family)] = True
    return {"bounding": status["CapBnd"].strip(), "effective": status["CapEff"].strip(),
            "privileges": status["NoNewPrivs"].strip(), "seccomp": status["Seccomp"].strip(),
            **refused}

SEEN = look()

def evaluate(path):
    return SEEN
"""
SETUID_SETGID_KILL = f"{1 << 7 | 1 << 6 | 1 << 5:016x}"


def look(sandbox: Sandbox) -> dict[str, object]:
    job = Job(problem(LOOK, "look"), "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)
    return metrics(sandbox.run(job))


@pytest.fixture
def containers() -> Iterator[Sandbox]:
    sandbox = docker_sandbox(PoolSettings(max_sandboxes=1, spares=0))
    yield sandbox
    sandbox.close()


@pytest.mark.docker
def test_the_first_process_has_three_capabilities_and_a_filter(containers: Sandbox) -> None:
    found = look(containers)
    assert found.pop("bounding") == SETUID_SETGID_KILL
    assert found.pop("effective") == SETUID_SETGID_KILL
    assert found.pop("privileges") == "1"
    assert found.pop("seccomp") == "2"
    assert found == dict.fromkeys(found, True)


@pytest.mark.docker
def test_another_profile_can_be_named(tmp_path: Path) -> None:
    require_engine()
    strict = json.loads(OURS.read_text())
    for rule in strict["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name != "memfd_create"]
    (tmp_path / "strict.json").write_text(json.dumps(strict))
    text = b"import os\nos.memfd_create('x')\ndef evaluate(path):\n    return {}\n"
    job = Job(problem(text, "memfd"), "evaluate", ((".py", SQUARE),), LIMITS, Mode.GUARDED)
    for named in ("", "engine", str(tmp_path / "strict.json")):
        settings = ContainerSettings(seccomp=profile(named, OURS), owner=OWNER)
        sandbox = DockerSandbox(PoolSettings(max_sandboxes=1, spares=0), settings=settings)
        expected = pytest.raises(EvaluatorBroken) if "/" in named else contextlib.nullcontext()
        with expected:
            assert sandbox.run(job).failure is None
        sandbox.close()


def test_our_profile_permits_no_dangerous_call() -> None:
    text = json.loads(profile("", OURS))
    assert text["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed = {
        name
        for rule in text["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule
        for name in rule["names"]
    }
    never = {
        *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "clone", "clone3"),
        *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "bpf"),
        *("io_uring_setup", "keyctl", "add_key", "request_key", "perf_event_open", "userfaultfd"),
        *("shmget", "semget", "msgget", "mq_open", "socket", "open_by_handle_at", "init_module"),
        *("kexec_load", "reboot", "swapon", "settimeofday", "clock_settime", "personality"),
    }
    assert not never & allowed


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"], ids=["absent", "cut", "list", "empty"])
def test_an_invalid_profile_is_reported_with_its_path(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "profile.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Misconfigured) as caught:
        profile(str(path), OURS)
    assert "sandbox.seccomp" in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.docker
def test_an_unknown_runtime_is_reported_with_the_known_ones() -> None:
    sandbox = docker_sandbox(PoolSettings(max_sandboxes=1), runtime="no-such-runtime")
    job = Job(problem(), "evaluate", ((".py", SQUARE),), replace(LIMITS), Mode.GUARDED)
    with pytest.raises(Misconfigured) as caught:
        sandbox.run(job)
    sandbox.close()
    assert "no-such-runtime" in str(caught.value)
    assert "runc" in str(caught.value)


@pytest.mark.docker
def test_nothing_is_mounted_and_nothing_is_published(containers: Sandbox) -> None:
    look(containers)
    command = ["docker", "ps", "-q", "--filter", f"label=evoqueue.owner={OWNER}"]
    ids = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert ids
    shown = subprocess.run(["docker", "inspect", *ids], capture_output=True, text=True)
    for container in json.loads(shown.stdout):
        host = container["HostConfig"]
        assert host["Binds"] is None
        assert host["NetworkMode"] == "none"
        assert host["ReadonlyRootfs"]
        assert not host["Privileged"]
        assert not host["PortBindings"]
