"""The API server is killed and started again while trials run."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.adapters.kubernetes.connection import Cluster
from app.adapters.kubernetes.jobs import Jobs
from app.domain.problem import Evaluator, Job, Limits
from tests.cluster import STANDIN
from tests.kubernetes.test_jobs import eventually, nothing_is_left, running
from tests.kubernetes.test_sandbox_jobs import job_sandbox

EVALUATOR = b"""
import time

def evaluate(path):
    time.sleep(5)
    return {"x": 1}
"""
SLOW = Evaluator("slow", {"evaluator.py": EVALUATOR})


def api_server() -> Path:
    """Returns the file with the number of the stand-in's API server, or skips."""
    file = STANDIN.parent / "kube-apiserver.pid"
    if not file.exists() or os.environ.get("KUBECONFIG", str(STANDIN)) != str(STANDIN):
        pytest.skip("only the API server of the stand-in may be killed")
    return file


def killed_and_started(file: Path) -> None:
    """Kills the API server, and starts it as `prepare-k8s` did."""
    number = int(file.read_text())
    command = Path(f"/proc/{number}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert b"kube-apiserver" in command[0]
    variables = Path(f"/proc/{number}/environ").read_bytes().rstrip(b"\0").split(b"\0")
    os.kill(number, signal.SIGKILL)
    with (file.parent / "log" / "kube-apiserver.log").open("ab") as log:
        child = subprocess.Popen(
            command,
            env=dict(each.split(b"=", 1) for each in variables),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    file.write_text(f"{child.pid}\n")
    # It goes on without this process.
    child.returncode = 0


@pytest.mark.timing
def test_a_trial_outlives_the_api_server(jobs: Jobs, cluster: Cluster) -> None:
    file = api_server()
    sandbox = job_sandbox(jobs)
    job = Job(SLOW, "evaluate", ((".py", b""),), Limits(wall_seconds=60.0))
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(sandbox.run, job)
        assert eventually(lambda: running(cluster))

        killed_and_started(file)

        outcome = ended.result(120.0)
    assert outcome.failure is None
    assert eventually(lambda: nothing_is_left(cluster))
