"""How a Job ended, by what the API server says, and what its end means for a trial."""

from typing import Any, cast

import pytest

from app.adapters.kubernetes.endings import Ending, EndKind, Seen, ending, patience_seconds, waiting
from app.adapters.kubernetes.jobs import JobEnd, Jobs
from app.adapters.sandbox.job_sandbox import JobSandbox, PodSettings
from app.config.cluster import KubernetesSettings
from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job
from app.ports.protocols import Unavailable

JOB = Job(
    Evaluator("x", {"evaluator.py": b"def evaluate(path):\n    return 1.0\n"}),
    "evaluate",
    ((".py", b""),),
)


def pod(
    state: dict[str, Any] | None = None, *, deleted: bool = False, **status: Any
) -> dict[str, Any]:
    containers = [] if state is None else [{"name": "main", "state": state}]
    metadata = {"name": "p", **({"deletionTimestamp": "now"} if deleted else {})}
    phase = {"phase": "Running", "containerStatuses": containers}
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {**phase, **status}}


def job(**condition: str) -> dict[str, Any]:
    return {"metadata": {"name": "j", "uid": "1"}, "status": {"conditions": [condition]}}


def terminated(code: int, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason}}


RUNNING: dict[str, Any] = {"running": {}}
NOT_READY = [{"type": "Ready", "status": "False"}]
DRAINED = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
COLLECTED = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (Seen(pods=(pod(RUNNING),)), None),
        (Seen(job(type="Complete", status="True")), None),
        (Seen(pods=(pod(terminated(0)),)), EndKind.DONE),
        (Seen(pods=(pod(terminated(0), deleted=True),), gone=True), EndKind.DONE),
        (Seen(pods=(pod(terminated(3)),)), EndKind.FAILED),
        (Seen(pods=(pod(terminated(137, "OOMKilled")),)), EndKind.OUT_OF_MEMORY),
        (Seen(pods=(pod(terminated(128, "StartError")),)), EndKind.REFUSED),
        (Seen(job(type="Failed", status="True", reason="DeadlineExceeded")), EndKind.DEADLINE),
        (
            Seen(
                job(type="Failed", status="True", reason="DeadlineExceeded"),
                pods=(pod(terminated(137), deleted=True),),
            ),
            EndKind.DEADLINE,
        ),
        (Seen(pods=(pod(phase="Failed", reason="DeadlineExceeded"),)), EndKind.DEADLINE),
        (Seen(gone=True), EndKind.DELETED),
        (Seen(pods=(pod(RUNNING, deleted=True),)), EndKind.DELETED),
        (Seen(pods=(pod(RUNNING),), lost=frozenset({"p"})), EndKind.DELETED),
        (Seen(pods=(pod(RUNNING, deleted=True, conditions=NOT_READY),)), EndKind.NODE_LOST),
        (Seen(pods=(pod(RUNNING, deleted=True, reason="NodeLost"),)), EndKind.NODE_LOST),
        (Seen(pods=(pod(phase="Failed", conditions=COLLECTED),)), EndKind.NODE_LOST),
        (Seen(pods=(pod(terminated(137), conditions=DRAINED, deleted=True),)), EndKind.EVICTED),
        (Seen(pods=(pod(phase="Failed", reason="Evicted"),)), EndKind.EVICTED),
        (Seen(pods=(pod(phase="Failed", reason="OutOfmemory"),)), EndKind.EVICTED),
        (
            Seen(pods=(pod(phase="Failed", reason="Evicted", message="Usage of EmptyDir volume"),)),
            EndKind.OVERFULL,
        ),
        (Seen(job(type="Failed", status="True", reason="BackoffLimit")), None),
    ],
)
def test_each_state_has_its_end(seen: Seen, kind: EndKind | None) -> None:
    found = ending(seen)

    assert (found.kind if found else None) is kind


def test_another_job_of_the_name_is_not_ours() -> None:
    theirs = {**pod(terminated(1)), "metadata": {"name": "p", "ownerReferences": [{"uid": "2"}]}}
    seen = Seen({"metadata": {"uid": "2"}}, gone=True, pods=(theirs,))

    assert ending(seen.of("1")) is None
    assert ending(seen.of("2")) is not None


@pytest.mark.parametrize(
    ("reason", "kind", "seconds"),
    [
        ("ErrImagePull", EndKind.IMAGE, 60.0),
        ("InvalidImageName", EndKind.IMAGE, 0.0),
        ("CreateContainerConfigError", EndKind.REFUSED, 30.0),
    ],
)
def test_a_reason_to_wait_has_its_patience(reason: str, kind: EndKind, seconds: float) -> None:
    why = waiting(Seen(pods=(pod({"waiting": {"reason": reason, "message": "m"}}),)))

    assert why is not None
    assert (why.kind, patience_seconds(why, 600.0)) == (kind, seconds)


def test_a_job_without_a_pod_is_explained_by_its_events() -> None:
    quota = {"type": "Warning", "message": "pods is forbidden: exceeded quota: q"}
    refused = {"type": "Warning", "message": "violates PodSecurity"}

    assert waiting(Seen()) is None
    assert [why.kind for e in (quota, refused) if (why := waiting(Seen(), [e]))] == [
        EndKind.QUOTA, EndKind.REFUSED,
    ]  # fmt: skip


class EndedJobs:
    """Jobs that have ended before they began."""

    def __init__(self, end: JobEnd) -> None:
        self._end = end
        self.runs = 0

    def run(self, spec: object, stop: object) -> JobEnd:
        self.runs += 1
        return self._end


def ended(kind: EndKind, output: bytes = b"") -> tuple[EndedJobs, JobSandbox]:
    jobs = EndedJobs(JobEnd(Ending(kind, "why it is so"), output=output))
    return jobs, JobSandbox(cast(Jobs, jobs), PodSettings("i", 1.0, 4, KubernetesSettings()))


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        (EndKind.OUT_OF_MEMORY, FailureKind.MEMORY),
        (EndKind.DEADLINE, FailureKind.TIMEOUT),
        (EndKind.OVERFULL, FailureKind.OUTPUT_LIMIT),
    ],
)
def test_what_a_program_did_to_its_pod_is_its_failure(kind: EndKind, failure: FailureKind) -> None:
    outcome = ended(kind)[1].run(JOB)

    assert outcome.failure is not None
    assert outcome.failure.kind is failure


@pytest.mark.parametrize(
    "kind",
    [
        *(EndKind.EVICTED, EndKind.NODE_LOST, EndKind.IMAGE, EndKind.QUOTA),
        *(EndKind.UNSCHEDULABLE, EndKind.REFUSED, EndKind.DELETED),
    ],
)
def test_what_the_cluster_did_is_nobodys_fault(kind: EndKind) -> None:
    with pytest.raises(Unavailable, match=f"{kind}: why it is so"):
        ended(kind)[1].run(JOB)


@pytest.mark.parametrize("kind", [EndKind.DONE, EndKind.FAILED])
def test_a_pod_without_a_report_is_tried_once_more(kind: EndKind) -> None:
    jobs, sandbox = ended(kind, b"Killed")

    outcome = sandbox.run(JOB)

    assert jobs.runs == 2
    assert outcome.failure is not None
    assert outcome.failure.kind is FailureKind.SANDBOX_VIOLATION
    assert "Killed" in outcome.failure.detail
