"""With the profile `gpu` a deployment asks the model of its own server."""

import json

import pytest

from tests.e2e.deployment import FEW, Deployment, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]

RUN = "local"
PROPOSALS = 40
SECONDS = 300.0


@pytest.fixture(scope="module", autouse=True)
def profile(deployment: Deployment) -> None:
    """Starts the profile, where a scripted server stands in for vLLM."""
    deployment.start(profile="gpu")


def test_a_run_asks_the_model_on_the_gpu_and_waits_for_it_while_it_is_frozen(
    deployment: Deployment,
) -> None:
    deployment.begin(RUN, *FEW, proposals=PROPOSALS)
    until(lambda: bool(deployment.asked(RUN)), "the model has answered", seconds=SECONDS)

    with deployment.frozen("vllm"):
        until(
            lambda: "no model answers" in deployment.ask("show", RUN)["waiting"],
            "`evoq show` says that no model answers",
            seconds=SECONDS,
        )
        assert deployment.state(RUN) == "running"
    until(lambda: deployment.state(RUN) != "running", "the run has ended", seconds=SECONDS)

    shown = deployment.ask("show", RUN)
    assert (shown["state"], shown["iterations"]) == ("finished", PROPOSALS)
    operators = deployment.sql(f"SELECT operators FROM runs WHERE name = '{RUN}'")[0][0]
    forms = {"complete", "function", "rewrite"}
    assert set(json.loads(operators)) == {*forms, "mend", "mutate", "tune"}
    assert deployment.asked(RUN) == {"small"}
