"""A system call filter (seccomp-BPF) in pure Python, installed in a program after its last setup.

It is a second layer over whatever the container engine installs.  x86_64 and aarch64; elsewhere
`install` returns False and the sandbox reports the protection as off.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from dataclasses import dataclass

from . import kernel

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}

# No honest program needs these: the whole process is killed (SIGSYS), which is a violation.
_KILLED: dict[str, tuple[int, int]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount_setattr": (442, 442),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "iopl": (172, -1),
    "ioperm": (173, -1),
}

# Libraries may probe these: they fail softly with EPERM.
_REFUSED: dict[str, tuple[int, int]] = {
    "kcmp": (312, 272),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "name_to_handle_at": (303, 264),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "personality": (135, 92),
    "quotactl": (179, 60),
    "fanotify_init": (300, 262),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "vhangup": (153, 58),
    "memfd_secret": (447, 447),
    "inotify_init": (253, -1),
    "inotify_init1": (294, 26),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "io_setup": (206, 0),
    # Landlock's rules are memory that no process owns.
    "landlock_create_ruleset": (444, 444),
}

# What the zygote could not measure: pages in a pipe, of which one byte may hold two megabytes.
_UNCOUNTED: dict[str, tuple[int, int]] = {
    "memfd_create": (319, 279),
    "vmsplice": (278, 75),
}

# The same for descriptors in a message that nobody has received.
_PASSING: dict[str, tuple[int, int]] = {
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
}

# Of a file that the worker owns: Landlock keeps none of these from anybody.
_MODES: dict[str, tuple[int, int]] = {
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
}
_OWNERS: dict[str, tuple[int, int]] = {
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
}
_ATTRIBUTES: dict[str, tuple[int, int]] = {
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
}
_TIMES: dict[str, tuple[int, int]] = {
    "utime": (132, -1),
    "utimes": (235, -1),
    "futimesat": (261, -1),
    "utimensat": (280, 88),
}
_NEWER_MODES = {"fchmodat2": (452, 452)}
"""The C library works without this call."""

# Of another process these fail with EPERM: number, and which argument names the process.
_OF_OTHERS: dict[str, tuple[int, int, int]] = {
    "prlimit64": (302, 261, 0),
    "sched_setaffinity": (203, 122, 0),
    "sched_setscheduler": (144, 119, 0),
    "sched_setparam": (142, 118, 0),
    "sched_setattr": (314, 274, 0),
    "migrate_pages": (256, 238, 0),
    "move_pages": (279, 239, 0),
    "setpriority": (141, 140, 1),
    "ioprio_set": (251, 30, 1),
}

_FCNTL = (72, 25)
_LEASE, _NOTIFY = 1024, 1026
"""Commands that also affect a file that others have open."""
_PIPE_SIZE = 1031
_FALLOCATE = (285, 47)
_PRCTL = (157, 167)
_SET_DUMPABLE = 4
_MMAP = (9, 222)
_SHARED, _ANONYMOUS = 1, 32
_FLOCK = (73, 32)
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_SET_OPTION = (54, 208)
_OF_SOCKETS, _SEND_BUFFER, _RECEIVE_BUFFER = 1, 7, 8
_NAMESPACE_FLAGS = 0x7E020000

LARGEST_SHARED_BYTES = 1 << 24
"""Of a block of shared memory without a name, where no cgroup counts it: most of a block can be
unmapped, and is kept nevertheless, so that a measurement counts each block as this large."""
_UNIX, _INET, _INET6 = 1, 2, 10

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT, _ARGUMENT_BYTES = 0, 4, 16, 8
_X32_BIT = 0x40000000
_SET_SECCOMP, _FILTER_MODE = 22, 2

Instruction = tuple[int, int, int, int]


@dataclass(frozen=True)
class FilterPermissions:
    """System calls that a filter permits because another protection covers them.

    Attributes:
      internet: Sockets of the internet: a network namespace has no peer.
      local: Named sockets of the machine: its files are out of sight.
      counted_memory: Files in memory, pages spliced into pipes, large blocks of shared memory, and
        buffers of sockets and pipes larger than the machine's default: a cgroup counts them, which
        nothing else does.
      passing: Descriptors in messages, which no process has, and blocks of a file beyond its size,
        which no limit of a process bounds: a file system of its own bounds the files.
      others: Settings of other processes: they have another identity.
      locks: Locks of whole files, which need no write access: no process outside uses these files.
      modes: Modes of files: programs have an identity of their own, or the zygote answers.
      attributes: Owners, times and attributes of files: programs have an identity of their own.
    """

    internet: bool
    local: bool
    counted_memory: bool
    passing: bool
    others: bool
    locks: bool
    modes: bool
    attributes: bool


def rules(machine: str, permissions: FilterPermissions) -> list[Instruction]:
    """Returns the filter: (code, jump if true, jump if false, operand) per instruction.

    Args:
      machine: As `os.uname().machine`.
      permissions: What is let through.
    """
    column = _COLUMN[machine]
    lines: list[Instruction] = []

    def add(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> None:
        lines.append((code, if_true, if_false, operand & 0xFFFFFFFF))

    add(_LOAD, _ARCH_AT)
    add(_EQUAL, _AUDIT_ARCH[machine], 1, 0)
    add(_RETURN, _KILL)
    add(_LOAD, _NUMBER_AT)
    if machine == "x86_64":
        add(_AT_LEAST, _X32_BIT, 0, 1)
        add(_RETURN, _KILL)
    for table, verdict in _verdicts(permissions):
        for numbers in table.values():
            if numbers[column] >= 0:
                add(_EQUAL, numbers[column], 0, 1)
                add(_RETURN, verdict)
    add(_EQUAL, _CLONE3[column], 0, 1)
    # The flags are behind a pointer; libc falls back to clone.
    add(_RETURN, _ERRNO | errno.ENOSYS)
    add(_EQUAL, _CLONE[column], 0, 4)
    add(_LOAD, _FIRST_ARGUMENT_AT)
    add(_ANY_BIT, _NAMESPACE_FLAGS, 0, 1)
    add(_RETURN, _KILL)
    add(_LOAD, _NUMBER_AT)
    add(_EQUAL, _FCNTL[column], 0, 5)
    add(_LOAD, _FIRST_ARGUMENT_AT + _ARGUMENT_BYTES)
    add(_EQUAL, _LEASE, 1, 0)
    add(_EQUAL, _NOTIFY, 0, 1)
    add(_RETURN, _ERRNO | errno.EPERM)
    add(_LOAD, _NUMBER_AT)
    lines += [] if permissions.passing and permissions.counted_memory else _measured_rules(column)
    if not permissions.passing:
        add(_EQUAL, _FALLOCATE[column], 0, 4)
        add(_LOAD, _FIRST_ARGUMENT_AT + _ARGUMENT_BYTES)
        add(_EQUAL, 0, 1, 0)
        add(_RETURN, _ERRNO | errno.EOPNOTSUPP)
        add(_LOAD, _NUMBER_AT)
    if not permissions.counted_memory:
        lines += _memory_rules(column)
        lines += _buffer_rules(column)
    if not permissions.locks:
        add(_EQUAL, _FLOCK[column], 0, 1)
        # Without an effect and without an error: libraries lock files that nobody else can reach.
        add(_RETURN, _ERRNO)
    for *calls, argument in () if permissions.others else _OF_OTHERS.values():
        add(_EQUAL, calls[column], 0, 4)
        add(_LOAD, _FIRST_ARGUMENT_AT + argument * _ARGUMENT_BYTES)
        add(_EQUAL, 0, 1, 0)
        add(_RETURN, _ERRNO | errno.EPERM)
        add(_LOAD, _NUMBER_AT)
    lines += _socket_rules(column, permissions)
    add(_RETURN, _ALLOW)
    return lines


def _verdicts(permissions: FilterPermissions) -> list[tuple[dict[str, tuple[int, int]], int]]:
    """Returns the calls that are refused whatever their arguments, each table with its verdict."""
    refused = {**_REFUSED, **({} if permissions.counted_memory else _UNCOUNTED)}
    refused |= {} if permissions.passing else _PASSING
    refused |= {} if permissions.modes else _MODES
    refused |= {} if permissions.attributes else _OWNERS
    of_files = () if permissions.attributes else (
        (_ATTRIBUTES, _ERRNO | errno.EOPNOTSUPP),
        # Setting times succeeds without effect, because tools set them in copies.
        (_TIMES, _ERRNO),
        (_NEWER_MODES, _ERRNO | errno.ENOSYS),
    )  # fmt: skip
    return [(_KILLED, _KILL), (refused, _ERRNO | errno.EPERM), *of_files]


def _measured_rules(column: int) -> list[Instruction]:
    """Returns the rules that keep a process readable for the zygote."""
    return [
        (_EQUAL, 0, 4, _PRCTL[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_EQUAL, 0, 1, _SET_DUMPABLE),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]


def _memory_rules(column: int) -> list[Instruction]:
    """Returns the rules that refuse large pipes, and large blocks of shared memory."""
    length, flags = (_FIRST_ARGUMENT_AT + index * _ARGUMENT_BYTES for index in (1, 3))
    return [
        (_EQUAL, 0, 4, _FCNTL[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT + _ARGUMENT_BYTES),
        (_EQUAL, 0, 1, _PIPE_SIZE),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_EQUAL, 0, 9, _MMAP[column]),
        (_LOAD, 0, 0, flags),
        (_ANY_BIT, 0, 6, _SHARED),
        (_ANY_BIT, 0, 5, _ANONYMOUS),
        (_LOAD, 0, 0, length + 4),
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, length),
        (_AT_LEAST, 0, 1, LARGEST_SHARED_BYTES + 1),
        (_RETURN, 0, 0, _ERRNO | errno.ENOMEM),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]


def _buffer_rules(column: int) -> list[Instruction]:
    """Returns the rules by which a socket keeps its buffers: the call succeeds without effect."""
    return [
        (_EQUAL, 0, 7, _SET_OPTION[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT + _ARGUMENT_BYTES),
        (_EQUAL, 0, 4, _OF_SOCKETS),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT + 2 * _ARGUMENT_BYTES),
        (_EQUAL, 1, 0, _SEND_BUFFER),
        (_EQUAL, 0, 1, _RECEIVE_BUFFER),
        (_RETURN, 0, 0, _ERRNO),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]


def _socket_rules(column: int, permissions: FilterPermissions) -> list[Instruction]:
    """Returns the rules that refuse sockets of all families but those that are permitted."""
    families = (_UNIX,) * permissions.local + (_INET, _INET6) * permissions.internet
    lines = [(_EQUAL, 0, 2 + len(families), _SOCKET[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT_AT)]
    lines += [(_EQUAL, len(families) - index, 0, family) for index, family in enumerate(families)]
    return [*lines, (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT)]


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


class SyscallFilter:
    """A filter compiled once in the zygote and installed in each program.

    Attributes:
      available: Whether this machine's system call numbers are known.
    """

    def __init__(self, permissions: FilterPermissions) -> None:
        machine = os.uname().machine
        self.available = machine in _AUDIT_ARCH
        if self.available:
            lines = rules(machine, permissions)
            packed = b"".join(struct.pack("=HBBI", *line) for line in lines)
            self._buffer = ctypes.create_string_buffer(packed)
            self._program = _FilterProgram(len(lines), ctypes.addressof(self._buffer))

    def install(self) -> bool:
        """Returns whether the filter now holds for this process and all it starts."""
        if not self.available:
            return False
        kernel.no_new_privileges()
        pointer = ctypes.byref(self._program)
        kernel.check(kernel.libc.prctl(_SET_SECCOMP, _FILTER_MODE, pointer, 0, 0), "seccomp")
        return True
