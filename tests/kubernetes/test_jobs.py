"""Jobs on a real API server: each way in which one ends, and nothing left of it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from app.adapters.kubernetes.connection import Cluster, connect
from app.adapters.kubernetes.endings import Ending, EndKind
from app.adapters.kubernetes.jobs import JobEnd, Jobs
from app.adapters.kubernetes.manifests import (
    JOB,
    JobSpec,
    Placement,
    Resources,
    Scratch,
    SecretVariable,
)
from app.adapters.store.leases import Withdrawal
from app.ports.protocols import Misconfigured, Stopped
from tests.cluster import kubeconfig, kubectl

IMAGE = "python:3.13-slim"
ANSWER = (
    "import base64, os, pathlib;"
    "print('before');"
    "text = pathlib.Path('/etc/evoqueue/task').read_bytes();"
    "print('@@EVOQ', os.environ['EVOQ_NONCE'], base64.b64encode(text[::-1]).decode());"
    "print('after')"
)
SLEEP = "import time; time.sleep(120)"
PATIENCE_SECONDS = 60.0


def spec(code: str, **options: object) -> JobSpec:
    small = JobSpec(
        image=IMAGE,
        command=("python3", "-c", code),
        files={"task": b"drawer"},
        scratch=(Scratch("/tmp", 16),),
        resources=Resources(cpus=0.5, memory_mib=64),
        start_seconds=PATIENCE_SECONDS,
        run_seconds=PATIENCE_SECONDS,
    )
    return replace(small, **options)  # type: ignore[arg-type]  # fields by name


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def nothing_is_left(cluster: Cluster) -> bool:
    """Returns whether Jobs, their files and pods are gone, but pods that yet end on their node."""
    left = cluster.listed("jobs", JOB).items
    left += [pod for pod in cluster.listed("pods", JOB).items if not _leaves(pod)]
    found = kubectl("-n", cluster.namespace, "get", "configmaps", "-l", JOB, "-o", "name")
    return not left and not found


def _leaves(pod: dict[str, dict[str, object]]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


@pytest.fixture(autouse=True)
def nothing_left(cluster: Cluster) -> Iterator[None]:
    yield
    assert eventually(lambda: nothing_is_left(cluster))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def running(cluster: Cluster) -> bool:
    pods = cluster.listed("pods", JOB).items
    return any(pod["status"]["phase"] == "Running" for pod in pods)


def ending_of(jobs: Jobs, kind: EndKind, hasty: JobSpec) -> Ending:
    """Returns how a Job ends; on a slow cluster, which has not said why it waits, with patience."""
    ending = jobs.run(hasty).ending
    if ending.kind is kind or hasty.start_seconds == PATIENCE_SECONDS:
        return ending
    return jobs.run(replace(hasty, start_seconds=PATIENCE_SECONDS)).ending


def test_a_result_is_read_from_the_log_without_what_else_was_printed(jobs: Jobs) -> None:
    end = jobs.run(spec(ANSWER))

    assert (end.ending.kind, end.results, end.output) == (
        EndKind.DONE, (b"reward",), b"before\nafter\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "options", "kind"),
    [
        ("raise SystemExit(3)", {}, EndKind.FAILED),
        ("x = b'x' * (200 << 20)", {}, EndKind.OUT_OF_MEMORY),
        (SLEEP, {"run_seconds": 1.0}, EndKind.DEADLINE),
        (SLEEP, {"image": "nobody/has:this"}, EndKind.IMAGE),
        (SLEEP, {"image": "NO NAME"}, EndKind.IMAGE),
        (SLEEP, {"command": ("no-such-program",)}, EndKind.REFUSED),
        (
            SLEEP,
            {"placement": Placement({"no": "node"}), "start_seconds": 3.0},
            EndKind.UNSCHEDULABLE,
        ),
        (SLEEP, {"resources": Resources(gpus=1), "start_seconds": 3.0}, EndKind.UNSCHEDULABLE),
        (
            SLEEP,
            {"secrets": (SecretVariable("KEY", "none", "key"),), "start_seconds": 4.0},
            EndKind.REFUSED,
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_each_end_has_its_kind(
    jobs: Jobs, code: str, options: dict[str, object], kind: EndKind
) -> None:
    if "image" in options:
        options = {**options, "placement": Placement(pull_policy="Never")}

    ending = ending_of(jobs, kind, spec(code, **options))

    assert ending.kind is kind, ending
    assert ending.detail


def test_who_takes_over_adopts_the_job_that_runs(
    jobs: Jobs, cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    slow = spec(f"import time; time.sleep(3); {ANSWER}", ticket=uuid4().hex)
    first = jobs.start(slow)
    # The first coordinator is dead from here.
    second = Jobs(cluster)
    adopted = second.start(slow)

    end = second.wait(adopted)

    pods = cluster.listed("pods", f"{JOB}={first.name}").items
    assert (adopted.adopted, adopted.uid, end.results) == (True, first.uid, (b"reward",))
    assert len(pods) == 1
    jobs.delete(first)
    second.close()


def test_a_coordinator_that_dies_before_the_files_leaves_no_job_that_waits(
    jobs: Jobs, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = spec(ANSWER, ticket=uuid4().hex)
    with monkeypatch.context() as patched:
        patched.setattr(cluster, "create_config_map", lambda document: {})
        jobs.start(work)

    assert jobs.run(work).results == (b"reward",)


def test_a_stop_deletes_the_job(jobs: Jobs, cluster: Cluster, pool: ThreadPoolExecutor) -> None:
    stop = Withdrawal()
    ended = pool.submit(jobs.run, spec(SLEEP), stop)
    assert eventually(lambda: running(cluster))

    stop.ask()

    with pytest.raises(Stopped):
        ended.result(PATIENCE_SECONDS)


@pytest.mark.parametrize("thing", ["job", "pod"])
def test_what_somebody_deletes_ends_as_deleted(
    jobs: Jobs, cluster: Cluster, pool: ThreadPoolExecutor, thing: str
) -> None:
    ended = pool.submit(jobs.run, spec(SLEEP))
    assert eventually(lambda: running(cluster))

    kubectl("-n", cluster.namespace, "delete", thing, "-l", JOB, "--wait=false")

    assert ended.result(PATIENCE_SECONDS).ending.kind is EndKind.DELETED


def test_a_quota_is_named(jobs: Jobs, cluster: Cluster) -> None:
    quota = ("-n", cluster.namespace, "quota", "full")
    kubectl("-n", cluster.namespace, "create", "quota", "full", "--hard=pods=0")
    try:
        ending = ending_of(jobs, EndKind.QUOTA, spec(SLEEP, start_seconds=6.0))
    finally:
        kubectl("-n", cluster.namespace, "delete", *quota[2:])

    assert ending.kind is EndKind.QUOTA
    assert "exceeded quota: full" in ending.detail


def test_the_role_of_the_documentation_ends_the_refusal(cluster: Cluster, tmp_path: Path) -> None:
    at = ("-n", cluster.namespace)
    kubectl(*at, "create", "serviceaccount", "worker")
    config = yaml.safe_load(kubeconfig().read_text())
    assert eventually(lambda: bool(_token(cluster, "worker")))
    config["users"][0]["user"] = {"token": _token(cluster, "worker")}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    of_worker = connect(str(file), "", cluster.namespace)
    jobs = Jobs(of_worker)
    with pytest.raises(Misconfigured, match=r'cannot create resource "jobs".*needs a Role'):
        jobs.run(spec(ANSWER))
    assert len(of_worker.forbidden()) == 10

    page = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text()
    rules = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", **rules}
    role["metadata"] = {"name": "worker"}
    kubectl(*at, "create", "-f", "-", given=json.dumps(role))
    account = f"--serviceaccount={cluster.namespace}:worker"
    kubectl(*at, "create", "rolebinding", "worker", "--role=worker", account)

    # The API server takes a role up a moment after it has stored it.
    assert eventually(lambda: of_worker.forbidden() == [])
    assert jobs.run(spec(ANSWER)).results == (b"reward",)
    jobs.close()


def test_a_namespace_that_is_created_ends_the_refusal() -> None:
    name = f"missing-{uuid4().hex[:8]}"
    jobs = Jobs(connect(str(kubeconfig()), "", name))
    with pytest.raises(Misconfigured, match=f"kubectl create namespace {name}"):
        jobs.run(spec(ANSWER))

    kubectl("create", "namespace", name)

    try:
        assert jobs.run(spec(ANSWER)).results == (b"reward",)
    finally:
        jobs.close()
        kubectl("delete", "namespace", name, "--wait=false")


def _token(cluster: Cluster, account: str) -> str:
    import base64

    found = json.loads(kubectl("-n", cluster.namespace, "get", "secrets", "-o", "json"))
    for secret in found["items"]:
        if secret["metadata"].get("annotations", {}).get(
            "kubernetes.io/service-account.name"
        ) == account and "token" in secret.get("data", {}):
            return base64.b64decode(secret["data"]["token"]).decode()
    return ""


def test_a_sweep_deletes_what_nobody_will_read(
    jobs: Jobs, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.adapters.kubernetes.jobs._UNREAD_SECONDS", 0.0)
    mine = jobs.start(spec(SLEEP))
    ended = jobs.start(spec(ANSWER, ticket=uuid4().hex))
    dead = jobs.start(spec(SLEEP))
    process = f"{json.dumps({'metadata': {'annotations': {'evoqueue.process': _of_the_dead()}}})}"
    kubectl("-n", cluster.namespace, "patch", "job", dead.name, "-p", process)
    jobs.wait(ended)
    assert eventually(lambda: bool(_condition(cluster, ended.name)))

    assert jobs.sweep() == 2

    assert [job["metadata"]["name"] for job in cluster.listed("jobs", JOB).items] == [mine.name]
    jobs.delete(mine)


def _of_the_dead() -> str:
    import socket

    return f"{socket.gethostname()} 4194999 1.00"


def _condition(cluster: Cluster, name: str) -> object:
    return cluster.read_job(name)["status"].get("conditions")


@pytest.fixture
def ghost() -> Iterator[str]:
    """A node without a machine, which the scheduler takes for a good one."""
    name = f"ghost-{uuid4().hex[:8]}"
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "reason": "KubeletReady"}
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    node = {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"ghost": name}},
        "spec": {"taints": [{"key": "ghost", "effect": "NoSchedule"}]},
        "status": {"conditions": [ready], "capacity": room, "allocatable": room},
    }  # fmt: skip
    kubectl("create", "-f", "-", given=json.dumps(node))
    yield name
    kubectl("delete", "node", name)


def test_a_lost_node_is_nobodys_fault(
    jobs: Jobs, cluster: Cluster, pool: ThreadPoolExecutor, ghost: str
) -> None:
    tolerated = Placement({"ghost": ghost}, ({"key": "ghost", "effect": "NoSchedule"},))
    ended = pool.submit(jobs.run, spec(SLEEP, placement=tolerated))
    assert eventually(lambda: _bound(cluster) is not None)
    pod = _bound(cluster)
    assert pod is not None
    # The node's agent would say so.
    pod["status"] |= {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main", "image": IMAGE, "imageID": "", "ready": True, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    }  # fmt: skip
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod['metadata']['name']}/status"
    kubectl("replace", "--raw", path, "-f", "-", given=json.dumps(pod))

    kubectl("taint", "node", ghost, "gone=yes:NoExecute")

    ending = ended.result(PATIENCE_SECONDS).ending
    assert ending.kind in (EndKind.DELETED, EndKind.NODE_LOST, EndKind.EVICTED), ending


def _bound(cluster: Cluster) -> dict[str, dict[str, object]] | None:
    for pod in cluster.listed("pods", JOB).items:
        if pod["spec"].get("nodeName", "").startswith("ghost-"):
            return {"apiVersion": "v1", "kind": "Pod", **pod}  # type: ignore[dict-item]
    return None


def test_many_jobs_share_one_watch(jobs: Jobs, pool: ThreadPoolExecutor) -> None:
    ends: list[JobEnd] = list(pool.map(lambda _: jobs.run(spec(ANSWER)), range(4)))

    assert [end.results for end in ends] == [(b"reward",)] * 4
    assert len([t for t in threading.enumerate() if t.name.startswith("watch of")]) >= 2
