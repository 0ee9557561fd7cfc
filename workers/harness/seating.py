"""What a trial's evaluator and programs find when they start: directories, files, a socket."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from . import frames, stub
from .confine import Seat
from .room import Room, group


@dataclass(frozen=True)
class Seated:
    """One player's place.

    Attributes:
      path: Its source.
      listener: Where the evaluator reaches it; None where they share a process.
    """

    seat: Seat
    path: str
    listener: socket.socket | None


@dataclass(frozen=True)
class Seating:
    """A trial's directory, its players, and what the evaluator's zygote is asked for."""

    directory: str
    players: list[Seated]
    request: dict[str, Any]


def seat(
    room: Room,
    mode: str,
    numbers: tuple[int, int],
    header: dict[str, Any],
    sources: list[memoryview],
) -> Seating:
    """Makes the places of a trial.

    Args:
      room: The cell's.
      mode: "guarded" or "compatible".
      numbers: The trial's in this cell, and its first program's.
      header: The worker's, with `suffixes`, `function`, `limits`, `seed`.
      sources: The programs' bytes, in the order of the players.
    """
    trial, first = numbers
    directory = f"{room.work}/{trial}"
    os.mkdir(directory, 0o711)
    names = _names(header["suffixes"])
    place = _shared if mode == "compatible" else _guarded
    players, request = place(room, directory, (trial, first), names, sources)
    request.update(function=header["function"], limits=header["limits"], seed=header["seed"])
    return Seating(directory, players, request)


def _shared(
    room: Room,
    directory: str,
    numbers: tuple[int, int],
    names: list[str],
    sources: list[memoryview],
) -> tuple[list[Seated], dict[str, Any]]:
    """Semaphore programs where the evaluator's process, which will be theirs, works."""
    uid, home = room.uid_of(numbers[1]), f"{directory}/p0"
    _directory(room, home, uid)
    paths = [f"{home}/{name}" for name in names]
    for path, source in zip(paths, sources, strict=True):
        _write(room, path, source, uid)
    players = [Seated(Seat(uid, home, (), (), apart=False), path, None) for path in paths]
    request = {"paths": paths, "sources": os.pathsep.join(paths), "directory": home, "uid": uid}
    return players, request


def _guarded(
    room: Room,
    directory: str,
    numbers: tuple[int, int],
    names: list[str],
    sources: list[memoryview],
) -> tuple[list[Seated], dict[str, Any]]:
    """Semaphore each program in a directory of its own, and its stub in the evaluator's."""
    trial, first = numbers
    evaluator = f"{directory}/e"
    _directory(room, evaluator, room.first_uid)
    _directory(room, f"{evaluator}/source", room.first_uid)
    homes = [f"{directory}/p{index}" for index in range(len(names))]
    for index, home in enumerate(homes):
        _directory(room, home, room.uid_of(first + index))
    players: list[Seated] = []
    for index, (name, source) in enumerate(zip(names, sources, strict=True)):
        _write(room, f"{evaluator}/source/{name}", source, room.first_uid)
        if not name.endswith(".py"):
            _write(room, f"{evaluator}/{name}", source, room.first_uid)
            continue
        uid = room.uid_of(first + index)
        path = f"{homes[index]}/program.py"
        _write(room, path, source, uid)
        address = f"{room.rpc}/{trial}.{index}"
        text = stub.SOURCE.format(
            library=room.library, address=address, path=f"{evaluator}/{name}",
            source=f"{evaluator}/source/{name}",
        ).encode()  # fmt: skip
        _write(room, f"{evaluator}/{name}", memoryview(text), room.first_uid)
        others = tuple(home for home in homes if home != homes[index])
        hidden = (room.evaluator, room.temporary, room.rpc, evaluator, *others)
        place = Seat(uid, homes[index], hidden, (room.library,), apart=True)
        players.append(Seated(place, path, _listener(room, address)))
    request = {
        "paths": [f"{evaluator}/{name}" for name in names],
        "sources": os.pathsep.join(f"{evaluator}/source/{name}" for name in names),
        "directory": evaluator,
        "uid": room.first_uid,
    }
    return players, request


def _names(suffixes: list[str]) -> list[str]:
    if len(suffixes) == 1:
        return ["program" + suffixes[0]]
    return [f"program_{index}{suffix}" for index, suffix in enumerate(suffixes)]


def _directory(room: Room, path: str, uid: int) -> None:
    """Makes a directory that `uid` may write, and from which this process may remove files."""
    with group(room, uid):
        os.mkdir(path)
        os.chmod(path, 0o770)


def _write(room: Room, path: str, contents: memoryview, uid: int) -> None:
    """Writes a file that `uid` can read and not change."""
    with group(room, uid):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o440)
        try:
            frames.write_all(fd, contents)
            os.fchmod(fd, 0o440)
        finally:
            os.close(fd)


def _listener(room: Room, address: str) -> socket.socket:
    """Returns a socket that the evaluator's identity alone can connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o117)
    try:
        with group(room, room.first_uid):
            listener.bind(address)
    finally:
        os.umask(old)
    listener.listen(16)
    listener.setblocking(False)
    return listener
