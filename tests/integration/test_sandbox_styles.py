"""Evaluator styles and honest programs against both backends."""

from collections.abc import Iterator

import pytest

from app.adapters.sandbox.process import ProcessSandbox
from app.ports.protocols import Sandbox
from tests.contracts.controls import ControlContract
from tests.contracts.evaluator_styles import EvaluatorStyleContract
from tests.contracts.sandbox import POOL
from tests.integration.test_sandbox_docker import docker_sandbox


@pytest.fixture(scope="module")
def processes() -> Iterator[Sandbox]:
    sandbox = ProcessSandbox(POOL)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def containers() -> Iterator[Sandbox]:
    sandbox = docker_sandbox()
    yield sandbox
    sandbox.close()


class TestStylesInProcesses(EvaluatorStyleContract, ControlContract):
    @pytest.fixture
    def sandbox(self, processes: Sandbox) -> Sandbox:
        return processes


@pytest.mark.slow
@pytest.mark.docker
class TestStylesInContainers(EvaluatorStyleContract, ControlContract):
    @pytest.fixture
    def sandbox(self, containers: Sandbox) -> Sandbox:
        return containers
