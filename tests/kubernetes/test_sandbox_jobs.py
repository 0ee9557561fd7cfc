"""The Kubernetes sandbox against the contract of sandboxes, and against hostile programs."""

import pytest

from app.adapters.kubernetes.jobs import Jobs
from app.adapters.sandbox.engine import DEFAULT_IMAGE
from app.adapters.sandbox.job_sandbox import JobSandbox, PodSettings
from app.config.cluster import KubernetesSettings
from app.ports.protocols import Sandbox
from tests.contracts.sandbox import SAMPLE_OF_BROKEN, SandboxContract
from tests.contracts.sandbox_attacks import (
    ATTACKS,
    ONE_OF_EACH,
    WHOLE_CORPUS,
    AttackContract,
)

CLUSTER = KubernetesSettings()


def job_sandbox(jobs: Jobs, settings: KubernetesSettings = CLUSTER) -> JobSandbox:
    return JobSandbox(jobs, PodSettings(DEFAULT_IMAGE, 1.0, 8, settings))


@pytest.fixture(scope="module")
def sandbox_of_jobs(jobs: Jobs) -> Sandbox:
    return job_sandbox(jobs)


class TestJobs(SandboxContract):
    broken = SAMPLE_OF_BROKEN

    @pytest.fixture
    def sandbox(self, sandbox_of_jobs: Sandbox) -> Sandbox:
        return sandbox_of_jobs


class TestJobsUnderAttack(AttackContract):
    attacks = ATTACKS if WHOLE_CORPUS else ONE_OF_EACH

    @pytest.fixture
    def sandbox(self, sandbox_of_jobs: Sandbox) -> Sandbox:
        return sandbox_of_jobs
