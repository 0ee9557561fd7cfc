"""The Kubernetes cluster of the tests, and a namespace of it for each session."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

STANDIN = Path("/var/lib/standin-k8s/kubeconfig")
_PREPARE = Path(__file__).resolve().parents[2] / "shared" / "standin" / "prepare-k8s"
_ANSWER_SECONDS, _UP_SECONDS = 10, 900


@cache
def kubeconfig() -> Path:
    """Returns the kubeconfig of a cluster that answers, or skips with the reason.

    It is that of KUBECONFIG, else that of the stand-in, which is started where its script is beside
    the project, its binaries are built, and this user is root.
    """
    named = os.environ.get("KUBECONFIG")
    if named:
        if why := _silent(Path(named)):
            pytest.skip(f"no cluster answers at KUBECONFIG={named}: {why}")
        return Path(named)
    if not STANDIN.exists() or _silent(STANDIN):
        _start_standin()
    if why := _silent(STANDIN):
        pytest.skip(f"the stand-in cluster does not answer: {why}")
    return STANDIN


def kubectl(*arguments: str, given: str = "") -> str:
    """Returns what kubectl prints; skips where there is none.

    Args:
      arguments: Those of the command.
      given: Its standard input.
    """
    done = subprocess.run(
        [_program(), "--kubeconfig", str(kubeconfig()), *arguments],
        input=given, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def namespace() -> Iterator[str]:
    """A namespace of this session's own, deleted with all that is in it."""
    name = f"tests-{uuid4().hex[:10]}"
    kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def _program() -> str:
    found = shutil.which("kubectl")
    standin = Path(os.environ.get("STANDIN_CACHE", "/var/cache/standin-docker"), "k8s/bin/kubectl")
    if found is None and not standin.exists():
        pytest.skip("no kubectl")
    return found or str(standin)


def _silent(config: Path) -> str:
    """Returns why no API server answers; "" where one does."""
    command = [_program(), "--kubeconfig", str(config), "get", "--raw", "/readyz"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return f"nothing within {_ANSWER_SECONDS} s"
    return done.stderr.strip() if done.returncode else ""


def _start_standin() -> None:
    if not _PREPARE.exists():
        pytest.skip("no cluster: set KUBECONFIG (there is no stand-in beside the project)")
    if os.geteuid() != 0:
        pytest.skip("no cluster: set KUBECONFIG (only root can start the stand-in)")
    done = subprocess.run(
        [str(_PREPARE), "up"], capture_output=True, text=True, timeout=_UP_SECONDS
    )
    if done.returncode:
        pytest.skip(f"the stand-in cluster does not start: {done.stderr.strip()[-400:]}")
