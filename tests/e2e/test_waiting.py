"""A run that waits says for what, wherever it is looked at, and goes on by itself."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.e2e.deployment import FEW, Deployment, docker, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]

SECONDS = 150.0
"""Far more than the ten of an idle machine: a command alone may take as long on a crowded one."""
SEGMENTS = 4
"""Of 16 MiB each, which a checkpoint keeps for the log to come."""


@contextmanager
def full_disk(deployment: Deployment) -> Iterator[None]:
    """Fills the disk of Postgres, but for segments of its log, without which it would end."""
    for _ in range(SEGMENTS):
        deployment.sql("SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()")
    deployment.sql("CHECKPOINT")
    name = deployment.container("postgres")["Id"]
    file = "/var/lib/postgresql/data/fill"
    docker("exec", name, "sh", "-c", f"dd if=/dev/zero of={file} bs=1M 2>/dev/null || true")
    try:
        yield
    finally:
        docker("exec", name, "rm", file)


FAULTS: dict[str, Callable[[Deployment], AbstractContextManager[None]]] = {
    "no worker of the queue `cpu` evaluates": lambda deployment: deployment.frozen("worker-cpu"),
    "nothing plans": lambda deployment: deployment.frozen("beat"),
    "No space left on device": full_disk,
}


DOCTOR = {"nothing plans": ("planner", "`docker compose up -d beat`")}
"""What `evoq doctor` finds meanwhile: the name of its check, and the remedy."""


def test_a_run_says_what_it_waits_for_and_goes_on(deployment: Deployment, tmp_path: Path) -> None:
    deployment.begin("waits", "--no-model", *FEW, proposals=3000, trial_seconds=3.0)
    lines = tmp_path / "lines"
    with deployment.follower("waits", lines):
        until(lambda: goes_on(lines.read_text()), "it runs", seconds=SECONDS)
        for reason, fault in FAULTS.items():
            seen = len(lines.read_text())
            with fault(deployment):
                until(
                    lambda wanted=reason, seen=seen: wanted in lines.read_text()[seen:],
                    f"`evoq watch` says: {reason}",
                    seconds=SECONDS,
                )
                until(
                    lambda wanted=reason: all(wanted in waits for waits in shown(deployment)),
                    f"`evoq show` and `evoq list-runs` say: {reason}",
                    seconds=SECONDS,
                )
                if reason in DOCTOR:
                    check, remedy = DOCTOR[reason]
                    until(
                        lambda check=check, remedy=remedy: remedy in deployment.findings()[check],
                        f"`evoq doctor` says: {remedy}",
                        seconds=SECONDS,
                    )
            seen = len(lines.read_text())
            until(
                lambda seen=seen: goes_on(lines.read_text()[seen:]),
                f"it goes on after: {reason}",
                seconds=SECONDS,
            )
    deployment.ask("cancel", "waits")


def shown(deployment: Deployment) -> list[str]:
    """Returns what the run waits for, as two commands show it; "" where a command fails.

    Postgres refuses a session now and then while its disk is full.
    """
    try:
        [row] = [row for row in deployment.ask("list-runs") if row["run"] == "waits"]
        return [row["waiting"], deployment.ask("show", "waits")["waiting"]]
    except AssertionError:
        return [""]


def goes_on(lines: str) -> bool:
    """Returns whether a run settles proposals and waits for nothing, by its last two lines."""
    last = lines.splitlines()[-2:]
    settled = {line.partition(": ")[2].partition("/")[0] for line in last}
    return len(settled) == 2 and not any("waits: " in line for line in last)


def test_doctor_finds_nothing_missing_in_a_whole_deployment(deployment: Deployment) -> None:
    found = deployment.findings()

    assert "elsewhere" in found["sandbox"]
    assert "Docker" not in found
    assert found["planner"] == "beat and a worker plan"
