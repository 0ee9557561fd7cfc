"""What a candidate changed in a folder, as text: made on one machine and applied on another.

The standard library alone: its text is sent to where candidates run.  A patch may come from code
that nobody trusts, so applying one follows no link and leaves no link out of the folder.
"""

import base64
import hashlib
import io
import json
import os
import posixpath
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

Manifest = Mapping[str, tuple[str, int, str]]
"""Path to kind ("file", "dir" or "link"), permissions, and digest of the contents or target."""

MOST_BYTES = 1 << 20
"""Of a patch, as text."""
_MOST_FILES_BYTES = 64 << 20


class PatchError(ValueError):
    """A patch cannot be made or applied; the message says why."""


def pack(folder: str) -> bytes:
    """Returns the files, folders and links below a folder as a tar archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in _paths(folder):
            member = archive.gettarinfo(os.path.join(folder, path), path)
            _kind(member.mode if member else 0, os.path.join(folder, path))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = int(member.mtime)
            if member.isreg():
                with open(os.path.join(folder, path), "rb") as contents:
                    archive.addfile(member, contents)
            else:
                archive.addfile(member)
            if packed.tell() > _MOST_FILES_BYTES:
                raise PatchError(
                    f"{folder} has more than {_MOST_FILES_BYTES >> 20} MiB, more than the ledger "
                    f"takes"
                )
    return packed.getvalue()


def unpack(packed: bytes, folder: str) -> None:
    """Lays out an archive of `pack`."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="fully_trusted")


def manifest(folder: str) -> Manifest:
    """Returns what is below a folder; contents as digests."""
    found: dict[str, tuple[str, int, str]] = {}
    for path in _paths(folder):
        whole = os.path.join(folder, path)
        status = os.lstat(whole)
        kind = _kind(status.st_mode, whole)
        text = ""
        if kind == "link":
            text = os.readlink(whole)
        elif kind == "file":
            with open(whole, "rb") as contents:
                text = hashlib.file_digest(contents, "sha256").hexdigest()
        found[path] = (kind, 0 if kind == "link" else stat.S_IMODE(status.st_mode), text)
    return found


def make(before: Manifest, folder: str, most: int = MOST_BYTES) -> str:
    """Returns what differs in a folder from an earlier manifest; "" where nothing does.

    Raises:
      PatchError: It is larger than `most`, or there is something that is no file, folder or link.
    """
    after = manifest(folder)
    removed = sorted(before.keys() - after.keys())
    changed = [path for path in after if after[path] != before.get(path)]
    if not removed and not changed:
        return ""
    entries: list[tuple[str, str, int, str]] = []
    total = 0
    for path in changed:
        kind, mode, text = after[path]
        if kind == "file":
            total += os.path.getsize(os.path.join(folder, path))
            if total > _MOST_FILES_BYTES:
                raise _too_large(total, most)
            with open(os.path.join(folder, path), "rb") as contents:
                text = base64.b64encode(contents.read()).decode()
        entries.append((path, kind, mode, text))
    document = json.dumps({"removed": removed, "entries": entries}).encode()
    text = base64.b64encode(zlib.compress(document)).decode()
    if len(text) > most:
        raise _too_large(len(text), most)
    return text


def _too_large(size: int, most: int) -> PatchError:
    return PatchError(
        f"the changed files make a patch of more than {min(size, _MOST_FILES_BYTES)} bytes; the "
        f"most is {most}: leave build products outside the folder, or run with a shared volume"
    )


def apply(patch: str, folder: str, most: int = 4 * _MOST_FILES_BYTES) -> None:
    """Makes the changes of a patch in a folder.

    Raises:
      PatchError: It is damaged, or would reach outside the folder.
    """
    if not patch:
        return
    try:
        inflated = zlib.decompressobj()
        document = inflated.decompress(base64.b64decode(patch, validate=True), most)
        if inflated.unconsumed_tail:
            raise PatchError(f"a patch of more than {most} bytes")
        read: dict[str, Any] = json.loads(document)
        entries = [(str(p), str(k), int(m), str(t)) for p, k, m, t in read["entries"]]
        removed = [str(path) for path in read["removed"]]
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise PatchError(f"the patch cannot be read: {error}") from error
    for path in sorted(removed, reverse=True):
        _remove(_inside(folder, path))
    modes = []
    for path, kind, mode, text in sorted(entries):
        whole = _inside(folder, path)
        if kind == "dir":
            if os.path.islink(whole) or not os.path.isdir(whole):
                _remove(whole)
                os.mkdir(whole)
            modes.append((whole, mode))
            continue
        _remove(whole)
        if kind == "link":
            _require_inside(path, text)
            os.symlink(text, whole)
        elif kind == "file":
            with open(whole, "xb") as written:
                written.write(base64.b64decode(text))
            os.chmod(whole, mode & 0o777)
        else:
            raise PatchError(f"{path!r} is a {kind!r}, which no patch may hold")
    for whole, mode in reversed(modes):
        os.chmod(whole, mode & 0o777)


def _paths(folder: str) -> Iterator[str]:
    """Yields what is below a folder, sorted, each folder before its contents."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        yield entry.name
        if entry.is_dir(follow_symlinks=False):
            for below in _paths(entry.path):
                yield f"{entry.name}/{below}"


def _kind(mode: int, path: str) -> str:
    for kind, test in (("file", stat.S_ISREG), ("dir", stat.S_ISDIR), ("link", stat.S_ISLNK)):
        if test(mode):
            return kind
    raise PatchError(f"{path} is no file, folder or link, and cannot be sent elsewhere; remove it")


def _inside(folder: str, path: str) -> str:
    """Returns where a path of a patch is, whose folders must be no links."""
    parts = path.split("/")
    if path != posixpath.normpath(path) or path.startswith("/") or parts[0] in ("..", ".", ""):
        raise PatchError(f"a patch may not change {path!r}")
    whole = folder
    for part in parts[:-1]:
        whole = os.path.join(whole, part)
        if os.path.islink(whole) or not os.path.isdir(whole):
            raise PatchError(f"a patch may not change {path!r}: {part!r} is no folder of it")
    return os.path.join(whole, parts[-1])


def _require_inside(path: str, target: str) -> None:
    # Where `..` comes after a name, that name may be a link itself.
    names = target.lstrip("./").split("/")
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith("/") or ".." in names or reached.split("/")[0] == "..":
        raise PatchError(f"the link {path!r} leads out of the folder: {target!r:.200}")


def _remove(whole: str) -> None:
    if os.path.isdir(whole) and not os.path.islink(whole):
        shutil.rmtree(whole)
    elif os.path.lexists(whole):
        os.unlink(whole)
