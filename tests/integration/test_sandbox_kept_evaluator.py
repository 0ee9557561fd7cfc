"""One process of a guarded evaluator for several programs, in processes and in containers."""

from contextlib import closing

import pytest

from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from tests.contracts.kept_evaluator import KeptEvaluatorContract, Open
from tests.integration.test_sandbox_docker import docker_sandbox
from tests.integration.test_sandbox_process import sandbox_behind


def _pool(trials_per_evaluator: int) -> PoolSettings:
    return PoolSettings(max_sandboxes=1, spares=0, trials_per_evaluator=trials_per_evaluator)


class TestKeptEvaluatorsInProcesses(KeptEvaluatorContract):
    @pytest.fixture
    def opened(self) -> Open:
        sandbox_behind("privileged").close()
        return lambda most: closing(ProcessSandbox(_pool(most)))


@pytest.mark.slow
@pytest.mark.docker
class TestKeptEvaluatorsInContainers(KeptEvaluatorContract):
    @pytest.fixture
    def opened(self) -> Open:
        return lambda most: closing(docker_sandbox(_pool(most)))
