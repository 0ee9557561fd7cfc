"""The deployment of docker-compose.yml: a run from submission to result, and who may look."""

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.deployment import SOCKET, Deployment, docker, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]

MEGABYTE = 1_000_000
EXAMPLE = "examples/function_minimization"
"""A trial of it takes milliseconds, and no validation follows."""


def flower(deployment: Deployment, path: str, *, password: str | None) -> Any:
    """What Flower answers to an address; its HTTP status when it refuses."""
    request = urllib.request.Request(f"http://127.0.0.1:{deployment.flower_port}{path}")
    if password is not None:
        token = base64.b64encode(f"tester:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.fixture(scope="module")
def small(deployment: Deployment, in_containers: None) -> Any:
    """The document of a run."""
    return deployment.evoq("run", EXAMPLE, "--iterations", "40", "--seed", "1", "--name", "small")


def test_a_run_submitted_to_the_deployment_spends_its_budget_without_gpu_or_key(
    deployment: Deployment, small: Any
) -> None:
    assert (small["run"], small["state"], small["iterations"]) == ("small", "finished", 40)
    assert small["best"]["program"]
    assert small["best"]["fitness"] > -1e9
    assert set(small["failures"].values()) <= set(range(40))
    operators = deployment.sql("SELECT operators FROM runs WHERE name = 'small'")[0][0]
    assert set(json.loads(operators)) == {"tune", "mutate"}


def test_a_command_does_not_wait_for_a_model_server_that_is_not_there(
    deployment: Deployment,
) -> None:
    def seconds(command: str) -> float:
        return seconds_of(
            lambda: deployment.compose("exec", "-T", "worker-control", command, "--help")
        )

    # The look-up of a name that nobody has takes twenty.
    most = seconds("/opt/venv/bin/evoq") + 15.0

    assert any(seconds("evoq") < most for _ in range(3))


def seconds_of(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def test_a_detached_run_goes_on_by_itself(deployment: Deployment) -> None:
    deployment.ask("run", EXAMPLE, "--iterations", "10", "--name", "alone", "--detach")

    until(
        lambda: deployment.state("alone") == "finished",
        "the detached run is finished",
        seconds=300,
    )
    assert deployment.ask("show", "alone")["iterations"] == 10


@pytest.mark.skipif(not SOCKET.exists(), reason=f"no {SOCKET} to hand to worker-cpu")
def test_programs_run_in_containers_without_a_network(deployment: Deployment, small: Any) -> None:
    worker = deployment.container("worker-cpu")["Id"]
    cells = deployment.labelled("evoqueue.sandbox", f"evoqueue.container={worker[:12]}")

    assert cells
    assert {cell["HostConfig"]["NetworkMode"] for cell in cells} == {"none"}
    assert {cell["Config"]["Image"] for cell in cells} == {"evoqueue-sandbox:1"}


def test_flower_shows_workers_queues_and_tasks_to_those_who_know_the_password(
    deployment: Deployment,
) -> None:
    known = deployment.password("FLOWER")

    def workers() -> set[str]:
        workers = flower(deployment, "/api/workers?refresh=1", password=known)
        return {name.partition("@")[0] for name in workers}

    def succeeded() -> set[str]:
        tasks = flower(deployment, "/api/tasks?limit=2000", password=known)
        return {task["name"] for task in tasks.values() if task["state"] == "SUCCESS"}

    until(lambda: {"cpu", "gpu", "control"} <= workers(), "Flower knows the workers", seconds=120)
    lengths = flower(deployment, "/api/queues/length", password=known)["active_queues"]

    assert {queue["name"] for queue in lengths} == {"cpu", "gpu", "control"}
    until(
        lambda: {"produce", "generate", "evaluate"} <= succeeded(),
        "Flower knows tasks of each step",
        seconds=120,
    )


@pytest.mark.parametrize("path", ["/api/workers", "/api/tasks", "/api/queues/length"])
def test_flower_refuses_whoever_does_not_know_the_password(
    deployment: Deployment, path: str
) -> None:
    assert flower(deployment, path, password=None) == 401
    assert flower(deployment, path, password="evoqueue") == 401


def test_the_dashboard_shows_the_workers_to_those_who_know_the_token(
    deployment: Deployment,
) -> None:
    address = f"http://127.0.0.1:{deployment.dashboard_port}/api/system"
    known = urllib.request.Request(
        address, headers={"Authorization": f"Bearer {deployment.password('DASHBOARD')}"}
    )

    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(address, timeout=30)
    with urllib.request.urlopen(known, timeout=30) as answer:
        system = json.loads(answer.read())
    assert {worker["kind"] for worker in system["workers"]} == {"cpu", "gpu", "control"}
    assert set(system["queues"]) == {"cpu", "gpu", "control"}


def test_only_two_pages_are_published_and_those_on_the_loopback_interface(
    deployment: Deployment,
) -> None:
    published = {
        (container["Config"]["Labels"]["com.docker.compose.service"], binding["HostIp"])
        for container in deployment.containers()
        for bindings in (container["HostConfig"]["PortBindings"] or {}).values()
        for binding in bindings
    }

    assert published == {("flower", "127.0.0.1"), ("dashboard", "127.0.0.1")}


def test_redis_and_postgres_refuse_a_client_without_the_password(deployment: Deployment) -> None:
    redis = deployment.compose(
        *("exec", "-T", "redis", "env", "-u", "REDISCLI_AUTH", "redis-cli", "ping")
    )
    postgres = deployment.try_compose(
        *("exec", "-T", "worker-control", "python", "-c"),
        "import psycopg; psycopg.connect('host=postgres user=evoqueue password=evoqueue')",
    )

    assert "NOAUTH" in redis
    assert "password authentication failed" in postgres.stderr


def test_the_image_is_small_and_its_processes_are_not_root(deployment: Deployment) -> None:
    for service in ("beat", "dashboard", "flower", "worker-control", "worker-cpu", "worker-gpu"):
        container = deployment.container(service)
        host = container["HostConfig"]
        users = docker("top", container["Id"], "-eo", "uid,pid").splitlines()[1:]

        assert users
        assert all(line.split()[0] != "0" for line in users), users
        assert host["CapDrop"] == ["ALL"]
        assert host["Memory"] > 0

    assert deployment.inspect("evoqueue-test")["Size"] < 540 * MEGABYTE


def test_a_plot_finds_the_fonts_that_the_image_has(deployment: Deployment) -> None:
    printed = deployment.compose(
        *("exec", "-T", "worker-control", "python", "-c"),
        "import matplotlib; print(matplotlib.get_cachedir())",
    )

    assert printed.strip() == "/home/evoq/.cache/matplotlib"


def test_the_image_is_built_once_and_serves_every_container_with_our_code(
    deployment: Deployment,
) -> None:
    services = json.loads(deployment.compose("config", "--format", "json"))["services"]
    ours = {name for name, service in services.items() if service["image"] == "evoqueue-test"}
    built = {name for name, service in services.items() if "build" in service}

    assert built == {"migrate", "sandbox-image"}
    assert ours >= {"beat", "dashboard", "flower", "migrate"}
    assert ours >= {"worker-control", "worker-cpu", "worker-gpu"}


def test_only_the_worker_that_evaluates_has_the_engines_socket(deployment: Deployment) -> None:
    having = {
        container["Config"]["Labels"]["com.docker.compose.service"]
        for container in deployment.containers()
        if any("docker.sock" in mount["Source"] for mount in container["Mounts"])
    }

    assert having == {"worker-cpu"}


@pytest.mark.parametrize("of", ["POSTGRES", "REDIS", "FLOWER", "DASHBOARD"])
def test_the_project_refuses_to_start_while_a_password_is_missing(
    engine: None, repository: Path, tmp_path: Path, of: str
) -> None:
    project = Deployment(repository, tmp_path, **{f"{of}_PASSWORD": ""})

    refused = project.try_compose("config", "--quiet")

    assert refused.returncode != 0
    assert f"{of}_PASSWORD" in refused.stderr
    assert "set it in .env" in refused.stderr
