"""`evoq run` with agents: an example ends better than it began, also after a kill in its middle."""

import csv
import json
import os
import signal
from pathlib import Path

import pytest

from app.adapters.model.agents.model import AgentCommand, AgentModel
from app.adapters.sandbox.isolated_command import run_isolated
from app.domain.operator import Prompt, Role
from app.domain.program import Program
from app.ports.protocols import Misconfigured
from tests.integration.cli import Evoq
from tests.integration.conftest import not_drawn
from tests.integration.test_cli_run import SECONDS, await_line, ends_at_exactly, started
from tests.integration.test_isolated_commands import processes_with
from tests.integration.worker_double import until

AGENT = """\
import random, re, subprocess, sys, time

text = open("table.py").read()
text = re.sub(r"BUCKETS = \\d+", f"BUCKETS = {random.randrange(2_000, 9_000)}", text)
open("table.py", "w").write(text.replace("MULTIPLIER = 3\\n", "MULTIPLIER = 31\\n"))
print(subprocess.run(["evoq", "try"], capture_output=True, text=True).stdout, flush=True)
time.sleep(float(sys.argv[1]))
"""
"""An agent that gives the hash table of `examples/spelling` more buckets, and spreads words."""


@pytest.fixture(scope="module", autouse=True)
def isolated() -> None:
    """Skips the tests where nothing keeps an agent apart."""
    program = Program.of_files({"a.py": "x = 1\n"})
    try:
        AgentModel(AgentCommand(("true",)), run_isolated).complete(
            [Prompt("", "", role=Role.AGENT, program=program)]
        )
    except Misconfigured as error:
        pytest.skip(str(error))


def order(place: Path, repository: Path, seconds: float, *more: object) -> list[object]:
    """Returns the arguments of `evoq run` with the scripted agent, which rests before its end."""
    folder = place / "agent"
    folder.mkdir()
    script = folder / "agent.py"
    script.write_text(AGENT)
    settings = {
        "search.operators": "{agent: 1}",
        "agent.command": json.dumps(["python3", str(script), str(seconds)]),
        "agent.visible": json.dumps([str(folder)]),
        "agent.network": "false",
        "agent.seconds": "120",
        "queue.generating": "2",
    }
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return ["run", repository / "examples" / "spelling", *given, *more]


def measured(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_agents_without_a_model_make_an_example_faster(
    evoq: Evoq, place: Path, repository: Path
) -> None:
    result = evoq(*order(place, repository, 0, "--iterations", "3", "--name", "agents", "--json"))

    assert result.code == 0, result.err
    document = result.json
    assert (document["state"], document["iterations"]) == ("finished", 3)
    assert document["best"]["ordinal"] >= 0, document["best"]
    [start] = (row for row in measured(place / "runs" / "agents") if row["ordinal"] == "-1")
    assert document["best"]["fitness"] > float(start["fitness"])


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_of_agents_that_is_killed_goes_on_to_its_budget(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before the commands are forked, which inherit it.
    monkeypatch.setattr("app.reports.folder.draw", not_drawn)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = str(tmp_path / "agent" / "agent.py")
    given = order(tmp_path, repository, 4, "--iterations", "100", "--name", "agents")

    with started(tmp_path, *given) as first:
        await_line(tmp_path, r"agents running: [1-9]\d*/100 ")
        until(lambda: processes_with(script), what="an agent at work")
        os.killpg(first.pid, signal.SIGKILL)
        first.rest(SECONDS)
    until(lambda: not processes_with(script), what="the end of the agents")

    with started(tmp_path, "resume", "agents", "--iterations", 6) as second:
        document = json.loads(second.rest(SECONDS))
    assert second.poll() == 0
    ends_at_exactly(6, document)
    assert processes_with(script) == []
    assert list(tmp_path.glob("evoq-agent-*")) == []
