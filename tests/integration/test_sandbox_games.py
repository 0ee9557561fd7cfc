"""Games behind each kind of isolation."""

from collections.abc import Iterator

import pytest

from app.ports.protocols import Sandbox
from tests.contracts.games import GameContract
from tests.integration.test_sandbox_docker import docker_sandbox
from tests.integration.test_sandbox_process import sandbox_behind


@pytest.fixture(scope="module", params=["privileged", "unprivileged", "docker"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    level = request.param
    opened = docker_sandbox() if level == "docker" else sandbox_behind(level)
    yield opened
    opened.close()


class TestGames(GameContract):
    pass
