"""Folders to branch from, on each kind of storage that a machine can have."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.patterns.errors import MountError
from app.patterns.storage import Storage
from app.patterns.workspace import Workspace

_DISK_BYTES = 320 << 20
"""About the least that mkfs.xfs accepts; the file is sparse."""


@pytest.fixture(scope="session")
def xfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on an XFS of its own, which can share the blocks of files."""
    if os.geteuid() or not shutil.which("mkfs.xfs"):
        pytest.skip("a loop-mounted XFS needs root and the package xfsprogs")
    folder = tmp_path_factory.mktemp("xfs")
    disk, point = folder / "disk", folder / "mounted"
    disk.touch()
    os.truncate(disk, _DISK_BYTES)
    point.mkdir()
    subprocess.run(["mkfs.xfs", "-q", disk], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", disk, point], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield point
    subprocess.run(["umount", "--lazy", point], check=True)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return filled(tmp_path / "base")


def filled(folder: Path) -> Path:
    """Makes a folder with some of everything that a branch may change."""
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "gone").mkdir()
    (folder / "kept.txt").write_text("kept")
    (folder / "changed.txt").write_text("old")
    (folder / "removed.txt").write_text("x")
    (folder / "sub" / "deep" / "file").write_text("deep")
    (folder / "gone" / "inside").write_text("y")
    (folder / "link").symlink_to("kept.txt")
    (folder / "kept.txt").chmod(0o640)
    return folder


@pytest.fixture(params=list(Storage))
def on_each_storage(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., Workspace]]:
    """Opens a workspace on a filled folder of its own, by each kind of storage."""
    storage = request.param
    parent = request.getfixturevalue("xfs") if storage is Storage.REFLINK else tmp_path
    folder = filled(parent / request.node.name.translate(str.maketrans("[]:,", "----")))
    opened: list[Workspace] = []
    try:
        Workspace(folder, storage=storage).close()
    except MountError as error:
        pytest.skip(f"this machine has no {storage}: {error}")

    def open_() -> Workspace:
        opened.append(Workspace(folder, storage=storage))
        return opened[-1]

    yield open_
    for workspace in opened:
        workspace.close()
