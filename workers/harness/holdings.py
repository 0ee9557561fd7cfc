"""What a trial holds that no limit of a process bounds in sum: files, shared memory, buffers.

Where a cgroup counts the memory of a sandbox, or a file system of its own has a size, the kernel
bounds these.  Elsewhere the zygote measures them, and ends a trial that holds too much.  What can
be held out of sight is refused by the system call filter: descriptors in a message, and large
blocks of shared memory, most of which could be unmapped and kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from . import kernel
from .sandbox_layout import SHARED_MEMORY, UIDS, SandboxLayout
from .syscall_filter import LARGEST_SHARED_BYTES

MOST_BYTES, MOST_ENTRIES = 128 << 20, 2000
"""Of all files of a trial together, as in a root of its own; and of files and directories, which
also have to be removed within seconds."""
MEMORY, FILES, CONCEALED = "memory", "files", "concealed"

_BLOCK_BYTES = 512
_SOCKET_BYTES, _PIPE_BYTES = 212_992, 65_536
"""A sending buffer as the kernel sizes it, and 16 pages."""
_MAPPING_BYTES, _POLL_BYTES = 256, 65_536
"""A mapping in the kernel, and a poll of 256 descriptors."""
_LOCK_BYTES = 16_384
"""Far more than a lock takes in the kernel, so that few locks have to be read."""
_OF_NETWORK, _LOCK = "/proc/self/net/sockstat", b"\nlock:"
_MAPPED = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ .... [0-9a-f]+ (\S+) (\d+) +(.*) \(deleted\)$", re.M)
_DELETED = b" (deleted)"
_LOCKS = SHARED_MEMORY.encode() + b"/"
"""Where an evaluator's locks are, which no program can make without a root of its own."""
_WITHOUT_A_NAME = (b"/dev/zero", b"/memfd:", b"/SYSV")
_FILTERS, _SIZE = b"Seccomp_filters:", b"VmSize:"

_FileId = tuple[int, int]


@dataclass
class Holdings:
    """What one look found.

    Attributes:
      shared: Objects of memory that are mapped and have no name.
      deleted: Bytes of each file that has no name any more and is still in use.
      sockets: Names of the open ones.
      all_sockets: How many there are, also those that wait in a queue for somebody to accept them;
        0 where the network is the machine's.
      pipes: Names of the open ones.
      polls: Descriptors of epoll.
      mappings: Of all processes.
      locks: Of ranges of files.
      named_bytes: Bytes of all files in the trial's directories.
      entries: Files and directories there.
      concealed: Processes and directories that could not be looked into.
    """

    shared: set[_FileId] = field(default_factory=set)
    deleted: dict[_FileId, int] = field(default_factory=dict)
    sockets: set[str] = field(default_factory=set)
    all_sockets: int = 0
    pipes: set[str] = field(default_factory=set)
    polls: int = 0
    mappings: int = 0
    locks: int = 0
    named_bytes: int = 0
    entries: int = 0
    concealed: set[str] = field(default_factory=set)

    @property
    def memory_bytes(self) -> int:
        """The most memory that shared objects, buffers and what the kernel keeps can take."""
        sockets = max(len(self.sockets), self.all_sockets)
        buffers = sockets * _SOCKET_BYTES + len(self.pipes) * _PIPE_BYTES
        kept = self.mappings * _MAPPING_BYTES + self.polls * _POLL_BYTES
        kept += self.locks * _LOCK_BYTES
        return len(self.shared) * LARGEST_SHARED_BYTES + buffers + kept

    @property
    def file_bytes(self) -> int:
        return self.named_bytes + sum(self.deleted.values())


class HoldingsWatch:
    """Measures what one trial holds.

    Args:
      layout: The sandbox's.
      file_bytes: Most bytes of one file.
      places: Directories of the trial, each with the identity that may look into it.
      filled: Those of them in which there are files before the trial begins, which do not count.
    """

    def __init__(
        self,
        layout: SandboxLayout,
        file_bytes: int,
        places: tuple[tuple[str, int], ...],
        filled: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self._layout = layout
        self._file_bytes = file_bytes
        self._places = () if layout.own_root else (*places, *filled)
        self._present = layout.kept | layout.imported
        self._filters = _status(os.getpid()).get(_FILTERS, 0)
        self._concealed: set[str] = set()
        self._before = Holdings()
        if not layout.own_root:
            self._look_at_directories(filled, self._before)

    def look(self, pids: Iterable[int], memory_bytes: int, until: float) -> tuple[str, int]:
        """Returns which bound the trial exceeds, "" if none, and the memory it shares.

        Args:
          pids: Its processes.
          memory_bytes: What it may still have in shared memory and buffers.
          until: When to give up, in `time.monotonic` seconds: 60 processes with as many mappings as
            the kernel permits take seconds to look at.
        """
        found = Holdings(all_sockets=_sockets() if self._layout.network_closed else 0)
        for pid in pids:
            if time.monotonic() >= until:
                return "", 0
            self._look_at_process(pid, found)
            if self._shared_bytes(found) > memory_bytes:
                # A look at the other processes can take seconds.
                break
        shared_bytes = self._shared_bytes(found)
        if shared_bytes > memory_bytes:
            return MEMORY, shared_bytes
        self._look_at_directories(self._places, found)
        # Two looks have to agree, because a process may just be ending.
        concealed = self._concealed & found.concealed
        self._concealed = found.concealed
        if not self._layout.own_root and (
            found.file_bytes - self._before.named_bytes > MOST_BYTES
            or found.entries - self._before.entries > MOST_ENTRIES
        ):
            return FILES, shared_bytes
        return CONCEALED if concealed else "", shared_bytes

    def _shared_bytes(self, found: Holdings) -> int:
        return 0 if self._layout.counted_memory else found.memory_bytes

    def _look_at_process(self, pid: int, found: Holdings) -> None:
        folder = f"/proc/{pid}"
        try:
            with self._as_file_user(os.stat(folder).st_uid):
                self._look_at_descriptors(folder, found)
                with open(folder + "/maps", "rb") as file:
                    maps = file.read()
        except PermissionError:
            status = _status(pid)
            # One that the zygote has only just forked has fewer filters; one that ends, no size.
            if status.get(_SIZE) and status.get(_FILTERS, 0) > self._filters:
                found.concealed.add(folder)
            return
        except OSError:
            # The process has ended.
            return
        found.mappings += maps.count(b"\n")
        # Most maps have no deleted file, and searching tens of thousands takes long.
        if _DELETED not in maps:
            return
        for device, inode, path in _MAPPED.findall(maps):
            if path.startswith(_LOCKS) and not self._layout.own_root:
                continue
            if int(inode) and path.startswith(_WITHOUT_A_NAME):
                found.shared.add((_device(device), int(inode)))
            elif int(inode):
                found.deleted.setdefault((_device(device), int(inode)), self._file_bytes)

    def _look_at_descriptors(self, folder: str, found: Holdings) -> None:
        for name in os.listdir(folder + "/fd"):
            path = f"{folder}/fd/{name}"
            try:
                target = os.readlink(path)
                if target.startswith("/") and not self._layout.counted_memory:
                    with open(f"{folder}/fdinfo/{name}", "rb") as file:
                        found.locks += file.read().count(_LOCK)
                if target.startswith("socket:"):
                    found.sockets.add(target)
                elif target.startswith("pipe:"):
                    found.pipes.add(target)
                elif target == "anon_inode:[eventpoll]":
                    found.polls += 1
                elif target.endswith(" (deleted)"):
                    status = os.stat(path)
                    if stat.S_ISREG(status.st_mode):
                        key = status.st_dev, status.st_ino
                        found.deleted[key] = status.st_blocks * _BLOCK_BYTES
            except FileNotFoundError:
                # The descriptor was closed meanwhile.
                continue

    def _look_at_directories(self, places: Iterable[tuple[str, int]], found: Holdings) -> None:
        for path, uid in places:
            with self._as_file_user(uid):
                self._look_at_directory(path, found)

    def _look_at_directory(self, top: str, found: Holdings) -> None:
        waiting = [top]
        while waiting and found.entries <= MOST_ENTRIES + self._before.entries:
            path = waiting.pop()
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        if entry.path not in self._present:
                            self._look_at_entry(entry, found, waiting)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.ENAMETOOLONG):
                    found.concealed.add(path)

    @staticmethod
    def _look_at_entry(entry: os.DirEntry[str], found: Holdings, directories: list[str]) -> None:
        found.entries += 1
        with contextlib.suppress(FileNotFoundError):
            found.named_bytes += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.path)

    @contextlib.contextmanager
    def _as_file_user(self, uid: int) -> Iterator[None]:
        """Looks as `uid` inside the block, where programs have identities of their own.

        The right to look into any process would be more than the zygote has.
        """
        if self._layout.identities != UIDS or not uid:
            yield
            return
        kernel.file_user(uid)
        try:
            yield
        finally:
            kernel.file_user(0)


def _sockets() -> int:
    """Returns how many sockets the network of this process has."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(_OF_NETWORK) as file:
        # The line reads "sockets: used 4".
        return int(file.readline().split()[2])
    return 0


def _device(text: bytes) -> int:
    major, _, minor = text.partition(b":")
    return os.makedev(int(major, 16), int(minor, 16))


def _status(pid: int) -> dict[bytes, int]:
    """Returns numbers of a process that anyone may read."""
    numbers: dict[bytes, int] = {}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b"\t")
            if name in (_FILTERS, _SIZE):
                numbers[name] = int(rest.split()[0])
    return numbers
