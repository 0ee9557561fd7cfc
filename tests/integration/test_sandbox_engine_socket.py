"""Whether an evaluator in a child process can open the socket of a Docker engine."""

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.sandbox import bundle
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.problem import Evaluator, Job, Limits, Mode
from app.ports.protocols import Misconfigured
from tests.integration.forked import in_a_fork

GROUP = 54_321
NOBODY = 65_534
PYTHON = "/usr/bin/python3"

EVALUATOR = """
import os, socket

def opened():
    try:
        os.seteuid(0)
    except OSError:
        pass
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect("{file}")
            return 1.0
    except OSError:
        return 0.0

OPENED = opened()

def evaluate(path):
    return {{"combined_score": max(OPENED, opened())}}
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"there is no {PYTHON}"),
]


@pytest.fixture(scope="module")
def file() -> Iterator[str]:
    """A socket that a group may open, as the engine's is."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        os.chmod(folder, 0o755)
        path = f"{folder}/docker.sock"
        listener.bind(path)
        listener.listen(64)
        os.chown(path, 0, GROUP)
        os.chmod(path, 0o660)
        yield path


def answer(
    file: str,
    *,
    uid: int = NOBODY,
    groups: tuple[int, ...] = (GROUP,),
    mode: str = "guarded",
    level: str = "bare",
    known: bool = True,
) -> dict[str, object]:
    """Returns what became of an evaluator that opens the socket.

    Args:
      file: The socket's.
      uid: The worker's user.
      groups: Its supplementary groups.
      mode: The evaluator's.
      level: The only isolation that is tried.
      known: Whether the sandbox knows that this is an engine's socket.
    """
    evaluator = Evaluator("opener", {"evaluator.py": EVALUATOR.format(file=file).encode()})
    job = Job(evaluator, "evaluate", ((".py", b"x = 1"),), Limits(), Mode(mode))
    bundle.harness_frame()  # what it reads, another user may not

    def worker() -> dict[str, object]:
        os.setgroups(groups)
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        sandbox = ProcessSandbox(
            PoolSettings(max_sandboxes=1, spares=0),
            environments=Environments(PYTHON, folder=Path("/nowhere")),
            levels=(level,),
            engine=(file,) if known else (),
        )
        try:
            outcome = sandbox.run(job)
        except Misconfigured as error:
            return {"refused": str(error)}
        finally:
            sandbox.close()
        assert outcome.result is not None, (outcome.failure, outcome.stderr)
        return {"opened": json.loads(outcome.result)["metrics"]["combined_score"]}

    read: dict[str, object] = in_a_fork(worker)
    return read


@pytest.mark.parametrize(("uid", "mode"), [(NOBODY, "guarded"), (0, "compatible")])
def test_no_sandbox_boots_whose_evaluator_could_open_the_socket(
    file: str, uid: int, mode: str
) -> None:
    assert answer(file, uid=uid, mode=mode, known=False)["opened"] == 1.0  # the attack works

    refused = str(answer(file, uid=uid, mode=mode)["refused"])

    for words in (file, "root on that machine", "DOCKER_GID"):
        assert words in refused


def test_a_worker_without_the_group_boots_its_sandboxes(file: str) -> None:
    assert answer(file, groups=())["opened"] == 0.0


def test_an_evaluator_of_roots_drops_the_groups(file: str) -> None:
    assert answer(file, uid=0)["opened"] == 0.0


@pytest.mark.parametrize(("uid", "level"), [(NOBODY, "unprivileged"), (0, "privileged")])
@pytest.mark.parametrize("mode", ["guarded", "compatible"])
def test_the_socket_is_out_of_sight_in_namespaces(
    file: str, uid: int, level: str, mode: str
) -> None:
    seen = answer(file, uid=uid, level=level, mode=mode)
    if "refused" in seen:
        pytest.skip(f"this kernel permits no {level} isolation: {seen}")
    assert seen["opened"] == 0.0
