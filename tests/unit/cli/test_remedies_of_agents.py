"""Advice about agents: carried out, it ends the refusal."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.adapters.model.agents.model import AgentModel
from app.bootstrap.agents import agents
from app.config.settings import RunSettings
from app.ports.protocols import Misconfigured
from tests.engine.toy import ToySandbox, problem

COMMAND = ["my-agent", "{task}"]


def agent_of(**sections: dict[str, Any]) -> AgentModel | None:
    settings = RunSettings.model_validate(sections).model_dump(mode="json")
    run: Any = SimpleNamespace(settings=settings, problem="toy", operators={"agent": 1.0})
    sandbox: Any = ToySandbox()
    return agents(lambda digest: problem(), sandbox)(run)


@pytest.mark.parametrize(
    ("refused", "words", "remedied"),
    [
        (
            {"llm": {"model": "me", "provider": "human"}, "agent": {"command": COMMAND}},
            "llm.roles.agent.model, or set agent.network=false",
            {
                "llm": {"model": "me", "provider": "human"},
                "agent": {"command": COMMAND, "network": False},
            },
        ),
    ],
)
def test_an_advice_about_agents_that_is_carried_out_ends_the_refusal(
    refused: dict[str, Any], words: str, remedied: dict[str, Any]
) -> None:
    with pytest.raises(Misconfigured) as error:
        agent_of(**refused)
    assert words in str(error.value)
    assert isinstance(agent_of(**remedied), AgentModel)
