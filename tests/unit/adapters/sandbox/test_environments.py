"""A virtual environment has pip, whatever the distribution has made of `ensurepip`."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.adapters.sandbox import environments
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.installation import Installation
from app.domain.problem import Evaluator


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that make an environment; packages are not installed into it."""
    made: list[list[str]] = []
    run = subprocess.run

    def recorded(command: list[str], **options: object) -> object:
        made.append(list(command))
        return run(command, **options)

    monkeypatch.setattr(environments.subprocess, "run", recorded)
    monkeypatch.setattr(Installation, "run", lambda *_: None)
    return made


def interpreter(folder: Path) -> str:
    files = {"evaluator.py": b"", "requirements.txt": b"nothing\n"}
    return Environments(sys.executable, folder=folder).interpreter(Evaluator("bare", files))


def has_pip(python: str) -> bool:
    return subprocess.run([python, "-m", "pip", "--version"], check=False).returncode == 0


def test_an_environment_has_pip_without_a_run_of_pip(
    commands: list[list[str]], tmp_path: Path
) -> None:
    assert has_pip(interpreter(tmp_path))
    [made] = [command for command in commands if command[1:3] == ["-m", "venv"]]
    assert "--without-pip" in made


def test_where_the_wheels_of_pip_lie_elsewhere_ensurepip_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes several seconds, so the command is only looked at."""
    made: list[list[str]] = []

    def recorded(command: list[str], **_: object) -> object:
        made.append(list(command))
        if "-c" in command:
            raise subprocess.CalledProcessError(1, command, b"", b"no wheels")
        return subprocess.CompletedProcess(command, 0, b"", b"")

    home = tmp_path / "home"
    monkeypatch.setattr(environments.subprocess, "run", recorded)
    environments._prepare(sys.executable, home)

    venv = [sys.executable, "-m", "venv", "--clear", str(home)]
    assert [made[0], made[-1]] == [[*venv, "--without-pip"], venv]
