"""Which sandbox "auto" is where an engine does not answer, or lacks the default image."""

import os
import socket
from pathlib import Path

import pytest

from app.adapters.sandbox import choose as module
from app.adapters.sandbox import containers, engine_socket
from app.adapters.sandbox.docker import DockerSandbox
from app.adapters.sandbox.process import ProcessSandbox
from app.config.settings import SandboxSettings
from app.ports.protocols import Misconfigured, Unavailable


@pytest.mark.parametrize("may_build", [False, True])
def test_auto_builds_an_image_only_where_it_may(monkeypatch: pytest.MonkeyPatch, may_build: bool):
    built: list[Path] = []
    shown: list[str] = []
    monkeypatch.setattr(module, "engine_answers", lambda seconds: True)
    monkeypatch.setattr(containers, "remove_orphans", lambda *_: 0)
    monkeypatch.setattr(containers.Images, "has_default", lambda self: False)
    monkeypatch.setattr(
        containers.Images, "build_default", lambda self, folder: built.append(folder)
    )

    sandbox = module.choose(SandboxSettings(), show_progress=shown.append, may_build=may_build)

    assert isinstance(sandbox, DockerSandbox if may_build else ProcessSandbox)
    assert len(built) == may_build
    assert may_build or "an engine answers, but it has no image" in shown[0]
    sandbox.close()


def test_auto_says_why_an_image_that_cannot_be_built_leads_to_child_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: object, folder: Path) -> None:
        raise Unavailable("the image evoqueue-sandbox:1 cannot be built: no space left on device")

    shown: list[str] = []
    monkeypatch.setattr(module, "engine_answers", lambda seconds: True)
    monkeypatch.setattr(containers, "remove_orphans", lambda *_: 0)
    monkeypatch.setattr(containers.Images, "has_default", lambda self: False)
    monkeypatch.setattr(containers.Images, "build_default", fail)

    sandbox = module.choose(SandboxSettings(), show_progress=shown.append)

    assert isinstance(sandbox, ProcessSandbox)
    assert "no space left on device: programs run in child processes" in shown[0]
    sandbox.close()
    with pytest.raises(Unavailable, match="no space left on device"):
        module.choose(SandboxSettings(backend="docker"), show_progress=shown.append)


def test_child_processes_are_chosen_where_an_engine_answers_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "engine_answers", lambda seconds: True)
    settings = SandboxSettings(backend="process")

    sandbox = module.choose(settings, show_progress=lambda _: None)

    assert isinstance(sandbox, ProcessSandbox)
    sandbox.close()


def test_auto_does_not_replace_an_engine_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{address}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))

    with pytest.raises(Unavailable, match=rf"{address}.*sandbox.backend=process"):
        module.choose(SandboxSettings())
    module.choose(SandboxSettings(backend="process")).close()


def test_auto_does_not_replace_an_engine_that_accepts_and_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("DOCKER_HOST", address)

        with pytest.raises(Unavailable, match=rf"no Docker engine answers at {address}"):
            module.choose(SandboxSettings())
        assert engine_socket.socket_at_hand() == address
    assert engine_socket.socket_at_hand() == ""


@pytest.mark.parametrize("backend", ["auto", "process"])
@pytest.mark.parametrize(("name", "value"), [("runtime", "runsc"), ("seccomp", "engine")])
def test_what_containers_alone_have_is_never_left_out_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, name: str, value: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    settings = SandboxSettings(**{"backend": backend, name: value})

    with pytest.raises(Misconfigured, match=rf"sandbox.{name}={value} is for containers.*out"):
        module.choose(settings)


def test_a_runtime_is_not_exchanged_for_child_processes_where_there_is_no_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "engine_answers", lambda seconds: True)
    monkeypatch.setattr(containers, "remove_orphans", lambda *_: 0)
    monkeypatch.setattr(containers.Images, "has_default", lambda self: False)

    with pytest.raises(Misconfigured, match=r"sandbox.runtime=runsc.*has no image"):
        module.choose(SandboxSettings(runtime="runsc"), may_build=False)


@pytest.mark.parametrize("there", ["nothing", "no socket", "a socket of others"])
def test_auto_is_child_processes_where_no_engine_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    address = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{address}")
    if there == "no socket":
        address.touch()
    if there == "a socket of others":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
        monkeypatch.setattr(os, "access", lambda path, mode: False)

    sandbox = module.choose(SandboxSettings())

    assert isinstance(sandbox, ProcessSandbox)
    sandbox.close()


OF_CONTAINERS = {"cpus": 2.0, "image": "mine:1", "owner": "us"}
OF_PROCESSES = {
    "environments": "/srv/environments",
    "build_hosts": "pypi.example",
    "unisolated_builds": True,
    "unbounded_processes": True,
}


@pytest.mark.parametrize("name", [*OF_CONTAINERS, *OF_PROCESSES])
@pytest.mark.parametrize("backend", ["process", "docker"])
def test_a_setting_without_effect_in_the_isolation_in_use_is_said(
    monkeypatch: pytest.MonkeyPatch, name: str, backend: str
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(containers, "remove_orphans", lambda *_: 0)
    monkeypatch.setattr(containers.Images, "has_default", lambda self: True)
    values = OF_CONTAINERS | OF_PROCESSES
    settings = SandboxSettings(backend=backend, **{name: values[name]})

    module.choose(settings, show_progress=shown.append).close()

    said = [text for text in shown if f"sandbox.{name}=" in text and "no effect" in text]
    assert bool(said) is (name in (OF_CONTAINERS if backend == "process" else OF_PROCESSES))


@pytest.mark.parametrize("backend", ["process", "docker"])
def test_nothing_is_said_of_settings_that_are_left_out(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(containers, "remove_orphans", lambda *_: 0)
    monkeypatch.setattr(containers.Images, "has_default", lambda self: True)

    settings = SandboxSettings(backend=backend)
    module.choose(settings, show_progress=shown.append).close()

    assert shown == []
