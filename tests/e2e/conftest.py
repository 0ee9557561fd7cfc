"""One deployment for all tests of this folder: bringing it up is most of what they cost.

It ends with the last of them, since an idle one has costs, too.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.sandbox_attacks import WHOLE_CORPUS
from tests.e2e.deployment import NO_GROUP, SOCKET, Deployment, missing_engine, until

collect_ignore = [] if WHOLE_CORPUS else ["test_attacks.py"]
"""The attack corpus in the deployment takes half an hour: `make attacks`."""


@pytest.fixture(scope="session")
def engine() -> None:
    """Skips, saying why, where no deployment can be brought up."""
    reason = missing_engine()
    if reason:
        pytest.skip(f"no Docker engine with Compose: {reason}")


@pytest.fixture(scope="package")
def deployment(
    engine: None, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """The compose project, all of it healthy; programs run in processes of worker-cpu.

    Two trials at once show what more would, and each takes a container, which costs a second of a
    processor to start and to boot.
    """
    project = Deployment(
        repository,
        tmp_path_factory.mktemp("deployment"),
        repository / "tests" / "e2e" / "stand-ins.yml",
        of_workers={"EVOQ_QUEUE__LEASE_SECONDS": "10"},
        DOCKER_GID=NO_GROUP,
        EVOQ_EVALUATE_CONCURRENCY="2",
        VLLM_MODEL="small",
    )
    try:
        project.start("--build")
        yield project
    finally:
        project.end()


@pytest.fixture(scope="package")
def in_containers(deployment: Deployment) -> None:
    """Has programs run in containers, as `test_chaos` leaves it; changes nothing without a socket.

    A socket's group that worker-cpu has already restarts nothing.
    """
    if SOCKET.exists():
        deployment.settle(DOCKER_GID=str(SOCKET.stat().st_gid))
        until(  # `up --wait` fails at once while the last check is one from when it was frozen
            lambda: deployment.container("worker-cpu")["State"]["Health"]["Status"] == "healthy",
            "a check has found worker-cpu alive",
            seconds=120,
        )
        deployment.start("--no-deps", "worker-cpu")
