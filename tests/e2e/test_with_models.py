"""Which model a deployment asks: the profile's, or the endpoint of `.env`."""

import json
from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]

SEARCH = ("examples/online_bin_packing", "--set", "search.validate_best=0")
FEW = ("--set", "queue.generating=4")
"""Of a run that only has to go on, so that it leaves the processors to the tests beside it."""


@pytest.fixture(scope="module", autouse=True)
def profile(deployment: Deployment) -> None:
    """Starts the profile `gpu`, where a scripted server stands in for vLLM."""
    deployment.start(profile="gpu")


def asked(deployment: Deployment, run: str) -> tuple[set[str], set[str]]:
    """The operators of a run, and the models that answered it."""
    mine = f"(SELECT id FROM runs WHERE name = '{run}')"
    operators = deployment.sql(f"SELECT operators FROM runs WHERE name = '{run}'")[0][0]
    models = deployment.sql(
        f"SELECT DISTINCT model FROM completions "
        f"WHERE cohort IN (SELECT id FROM cohorts WHERE run = {mine})"
    )
    return set(json.loads(operators)), {model for [model] in models}


def test_with_the_profile_a_run_asks_the_model_on_the_gpu(deployment: Deployment) -> None:
    run = deployment.evoq("run", *SEARCH, "--iterations", "6", "--name", "local")

    assert (run["state"], run["iterations"]) == ("finished", 6)
    assert asked(deployment, "local") == ({"diff", "mend", "rewrite"}, {"small"})


def test_an_endpoint_in_the_settings_comes_before_the_profile(deployment: Deployment) -> None:
    deployment.settle(
        OPENAI_BASE_URL="http://vllm:8000/v1", OPENAI_API_KEY="any", OPENAI_MODEL="remote"
    )
    deployment.start(profile="gpu")

    run = deployment.evoq("run", *SEARCH, "--iterations", "6", "--name", "distant")

    assert (run["state"], run["iterations"]) == ("finished", 6)
    assert asked(deployment, "distant") == ({"diff", "mend", "rewrite"}, {"remote"})


def test_a_run_whose_model_is_frozen_says_that_it_waits_for_it(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.evoq("run", *SEARCH, *FEW, "--iterations", "3000", "--name", "silent", "--detach")
    lines = tmp_path / "lines"
    with deployment.follower("silent", lines):
        until(lambda: "/3000" in lines.read_text(), "it runs", seconds=150)
        with deployment.frozen("vllm"):
            until(
                lambda: "waits: no model answers" in lines.read_text(),
                "`evoq watch` says that no model answers",
                seconds=150,
            )
            assert "no model answers" in deployment.ask("show", "silent")["waiting"]
    deployment.ask("cancel", "silent")
