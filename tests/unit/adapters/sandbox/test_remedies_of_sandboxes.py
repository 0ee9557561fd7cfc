"""Each remedy of a sandbox that refuses a problem is carried out, and the refusal is gone."""

import io
import re
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.adapters.sandbox import choose as choosing
from app.adapters.sandbox import (
    data_mounts,
    dependencies,
    environments,
    installation,
    isolated_command,
    warm_sandbox,
)
from app.adapters.sandbox.data_mounts import located
from app.adapters.sandbox.dependencies import from_requirements
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.installation import Installation, InstallationFailed, Output
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.config.layers import from_environment
from app.config.settings import SandboxSettings
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Limits, Mode, Outcome
from app.ports.protocols import Misconfigured, Unavailable
from tests.unit.cli.remedies import is_carried_out, remedies

LIMITS = Limits(wall_seconds=60.0, cpu_seconds=10.0, memory_mib=256)
TRIED = (
    "Name a folder or a file with nothing but data",
    "Put it there, or name an image that has it with sandbox.image",
    "Start Docker, or put what Python packages it needs into requirements.txt, or set "
    "sandbox.image to go without",
    "or name an image that has the packages with sandbox.image; sandbox.unisolated_builds=true (or "
    "EVOQ_SANDBOX__UNISOLATED_BUILDS=true for a worker) accepts",
)


def opened(settings: SandboxSettings) -> None:
    sandbox = choosing.choose(settings, show_progress=print, may_build=False)
    assert isinstance(sandbox, ProcessSandbox)
    sandbox.close()


def interpreter(files: dict[str, bytes], folder: Path, image: str = "") -> str:
    evaluator = Evaluator("evaluator.py", {"evaluator.py": b"", **files}, image=image)
    return Environments(sys.executable, folder=folder).interpreter(evaluator)


def test_data_lies_where_nothing_is_the_systems_and_where_it_exists(tmp_path: Path) -> None:
    for path in ("/proc", str(tmp_path / "absent")):
        with pytest.raises(EvaluatorBroken) as caught:
            located(Evaluator("evaluator.py", {}, mounts={"data": path}))
        assert caught.value.remedy in (TRIED[0], data_mounts.ON_EVERY_MACHINE)

    file = tmp_path / "absent"
    file.touch()
    for path in (tmp_path, file):
        located(Evaluator("evaluator.py", {}, mounts={"data": str(path)}))


def test_what_requirements_refer_to_is_put_into_the_folder_or_is_in_an_image(
    tmp_path: Path,
) -> None:
    files = {"requirements.txt": b"./lib\n"}
    with pytest.raises(EvaluatorBroken) as caught:
        interpreter(files, tmp_path)
    assert TRIED[1] in caught.value.remedy

    assert from_requirements({**files, "lib/setup.py": b""}) is not None
    assert interpreter(files, tmp_path, image="mine:1") == sys.executable


def test_child_processes_take_a_problem_with_a_dockerfile_by_each_remedy(tmp_path: Path) -> None:
    files = {"Dockerfile": b"FROM python\nRUN pip install tomli\n"}
    with pytest.raises(EvaluatorBroken) as caught:
        interpreter(files, tmp_path)
    assert TRIED[2] in caught.value.remedy

    assert interpreter(files, tmp_path, image="mine:1") == sys.executable
    assert from_requirements({**files, "requirements.txt": b"tomli\n"}) is not None


def installed(home: Path, *, unisolated: bool = False) -> None:
    """Lets pip install nothing, which it refuses once it runs."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(sys.executable)
    made = Installation(sys.executable, home, time.monotonic() + 60, unisolated=unisolated)
    made.run((), Output(io.BytesIO()))


def test_packages_are_installed_where_that_is_accepted_or_are_in_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated_command, "_LEVELS", ())
    with pytest.raises(Misconfigured) as caught:
        installed(tmp_path / "first")
    assert TRIED[3] in str(caught.value)
    [(name, value)] = re.findall(r"(EVOQ_SANDBOX__\w+)=(\w+)", str(caught.value))

    assert from_environment({name: value}).values == {"sandbox.unisolated_builds": True}
    with pytest.raises(InstallationFailed, match="pip ended"):
        installed(tmp_path / "second", unisolated=True)
    files = {"requirements.txt": b"tomli\n"}
    assert interpreter(files, tmp_path, image="mine:1") == sys.executable


def test_an_engine_that_is_silent_is_passed_over_by_the_setting_and_the_variable_that_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "engine_answers", lambda seconds: False)
    monkeypatch.setattr(choosing, "socket_at_hand", lambda: "/run/docker.sock")
    with pytest.raises(Unavailable) as caught:
        opened(SandboxSettings())
    name, value = re.findall(r"(EVOQ_SANDBOX__\w+)=(\w+)", str(caught.value))[0]

    values = from_environment({name: value}).values
    assert values == {"sandbox.backend": "process"}
    assert "sandbox.backend=process" in str(caught.value)
    opened(SandboxSettings(backend=values["sandbox.backend"]))


@pytest.mark.parametrize("setting", ["runtime", "seccomp"])
def test_child_processes_are_used_where_the_setting_of_containers_is_left_out(
    setting: str,
) -> None:
    with pytest.raises(Misconfigured, match=f"or leave sandbox.{setting} "):
        opened(SandboxSettings(backend="process", **{setting: "value"}))  # type: ignore[arg-type]

    opened(SandboxSettings(backend="process"))


@pytest.mark.parametrize(
    "text", [*warm_sandbox._REFUSALS.values()], ids=list(warm_sandbox._REFUSALS)
)
def test_what_a_refusal_accepts_by_a_setting_is_accepted_by_the_variable_too(text: str) -> None:
    settings = dict(re.findall(r"(sandbox\.\w+)=(true)", text))
    variables = dict(re.findall(r"(EVOQ_\w+)=(true)", text))

    assert from_environment(variables).values == dict.fromkeys(settings, True)
    SandboxSettings(**{name.partition(".")[2]: True for name in settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("broken", "remedy"),
    [
        ("import absent_package", "Correct it; a package it needs goes into a requirements.txt"),
        ("def another(path): ...", "Define it there"),
    ],
)
def test_an_evaluator_that_was_corrected_measures(broken: str, remedy: str) -> None:
    corrected = "def evaluate(path):\n    return {'combined_score': 1.0}\n"

    def measured(text: str) -> Outcome:
        evaluator = Evaluator(text, {"evaluator.py": text.encode()})
        program = ((".py", b"x = 1\n"),)
        return sandbox.run(Job(evaluator, "evaluate", program, LIMITS, Mode.COMPATIBLE))

    with closing(ProcessSandbox(PoolSettings(max_sandboxes=1, spares=0))) as sandbox:
        with pytest.raises(EvaluatorBroken) as caught:
            measured(broken)
        assert remedy in caught.value.remedy

        assert measured(corrected).failure is None


OTHERWISE = {
    "Correct {}, or name a ready image with sandbox.image": "test_sandbox_dependencies installs "
    "what was corrected; the image above",
    "Correct it; a package it needs goes into a requirements.txt beside it": "the test above",
    "Define it there": "the test above",
}
"""Remedies that are carried out elsewhere, or cannot be."""


@pytest.mark.parametrize(
    "module",
    [data_mounts, dependencies, environments, installation, warm_sandbox],
    ids=lambda module: module.__name__,
)
def test_every_remedy_of_a_sandbox_is_carried_out_here(module: Any) -> None:
    for text in remedies(module):
        assert text in OTHERWISE or is_carried_out(text, TRIED), text
