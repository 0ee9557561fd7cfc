"""Folders in the temporary directory that are removed with or after the process that made them.

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


class LockedFolder:
    """A new folder, locked for as long as this process lives.

    Attributes:
      folder: Its path, without links.
    """

    def __init__(self, prefix: str) -> None:
        """Makes and locks it.

        Raises:
          OSError: It cannot be made.
        """
        while not self._make(prefix):
            # A starting worker may have removed the folder before it was locked.
            pass

    def _make(self, prefix: str) -> bool:
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix=prefix))
        lock = _lock_folder(self.folder)
        if lock is None:
            return False
        self._lock = lock
        if not os.path.exists(self.folder):
            os.close(lock)
            return False
        return True

    def remove(self) -> None:
        """Removes it with all it contains."""
        _remove(self.folder)
        os.close(self._lock)


def remove_left_folders(prefix: str) -> None:
    """Removes the folders of killed processes, which none locks any more."""
    for folder in glob.glob(f"{glob.escape(tempfile.gettempdir())}/{prefix}*"):
        # The path may belong to another user or be no folder.
        with contextlib.suppress(OSError):
            lock = _lock_folder(folder)
            if lock is not None:
                _remove(folder)
                os.close(lock)


def _remove(folder: str) -> None:
    """Removes a folder, however deep its folders are nested, and whatever modes they have."""
    # Before 3.13 Python descends by recursion.
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if os.path.lexists(folder):
            subprocess.run([*command, "--", folder], check=False, stderr=subprocess.DEVNULL)


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
