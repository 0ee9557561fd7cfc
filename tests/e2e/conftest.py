"""One deployment for all tests of this folder: bringing it up is most of what they cost.

It ends with the last of them, since its health checks take a twelfth of two cores.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.sandbox_attacks import WHOLE_CORPUS
from tests.e2e.deployment import Deployment, missing_engine

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
    """The compose project as it is, all of it healthy."""
    project = Deployment(
        repository,
        tmp_path_factory.mktemp("deployment"),
        repository / "tests" / "e2e" / "stand-ins.yml",
        EVOQ_QUEUE__LEASE_SECONDS="10",
        VLLM_MODEL="small",
    )
    try:
        project.start("--build")
        yield project
    finally:
        project.end()
