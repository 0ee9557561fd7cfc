"""`infra/new-env` writes passwords of its own once, for their owner alone to read."""

import os
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import pytest

PASSWORDS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "FLOWER_PASSWORD", "DASHBOARD_PASSWORD")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the script and what it reads."""
    repository = Path(__file__).parents[2]
    (tmp_path / "infra").mkdir()
    shutil.copy(repository / "infra" / "new-env", tmp_path / "infra")
    shutil.copy(repository / ".env.example", tmp_path)
    return tmp_path


def new_env(
    checkout: Path, *options: str, docker_socket: Path | None = None
) -> subprocess.CompletedProcess[str]:
    found = {} if docker_socket is None else {"DOCKER_SOCKET": str(docker_socket)}
    return subprocess.run(
        [checkout / "infra" / "new-env", *options],
        cwd="/",
        env={"PATH": os.environ["PATH"], **found},
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
    )


def values(checkout: Path) -> dict[str, str]:
    lines = (checkout / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_each_password_is_random_and_only_the_owner_can_read_the_file(checkout: Path) -> None:
    assert new_env(checkout).returncode == 0
    first = values(checkout)
    mode = stat.S_IMODE((checkout / ".env").stat().st_mode)
    (checkout / ".env").unlink()
    new_env(checkout)

    assert set(first) == set(PASSWORDS)
    assert all(len(password) == 48 and password.isalnum() for password in first.values())
    assert len({*first.values(), *values(checkout).values()}) == 8
    assert mode == 0o600


def test_a_file_that_exists_is_left_as_it_is(checkout: Path) -> None:
    (checkout / ".env").write_text("POSTGRES_PASSWORD=of-the-volume\n")

    refused = new_env(checkout)

    assert refused.returncode == 1
    assert f"{checkout}/.env exists" in refused.stderr
    assert (checkout / ".env").read_text() == "POSTGRES_PASSWORD=of-the-volume\n"
    assert sorted(path.name for path in checkout.iterdir()) == [".env", ".env.example", "infra"]


def test_settings_without_effect_in_an_existing_file_are_named(checkout: Path) -> None:
    known = "EVOQ_EXTRAS=[otel]\n#EVOQ_QUEUE__BATCH=2\n"
    (checkout / ".env").write_text(f"{known}EVOQ_QUEUE__LEASE_SECONDS=60\n")

    notices = new_env(checkout).stderr.splitlines()[1:]

    assert [notice.partition(": ")[2].split()[0] for notice in notices] == [
        "EVOQ_QUEUE__LEASE_SECONDS"
    ]
    assert "has no effect in .env; move it to workers.env or runs.env" in notices[0]


def test_with_containers_the_group_of_the_socket_is_written(checkout: Path) -> None:
    address = checkout / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))

        assert new_env(checkout, "--containers", docker_socket=address).returncode == 0

    written = values(checkout)
    assert written["DOCKER_GID"] == str(address.stat().st_gid)
    assert written["DOCKER_SOCKET"] == str(address)


@pytest.mark.parametrize(
    ("option", "status", "why"),
    [("--containers", 1, "no socket at"), ("--docker", 2, "'--docker' is not an option")],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(
    checkout: Path, option: str, status: int, why: str
) -> None:
    refused = new_env(checkout, option, docker_socket=checkout / "none.sock")

    assert (refused.returncode, why in refused.stderr) == (status, True)
    assert not (checkout / ".env").exists()
