"""A deployment that was restored from a backup goes on, with the settings that it has now."""

from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]

PROPOSALS = 30
RUN = "kept"
MINE = f"run = (SELECT id FROM runs WHERE name = '{RUN}') AND ordinal >= 0"
SERVICES = ("beat", "worker-control", "worker-gpu", "worker-cpu", "vllm")
"""With Postgres and Redis all that works on a run; the pages are looked at elsewhere."""
SECONDS = 600.0


@pytest.fixture(scope="module", autouse=True)
def endpoint(deployment: Deployment) -> None:
    """Names an endpoint in `.env`, which the next start takes up: here the profile's server."""
    deployment.settle(
        OPENAI_BASE_URL="http://vllm:8000/v1", OPENAI_API_KEY="any", OPENAI_MODEL="remote"
    )


def test_a_run_goes_on_in_a_fresh_deployment_that_was_restored_from_a_backup(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.begin(RUN, "--no-model", proposals=PROPOSALS, seed=3)
    until(lambda: settled(deployment) >= 10, "some proposals are settled", seconds=SECONDS)
    deployment.dump(tmp_path / "evoqueue.dump")
    deployment.end()

    deployment.start("postgres")
    deployment.restore(tmp_path / "evoqueue.dump")
    before = settled(deployment)
    deployment.start(*SERVICES, profile="gpu")
    until(lambda: deployment.state(RUN) != "running", "the run has ended", seconds=SECONDS)

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


def test_an_endpoint_in_the_settings_comes_before_the_profile(deployment: Deployment) -> None:
    deployment.start(*SERVICES, profile="gpu")

    deployment.begin("distant", proposals=6)
    until(lambda: deployment.state("distant") != "running", "the run has ended", seconds=SECONDS)

    assert deployment.ask("show", "distant")["iterations"] == 6
    assert deployment.asked("distant") == {"remote"}
