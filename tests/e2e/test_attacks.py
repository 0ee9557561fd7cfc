"""The attack corpus in worker-cpu, by `make attacks`: with the engine's group and without."""

import io
import tarfile
from pathlib import Path

import _pytest
import iniconfig
import pluggy
import pytest

from tests.e2e.deployment import NO_GROUP, SOCKET, Deployment

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(2400)]

FOLDER = "/tmp/attacks"
INSIDE = "tests/e2e/attacks_in_worker.py"
OURS = ("tests/__init__.py", "tests/contracts", "tests/e2e/__init__.py", INSIDE)


@pytest.mark.parametrize(
    "group",
    [
        pytest.param("", id="without the group"),
        pytest.param(
            str(SOCKET.stat().st_gid) if SOCKET.exists() else "",
            id="with the group",
            marks=pytest.mark.skipif(not SOCKET.exists(), reason=f"no {SOCKET}"),
        ),
    ],
)
def test_attacks_end_in_time_and_the_worker_stays_healthy(
    deployment: Deployment, repository: Path, group: str
) -> None:
    deployment.settle(DOCKER_GID=group or NO_GROUP)
    deployment.start("--no-deps", "worker-cpu")
    deployment.send("worker-cpu", FOLDER, archive(repository))

    command = f"python -B -m pytest -q --noconftest -p no:cacheprovider {INSIDE}"
    done = deployment.try_compose(
        *("exec", "-T", "-e", "SANDBOX_ATTACKS=whole", "-w", FOLDER, "worker-cpu"),
        *command.split(),
        seconds=2000,
    )

    assert done.returncode == 0, done.stdout[-6000:]
    assert deployment.container("worker-cpu")["State"]["Health"]["Status"] == "healthy"


def archive(repository: Path) -> bytes:
    """Returns a tar file of the corpus, and of pytest as it is installed here."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name in OURS:
            tar.add(repository / name, name, filter=without_bytecode)
        for module in (pytest, _pytest, pluggy, iniconfig):
            folder = Path(module.__file__).parent
            tar.add(folder, folder.name, filter=without_bytecode)
        tar.add(Path(pytest.__file__).parents[1] / "py.py", "py.py")  # of pytest, too
    return written.getvalue()


def without_bytecode(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in entry.name else entry
