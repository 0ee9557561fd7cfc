"""The chart on a real API server and kubelet.

The stand-in is Kubernetes 1.20 without volumes, services, DNS, network policies and KEDA: those
objects are applied with `--dry-run=server` only, or rendered only (`tests/unit/test_chart.py`).
"""

import base64
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import helm_python
import pytest
import yaml

from infra.manifests import CHART, render, write
from tests.cluster import kubeconfig, namespace  # noqa: F401  namespace is a fixture
from tests.kubernetes.release import IMAGE, NAME, VALUES, Release, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

PROPOSALS = 40
PROGRAM = """
# EVOLVE-BLOCK-START
def point():
    return [0.5, 1.25, -3.0, 2.5]
# EVOLVE-BLOCK-END
"""
EVALUATOR = """
import runpy, time

def evaluate(path):
    time.sleep(1.0)
    return {"combined_score": -sum((x - 1.0) ** 2 for x in runpy.run_path(path)["point"]())}
"""


@pytest.fixture(scope="module")
def release(
    repository: Path,
    namespace: str,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Release:
    """The release, all of it ready."""
    build = ["docker", "build", "--quiet", "--file", "infra/app/Dockerfile", "--tag", IMAGE, "."]
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
    done = subprocess.run(
        build, cwd=repository, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    installed = Release(namespace, tmp_path_factory.mktemp("manifests"))
    try:
        installed.install()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{installed.kubectl('describe', 'pods')}") from error
    return installed


def settled(release: Release) -> int:
    [[number]] = release.sql("SELECT count(*) FROM proposals WHERE settled_at IS NOT NULL")
    return int(number)


def test_a_run_goes_to_its_budget_on_pods_of_which_one_is_killed(release: Release) -> None:
    for name, text in (("initial_program.py", PROGRAM), ("evaluator.py", EVALUATOR)):
        script = f"mkdir -p problems/slow && cat >problems/slow/{name} <<'END'{text}END"
        release.run(f"deployment/{NAME}-control", "sh", "-c", script, container="control")
    command = f"run problems/slow --iterations {PROPOSALS} --no-model --name killed"

    with ThreadPoolExecutor(1) as beside:
        following = beside.submit(release.evoq, command)
        until(lambda: settled(release) >= 8, "eight proposals are settled", seconds=300)
        victim = release.pods("cpu")[0]
        # Deletion alone leaves a pod two seconds to end, in which it gives its leases back.
        with suppress(AssertionError):
            release.run(victim, "sh", "-c", "kill -KILL -1")
        release.kubectl("delete", "pod", victim, "--force", "--grace-period=0")
        printed = following.result(600)

    assert printed.splitlines()[-1] == "status 0", printed
    [[state, proposals]] = release.sql("SELECT state, proposals FROM runs")
    [[planned, open_, repeated]] = release.sql(
        "SELECT count(*) FILTER (WHERE ordinal >= 0), count(*) FILTER (WHERE settled_at IS NULL),"
        " (SELECT count(*) FROM trials WHERE attempts > 1) FROM proposals"
    )
    assert (state, int(proposals), int(planned), int(open_)) == (
        "finished",
        PROPOSALS,
        PROPOSALS,
        0,
    )
    assert int(repeated) >= 1, "no trial of the killed pod was begun again"
    assert missing_protections(printed) == {"memory limit of all processes together by a cgroup"}, (
        "of a kernel as CI has it"
    )


def missing_protections(printed: str) -> set[str]:
    """Returns what the first lines of a run say that sandboxes lack, all workers alike."""
    lines = [line for line in printed.splitlines() if line.startswith("2 of 2 workers: sandbox: ")]
    assert "protections on" in lines[0]
    return {line.split("missing: ")[1].split(" (")[0] for line in lines[1:]}


def test_a_pod_has_no_privilege_and_writes_to_its_own_folders_alone(release: Release) -> None:
    pod = release.pods("cpu")[0]
    status = dict(
        line.split(":\t", 1)
        for line in release.run(pod, "cat", "/proc/self/status").splitlines()
        if ":\t" in line
    )
    writable = release.run(
        pod, "sh", "-c", "for f in / /srv/evoqueue /opt/venv /tmp /home/evoq/.cache; do"
        " touch $f/x 2>/dev/null && echo $f; done; ls /var/run/secrets 2>/dev/null; true"
    )  # fmt: skip

    assert status["Uid"].split() == ["10001"] * 4
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    assert writable.split() == ["/tmp", "/home/evoq/.cache"]


def test_a_pod_keeps_no_process_of_a_program_that_has_ended(release: Release) -> None:
    for pod in release.pods("cpu"):
        states = release.run(pod, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null | cut -d' ' -f3")
        assert "Z" not in states.split(), pod


def test_the_dashboard_answers(release: Release) -> None:
    pods = release.kubectl(
        "get", "pods", "--selector=app.kubernetes.io/component=dashboard", "--output=name"
    )
    address = release.address(pods.strip().removeprefix("pod/"))
    token = release.password("dashboard-token")

    with urlopen(f"http://{address}:8642/api/runs?token={token}", timeout=30) as answer:
        assert answer.status == 200
        assert b"killed" in answer.read()


def test_every_manifest_is_valid(release: Release, tmp_path: Path) -> None:
    """Also those that this cluster cannot run, and but for KEDA's."""
    everything = {
        **VALUES,
        "flower": {"enabled": True},
        "vllm": {"enabled": True},
        "control": {"persistence": {"enabled": True}},
        "fleets": [{"name": "jobs", "kind": "cpu", "tags": ["big"], "sandbox": "kubernetes"}],
    }
    for persistent in ("postgresql", "redis"):
        everything[persistent] = {}
    write(render(everything, "other", release.namespace), tmp_path)

    applied = release.kubectl("apply", "--dry-run=server", f"--filename={tmp_path}")

    kinds = {line.split("/")[0].split(".")[0] for line in applied.splitlines()}
    assert kinds >= {"networkpolicy", "poddisruptionbudget", "statefulset", "role", "job"}


def test_an_upgrade_keeps_the_passwords(release: Release) -> None:
    with (
        helm_python.Config(kubeconfig_path=kubeconfig(), namespace=release.namespace) as helm,
        helm_python.Chart.load(CHART) as chart,
    ):
        rendered = helm.render(chart, VALUES, name="evoq", namespace=release.namespace)

    secret = yaml.safe_load(rendered["evoqueue/templates/secret.yaml"])["data"]
    assert {name: base64.b64decode(text).decode() for name, text in secret.items()} == {
        name: release.password(name) for name in secret
    }


def test_helm_installs_upgrades_tests_and_removes_a_release(release: Release) -> None:
    """A second release beside the ledger of the first, which is an external one for it."""
    values = {
        "image": VALUES["image"],
        "secrets": {"existingSecret": NAME},
        "postgresql": {"bundled": False, "host": release.address(f"{NAME}-postgres-0")},
        "redis": {"bundled": False, "host": release.address(f"{NAME}-redis-0")},
        "dashboard": {"enabled": False},
        "fleets": [{"name": "none", "kind": "cpu", "replicas": 0}],
    }
    options = {"namespace": release.namespace, "wait": "hookOnly", "timeout": 600}

    with helm_python.Config(kubeconfig_path=kubeconfig(), namespace=release.namespace) as helm:
        installed = helm.install(CHART, "second", values, **options)
        upgraded = helm.upgrade(
            CHART, "second", {**values, "drainSeconds": {"control": 5}}, **options
        )
        tested = helm.test("second", timeout=600, logs=True)
        helm.uninstall("second")

    def left() -> str:
        return release.kubectl(
            "get", "all,configmaps,networkpolicies,roles,serviceaccounts,poddisruptionbudgets",
            "--selector=app.kubernetes.io/instance=second,"
            "app.kubernetes.io/component notin (control)",
            "--output=name",
        )  # fmt: skip

    assert (installed["status"], upgraded["status"]) == ("deployed", "deployed")
    assert "policy/v1beta1" in installed["manifest"], "the chart asks the cluster for its versions"
    assert "ok      planner: beat and a worker plan" in tested["logs"]
    # The cluster deletes in the background what belonged to a deleted object.
    until(lambda: not left(), "nothing of the second release is left", seconds=300)
