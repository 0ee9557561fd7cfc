"""How a branch gets its files, and how its files become the base's in one step of the kernel.

`reflink` shares the blocks of each file until one side changes (XFS, Btrfs), `overlay` mounts the
base below an empty layer, which needs root, and `copy` copies.
"""

import contextlib
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from app.adapters.locked_folders import remove_folder
from app.patterns.errors import BranchError, MountError
from workers.harness import kernel

TREE, UPPER, WORK, LOWER = "tree", "upper", "work", "lower"
"""In the folder of a branch: its files; and of an overlay its changes, what the kernel needs, and
the list of the layers below.
"""
_FICLONE = 0x40049409
_AT_FDCWD, _EXCHANGE = -100, 2
_OVERLAY_PREFIX = "trusted.overlay."
_PLAIN_PATH = re.compile(r"[!-~]+")
_OPTION_CHARACTERS = frozenset(":,\\")


class Storage(StrEnum):
    """Where the unchanged files of a branch come from."""

    REFLINK = "reflink"
    OVERLAY = "overlay"
    COPY = "copy"


def choose(
    base: Path, scratch: Path, wanted: Storage | None = None, *, shared: bool = False
) -> Storage:
    """Returns the first of reflink, overlay and copy that works here; each is tried.

    Args:
      base: The folder to branch from.
      scratch: An empty folder on the same file system.
      wanted: Only this one will do.
      shared: Whether other machines must see the files: an overlay is mounted on this one alone.

    Raises:
      MountError: The wanted one does not work here.
    """
    trials = {Storage.REFLINK: _reflink_works, Storage.OVERLAY: _overlay_works}
    if shared:
        if lower_layers(base):
            raise MountError(f"{base} is an overlay, which other machines do not see")
        del trials[Storage.OVERLAY]
    # A folder that is an overlay itself can only be branched by another overlay.
    if lower_layers(base):
        trials = {Storage.OVERLAY: _overlay_works}
    for storage, works in trials.items():
        if wanted in (None, storage) and works(base, scratch):
            return storage
    if wanted in (None, Storage.COPY) and Storage.REFLINK in trials:
        return Storage.COPY
    if wanted is None:
        raise MountError(
            f"{base}: it is mounted, so that only an overlay can branch it, and none can be made "
            f"here; use a folder that is not mounted"
        )
    raise MountError(f"{base}: no branch by {wanted} can be made here; leave the choice open")


def _reflink_works(base: Path, scratch: Path) -> bool:  # noqa: ARG001  the same file system
    source, target = scratch / "source", scratch / "target"
    source.write_bytes(b"x")
    try:
        reflink(str(source), str(target))
    except OSError:
        return False
    finally:
        source.unlink()
        target.unlink(missing_ok=True)
    return True


def _overlay_works(base: Path, scratch: Path) -> bool:
    # A sandbox ends a process that tries without the right.
    if not kernel.may_mount():
        return False
    probe = scratch / "probe"
    probe.mkdir()
    try:
        _overlay(base, probe)
    except OSError:
        return False
    finally:
        discard(probe)
    return True


def create(storage: Storage, base: Path, folder: Path) -> Path:
    """Fills the folder of a new branch and returns its tree.

    Raises:
      MountError: The base holds a socket or a device, which cannot be copied.
      OSError: A file cannot be read, or the disk is full.
    """
    if storage is Storage.OVERLAY:
        return _overlay(base, folder)
    tree = folder / TREE
    _copy_tree(str(base), str(tree), reflink if storage is Storage.REFLINK else _copy_contents)
    return tree


def reflink(source: str, target: str) -> None:
    """Makes a file that shares its blocks with another one.

    Raises:
      OSError: The file system cannot.
    """
    with open(source, "rb") as read, open(target, "xb") as written:
        fcntl.ioctl(written.fileno(), _FICLONE, read.fileno())


def _copy_contents(source: str, target: str) -> None:
    shutil.copyfile(source, target)


def _copy_tree(source: str, target: str, clone: Callable[[str, str], None]) -> None:
    os.mkdir(target)
    with os.scandir(source) as entries:
        for entry in entries:
            path = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                _copy_tree(entry.path, path, clone)
            else:
                _copy_entry(entry, path, clone)
    _copy_attributes(source, target)


def _copy_entry(entry: "os.DirEntry[str]", path: str, clone: Callable[[str, str], None]) -> None:
    """Copies what is no folder."""
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), path)
    elif entry.is_file(follow_symlinks=False):
        clone(entry.path, path)
    elif stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode):
        os.mkfifo(path)
    else:
        raise MountError(
            f"{entry.path} is a socket or a device, which a branch cannot copy; remove it"
        )
    _copy_attributes(entry.path, path)


def _copy_attributes(source: str, target: str) -> None:
    status = os.lstat(source)
    mine = os.lstat(target)
    if (status.st_uid, status.st_gid) != (mine.st_uid, mine.st_gid):
        os.chown(target, status.st_uid, status.st_gid, follow_symlinks=False)
    shutil.copystat(source, target, follow_symlinks=False)


def lower_layers(tree: Path) -> list[str]:
    """Returns the layers from which a folder is mounted, top first; none if it is no overlay's."""
    try:
        below = (tree.parent / LOWER).read_text().splitlines()
    except OSError:
        return []
    return [str(tree.parent / UPPER), *below] if tree.name == TREE else []


def _overlay(base: Path, folder: Path) -> Path:
    lower = lower_layers(base) or [str(base)]
    upper, work, tree = folder / UPPER, folder / WORK, folder / TREE
    paths = (*lower, str(folder))
    if not all(_PLAIN_PATH.fullmatch(p) and not _OPTION_CHARACTERS & set(p) for p in paths):
        raise OSError(f"{folder} or {base} has a character that the kernel reads as an option")
    (folder / LOWER).write_text("\n".join(lower))
    for made in (upper, work, tree):
        made.mkdir()
    _copy_attributes(str(base), str(upper))
    layers = f"lowerdir={':'.join(lower)},upperdir={upper},workdir={work}"
    # Whole files in the upper layer only, so that it can be read without the mount.
    kernel.mount(
        "overlay", str(tree), "overlay", 0, f"{layers},redirect_dir=off,metacopy=off,index=off"
    )
    return tree


def commit(storage: Storage, base: Path, folder: Path) -> None:
    """Makes the tree of a branch its base.

    Where the base is a folder of the disk, one exchange of names does it, so a crash leaves the old
    tree or the new one; the old tree is left in the branch's folder.  Where the base is itself the
    overlay of a branch, its files are changed one after the other: a crash ends that branch.

    Raises:
      OSError: The disk is full, or a file of the base may not be linked.
    """
    tree = folder / TREE
    if storage is not Storage.OVERLAY:
        exchange(tree, base)
        return
    kernel.unmount(str(tree))
    if lower_layers(base):
        _apply(str(folder / UPPER), str(base))
        return
    result = folder / "result"
    _compose(str(base), str(folder / UPPER), str(result))
    exchange(result, base)


def exchange(first: Path, second: Path) -> None:
    """Gives each of two folders the other's name, in one step.

    Raises:
      OSError: The file system or this system cannot.
    """
    try:
        call = kernel.libc.renameat2
    except AttributeError as error:
        raise OSError("this system has no renameat2") from error
    names = os.fsencode(first), os.fsencode(second)
    done = call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
    kernel.check(done, f"exchange of {first} and {second}")


def _entries(folder: str | None) -> "dict[str, os.DirEntry[str]]":
    if folder is None:
        return {}
    with os.scandir(folder) as entries:
        return {entry.name: entry for entry in entries}


def _compose(lower: str | None, upper: str | None, result: str) -> None:
    """Makes the folder that the two layers show: links to unchanged files, and the changed files.

    What is changed leaves the upper layer.
    """
    os.mkdir(result)
    above, below = _entries(upper), _entries(lower)
    for name in above.keys() | below.keys():
        path, over, under = os.path.join(result, name), above.get(name), below.get(name)
        below_it = under.path if under and under.is_dir(follow_symlinks=False) else None
        if over is None:
            if below_it is not None:
                _compose(below_it, None, path)
            elif under is not None:
                os.link(under.path, path, follow_symlinks=False)
        elif over.is_dir(follow_symlinks=False):
            _compose(None if _opaque(over.path) else below_it, over.path, path)
        elif not _whiteout(over):
            os.rename(over.path, path)
            _remove_marks(path)
    _copy_attributes(upper or lower or result, result)
    _remove_marks(result)


def _apply(upper: str, target: str) -> None:
    """Makes the changes of an upper layer in another folder."""
    for name, entry in _entries(upper).items():
        path = os.path.join(target, name)
        folder = entry.is_dir(follow_symlinks=False)
        merges = folder and not os.path.islink(path) and not _opaque(entry.path)
        if os.path.lexists(path) and not (merges and os.path.isdir(path)):
            _remove(path)
        if folder:
            os.makedirs(path, exist_ok=True)
            _apply(entry.path, path)
        elif not _whiteout(entry):
            _copy_entry(entry, path, _copy_contents)
            _remove_marks(path)
    _copy_attributes(upper, target)
    _remove_marks(target)


def _remove(path: str) -> None:
    """Removes a file, a link or a whole folder."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _whiteout(entry: "os.DirEntry[str]") -> bool:
    """Returns whether an entry of an upper layer says that a name is removed."""
    status = entry.stat(follow_symlinks=False)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _opaque(folder: str) -> bool:
    """Returns whether a folder of an upper layer hides the one below."""
    try:
        return os.getxattr(folder, f"{_OVERLAY_PREFIX}opaque") == b"y"
    except OSError:
        return False


def _remove_marks(path: str) -> None:
    """Removes the attributes that the kernel leaves in an upper layer."""
    for name in os.listxattr(path, follow_symlinks=False):
        if name.startswith(_OVERLAY_PREFIX):
            # An overlay in between hides the attributes, so that their removal fails.
            with contextlib.suppress(OSError):
                os.removexattr(path, name, follow_symlinks=False)


def discard(folder: Path) -> None:
    """Removes the folder of a branch or a session, with what is mounted in it.

    Raises:
      BranchError: Something is left.
    """
    if not remove_folder(folder):
        raise BranchError(f"{folder} cannot be removed; remove it by hand")
