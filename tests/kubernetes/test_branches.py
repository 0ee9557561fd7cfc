"""Candidates of patterns as Jobs, on a real API server and kubelet: the rows of document 004."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.adapters.kubernetes.connection import Cluster, connect
from app.adapters.kubernetes.manifests import FILES_BYTES, Placement, Resources
from app.patterns.budget import CandidateBudget
from app.patterns.commands import Command
from app.patterns.errors import MountError, ProcessBranchError
from app.patterns.jobs import JobsRunner
from app.patterns.levels import BeamSearch, Tournament
from app.patterns.racing import BestOfN, Speculate
from app.patterns.storage import Storage
from app.patterns.workspace import Workspace
from tests.cluster import kubeconfig, kubectl

pytestmark = [pytest.mark.timing, pytest.mark.xdist_group("kubernetes")]

IMAGE, CLAIM = "python:3.13-slim", "branches"
SECONDS = 120.0

Runners = Callable[..., JobsRunner]


@pytest.fixture(scope="module")
def volume(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a volume of this node, which a claim of the namespace shares with its pods."""
    folder = tmp_path_factory.mktemp("volume")
    folder.chmod(0o777)
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    name = f"{namespace}-branches"
    spec = {
        **common,
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": namespace, "name": CLAIM},
    }
    claim = {**common, "resources": {"requests": {"storage": "1Gi"}}}
    documents = [
        {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec},
        {"kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": claim},
    ]
    for each in documents:
        given = json.dumps({"apiVersion": "v1", **each})
        kubectl("--namespace", namespace, "apply", "-f", "-", given=given)
    yield folder
    kubectl("delete", "persistentvolume", name, "--wait=false")


@pytest.fixture
def base(volume: Path, request: pytest.FixtureRequest) -> Path:
    """A folder on the volume, which a pattern works on."""
    folder = volume / f"base-{abs(hash(request.node.name)) % 10**8}"
    (folder / "sub").mkdir(parents=True)
    (folder / "kept.txt").write_text("kept")
    (folder / "sub" / "gone.txt").write_text("x")
    return folder


@pytest.fixture
def runners(cluster: Cluster, volume: Path) -> Iterator[Runners]:
    """Makes runners on the volume."""
    made: list[JobsRunner] = []

    def make(**options: Any) -> JobsRunner:
        settings: dict[str, Any] = {
            "claim": CLAIM,
            "image": IMAGE,
            "mount": volume,
            "cluster": cluster,
            "resources": Resources(0.1, 64),
            "placement": Placement(pull_policy="Never"),
        }
        made.append(JobsRunner(**{**settings, **options}))
        return made[-1]

    yield make
    for runner in made:
        runner.close()


def shell(text: str) -> Command:
    return Command(["/bin/sh", "-c", text])


def things(cluster: Cluster, *kinds: str) -> list[str]:
    listed = kubectl(
        "-n", cluster.namespace, "get", ",".join(kinds), "-l", "evoqueue.job", "-o", "name"
    )
    return listed.split()


def wait_for(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.1)


def test_a_job_has_its_task_by_a_config_map_and_its_branch_by_the_claim(
    cluster: Cluster, runners: Runners, base: Path
) -> None:
    runner, spy = runners(), Spy(cluster)
    runner._jobs._cluster = spy  # type: ignore[assignment]
    text = "echo new > new.txt; rm -r sub; pwd; echo said; echo 0.5 >&3; ls -a; ls /etc/branching"
    candidate = shell(f"{text}; while [ ! -e ../go ]; do sleep 0.1; done")
    outcomes = []
    pattern = threading.Thread(
        target=lambda: outcomes.append(Speculate([candidate], runner=runner)(base))
    )
    pattern.start()
    state = base.parent / f".{base.name}.branches"
    wait_for(lambda: list(state.glob("session-*/1/tree/new.txt")))

    [job] = json.loads(
        kubectl("-n", cluster.namespace, "get", "jobs", "-l", "evoqueue.job", "-o", "json")
    )["items"]
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 300)
    assert spec["activeDeadlineSeconds"] > 3600
    pod = spec["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    [container] = pod["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    [branch] = state.glob("session-*/1")
    assert mounts[str(branch)]["subPath"] == str(branch.relative_to(base.parent))
    assert mounts["/etc/branching"]["readOnly"]
    [files] = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    task = json.loads(kubectl("-n", cluster.namespace, "get", "configmap", files, "-o", "json"))
    [owner] = task["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", job["metadata"]["uid"])
    assert set(task["binaryData"]) == {"task.pkl", "worker.pyz"}

    (branch / "go").touch()
    pattern.join(SECONDS)
    [outcome] = outcomes
    assert outcome.committed
    assert outcome.winner.score == 0.5
    lines = outcome.winner.return_value["output"].splitlines()
    assert lines[:2] == [str(branch / "tree"), "said"]
    assert lines[2:] == [".", "..", "kept.txt", "new.txt", "task.pkl", "worker.pyz"]
    assert sorted(os.listdir(base)) == ["kept.txt", "new.txt"]
    wait_for(lambda: not things(cluster, "jobs", "configmaps", "pods"))
    # One list of Jobs and of pods begins the watch; the log is read once; nothing is polled.
    # Why a Job does not begin is asked for in growing pauses, where the node is slow.
    spy.asked.pop("events", None)
    assert spy.asked == {"create_job": 1, "create_config_map": 1, "log": 1, "delete_job": 1}
    assert os.listdir(base.parent) == [base.name] or not list(base.parent.glob(f".{base.name}*"))


class Spy:
    """Counts the requests of a runner but those of its watch."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.asked: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)
        if not callable(found):
            return found

        def counted(*arguments: Any, **options: Any) -> Any:
            self.asked[name] = self.asked.get(name, 0) + 1
            return found(*arguments, **options)

        return counted


def test_the_first_success_ends_the_pods_of_the_others(
    cluster: Cluster, runners: Runners, base: Path
) -> None:
    beating = shell("while true; do date +%s.%N > ../beat; sleep 0.1; done")
    state = base.parent / f".{base.name}.branches"
    # A pod sees its own branch alone: what it waits for is touched from here.
    first = shell("while [ ! -e ../go ]; do sleep 0.05; done; echo won > won.txt")

    def release() -> None:
        wait_for(lambda: len(list(state.glob("session-*/[23]/beat"))) == 2)
        wait_for(lambda: list(state.glob("session-*/1")))
        next(state.glob("session-*/1")).joinpath("go").touch()
        released.append(time.monotonic())

    released: list[float] = []
    helper = threading.Thread(target=release)
    helper.start()
    outcome = Speculate([first, beating, beating], runner=runners())(base)
    took = time.monotonic() - released[0]
    helper.join()
    assert outcome.committed
    assert [result.branch_index for result in outcome.all_results] == [0]
    assert (base / "won.txt").exists()
    # Their folders are gone: a pod at work would have kept or made them again.
    assert not state.exists()
    print(f"from the first success to the last pod's end: {took:.1f} s")
    wait_for(lambda: not things(cluster, "jobs", "configmaps"))


COORDINATOR = """
import sys
from app.adapters.kubernetes.connection import connect
from app.adapters.kubernetes.manifests import Placement, Resources
from app.patterns.commands import Command
from app.patterns.jobs import JobsRunner
from app.patterns.racing import BestOfN
kubeconfig, namespace, mount, folder = sys.argv[1:]
runner = JobsRunner(
    claim="branches", image="python:3.13-slim", mount=mount, group="adopted",
    cluster=connect(kubeconfig, "", namespace), resources=Resources(0.1, 64),
    placement=Placement(pull_policy="Never"),
)
def shell(number, text):
    text = f"echo x >> ../began; {text}; echo {number} >&3; echo {number} > result"
    return Command(["/bin/sh", "-c", text])
waiting = "while [ ! -e ../go ]; do sleep 0.1; done"
outcome = BestOfN([shell(1, "true"), shell(3, waiting), shell(2, waiting)], runner=runner)(folder)
print("committed", outcome.committed, [result.score for result in outcome.all_results])
"""


def test_a_coordinator_that_is_started_again_adopts_what_runs_and_what_has_ended(
    cluster: Cluster, volume: Path, base: Path
) -> None:
    command = [sys.executable, "-c", COORDINATOR, str(kubeconfig()), cluster.namespace]
    command += [str(volume), str(base)]
    group = base.parent / f".{base.name}.branches" / "group-adopted"
    with subprocess.Popen(command) as killed:
        try:
            wait_for(lambda: len(list(group.glob("*/began"))) == 3)
            wait_for(lambda: _succeeded(cluster) == 1)
        finally:
            killed.send_signal(signal.SIGKILL)
    assert _succeeded(cluster) == 1
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as again:
        time.sleep(1.0)
        began = [path.read_text() for path in group.glob("*/began")]
        for branch in (group / "2", group / "3"):
            (branch / "go").touch()
        printed, _ = again.communicate(timeout=SECONDS)
    assert printed == "committed True [1.0, 3.0, 2.0]\n"
    # Nothing was begun twice.
    assert began == ["x\n"] * 3
    assert (base / "result").read_text() == "3\n"
    assert not group.exists()
    wait_for(lambda: not things(cluster, "jobs", "configmaps", "pods"))


def _succeeded(cluster: Cluster) -> int:
    listed = kubectl(
        *("-n", cluster.namespace, "get", "jobs", "-l", "evoqueue.group=branches", "-o", "json")
    )
    return sum(bool(job["status"].get("succeeded")) for job in json.loads(listed)["items"])


def test_a_deleted_job_fails_its_candidate_alone(
    cluster: Cluster, runners: Runners, base: Path
) -> None:
    state = base.parent / f".{base.name}.branches"

    def delete() -> None:
        wait_for(lambda: list(state.glob("session-*/1/tree/up")))
        [name] = things(cluster, "jobs")
        kubectl("-n", cluster.namespace, "delete", name, "--wait=false")

    helper = threading.Thread(target=delete)
    helper.start()
    outcome = BestOfN([shell("touch up; sleep 600")], runner=runners())(base)
    helper.join()
    [result] = outcome.all_results
    assert isinstance(result.exception, ProcessBranchError)
    assert "deleted" in str(result.exception)
    assert not outcome.committed
    assert sorted(os.listdir(base)) == ["kept.txt", "sub"]


def test_an_api_server_that_is_away_for_seconds_costs_no_candidate(
    cluster: Cluster, runners: Runners, base: Path, tmp_path: Path
) -> None:
    with Proxy(cluster.server) as proxy:
        document = yaml.safe_load(kubeconfig().read_text())
        reached = document["clusters"][0]["cluster"]
        reached["tls-server-name"] = reached["server"].partition("//")[2].partition(":")[0]
        reached["server"] = f"https://127.0.0.1:{proxy.port}"
        (tmp_path / "config").write_text(yaml.safe_dump(document))
        through = connect(str(tmp_path / "config"), "", cluster.namespace)
        state = base.parent / f".{base.name}.branches"

        def cut() -> None:
            wait_for(lambda: list(state.glob("session-*/1/tree/up")))
            proxy.cut()
            # The candidate ends while nobody can be told.
            next(state.glob("session-*/1")).joinpath("go").touch()
            time.sleep(4.0)
            proxy.restore()

        helper = threading.Thread(target=cut)
        helper.start()
        waiting = shell("touch up; while [ ! -e ../go ]; do sleep 0.1; done; echo 7 >&3")
        outcome = Speculate([waiting], runner=runners(cluster=through))(base)
        helper.join()
    assert outcome.committed
    assert outcome.winner is not None
    assert outcome.winner.score == 7.0


class Proxy:
    """Passes connections on to the API server, until it is cut."""

    def __init__(self, server: str) -> None:
        host, _, port = server.partition("//")[2].rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._passing: list[threading.Thread] = []
        self._away = False

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for each in self._passing:
            each.join()

    def cut(self) -> None:
        self._away = True
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def restore(self) -> None:
        self._away = False

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            if self._away:
                accepted.close()
                continue
            passed = socket.create_connection(self._server)
            self._open += [accepted, passed]
            self._passing.append(threading.Thread(target=_pass_on, args=(accepted, passed)))
            self._passing[-1].start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with one, other:
        back = threading.Thread(target=_pump, args=(other, one))
        back.start()
        _pump(one, other)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def test_candidates_over_a_quota_of_jobs_wait_for_room(
    cluster: Cluster, runners: Runners, base: Path
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "one"},
        "spec": {"hard": {"count/jobs.batch": "1"}},
    }
    kubectl("-n", cluster.namespace, "apply", "-f", "-", given=json.dumps(quota))
    try:
        wait_for(
            lambda: json.loads(
                kubectl("-n", cluster.namespace, "get", "resourcequota", "one", "-o", "json")
            )["status"].get("hard")
        )
        outcome = BestOfN([shell("true")] * 2, runner=runners())(base)
        assert [result.error for result in outcome.all_results] == ["", ""]
        # Without room in time, the quota is named.
        late = BestOfN([shell("sleep 20"), shell("true")], runner=runners(start_seconds=9.0))(base)
    finally:
        kubectl("-n", cluster.namespace, "delete", "resourcequota", "one")
    errors = [result.error for result in late.all_results]
    assert sum("exceeded quota" in error for error in errors) == 1, errors


def test_levels_and_judges_have_the_branches_that_they_go_on_from(
    runners: Runners, base: Path
) -> None:
    def expand(path: Path, depth: int) -> list[Command]:
        return [shell(f"echo {depth}{k} >> steps; wc -l < steps >&3") for k in range(2)]

    beam = BeamSearch(expand(base, 0), expand=expand, beam_width=2, max_depth=2, runner=runners())
    assert beam(base).committed
    assert (base / "steps").read_text() == "00\n10\n"
    candidates = [shell(f"echo {k} > champion") for k in range(2)]
    judge = shell('cat "$BRANCHING_FIRST"/champion "$BRANCHING_SECOND"/champion >&2; echo 1')
    assert Tournament(candidates, judge, runner=runners())(base).committed
    assert (base / "champion").read_text() == "1\n"


def test_patterns_inside_a_candidate_start_no_more_than_was_reserved(
    runners: Runners, base: Path
) -> None:
    inner = BestOfN([shell("touch a; echo 1 >&3"), shell("touch b; echo 2 >&3")])
    budget = CandidateBudget(6)
    both = Speculate([inner], runner=runners(), budget=budget, reserved=3)(base)
    assert both.committed, both.all_results
    assert (base / "b").exists()
    assert budget.left == 3
    bounded = Speculate([inner], runner=runners(), budget=budget, reserved=1)(base)
    assert budget.left == 1
    assert bounded.winner is None or bounded.winner.score == 1.0


def test_a_callable_runs_where_the_versions_of_python_agree(runners: Runners, base: Path) -> None:
    by_name = Speculate([os.path.isdir], runner=runners())(base)
    assert by_name.committed, by_name.all_results

    def write(path: Path) -> tuple[bool, float]:
        (path / "by_value.txt").write_text(str(os.getpid()))
        return True, 0.25

    [result] = Speculate([write], runner=runners())(base).all_results
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here == "3.13":
        assert result.score == 0.25
    else:
        assert f"pickled by Python {here}, and this machine has 3.13" in result.error


def test_what_cannot_run_is_said(runners: Runners, base: Path, tmp_path: Path) -> None:
    [late] = Speculate([shell("sleep 600")], runner=runners(), timeout=2)(base).all_results
    assert isinstance(late.exception, TimeoutError)
    absent = runners(image="no-such-image:1", start_seconds=8.0)
    [missing] = Speculate([shell("true")], runner=absent)(base).all_results
    assert "image" in missing.error
    [large] = Speculate([Command(["true", "x" * FILES_BYTES])], runner=runners())(base).all_results
    assert "bytes of files of a Job" in large.error
    with pytest.raises(MountError, match="not below"):
        Speculate([shell("true")], runner=runners())(tmp_path)
    if os.geteuid() == 0:
        with Workspace(base) as workspace:
            if workspace.storage is Storage.OVERLAY:
                [hidden] = Speculate([shell("true")], runner=runners())(workspace).all_results
                assert "is an overlay, which pods do not see" in hidden.error
