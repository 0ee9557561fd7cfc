"""Programs of several files behind each kind of isolation."""

from collections.abc import Iterator

import pytest

from app.ports.protocols import Sandbox
from tests.contracts.program_folders import FolderContract
from tests.integration.test_sandbox_docker import docker_sandbox
from tests.integration.test_sandbox_process import sandbox_behind


@pytest.fixture(scope="module")
def privileged() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("privileged")
    yield sandbox
    sandbox.close()


class TestPrivilegedProcesses(FolderContract):
    @pytest.fixture
    def sandbox(self, privileged: Sandbox) -> Sandbox:
        return privileged


@pytest.fixture(scope="module")
def unprivileged() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("unprivileged")
    yield sandbox
    sandbox.close()


class TestUnprivilegedProcesses(FolderContract):
    @pytest.fixture
    def sandbox(self, unprivileged: Sandbox) -> Sandbox:
        return unprivileged


@pytest.fixture(scope="module")
def bare() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("bare")
    yield sandbox
    sandbox.close()


class TestBareProcesses(FolderContract):
    @pytest.fixture
    def sandbox(self, bare: Sandbox) -> Sandbox:
        return bare


@pytest.fixture(scope="module")
def containers() -> Iterator[Sandbox]:
    sandbox = docker_sandbox()
    yield sandbox
    sandbox.close()


@pytest.mark.docker
class TestContainers(FolderContract):
    @pytest.fixture
    def sandbox(self, containers: Sandbox) -> Sandbox:
        return containers
