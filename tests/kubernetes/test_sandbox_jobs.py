"""The Kubernetes sandbox against the contract of sandboxes, and against hostile programs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from app.adapters.kubernetes.connection import Cluster
from app.adapters.kubernetes.jobs import Jobs
from app.adapters.sandbox.engine import DEFAULT_IMAGE
from app.adapters.sandbox.job_sandbox import JobSandbox, PodSettings
from app.config.cluster import KubernetesSettings
from app.domain.problem import Mode
from app.ports.protocols import Sandbox
from tests.cluster import kubectl
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


@contextmanager
def volume(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Yields a claim of a volume that is a folder of the node, which is this machine."""
    name = f"data-{uuid4().hex[:8]}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": name}
    size = {"storage": "1Gi"}
    path = {"path": str(folder)}
    documents = [
        {"kind": "PersistentVolume", "spec": {**common, "capacity": size, "hostPath": path}},
        {"kind": "PersistentVolumeClaim", "spec": {**common, "resources": {"requests": size}}},
    ]
    for document in documents:
        document |= {"apiVersion": "v1", "metadata": {"name": name}}
        kubectl("-n", cluster.namespace, "create", "-f", "-", given=json.dumps(document))
    try:
        yield name
    finally:
        kubectl("-n", cluster.namespace, "delete", "--wait=false", "pvc", name)
        kubectl("delete", "--wait=false", "pv", name)


class TestJobs(SandboxContract):
    broken = SAMPLE_OF_BROKEN
    # Each trial has a pod of its own.
    test_a_later_trial_pays_no_boot = None

    def test_data_of_any_size_is_read_where_it_lies(
        self, jobs: Jobs, cluster: Cluster, mode: Mode, tmp_path: Path
    ) -> None:
        with volume(cluster, tmp_path) as claim:
            sandbox = job_sandbox(jobs, KubernetesSettings(claims={claim: str(tmp_path)}))
            super().test_data_of_any_size_is_read_where_it_lies(sandbox, mode, tmp_path)

    @pytest.fixture
    def sandbox(self, sandbox_of_jobs: Sandbox) -> Sandbox:
        return sandbox_of_jobs


class TestJobsUnderAttack(AttackContract):
    attacks = ATTACKS if WHOLE_CORPUS else ONE_OF_EACH

    @pytest.fixture
    def sandbox(self, sandbox_of_jobs: Sandbox) -> Sandbox:
        return sandbox_of_jobs
