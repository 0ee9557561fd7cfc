"""Isolates a sandbox that is a child process: namespaces and a root directory of its own."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from . import accounts, kernel, sandbox_layout, user_namespaces
from .sandbox_layout import SandboxLayout

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "mime.types",
             "fonts", "os-release", "protocols", "services", "timezone")  # fmt: skip
_PROCESSORS = "/sys/devices/system/cpu"
"""From which libraries take how many threads they start."""
_DEVICES = ("null", "full", "random", "urandom")
"""Without `zero`: a shared mapping of it is memory that no process need have."""
_LINKS = (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
          ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2"))  # fmt: skip
_NAMES = {
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_NAMESPACES = kernel.NEWNS | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
_PLACES = (("/tmp", "mode=1777,size=128m,nr_inodes=8k"),
           ("/dev/shm", "mode=1777,size=64m,nr_inodes=8k"),
           ("/sandbox/work", "mode=711,size=128m,nr_inodes=8k"),
           ("/sandbox/rpc", "mode=711,size=1m,nr_inodes=512"),
           ("/sandbox/data", "mode=700,size=64k,nr_inodes=1k"),
           ("/sandbox/eval", "mode=755,size=512m,nr_inodes=64k"))  # fmt: skip

PRIVILEGED, UNPRIVILEGED, BARE = "privileged", "unprivileged", "bare"
LEVELS = (PRIVILEGED, UNPRIVILEGED, BARE)


@dataclass(frozen=True)
class Shown:
    """Files of the machine that a root of its own shows beside the system's and the interpreter's.

    Attributes:
      readable: Files and directories to read.
      writable: Directories to write in, which become the first identity's where there are several.
      data: What is read where evaluators find it, by name.
    """

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)


NOTHING_ELSE = Shown()


def enter(
    scratch: str, levels: tuple[str, ...], offset: int, shown: Shown = NOTHING_ELSE
) -> SandboxLayout:
    """Isolates this process as strongly as the kernel permits; returns in a new process.

    The calling process waits for the new one and ends as it ends.

    Args:
      scratch: An empty directory for the root or the sandbox's directories.
      levels: Which of `LEVELS` to try, in order; `BARE` always succeeds.
      offset: Distinguishes the identities of the sandboxes of one machine.
      shown: What a root of its own shows.
    """
    reasons: list[str] = []
    for level in levels:
        if level == BARE:
            break
        entered = _attempt(level, scratch, offset, shown)
        if isinstance(entered, SandboxLayout):
            return replace(entered, reasons=tuple(reasons))
        reasons.append(f"{level}: {entered}")
    layout = _bare(scratch, offset, tuple(reasons))
    if layout.uid_count:
        _give(shown.writable, layout.first_uid)
    return layout


def _give(folders: tuple[str, ...], uid: int) -> None:
    """Makes all in directories belong to an identity: links, and not what they lead to."""
    for folder in folders:
        for path, names, files in os.walk(folder):
            for name in (".", *names, *files):
                os.chown(os.path.join(path, name), uid, uid, follow_symlinks=False)


def _attempt(level: str, scratch: str, offset: int, shown: Shown) -> SandboxLayout | str:
    """Returns the layout, in the isolated process, or the reason why isolation failed.

    The attempt is made in a child, because half-made namespaces cannot be left again.
    """
    if level == PRIVILEGED and os.geteuid() != 0:
        return "not root"
    verdict_in, verdict_out = os.pipe()
    outer = os.fork()
    if outer == 0:
        os.close(verdict_in)
        kernel.die_with_parent()
        try:
            built = _build(level, scratch, offset, shown)
        except OSError as error:
            os.write(verdict_out, (str(error)[:500] or "unknown").encode())
            os._exit(1)
        os.write(verdict_out, b"\0")
        os.close(verdict_out)
        return built
    os.close(verdict_out)
    verdict = os.read(verdict_in, 1000)
    os.close(verdict_in)
    if verdict == b"\0":
        user_namespaces.wait_in_place_of(outer, scratch=scratch)
    os.waitpid(outer, 0)
    return verdict.decode() or "the attempt ended without a reason"


def _build(level: str, scratch: str, offset: int, shown: Shown) -> SandboxLayout:
    uid, gid = os.getuid(), os.getgid()
    first, count = sandbox_layout.uid_range(offset)
    if level == PRIVILEGED:
        kernel.unshare(_NAMESPACES)
    else:
        kernel.unshare(_NAMESPACES | kernel.NEWUSER)
        user_namespaces.map_identity(user_namespaces.INSIDE_ID, uid, gid)
    failure_in, failure_out = os.pipe()
    inner = os.fork()
    if inner:
        os.close(failure_out)
        reason = os.read(failure_in, 1000)
        if reason == b"\0":
            # `inner` goes on and reports the verdict.
            user_namespaces.wait_in_place_of(inner)
        os.waitpid(inner, 0)
        raise OSError(errno.EPERM, reason.decode() or "the first process inside ended")
    os.close(failure_in)
    kernel.die_with_parent()
    try:
        kernel.bring_loopback_up()
        if level == PRIVILEGED:
            _make_root(scratch, "hidepid=2", shown, range(first, first + count))
        else:
            _make_root(scratch, "", shown, (user_namespaces.INSIDE_ID,))
        if level == PRIVILEGED:
            _give(shown.writable, first)
        kept = (kernel.CAP_KILL, kernel.CAP_SETGID, kernel.CAP_SETUID)
        kernel.keep_capabilities(*(kept if level == PRIVILEGED else ()))
    except OSError as error:
        os.write(failure_out, str(error)[:500].encode())
        os._exit(1)
    os.write(failure_out, b"\0")
    os.close(failure_out)
    return SandboxLayout(
        evaluator="/sandbox/eval/files", work="/sandbox/work", rpc="/sandbox/rpc",
        library="/sandbox/eval/library", shared_places=("/tmp", sandbox_layout.SHARED_MEMORY),
        own_processes=True, own_root=True, network_closed=True,
        identities=sandbox_layout.UIDS if level == PRIVILEGED else sandbox_layout.NESTED,
        first_uid=first if level == PRIVILEGED else 0,
        uid_count=count if level == PRIVILEGED else 0,
        hides_others=level == PRIVILEGED,
    )  # fmt: skip


def _make_root(scratch: str, of_processes: str, shown: Shown, uids: Iterable[int]) -> None:
    """Makes the sandbox's root directory, which has a name for `uids`.

    `of_processes` are the options of its `/proc`.
    """
    kernel.mount("none", "/", flags=kernel.REC | kernel.PRIVATE)
    root = os.path.join(scratch, "root")
    os.mkdir(root, 0o755)
    kernel.mount("tmpfs", root, "tmpfs", kernel.NOSUID, "mode=755,size=16m")
    for path, options in _PLACES:
        os.makedirs(root + path)
        kernel.mount("tmpfs", root + path, "tmpfs", kernel.NOSUID | kernel.NODEV, options)
    for path in (*_SYSTEM, _PROCESSORS, *_interpreter_homes(), *shown.readable):
        _show(root, path)
    for path in shown.writable:
        _show(root, path, read_only=False)
    for name, path in shown.data.items():
        _show_at(f"{root}/sandbox/data/{name}", path)
    os.makedirs(root + "/etc", exist_ok=True)
    for name in _SETTINGS:
        _show(root, "/etc/" + name)
    for name, text in _NAMES.items():
        with open(f"{root}/etc/{name}", "w") as file:
            file.write(text)
    accounts.write(f"{root}/etc", uids)
    os.makedirs(root + "/dev", exist_ok=True)
    for name in _DEVICES:
        _show(root, "/dev/" + name, read_only=False)
    for name, target in _LINKS:
        os.symlink(target, f"{root}/dev/{name}")
    os.makedirs(root + "/proc")
    flags = kernel.NOSUID | kernel.NODEV | kernel.NOEXEC
    kernel.mount("proc", root + "/proc", "proc", flags, of_processes)
    old = root + "/old"
    os.mkdir(old)
    kernel.pivot_root(root, old)
    os.chdir("/")
    kernel.unmount("/old")
    os.rmdir("/old")
    if not os.path.exists(os.__file__):
        raise OSError(errno.ENOENT, f"the interpreter's library {os.__file__} is out of sight")
    kernel.mount("none", "/", flags=kernel.REMOUNT | kernel.BIND | kernel.RDONLY | kernel.NOSUID)


def _interpreter_homes() -> list[str]:
    """Returns the directories the interpreter needs that are not part of the system's."""
    executable = os.path.dirname(os.path.realpath(sys.executable))
    homes = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    homes |= {sys.prefix, sys.base_prefix, executable, *sandbox_layout.package_folders()}
    outside = sorted(home for home in homes if not home.startswith(_SYSTEM) and home != "/")
    return [
        home for home in outside
        if not any(home != other and home.startswith(other + "/") for other in outside)
    ]  # fmt: skip


def _show(root: str, path: str, read_only: bool = True) -> None:
    """Makes `path` of the machine visible under `root`, links as links."""
    target = root + path
    if os.path.islink(path) and path.startswith(_SYSTEM):
        os.symlink(os.readlink(path), target)
        return
    if not os.path.exists(path) or (read_only and os.path.exists(target)):
        return
    _show_at(target, path, read_only)


def _show_at(target: str, path: str, read_only: bool = True) -> None:
    """Makes `path` of the machine visible as `target`."""
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        with open(target, "w"):
            pass
    kernel.mount(path, target, flags=kernel.BIND | kernel.REC)
    if read_only:
        for place in _mounted_at(target):
            # A user namespace may not clear the flags the machine has set, so they are repeated.
            flags = os.statvfs(place).f_flag & (kernel.NODEV | kernel.NOEXEC | kernel.NOSUID)
            remount = kernel.REMOUNT | kernel.BIND | kernel.RDONLY | kernel.NOSUID
            kernel.mount("none", place, flags=remount | flags)


def _mounted_at(target: str) -> list[str]:
    """Returns `target` and what is mounted below it."""
    return [target, *(place for place in kernel.mount_points() if place.startswith(target + "/"))]


def _bare(scratch: str, offset: int, reasons: tuple[str, ...]) -> SandboxLayout:
    kernel.adopt_orphans()
    first, count = _usable_uids(offset)
    os.chmod(scratch, 0o711 if count else 0o700)
    temporary = os.path.join(scratch, "tmp")
    os.mkdir(temporary)
    os.chmod(temporary, 0o1777)
    return SandboxLayout(
        evaluator=f"{scratch}/eval/files", work=f"{scratch}/work", rpc=f"{scratch}/rpc",
        library=f"{scratch}/library", shared_places=(temporary,),
        identities=sandbox_layout.UIDS if count else sandbox_layout.ONE,
        own_processes=False, own_root=False, network_closed=False, first_uid=first, uid_count=count,
        reasons=reasons,
    )  # fmt: skip


def _usable_uids(offset: int) -> tuple[int, int]:
    """Returns the throw-away identities, or (0, 0) if one of them could not run the interpreter."""
    if os.geteuid() != 0:
        return 0, 0
    first, count = sandbox_layout.uid_range(offset)
    child = os.fork()
    if child == 0:
        try:
            sandbox_layout.become(first)
            with open(os.__file__, "rb"):
                os._exit(0 if os.access(sys.executable, os.X_OK) else 1)
        except OSError:
            os._exit(1)
    return (first, count) if os.waitpid(child, 0)[1] == 0 else (0, 0)
