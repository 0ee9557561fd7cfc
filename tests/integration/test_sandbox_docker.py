"""The Docker sandbox against the contract."""

from collections.abc import Iterator

import pytest

from app.adapters.sandbox.docker import DockerSandbox
from app.adapters.sandbox.engine import DEFAULT_IMAGE, engine_answers
from app.ports import Sandbox
from tests.contracts.sandbox import SandboxContract


def docker_sandbox(**settings: object) -> DockerSandbox:
    """Returns a sandbox of containers, or skips with the reason."""
    if not engine_answers(2.0):
        pytest.skip("no Docker engine answers")
    sandbox = DockerSandbox(max_cells=8, **settings)  # type: ignore[arg-type]  # any of its own
    if not sandbox.ready():
        pytest.skip(f"no image {DEFAULT_IMAGE}: docker build -t {DEFAULT_IMAGE} infra/sandbox")
    return sandbox


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
