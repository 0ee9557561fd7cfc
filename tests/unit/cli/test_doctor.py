"""What `evoq doctor` advises follows from where it runs and from what is missing there."""

import socket
from pathlib import Path

import pytest

from app.adapters.sandbox import engine_socket
from app.adapters.sandbox.choose import checks
from app.cli.doctor import _sandboxes_elsewhere
from app.ports.workers import Worker

REMEDY = "use the docker sandbox"


@pytest.fixture
def engines_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A socket that nobody listens on."""
    address = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{address}")
    return address


def test_a_socket_that_this_user_may_not_open_names_its_group(
    engines_socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str, seconds: int) -> None:
        raise PermissionError(address)

    monkeypatch.setattr(engine_socket, "knock", refuse)

    [found] = checks(deployed=True)

    assert f"DOCKER_GID={engines_socket.stat().st_gid} in .env" in found.remedy
    assert "root on this machine" in found.remedy


@pytest.mark.parametrize(
    ("deployed", "remedy"),
    [(False, "install and start Docker"), (True, "only workers of the queue `cpu` need it")],
)
def test_an_engine_that_does_not_run_is_started_where_it_is_needed(
    engines_socket: Path, deployed: bool, remedy: str
) -> None:
    engines_socket.unlink()

    [found] = checks(deployed)

    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("deployed", "remedy"),
    [(False, "or set EVOQ_SANDBOX__BACKEND=process"), (True, "or take DOCKER_GID out of .env")],
)
def test_an_engine_that_does_not_answer_at_its_socket_is_started_or_not_chosen(
    engines_socket: Path, deployed: bool, remedy: str
) -> None:
    [found] = checks(deployed)

    assert str(engines_socket) in found.detail
    assert f"start Docker, {remedy}" in found.remedy


def test_what_one_of_several_workers_lacks_is_a_finding() -> None:
    workers = [
        Worker("a-1-x", "cpu", None, {}, (("no network", ""), ("a filter", ""))),
        Worker("b-1-x", "cpu", None, {}, (("no network", REMEDY), ("a filter", ""))),
        Worker("c-1-x", "cpu", None, {}, None),
    ]

    lacking, present = _sandboxes_elsewhere(workers)

    assert (lacking.ok, present.ok, present.remedy) == (False, True, "")
    assert lacking.detail.startswith("no network")
    assert lacking.remedy.startswith(REMEDY)


def test_workers_without_a_sandbox_are_a_finding() -> None:
    [found] = _sandboxes_elsewhere([Worker("a-1-x", "cpu", None, {}, None)])

    assert not found.ok
