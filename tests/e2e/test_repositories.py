"""A program of several files and agents on the deployment, with workers that are killed."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]

RUN, PROPOSALS, SECONDS = "spelling", 4, 300.0
CHANGE = """
import random, re, subprocess
text = open("table.py").read()
new = re.sub(r"BUCKETS = [0-9]+", f"BUCKETS = {random.randrange(2000, 60000)}", text)
open("table.py", "w").write(new)
print("draft", subprocess.run(["evoq", "try"], capture_output=True, text=True).stdout)
"""
"""An agent: each of its children is new, faster, and measured once more as a draft."""
ALL = f"SELECT count(*) FROM proposals WHERE run = (SELECT id FROM runs WHERE name = '{RUN}')"
SETTLED = f"{ALL} AND settled_at IS NOT NULL AND ordinal >= 0"


def test_agents_are_refused_until_they_may_run_and_then_end_in_a_patch(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.start("worker-control", "worker-gpu", "worker-cpu", "beat")
    deployment.ask(
        *("run", "examples/spelling", "--name", RUN, "--detach", "--iterations", str(PROPOSALS)),
        *("--set", "search.operators={agent: 1}", "--set", "agent.network=false"),
        *("--set", f"agent.command={json.dumps(['python3', '-c', CHANGE])}"),
    )
    until(lambda: deployment.state(RUN) == "paused", "the run is paused", seconds=SECONDS)
    refused = json.dumps(deployment.ask("show", RUN))
    assert "compose.agents.yml" in refused
    assert deployment.number(SETTLED) == 0

    deployment.add(deployment.repository / "compose.agents.yml")
    deployment.start("--no-deps", "worker-gpu")
    deployment.ask("resume", RUN, "--detach")
    until(lambda: deployment.number(SETTLED) >= 2, "agents have made children", seconds=SECONDS)
    for worker in ("worker-gpu", "worker-cpu"):
        deployment.compose("kill", worker)
        deployment.compose("start", worker)
    until(lambda: deployment.state(RUN) != "running", "the run has ended", seconds=SECONDS)

    shown = deployment.ask("show", RUN)
    assert (shown["state"], shown["iterations"]) == ("finished", PROPOSALS)
    assert deployment.number(SETTLED) == PROPOSALS
    drafts = deployment.number("SELECT count(*) FROM completions WHERE text LIKE '%\"score\":%'")
    assert drafts >= PROPOSALS
    patch = deployment.compose("exec", "-T", "worker-control", "evoq", "export", RUN, "--patch")
    folder = tmp_path / "library"
    shutil.copytree(deployment.repository / "examples" / "spelling" / "library", folder)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=patch.encode(), check=True)
    assert "BUCKETS = 40\n" not in (folder / "table.py").read_text()
