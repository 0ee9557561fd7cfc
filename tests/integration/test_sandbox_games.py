"""Games behind each kind of isolation."""

from collections.abc import Iterator

import pytest

from app.ports.protocols import Sandbox
from tests.contracts.games import SAMPLE, GameContract
from tests.integration.test_sandbox_docker import docker_sandbox
from tests.integration.test_sandbox_process import sandbox_behind


@pytest.fixture(scope="module")
def privileged() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("privileged")
    yield sandbox
    sandbox.close()


class TestPrivilegedGames(GameContract):
    @pytest.fixture
    def sandbox(self, privileged: Sandbox) -> Sandbox:
        return privileged


@pytest.fixture(scope="module")
def unprivileged() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("unprivileged")
    yield sandbox
    sandbox.close()


class TestUnprivilegedGames(GameContract):
    @pytest.fixture
    def sandbox(self, unprivileged: Sandbox) -> Sandbox:
        return unprivileged

    @pytest.mark.parametrize("name", SAMPLE)
    def test_only_the_attacker_is_blamed(self, sandbox: Sandbox, name: str) -> None:
        super().test_only_the_attacker_is_blamed(sandbox, name)


@pytest.fixture(scope="module")
def containers() -> Iterator[Sandbox]:
    sandbox = docker_sandbox()
    yield sandbox
    sandbox.close()


@pytest.mark.docker
class TestGamesInContainers(GameContract):
    @pytest.fixture
    def sandbox(self, containers: Sandbox) -> Sandbox:
        return containers

    @pytest.mark.parametrize("name", SAMPLE)
    def test_only_the_attacker_is_blamed(self, sandbox: Sandbox, name: str) -> None:
        super().test_only_the_attacker_is_blamed(sandbox, name)
