"""The Kubernetes sandbox against the contract of sandboxes, and against hostile programs."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from app.adapters.kubernetes.connection import Cluster
from app.adapters.kubernetes.jobs import Jobs
from app.adapters.sandbox.engine import DEFAULT_IMAGE
from app.adapters.sandbox.job_sandbox import JobSandbox, PodSettings
from app.config.cluster import KubernetesSettings
from app.domain.evaluation import FailureKind
from app.domain.problem import Mode
from app.ports.protocols import Sandbox
from tests.cluster import kubectl
from tests.contracts.attack_outcomes import Outcomes
from tests.contracts.attacks import Attack
from tests.contracts.attacks_on_limits import FILES
from tests.contracts.games import GameContract
from tests.contracts.program_folders import FolderContract
from tests.contracts.sandbox import SAMPLE_OF_BROKEN, WHOLE_CORPUS, SandboxContract
from tests.contracts.sandbox_attacks import ATTACKS, AttackContract

CLUSTER = KubernetesSettings()
IN_CI = (
    "test_a_withdrawn_job_stops_and_gives_its_place_back",
    "test_a_program_is_scored",
    "test_a_program_that_does_not_end_is_timed_out",
    "test_memory_of_many_processes_is_limited_together",
    "test_the_head_and_the_tail_of_the_output_are_kept",
    "test_a_broken_evaluator_is_reported_as_broken",
    "test_libraries_find_a_user_and_places_to_write",
    "test_data_of_any_size_is_read_where_it_lies",
)
"""Tests of the contract that a push runs, in guarded mode."""
GAMES_IN_CI = ("test_the_moves_until_a_failure_are_kept",)
FOLDERS_IN_CI = ("test_no_program_changes_a_fixed_file",)
ATTACKS_IN_CI = (
    *("forged answers on the socket", "read hidden files", "fork bomb that leaves its session"),
    *("memory block by block", "kill everything", "become root", "raw socket"),
    "modes of what is around it",
)
FILLING_VOLUMES = {attack.name for attack in FILES} | {
    *("disk fill", "inode fill", "links and pipes left behind", "empty files in every place"),
}
"""Attacks that volumes without a size let go on, until the memory of the pod is full."""


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


def left_out(contract: type, kept: Sequence[str]) -> dict[str, None]:
    """Returns the tests of a contract that are not among the kept ones, as none."""
    tests = {name for name in dir(contract) if name.startswith("test_")}
    return dict.fromkeys(tests - {*kept})


class TestJobs(SandboxContract):
    """The whole contract where it is asked for: a Job takes seconds."""

    broken = SAMPLE_OF_BROKEN if WHOLE_CORPUS else SAMPLE_OF_BROKEN[:1]
    # Each trial has a pod of its own.
    test_a_later_trial_pays_no_boot = None
    if not WHOLE_CORPUS:
        only_guarded = IN_CI
        vars().update(left_out(SandboxContract, IN_CI))

    def test_data_of_any_size_is_read_where_it_lies(
        self, jobs: Jobs, cluster: Cluster, mode: Mode, tmp_path: Path
    ) -> None:
        with volume(cluster, tmp_path) as claim:
            sandbox = job_sandbox(jobs, KubernetesSettings(claims={claim: str(tmp_path)}))
            super().test_data_of_any_size_is_read_where_it_lies(sandbox, mode, tmp_path)

    @pytest.fixture
    def sandbox(self, sandbox_of_jobs: Sandbox) -> Sandbox:
        return sandbox_of_jobs


class TestGamesAsJobs(GameContract):
    # Files are as many as the memory of the pod holds.
    harmless = ("leaves no file to be made",)
    if not WHOLE_CORPUS:
        vars().update(left_out(GameContract, GAMES_IN_CI))

    @pytest.fixture
    def sandbox(self, sandbox_of_jobs: Sandbox) -> Sandbox:
        return sandbox_of_jobs


class TestFoldersAsJobs(FolderContract):
    if not WHOLE_CORPUS:
        vars().update(left_out(FolderContract, FOLDERS_IN_CI))

    @pytest.fixture
    def sandbox(self, sandbox_of_jobs: Sandbox) -> Sandbox:
        return sandbox_of_jobs


class TestJobsUnderAttack(AttackContract):
    """The whole corpus where it is asked for, else one attack of each kind that pods contain."""

    attacks = tuple(a for a in ATTACKS if WHOLE_CORPUS or a.name in ATTACKS_IN_CI)
    if not WHOLE_CORPUS:
        test_an_attack_is_contained_in_compatible_mode = None

    @pytest.fixture
    def sandbox(self, sandbox_of_jobs: Sandbox) -> Sandbox:
        return sandbox_of_jobs

    def outcomes(self, attack: Attack) -> Outcomes:
        known = super().outcomes(attack)
        if attack.name not in FILLING_VOLUMES or volumes_have_sizes():
            return known
        more = {"honest", FailureKind.MEMORY}
        return Outcomes({*known.guarded, *more}, {*known.compatible, *more})


def volumes_have_sizes() -> bool:
    """Returns whether volumes in memory are as large as they are declared, not as the pod is."""
    version = json.loads(kubectl("version", "-o", "json"))["serverVersion"]
    return (int(version["major"]), int(version["minor"].rstrip("+"))) >= (1, 22)
