"""The layer in which a trial changes the files beside the evaluator.

Evaluators compile and log in their own folder.  A trial may do so, and nothing of it reaches the
next one: an old binary would be measured in place of one that does not compile.  There is no file
system of layers in every isolation, so a copy is kept out of reach of programs, and what a trial
has changed is put back before the next one begins.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from functools import partial

from . import cleanup, processes
from .sandbox_layout import UIDS, SandboxLayout, evaluator_mode

_CHUNK = 1 << 20
_ALL_MAY_CHANGE, _ALL_MAY_LOOK_INTO = 0o666, 0o111


def keep(layout: SandboxLayout, mode: str) -> None:
    """Copies the files beside the evaluator, and lets trials change the originals.

    Called once, as the identity that has written and imported them: that of all trials in guarded
    mode.
    """
    if mode == "compatible":
        _open_to_all(layout.evaluator)
    _copy(layout.evaluator, layout.kept_evaluator)


def _open_to_all(top: str) -> None:
    for folder, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                inside = _ALL_MAY_LOOK_INTO if stat.S_ISDIR(mode) or mode & 0o100 else 0
                os.chmod(path, stat.S_IMODE(mode) | _ALL_MAY_CHANGE | inside)


def restore_own(layout: SandboxLayout) -> None:
    """Puts back what the last trial changed, as the identity of that trial and of the next."""
    if not _equal(layout.kept_evaluator, layout.evaluator, contents=False):
        _replace(layout.kept_evaluator, layout.evaluator)


def restore(layout: SandboxLayout, uids: Iterable[int]) -> list[str]:
    """Puts back what the last trial changed, whose processes have ended, where programs could.

    Args:
      layout: The sandbox's.
      uids: Identities that may have made files.

    Returns:
      What could not be put back.
    """
    kept, used = layout.kept_evaluator, layout.evaluator
    if _equal(kept, used, contents=True):
        return []
    replace = partial(_replace, kept, used)
    if layout.identities == UIDS:
        for uid in uids:
            processes.as_identity(uid, partial(_empty, used))
        processes.as_identity(layout.first_uid, replace)
    else:
        os.chmod(used, evaluator_mode("compatible"))
        replace()
    return [] if _equal(kept, used, contents=True) else [used]


def _replace(kept: str, used: str) -> None:
    _empty(used)
    _copy(kept, used)


def _empty(folder: str) -> None:
    cleanup.remove_all([entry.path for entry in os.scandir(folder)])


def _copy(source: str, target: str) -> None:
    """Copies regular files, folders and links, with their modes and times."""
    for entry in list(os.scandir(source)):
        path = os.path.join(target, entry.name)
        if entry.is_dir(follow_symlinks=False):
            os.mkdir(path)
            _copy(entry.path, path)
            shutil.copystat(entry.path, path)
        elif entry.is_symlink():
            os.symlink(os.readlink(entry.path), path)
        elif entry.is_file(follow_symlinks=False):
            shutil.copyfile(entry.path, path)
            shutil.copystat(entry.path, path)


def _equal(kept: str, used: str, *, contents: bool) -> bool:
    """Returns whether two folders hold the same files, with the same modes.

    A program can change a file without a trace in its times: through a mapping, or by setting them.

    Args:
      kept: The copy.
      used: The original.
      contents: Whether contents are compared, and not times.
    """
    try:
        with os.scandir(kept) as ours, os.scandir(used) as theirs:
            known = {entry.name: entry for entry in ours}
            found = {entry.name: entry for entry in theirs}
        return known.keys() == found.keys() and all(
            _equal_entries(entry, found[name], contents) for name, entry in known.items()
        )
    except OSError:
        return False


def _equal_entries(kept: os.DirEntry[str], used: os.DirEntry[str], contents: bool) -> bool:
    ours, theirs = kept.stat(follow_symlinks=False), used.stat(follow_symlinks=False)
    if (ours.st_mode, ours.st_uid) != (theirs.st_mode, theirs.st_uid):
        return False
    if stat.S_ISDIR(ours.st_mode):
        return _equal(kept.path, used.path, contents=contents)
    if stat.S_ISLNK(ours.st_mode):
        return os.readlink(kept.path) == os.readlink(used.path)
    if (ours.st_size, ours.st_nlink) != (theirs.st_size, theirs.st_nlink):
        return False
    if not contents:
        return ours.st_mtime_ns == theirs.st_mtime_ns
    with open(kept.path, "rb", buffering=0) as first, open(used.path, "rb", buffering=0) as second:
        while chunk := first.read(_CHUNK):
            if second.read(_CHUNK) != chunk:
                return False
    return True
