"""The Docker sandbox against the contract."""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox, profile
from app.adapters.sandbox.engine import DEFAULT_IMAGE
from app.adapters.sandbox.engine_socket import engine_answers
from app.adapters.sandbox.images import Images
from app.adapters.sandbox.pool import PoolSettings
from app.ports.protocols import Sandbox
from tests.contracts.sandbox import SandboxContract

OWNER = os.environ.setdefault("SANDBOX_TEST_OWNER", f"tests-{uuid4().hex[:12]}")
"""Labels what these tests and the processes they start make, so that others may use the engine."""
INFRA = Path(__file__).parents[2] / "infra"


def require_engine() -> None:
    """Skips with the reason where no container of the default image can be started."""
    if not engine_answers(30.0):
        pytest.skip("no Docker engine answers")
    if not Images().has_default():
        pytest.skip(f"no image {DEFAULT_IMAGE}: docker build -t {DEFAULT_IMAGE} infra/sandbox")


def docker_sandbox(pool: PoolSettings | None = None, *, runtime: str = "") -> DockerSandbox:
    """Returns a sandbox of containers as a deployment has it, or skips with the reason."""
    require_engine()
    settings = ContainerSettings(runtime, seccomp=profile("", INFRA / "seccomp.json"), owner=OWNER)
    return DockerSandbox(pool or PoolSettings(max_sandboxes=8), settings=settings)


@pytest.fixture(scope="module")
def containers() -> Iterator[Sandbox]:
    sandbox = docker_sandbox()
    yield sandbox
    sandbox.close()


@pytest.mark.docker
class TestContainers(SandboxContract):
    @pytest.fixture
    def sandbox(self, containers: Sandbox) -> Sandbox:
        return containers
