"""What an operator does to a deployment while a run goes on costs the run nothing."""

from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]

PROPOSALS = 30
RUN = "kept"
MINE = f"run = (SELECT id FROM runs WHERE name = '{RUN}') AND ordinal >= 0"


def test_a_run_goes_on_in_a_fresh_deployment_that_was_restored_from_a_backup(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.begin(RUN, proposals=PROPOSALS, seed=3)
    until(lambda: settled(deployment) >= 10, "some proposals are settled", seconds=300)
    deployment.dump(tmp_path / "evoqueue.dump")
    deployment.end()

    deployment.start("postgres")
    deployment.restore(tmp_path / "evoqueue.dump")
    before = settled(deployment)
    deployment.start()
    until(
        lambda: deployment.sql(f"SELECT state FROM runs WHERE name = '{RUN}'") != [["running"]],
        "the run has ended",
        seconds=600,
    )

    assert 10 <= before < PROPOSALS
    assert settled(deployment) == PROPOSALS
    assert deployment.number(f"SELECT count(DISTINCT ordinal) FROM proposals WHERE {MINE}") == (
        PROPOSALS
    )
    assert deployment.ask("show", RUN)["state"] == "finished"


def settled(deployment: Deployment) -> int:
    return deployment.number(
        f"SELECT count(*) FROM proposals WHERE {MINE} AND settled_at IS NOT NULL"
    )
