"""Folders that are removed with or after the process that made them.

A process locks its folder for as long as it uses it.  The kernel drops the lock with the process,
whatever its number and in whichever container, so that a folder without a lock belongs to none.
"""

import contextlib
import fcntl
import glob
import os
import shutil
import subprocess
import tempfile
import time
from typing import Self

from workers.harness import kernel


class LockedFolder:
    """A new folder, locked for as long as this process lives.

    Attributes:
      folder: Its path, without links.
    """

    def __init__(self, prefix: str, place: str | None = None) -> None:
        """Makes and locks it, in the temporary directory where no place is named.

        Raises:
          OSError: It cannot be made.
        """
        while not self._make(prefix, place):
            # Another process may have removed the folder before it was locked.
            pass

    @classmethod
    def of(cls, folder: str) -> Self | None:
        """Locks a folder of this path, which may be missing; None where another process has it."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        lock = _lock_folder(folder)
        if lock is None:
            return None
        # It counts as used from now.
        os.utime(folder)
        locked = cls.__new__(cls)
        locked.folder, locked._lock = os.path.realpath(folder), lock
        return locked

    def _make(self, prefix: str, place: str | None) -> bool:
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix=prefix, dir=place))
        lock = _lock_folder(self.folder)
        if lock is None:
            return False
        self._lock = lock
        if not os.path.exists(self.folder):
            os.close(lock)
            return False
        return True

    def remove(self) -> bool:
        """Removes it with all it contains; returns whether nothing is left.  Is called once."""
        removed = remove_folder(self.folder)
        os.close(self._lock)
        return removed


def remove_left_folders(
    prefix: str, place: str | None = None, *, unused_seconds: float = 0.0
) -> None:
    """Removes the folders of killed processes, which none locks any more.

    Args:
      prefix: Of their names.
      place: Where they are; None for the temporary directory.
      unused_seconds: Only those in which nothing was made for so long.
    """
    for folder in glob.glob(f"{glob.escape(place or tempfile.gettempdir())}/{prefix}*"):
        # The path may belong to another user or be no folder.
        with contextlib.suppress(OSError):
            if time.time() - os.stat(folder).st_mtime < unused_seconds:
                continue
            lock = _lock_folder(folder)
            if lock is not None:
                remove_folder(folder)
                os.close(lock)


def mounts_below(folder: str | os.PathLike[str]) -> list[str]:
    """Returns the mount points below a folder, itself left out, in the order of their mounting."""
    return [point for point in kernel.mount_points() if point.startswith(f"{os.fspath(folder)}/")]


def remove_folder(folder: str | os.PathLike[str]) -> bool:
    """Removes a folder with what is mounted in it; returns whether nothing is left.

    Its folders may be nested however deep, and have whatever modes.
    """
    for point in reversed(mounts_below(folder)):
        try:
            kernel.unmount(point)
        except OSError:
            return False
    # Before 3.13 Python descends by recursion.
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    # A process that is being ended may write between the removals.
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if os.path.lexists(folder):
            subprocess.run([*command, "--", folder], check=False, stderr=subprocess.DEVNULL)
    return not os.path.lexists(folder)


def _lock_folder(folder: str) -> int | None:
    """Returns a descriptor that locks a folder; None if another has it, or it is gone."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return lock
