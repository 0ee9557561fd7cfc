"""The last steps before a program runs: its identity, its limits, its system call filter."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from typing import Any

from . import kernel, landlock, limits
from .nested import enter_nested
from .room import LIMIT, NESTED, SHARED_MEMORY, UIDS, Room, become
from .seccomp import Filter


@dataclass(frozen=True)
class Seat:
    """Where one program of a trial sits.

    Attributes:
      uid: Its identity, where the cell has several.
      directory: Its working and temporary directory.
      hidden: Directories it must not see.
      read_only: Directories it must not change.
      apart: Whether the evaluator is another process, of which it must see nothing.
    """

    uid: int
    directory: str
    hidden: tuple[str, ...]
    read_only: tuple[str, ...]
    apart: bool


def program_environment(directory: str) -> dict[str, str]:
    """Returns all that a program sees of the environment; nothing comes from the machine."""
    home = os.path.dirname(os.path.realpath(sys.executable))
    return {
        "PATH": f"{os.path.dirname(sys.executable)}:{home}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": directory,
        "TMPDIR": directory,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def confine(room: Room, seat: Seat, bounds: dict[str, Any], sieve: Filter) -> None:
    """Makes this process the program's own, irrevocably."""
    if room.identities == UIDS and os.geteuid() != 0:
        os.seteuid(0)
        os.setegid(0)
    limits.offer_to_the_oom_killer()  # as root: a process that hides its memory is root's
    if room.identities == UIDS:
        become(seat.uid)
        kernel.die_with_parent()
    elif room.identities == NESTED:
        enter_nested(seat.hidden, seat.read_only, room.shared_places, room.kept)
    else:
        kernel.keep_capabilities()  # the worker may be root
        kernel.die_with_parent()
    limits.apply(bounds, int(bounds["processes"]) if room.bounded_by == LIMIT else 0)
    os.umask(0o077)
    os.chdir(seat.directory)
    kernel.no_new_privileges()
    kernel.hide_memory()
    if not room.own_root:
        landlock.fence((*room.readable, *seat.read_only), (seat.directory,))
    elif seat.apart and room.identities == UIDS:
        landlock.fence((*room.readable, *seat.read_only), (seat.directory, SHARED_MEMORY))
    elif seat.apart:
        landlock.scope_sockets()
    sieve.install()


def reseed(seed: int) -> None:
    """Gives this process a random state of its own: forks of one zygote would share theirs."""
    random.seed(seed)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(seed)
