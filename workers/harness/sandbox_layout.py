"""The layout of a sandbox: its directories, its identities, and the isolation in force.

Three kinds of identity, strongest first: `UIDS`, a throw-away user for every program; `NESTED`,
namespaces of its own for every program, for a user without privileges; `ONE`, nothing but a
separate OS process with limits.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

UIDS, NESTED, ONE = "uids", "nested", "one"
LIMIT, FORK_FILTER, MEASURED = "limit", "fork_filter", "measured"

SHARED_MEMORY = "/dev/shm"
"""Where the C library makes named semaphores and shared memory; it cannot be configured."""

_EVALUATOR_DIRECTORY_MODE = {"guarded": 0o770, "compatible": 0o777}
_ONLY_FOR_ITS_GROUP, _ALSO_PASSED_THROUGH, _WITHOUT_A_LIST = 0o1770, 0o1771, 0o1733
_FIRST_UID, _UIDS_NEEDED = 10_000, 4_000
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


@dataclass
class SandboxLayout:
    """The directories, identities and isolation of one sandbox.

    Attributes:
      evaluator: Directory of the evaluator's files.
      work: Directory with a subdirectory for each trial.
      rpc: Directory of the sockets between evaluator and program.
      library: Directory on `sys.path` with the stub's modules.
      shared_places: Directories that more than one process of the sandbox can write, emptied after
        each trial; the first is for temporary files.
      identities: `UIDS`, `NESTED` or `ONE`.
      own_processes: Whether no process outside the sandbox is visible in it.
      own_root: Whether only the interpreter, system libraries and the sandbox's files are visible.
      network_closed: Whether there is no interface but loopback.
      in_container: Whether an engine has made the sandbox.
      own_files: Whether locks on the files in sight are seen by nothing outside the sandbox.
      memory_counter: Descriptor of the file in which the kernel counts the processes of the
        sandbox's cgroup that it ended for want of memory; -1 where no cgroup holds the sandbox, and
        the zygote measures the processes instead.
      first_uid: The evaluator's; programs take the following ones in turn.
      uid_count: How many throw-away identities there are.
      kept: Paths in the shared places at boot, such as an interpreter under /tmp.
      imported: Paths there after the import of the evaluator.
      hides_others: Whether `/proc` shows a program none but its own processes.
      ruleset: Descriptor of the Landlock ruleset of all programs; -1 where each makes its own.
      readable: What Landlock lets programs read beside their own directory.
      bounded_by: What bounds the processes of a program: `LIMIT`, the kernel's own limit;
        `FORK_FILTER`, the zygote, which answers every fork; `MEASURED`, the zygote, which ends a
        trial that has too many; "", nothing.
      reasons: Isolation that was tried and refused, one line each.
    """

    evaluator: str
    work: str
    rpc: str
    library: str
    shared_places: tuple[str, ...]
    identities: str
    own_processes: bool
    own_root: bool
    network_closed: bool
    in_container: bool = False
    own_files: bool = False
    memory_counter: int = -1
    first_uid: int = 0
    uid_count: int = 0
    kept: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    hides_others: bool = False
    ruleset: int = -1
    readable: tuple[str, ...] = ()
    bounded_by: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def counted_memory(self) -> bool:
        """Whether a cgroup holds the sandbox as a whole."""
        return self.memory_counter >= 0

    @property
    def measured(self) -> bool:
        """Whether the zygote measures what a trial holds, because the kernel does not bound it."""
        return not (self.counted_memory and self.own_root)

    @property
    def temporary(self) -> str:
        """The evaluator's directory for temporary files while it is imported."""
        return os.path.join(os.path.dirname(self.evaluator), "tmp")

    @property
    def kept_evaluator(self) -> str:
        """The directory with a copy of the evaluator's files, which no trial can reach."""
        return os.path.join(os.path.dirname(self.evaluator), "kept")

    @property
    def data(self) -> str:
        """The directory with the data of `Evaluator.mounts`, where the sandbox has its own root."""
        return os.path.join(os.path.dirname(self.work), "data")

    def present(self) -> frozenset[str]:
        """Returns the paths of all that is in the shared places now."""
        return frozenset(
            os.path.join(place, name)
            for place in self.shared_places
            if os.path.isdir(place)
            for name in os.listdir(place)
        )

    def uid_of(self, number: int) -> int:
        """Returns the identity of the sandbox's `number`-th program, counted from 0."""
        return self.first_uid + 1 + number % (self.uid_count - 1) if self.uid_count else os.getuid()


def in_container(memory_counter: int, offset: int, *, network_closed: bool) -> SandboxLayout:
    """Returns the layout of a hardened container, which the engine has isolated.

    Its identities are no other container's, although nothing in it can see another: the kernel
    counts the processes of an identity on the whole machine.
    """
    first, count = uid_range(offset)
    return SandboxLayout(
        evaluator="/sandbox/eval/files", work="/sandbox/work", rpc="/sandbox/rpc",
        library="/sandbox/eval/library", shared_places=("/tmp", SHARED_MEMORY, "/dev/mqueue"),
        identities=UIDS, own_processes=True, own_root=True, network_closed=network_closed,
        in_container=True, own_files=True, memory_counter=memory_counter,
        first_uid=first, uid_count=count,
    )  # fmt: skip


def uid_range(offset: int) -> tuple[int, int]:
    """Returns the first of this sandbox's identities and how many there are.

    Args:
      offset: Distinguishes the sandboxes of one machine; where few identities are mapped, the
        ranges of two sandboxes may overlap, but rarely do their programs meet in one.
    """
    try:
        with open("/proc/self/uid_map") as file:
            mapped = max(int(start) + int(count) for start, _, count in map(str.split, file))
    except (OSError, ValueError):
        mapped = 65_536
    first = 1_000_000 + (offset % 200_000) * _UIDS_NEEDED
    if first + _UIDS_NEEDED > mapped:
        first = _FIRST_UID + offset % max(1, mapped - _FIRST_UID - _UIDS_NEEDED)
    return first, _UIDS_NEEDED


def become(uid: int) -> None:
    """Takes the identity of `uid` and its own group, irrevocably."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def make_places(layout: SandboxLayout, mode: str) -> None:
    """Makes the directories of the sandbox, each accessible to the identities that may use it."""
    old = os.umask(0)
    try:
        for path in (layout.evaluator, layout.work, layout.rpc, layout.library):
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        for path, bits in ((layout.work, 0o711), (layout.rpc, 0o711), (layout.library, 0o755)):
            os.makedirs(path, mode=bits, exist_ok=True)
            os.chmod(path, bits)
        layout.kept = layout.present()
        if layout.own_root and os.path.isdir(layout.data):
            with group_of(layout, layout.first_uid):
                os.chown(layout.data, -1, layout.first_uid if layout.identities == UIDS else -1)
                os.chmod(layout.data, 0o750 if mode == "guarded" else 0o755)
        with group_of(layout, layout.first_uid):
            for path in (layout.evaluator, layout.temporary):
                os.mkdir(path, evaluator_mode(mode))
            os.mkdir(layout.kept_evaluator, 0o770)
            if mode == "guarded" and layout.identities == UIDS:
                _divide(layout)
    finally:
        os.umask(old)


def evaluator_mode(mode: str) -> int:
    """Returns the access rights of the evaluator's directory."""
    return _EVALUATOR_DIRECTORY_MODE[mode]


def _divide(layout: SandboxLayout) -> None:
    """Leaves no directory in which evaluator and programs can read each other's files.

    The place for temporary files becomes the evaluator's; a program has its own directory.  Both
    need the other places: there, each may open only what it made, and no name can be read.
    """
    temporary, *others = layout.shared_places
    passed = any(path.startswith(temporary + "/") for path in layout.kept)
    os.chown(temporary, -1, layout.first_uid)
    os.chmod(temporary, _ALSO_PASSED_THROUGH if passed else _ONLY_FOR_ITS_GROUP)
    for place in others:
        if os.path.isdir(place):
            os.chmod(place, _WITHOUT_A_LIST)


# The name reads as a verb where it is used: `with group_of(layout, uid)`.
class group_of:
    """Files made inside the block belong to the group of `uid`, where the sandbox has groups."""

    def __init__(self, layout: SandboxLayout, uid: int) -> None:
        self._uid = uid if layout.identities == UIDS else None

    def __enter__(self) -> None:
        if self._uid is not None:
            os.setegid(self._uid)

    def __exit__(self, *exception: object) -> None:
        if self._uid is not None:
            os.setegid(0)


def package_folders() -> list[str]:
    """Returns the folders of installed packages, also those another environment lends."""
    return [path for path in sys.path if os.path.basename(path) in _PACKAGE_FOLDERS]


def forget_foreign_paths() -> None:
    """Leaves on `sys.path` only the interpreter's and installed packages: no checkout."""
    homes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    packages = package_folders()
    sys.path[:] = [
        path
        for path in sys.path
        if path in packages
        or (path and any(path.startswith(home.rstrip("/") + "/") for home in homes))
    ]
