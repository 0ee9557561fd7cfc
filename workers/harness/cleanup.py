"""Removes what a trial left and checks that no file and no IPC object of it remains."""

from __future__ import annotations

import contextlib
import os
import shutil
from functools import partial

from . import processes
from .confine import RUNTIME
from .sandbox_layout import UIDS, SandboxLayout

_HEADING_LINES, _READ_BYTES = 1, 65_536
_SYSV_TABLES = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg")


def clean_files(layout: SandboxLayout, directory: str, uids: tuple[int, ...]) -> list[str]:
    """Empties the trial's directory and the shared places; returns what could not be removed.

    After most trials this process can do it alone, which saves one process for each identity.
    """
    _remove_runtime_folders(directory)
    _remove_flat(directory)
    places, kept = [directory, *layout.shared_places], layout.kept | layout.imported
    left = _leftovers(places, kept)
    if left:
        if layout.identities == UIDS:
            for uid in uids:
                processes.as_identity(uid, partial(remove_all, left))
        else:
            remove_all(left)
        _remove_flat(directory)
    return _leftovers(places, kept) + _ipc_objects(layout)


def _remove_runtime_folders(directory: str) -> None:
    """Removes those that are empty: nobody else may look into them, but they go by their parent."""
    with contextlib.suppress(OSError):
        for home in os.listdir(directory):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(directory, home, RUNTIME))


def _remove_flat(directory: str) -> None:
    """Removes a tree as far as this process may, without following links."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except RecursionError:
        _remove_deep(directory)


def _leftovers(places: list[str], kept: frozenset[str]) -> list[str]:
    paths: list[str] = []
    for place in places:
        try:
            paths += [os.path.join(place, name) for name in os.listdir(place)]
        except OSError:
            # The place does not exist here, or no longer.
            continue
    return [path for path in paths if path not in kept]


def remove_all(paths: list[str]) -> None:
    """Removes files and trees as far as this process may."""
    for path in paths:
        _remove(path)


def _remove(path: str) -> None:
    """Removes a file or a tree of any depth; missing access rights are restored first."""
    try:
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
            return
    except OSError:
        return
    try:
        _open_up(path)
        shutil.rmtree(path)
    except (OSError, RecursionError):
        _remove_deep(path)


def _open_up(path: str) -> None:
    # The zygote's own directory is open to us by its group.
    with contextlib.suppress(PermissionError):
        os.chmod(path, 0o700)


def _remove_deep(path: str) -> None:
    """Removes a tree deeper than paths are long, or with closed directories in it."""
    top = os.getcwd()
    try:
        os.chdir(path)
        depth = 0
        while True:
            below = None
            for entry in list(os.scandir(".")):
                if entry.is_dir(follow_symlinks=False):
                    below = entry.name
                else:
                    os.unlink(entry.name)
            if below is not None:
                _open_up(below)
                os.chdir(below)
                depth += 1
                continue
            if depth == 0:
                break
            here = os.stat(".").st_ino
            os.chdir("..")
            depth -= 1
            for entry in list(os.scandir(".")):
                if entry.inode() == here:
                    os.rmdir(entry.name)
    except OSError:
        # Files that stay make the sandbox unclean, and the worker replaces it.
        pass
    finally:
        os.chdir(top)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _ipc_objects(layout: SandboxLayout) -> list[str]:
    if not layout.own_processes:
        # The tables are the machine's, not the sandbox's.
        return []
    objects: list[str] = []
    for table in _SYSV_TABLES:
        with contextlib.suppress(OSError):
            objects += [table] * (_lines(table) - _HEADING_LINES)
    return objects


def _lines(path: str) -> int:
    # A file object of Python costs several times as much.
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, _READ_BYTES).count(b"\n")
    finally:
        os.close(fd)
