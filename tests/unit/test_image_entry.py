"""`evoq` in the image names the default model to commands that may begin a run, and to no other."""

import subprocess
from pathlib import Path

import pytest


def executable(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("run", True),
        ("doctor", True),
        ("resume", True),
        ("show", False),
        ("list-runs", False),
        ("export-best", False),
    ],
)
def test_only_commands_that_may_need_a_model_look_for_its_service(
    repository: Path, tmp_path: Path, command: str, asked: bool
) -> None:
    looked, entry = tmp_path / "looked", tmp_path / "evoq"
    executable(tmp_path / "getent", f"echo $2 >{looked}")
    executable(tmp_path / "behind", 'echo "$1 $EVOQ_LLM__MODEL"')
    text = (repository / "infra" / "app" / "evoq").read_text()
    entry.write_text(text.replace("/opt/venv/bin/evoq", str(tmp_path / "behind")))

    printed = subprocess.run(
        ["sh", entry, command],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "VLLM_MODEL": "small"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert printed.split() == ([command, "small"] if asked else [command])
    assert looked.exists() == asked
