"""mini-SWE-agent, as it is on PyPI, with a scripted model and with the smallest real one."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from app.adapters.model.agents.model import AgentCommand, AgentModel
from app.adapters.model.agents.proxy import Upstream
from app.adapters.sandbox.isolated_command import run_isolated
from app.domain.evaluation import FailureKind
from app.domain.operator import Offspring, Prompt, Role
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.agent import read_agent
from app.domain.source.edits import summary
from tests.model_endpoint import Endpoint, serving
from tests.real_model import served_model

PROGRAM = Program.of_files({"src/a.py": "LIMIT = 1\n", "src/b.py": "y = 1\n"})
COMMANDS = [
    "ls src && cat src/a.py",
    "sed -i 's/LIMIT = 1/LIMIT = 20/' src/a.py",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
]


@pytest.fixture(scope="module")
def mini() -> Path:
    """Returns the program of mini-SWE-agent, which has an environment of its own."""
    named = os.environ.get("EVOQ_TEST_MINI_SWE_AGENT") or shutil.which("mini-swe-agent")
    if named is None or not Path(named).exists():
        pytest.skip(
            "mini-SWE-agent is not installed: pip install it into an environment of its own and "
            "name its program with EVOQ_TEST_MINI_SWE_AGENT"
        )
    return Path(named)


class Scripted(Endpoint):
    """A model that calls `bash` with `COMMANDS`, one after the other."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        command = COMMANDS[min(len(self.asked), len(COMMANDS) - 1)]
        call = {
            "id": f"call_{len(self.asked)}",
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps({"command": command})},
        }
        message = {"role": "assistant", "content": "Next step.", "tool_calls": [call]}
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60},
        }


def agent_command(mini: Path, *, seconds: float, tokens: int) -> AgentCommand:
    return AgentCommand(
        (
            *(str(mini), "--yolo", "--exit-immediately", "--cost-limit", "0"),
            *("--model", "openai/{model}", "--output", "/tmp/trajectory.json"),
            *("--task", "{prompt}"),
        ),
        seconds=seconds,
        tokens=tokens,
        visible=(str(mini.parents[1]),),
        environment={"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"},
    )


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_mini_swe_agent_makes_a_child(mini: Path) -> None:
    command = agent_command(mini, seconds=300.0, tokens=100_000)
    with serving(Scripted) as endpoint:
        agent = AgentModel(
            command, run_isolated, upstream=Upstream(endpoint.url, "scripted", "sk-secret")
        )
        prompt = Prompt("", "Raise the limit.", role=Role.AGENT, program=PROGRAM)
        [reply] = agent.complete([prompt])
    made = read_agent(reply, PROGRAM, EditRules(evolve=("src/*.py",)), summary)
    assert isinstance(made, Offspring), reply.text
    assert made.program.focused("src/a.py").source == "LIMIT = 20\n"
    assert len(endpoint.asked) == len(COMMANDS)
    assert "Raise the limit." in json.dumps(endpoint.bodies[0]["messages"])
    assert (reply.prompt_tokens, reply.completion_tokens) == (150, 30)


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_mini_swe_agent_spends_no_more_of_a_real_model_than_it_may(mini: Path) -> None:
    command = agent_command(mini, seconds=60.0, tokens=6000)
    with served_model() as url:
        upstream = Upstream(url, "small", longest_reply=200)
        prompt = Prompt("", "Raise the limit in src/a.py.", role=Role.AGENT, program=PROGRAM)
        [reply] = AgentModel(command, run_isolated, upstream=upstream).complete([prompt])
    assert reply.prompt_tokens > 0, reply.text
    assert 0 < reply.completion_tokens <= 6000 - reply.prompt_tokens
    made = read_agent(reply, PROGRAM, EditRules(evolve=("src/*.py",)), summary)
    assert isinstance(made, Offspring) or made.kind in (FailureKind.UNCHANGED, FailureKind.NO_CODE)
