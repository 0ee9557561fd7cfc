"""A run of the real deployment while its parts are killed, frozen, emptied, restarted, replaced."""

import json
import time
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.deployment import SOCKET, Deployment, until

pytestmark = [pytest.mark.timing, pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1500)]

PROPOSALS = 100
RUN = "chaos"
MINE = f"run = (SELECT id FROM runs WHERE name = '{RUN}')"
OURS = ("beat", "worker-control", "worker-gpu", "worker-cpu")
CELLS = 4
"""Most sandboxes of worker-cpu: one for each of its three threads, and a spare."""
SETTLING = "('admitted', 'refused', 'cut', 'failed')"
"""Event kinds: every proposal settles with exactly one."""


def kill(deployment: Deployment, service: str) -> None:
    """Kills every process of a service's container but its init, as `kill -9` does.

    From inside, because a container that `docker kill` ended counts as stopped on purpose and is
    not restarted.
    """
    before = deployment.container(service)["RestartCount"]
    deployment.try_compose("exec", "-T", service, "sh", "-c", "kill -KILL -1")
    until(
        lambda: deployment.container(service)["RestartCount"] > before,
        f"the engine restarts {service}",
        seconds=120,
    )


def freeze(deployment: Deployment, service: str) -> None:
    """Freezes a service for longer than its leases last."""
    with deployment.frozen(service):
        time.sleep(12.0)


def upgrade(deployment: Deployment) -> None:
    """Replaces every container of ours; from then on programs run in containers, if there may be.

    What was killed and frozen before has left no folders of sandboxes in worker-cpu.
    """
    until(
        lambda: 0 < sandbox_folders(deployment) <= CELLS,
        f"worker-cpu has folders of at most {CELLS} sandboxes",
        seconds=60,
    )
    if SOCKET.exists():
        deployment.settle(DOCKER_GID=str(SOCKET.stat().st_gid))
    deployment.start("--force-recreate", "--no-deps", *OURS)


def sandbox_folders(deployment: Deployment) -> int:
    folders = deployment.compose("exec", "-T", "worker-cpu", "ls", "/tmp").split()
    return sum(folder.startswith("evoq-sandbox-") for folder in folders)


def flush(deployment: Deployment) -> None:
    assert deployment.compose("exec", "-T", "redis", "redis-cli", "FLUSHALL").strip() == "OK"


def restart_postgres(deployment: Deployment) -> None:
    deployment.compose("restart", "postgres")
    until(lambda: deployment.alive("postgres"), "Postgres is back", seconds=120)


BOMB = """
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""


def withstand_a_bomb(deployment: Deployment) -> None:
    """Evaluates a program that forks without end, then an honest one, in processes of worker-cpu.

    The machine may be too busy for either, which an evaluation by hand reports as an error.
    """
    example = "examples/function_minimization"
    command = ("exec", "-T", "worker-cpu", "sh", "-c")
    before = int(deployment.compose(*command, "ls -d /proc/[0-9]* | wc -l"))
    deployment.compose(*command, f"cat >/tmp/bomb.py <<'END'{BOMB}END")
    evaluate = f"evoq evaluate {example} /tmp/bomb.py {example}/initial_program.py --json"
    printed = []

    def evaluated() -> bool:
        done = deployment.try_compose(*command, f"{evaluate} --set sandbox.wall_seconds=2")
        printed.append(done.stdout)
        return done.returncode == 0

    until(evaluated, "a bomb and an honest program are evaluated", seconds=120)
    bomb, honest = json.loads(printed[-1])
    assert bomb["failure"]["kind"] == "timeout"
    assert honest["failure"] is None
    assert honest["metrics"]["combined_score"] > 0.0
    assert int(deployment.compose(*command, "ls -d /proc/[0-9]* | wc -l")) < before + CELLS
    assert deployment.alive("worker-cpu")


def settled(deployment: Deployment) -> int:
    return deployment.number(
        f"SELECT count(*) FROM proposals WHERE {MINE} AND ordinal >= 0 AND settled_at IS NOT NULL"
    )


def require_each_fault_in(scraped: str, repository: Path, seconds: float) -> None:
    """Expects that each fault shows in the metric of its alert: killed and frozen workers, a
    flushed Redis, a Postgres that was restarted within these seconds.  Replaced containers are no
    fault.
    """
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(scraped)
        for sample in family.samples
        if sample.labels.get("run", RUN) == RUN
    }
    rules = yaml.safe_load((repository / "infra/prometheus/alerts.yml").read_text())
    alerts = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    for alert, metric, shows in (
        ("EvoqueueStepsRepeated", "evoq_repeated_steps_total", lambda steps: steps >= 1),
        ("EvoqueueQueueEmptied", "evoq_queue_flushes_total", lambda flushes: flushes >= 2),
        ("EvoqueueLedgerRestarted", "evoq_ledger_uptime_seconds", lambda age: age < seconds),
    ):
        assert metric in alerts[alert]
        assert shows(found[metric]), (alert, found[metric])


def test_a_run_survives_killed_frozen_and_replaced_workers_a_flushed_queue_and_a_restarted_ledger(
    deployment: Deployment, repository: Path
) -> None:
    withstand_a_bomb(deployment)
    deployment.begin(RUN, "--no-model", proposals=PROPOSALS, seed=7)

    began = time.monotonic()
    faults = [
        (6, lambda: kill(deployment, "worker-cpu")),
        (13, lambda: kill(deployment, "worker-gpu")),
        (20, lambda: flush(deployment)),
        (27, lambda: freeze(deployment, "worker-cpu")),
        (34, lambda: upgrade(deployment)),
        (41, lambda: kill(deployment, "worker-cpu")),
        (48, lambda: freeze(deployment, "worker-cpu")),
        (55, lambda: restart_postgres(deployment)),
        (62, lambda: flush(deployment)),  # and well before the end, if seen late
    ]
    for threshold, fault in faults:
        until(
            lambda wanted=threshold: settled(deployment) >= wanted,
            f"{threshold} proposals are settled",
            seconds=300,
        )
        assert deployment.state(RUN) == "running"
        fault()
    until(lambda: deployment.state(RUN) != "running", "the run has ended", seconds=600)

    assert deployment.state(RUN) == "finished"
    assert settled(deployment) == PROPOSALS
    assert deployment.sql(
        f"SELECT count(*), count(DISTINCT ordinal), min(ordinal), max(ordinal) "
        f"FROM proposals WHERE {MINE} AND ordinal >= 0"
    ) == [[str(n) for n in (PROPOSALS, PROPOSALS, 0, PROPOSALS - 1)]]
    assert (
        deployment.number(f"SELECT count(*) FROM proposals WHERE {MINE} AND settled_at IS NULL")
        == 0
    )
    assert deployment.sql(
        f"SELECT count(*), count(DISTINCT data ->> 'proposal') FROM events "
        f"WHERE {MINE} AND kind IN {SETTLING} AND (data ->> 'proposal')::int >= 0"
    ) == [[str(PROPOSALS), str(PROPOSALS)]]
    [[first, last, count]] = deployment.sql(
        f"SELECT min(seq), max(seq), count(*) FROM events WHERE {MINE}"
    )
    assert (first, last) == ("1", count)
    assert deployment.number(f"SELECT events FROM runs WHERE name = '{RUN}'") == int(count)
    assert deployment.ask("show", RUN)["iterations"] == PROPOSALS
    require_each_fault_in(deployment.scrape(), repository, time.monotonic() - began)
