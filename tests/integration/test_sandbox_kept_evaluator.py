"""One process of a guarded evaluator for several programs, in processes and in containers."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.ports.protocols import Sandbox
from tests.contracts.kept_evaluator import CARELESS, SAMPLE, KeptEvaluatorContract, Open
from tests.contracts.sandbox import WHOLE_CORPUS
from tests.integration.test_sandbox_docker import docker_sandbox
from tests.integration.test_sandbox_process import sandbox_behind

SHARED = PoolSettings(max_sandboxes=8, spares=0, trials_per_evaluator=50)
"""One for each evaluator and its limits."""


def _pool(trials_per_evaluator: int) -> PoolSettings:
    return PoolSettings(max_sandboxes=1, spares=0, trials_per_evaluator=trials_per_evaluator)


@pytest.fixture(scope="module")
def processes() -> Iterator[Sandbox]:
    sandbox_behind("privileged").close()
    with closing(ProcessSandbox(SHARED)) as sandbox:
        yield sandbox


class TestKeptEvaluatorsInProcesses(KeptEvaluatorContract):
    @pytest.fixture
    def opened(self, processes: Sandbox) -> Open:
        return lambda most: closing(ProcessSandbox(_pool(most)))

    @pytest.fixture
    def shared(self, processes: Sandbox) -> Sandbox:
        return processes


@pytest.fixture(scope="module")
def containers() -> Iterator[Sandbox]:
    with closing(docker_sandbox(SHARED)) as sandbox:
        yield sandbox


@pytest.mark.slow
@pytest.mark.docker
class TestKeptEvaluatorsInContainers(KeptEvaluatorContract):
    """Whole by `make attacks`.

    When a process of an evaluator ends is decided alike behind any isolation: a push shows that in
    processes, and here what a trial leaves to the next.
    """

    careless = tuple(CARELESS) if WHOLE_CORPUS else SAMPLE
    if not WHOLE_CORPUS:
        test_a_process_measures_no_more_than_it_may = None
        test_a_process_that_runs_the_program_itself_is_never_kept = None
        test_a_process_that_may_execute_a_programs_text_is_never_kept = None
        test_a_timeout_ends_the_process = None
        test_each_trial_has_the_whole_cpu_time = None
        test_an_evaluator_beyond_its_cpu_time_is_ended = None

    @pytest.fixture
    def opened(self) -> Open:
        return lambda most: closing(docker_sandbox(_pool(most)))

    @pytest.fixture
    def shared(self, containers: Sandbox) -> Sandbox:
        return containers
