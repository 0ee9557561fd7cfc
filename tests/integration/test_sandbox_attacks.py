"""The attack suite against the strongest walls each backend has here."""

from collections.abc import Iterator

import pytest

from app.adapters.sandbox.process import ProcessSandbox
from app.ports.protocols import Sandbox
from tests.contracts.sandbox_attacks import AttackContract
from tests.contracts.sandbox_neighbours import NeighbourContract
from tests.integration.test_sandbox_docker import docker_sandbox
from tests.integration.test_sandbox_process import sandbox_behind


@pytest.fixture(scope="module")
def processes() -> Iterator[Sandbox]:
    sandbox = ProcessSandbox()
    missing = [p.name for p in sandbox.protections() if not p.on and "cgroup" not in p.name]
    if missing:
        sandbox.close()
        pytest.skip(f"this machine's process sandbox does not claim: {'; '.join(missing)}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def unprivileged() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("unprivileged")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def containers() -> Iterator[Sandbox]:
    sandbox = docker_sandbox()
    yield sandbox
    sandbox.close()


class TestProcessesUnderAttack(AttackContract, NeighbourContract):
    @pytest.fixture
    def sandbox(self, processes: Sandbox) -> Sandbox:
        return processes


@pytest.mark.slow
class TestUnprivilegedProcessesUnderAttack(AttackContract, NeighbourContract):
    @pytest.fixture
    def sandbox(self, unprivileged: Sandbox) -> Sandbox:
        return unprivileged


@pytest.mark.slow
@pytest.mark.docker
class TestContainersUnderAttack(AttackContract, NeighbourContract):
    @pytest.fixture
    def sandbox(self, containers: Sandbox) -> Sandbox:
        return containers
