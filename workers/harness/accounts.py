"""The name of a sandbox's identities, in the files that name users and in Python's `pwd`.

Libraries ask for the name of the user that runs them, and fail where nothing knows it.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from collections.abc import Iterable
from typing import Any

from .sandbox_layout import SandboxLayout

NAME = "evoq"
HOME = "/tmp"
PLACE = "/etc/evoq"
"""Where an image that takes part keeps the files that `/etc/passwd` and `/etc/group` link to: a
container's own root is read-only."""

_SYSTEM = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
_SYSTEM_GROUPS = "root:x:0:\nnogroup:x:65534:\n"


def write(folder: str, uids: Iterable[int]) -> None:
    """Writes `passwd` and `group`, in which every identity has the same name."""
    known = tuple(uids)
    users = "".join(f"{NAME}:x:{uid}:{uid}:{NAME}:{HOME}:/bin/sh\n" for uid in known)
    groups = "".join(f"{NAME}:x:{uid}:\n" for uid in known)
    for name, text in (("passwd", _SYSTEM + users), ("group", _SYSTEM_GROUPS + groups)):
        with open(f"{folder}/{name}", "w") as file:
            file.write(text)


def name_identities(layout: SandboxLayout) -> None:
    """Names the sandbox's identities where its files do not.

    Without such files, of an image that takes no part or without a root of its own, it is Python
    alone that knows the name, in this process and its forks; a program of another language finds it
    in `USER` and `LOGNAME`.
    """
    uids = uids_of(layout)
    if layout.in_container and os.access(PLACE, os.W_OK):
        write(PLACE, uids)
    try:
        pwd.getpwuid(uids[0])
    except KeyError:
        _answer_for(uids)


def uids_of(layout: SandboxLayout) -> range:
    """Returns the identities of evaluator and programs."""
    if layout.uid_count:
        return range(layout.first_uid, layout.first_uid + layout.uid_count)
    return range(os.getuid(), os.getuid() + 1)


def _answer_for(uids: range) -> None:
    by_number, group_by_number = pwd.getpwuid, grp.getgrgid

    def getpwuid(uid: Any, /) -> pwd.struct_passwd:
        with contextlib.suppress(KeyError):
            return by_number(uid)
        if uid not in uids:
            raise KeyError(f"getpwuid(): uid not found: {uid}")
        return pwd.struct_passwd((NAME, "x", uid, uid, NAME, HOME, "/bin/sh"))

    def getgrgid(gid: Any) -> grp.struct_group:
        with contextlib.suppress(KeyError):
            return group_by_number(gid)
        if gid not in uids:
            raise KeyError(f"getgrgid(): gid not found: {gid}")
        return grp.struct_group((NAME, "x", gid, []))

    vars(pwd)["getpwuid"], vars(grp)["getgrgid"] = getpwuid, getgrgid
