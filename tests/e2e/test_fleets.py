"""Three workers with labels serve one run, islands each on its own; a quota holds a run back."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.e2e.deployment import FEW, Deployment, docker, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]
SECONDS = 150.0
"""Far more than the ten of an idle machine."""
MODELS = {"alpha": "gpu:a", "beta": "gpu:b"}


@contextmanager
def beside(deployment: Deployment, service: str, *command: str) -> Iterator[str]:
    """Runs a command in another container of a service; yields the container's name."""
    name = deployment.compose("run", "-d", "--no-deps", service, *command).split()[-1]
    try:
        yield name
    finally:
        docker("rm", "-f", name)


@contextmanager
def served_model(deployment: Deployment, name: str) -> Iterator[str]:
    """Serves a simulated model; yields its address."""
    mock = "evoq", "mock-llm", "--host", "0.0.0.0", "--port", "8400", "--model", name
    with beside(deployment, "worker-gpu", *mock) as container:
        host = deployment.inspect(container)["Name"].removeprefix("/")
        yield f"http://{host}:8400/v1"


def worker(deployment: Deployment, service: str, queue: str) -> AbstractContextManager[str]:
    celery = "celery", "-A", "app", "worker", "-Q", queue, "--loglevel", "WARNING"
    return beside(deployment, service, *celery)


def waits(deployment: Deployment, run: str) -> str:
    return str(deployment.ask("show", run)["waiting"])


def test_three_workers_with_labels_serve_one_run_and_a_quota_holds_it_back(
    deployment: Deployment,
) -> None:
    with served_model(deployment, "alpha") as alpha, served_model(deployment, "beta") as beta:
        models = [
            {"name": name, "base_url": url, "fleet": MODELS[name]}
            for name, url in (("alpha", alpha), ("beta", beta))
        ]
        deployment.ask("quota", "team", "--runs", "0")
        deployment.begin(
            "fleets",
            *(*FEW, "--project", "team", "--set", "search.islands=2"),
            *("--set", f"llm.models={json.dumps(models)}"),
            *("--set", 'queue.fleets=["gpu:a", "gpu:b", "cpu:big"]'),
            *("--set", "search.operators={rewrite: 1}"),
            proposals=8,
            trial_seconds=0.1,
        )
        named = "1 proposal waits for a worker of gpu:a; start one with `celery -A app worker -Q"
        until(lambda: named in waits(deployment, "fleets"), "`show` names it", seconds=SECONDS)
        until(
            lambda: 'evoq_unserved_steps{queue="gpu:a"} 1.0' in deployment.scrape(),
            "/metrics counts it",
            seconds=SECONDS,
        )
        with (
            worker(deployment, "worker-gpu", "gpu:a"),
            worker(deployment, "worker-gpu", "gpu:b"),
            worker(deployment, "worker-cpu", "cpu,cpu:big"),
        ):
            quota = "project 'team' may have 0 runs at once"
            until(lambda: quota in waits(deployment, "fleets"), "the quota holds", seconds=SECONDS)
            deployment.ask("quota", "team", "--remove")
            until(lambda: deployment.state("fleets") == "finished", "it ends", seconds=SECONDS)
            kinds = deployment.sql(
                "SELECT DISTINCT queues[array_upper(queues, 1)] FROM workers "
                "WHERE array_to_string(queues, ' ') LIKE '%:%'"
            )
    assert {kind for [kind] in kinds} == {"gpu:a", "gpu:b", "cpu:big"}
    asked = deployment.sql(
        "SELECT DISTINCT proposals.island, completions.model FROM completions "
        "JOIN proposals ON proposals.id = completions.proposal "
        "JOIN runs ON runs.id = proposals.run WHERE runs.name = 'fleets' ORDER BY 1"
    )
    assert asked == [["0", "alpha"], ["1", "beta"]]
