"""Which model a deployment asks: the profile's, or the endpoint of `.env`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]

EXAMPLE = "examples/online_bin_packing"


@pytest.fixture(scope="module")
def deployment(
    engine: None, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """The project with `--profile gpu`, where a scripted server stands in for vLLM."""
    override = repository / "tests" / "e2e" / "scripted-model.yml"
    project = Deployment(
        repository, tmp_path_factory.mktemp("models"), override, VLLM_MODEL="small"
    )
    try:
        project.start("gpu")
        yield project
    finally:
        project.end()


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
    run = deployment.evoq("run", EXAMPLE, "--iterations", "6", "--name", "local")

    assert (run["state"], run["iterations"]) == ("finished", 6)
    assert asked(deployment, "local") == ({"diff", "mend", "rewrite"}, {"small"})


def test_an_endpoint_in_the_settings_comes_before_the_profile(deployment: Deployment) -> None:
    deployment.settle(
        OPENAI_BASE_URL="http://vllm:8000/v1", OPENAI_API_KEY="any", OPENAI_MODEL="remote"
    )
    deployment.start("gpu")

    run = deployment.evoq("run", EXAMPLE, "--iterations", "6", "--name", "distant")

    assert (run["state"], run["iterations"]) == ("finished", 6)
    assert asked(deployment, "distant") == ({"diff", "mend", "rewrite"}, {"remote"})
