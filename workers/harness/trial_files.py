"""The directories, files and sockets of a trial, made before its processes start."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from . import frames, stub
from .confine import Confinement, of_evaluator
from .program_folder import HOME, ProgramFolder
from .program_folder import NAME as FOLDER
from .sandbox_layout import SandboxLayout, group_of


@dataclass(frozen=True)
class PreparedProgram:
    """One program of a trial, ready to be started.

    Attributes:
      path: Its source: of several files, the one that is loaded.
      listener: Where the evaluator reaches it; None where they share a process.
      folder: The folder of its files, where it has several; "" where it has one.
    """

    confinement: Confinement
    path: str
    listener: socket.socket | None
    folder: str = ""


@dataclass(frozen=True)
class TrialFiles:
    """A trial's directory, its programs, and the request for the evaluator's zygote.

    Attributes:
      turns: Where the evaluator's process asks for turns; None where no game is played.
    """

    directory: str
    programs: list[PreparedProgram]
    request: dict[str, Any]
    turns: socket.socket | None

    @property
    def uids(self) -> tuple[int, ...]:
        """The identity of each program, in order: that of the seats of a game."""
        return tuple(program.confinement.uid for program in self.programs)


def prepare(
    layout: SandboxLayout,
    mode: str,
    numbers: tuple[int, int],
    header: dict[str, Any],
    sources: list[memoryview],
) -> TrialFiles:
    """Makes the directories and files of a trial.

    Args:
      layout: The sandbox's.
      mode: "guarded" or "compatible".
      numbers: The trial's in this sandbox, and its first program's.
      header: The worker's, with `suffixes`, `folder`, `function`, `cases`, `limits`, `seed`,
        `game`.
      sources: The programs' bytes, in the order of the programs.
    """
    trial, first = numbers
    directory = f"{layout.work}/{trial}"
    os.mkdir(directory, 0o711)
    names = _names(header["suffixes"])
    turns = None
    if header["folder"] is not None:
        folder = ProgramFolder.received(header["folder"], sources[0])
        lay_out = _shared_folder if mode == "compatible" else _guarded_folder
        programs, request = lay_out(layout, directory, (trial, first), folder)
    elif mode == "compatible":
        programs, request = _shared(layout, directory, (trial, first), names, sources)
    else:
        game = header["game"]
        turns = (
            _listener(layout, f"{layout.rpc}/{trial}.turns", socket.SOCK_SEQPACKET)
            if game
            else None
        )
        clock = (game["move_seconds"], game["game_seconds"]) if game else None
        programs, request = _guarded(layout, directory, (trial, first), names, sources, clock)
    request.update({name: header[name] for name in ("function", "cases", "limits", "seed")})
    request["moves"] = turns is not None
    request.setdefault("files", request["paths"])
    return TrialFiles(directory, programs, request, turns)


def _shared(
    layout: SandboxLayout,
    directory: str,
    numbers: tuple[int, int],
    names: list[str],
    sources: list[memoryview],
) -> tuple[list[PreparedProgram], dict[str, Any]]:
    """Puts programs into the directory of the evaluator's process, which will import them."""
    uid, home = layout.uid_of(numbers[1]), f"{directory}/p0"
    _directory(layout, home, uid)
    paths = [f"{home}/{name}" for name in names]
    for path, source in zip(paths, sources, strict=True):
        _write(layout, path, source, uid)
    confinement = of_evaluator(layout, uid, home)
    programs = [PreparedProgram(confinement, path, None) for path in paths]
    request = {"paths": paths, "sources": os.pathsep.join(paths), "directory": home, "uid": uid}
    return programs, request


def _guarded(
    layout: SandboxLayout,
    directory: str,
    numbers: tuple[int, int],
    names: list[str],
    sources: list[memoryview],
    clock: tuple[float, float] | None,
) -> tuple[list[PreparedProgram], dict[str, Any]]:
    """Puts each program into a directory of its own, and its stub into the evaluator's."""
    trial, first = numbers
    evaluator = f"{directory}/e"
    _directory(layout, evaluator, layout.first_uid)
    _directory(layout, f"{evaluator}/source", layout.first_uid)
    homes = [f"{directory}/p{index}" for index in range(len(names))]
    for index, home in enumerate(homes):
        _directory(layout, home, layout.uid_of(first + index))
    programs: list[PreparedProgram] = []
    for index, (name, source) in enumerate(zip(names, sources, strict=True)):
        _write(layout, f"{evaluator}/source/{name}", source, layout.first_uid)
        if not name.endswith(".py"):
            _write(layout, f"{evaluator}/{name}", source, layout.first_uid)
            continue
        uid = layout.uid_of(first + index)
        path = f"{homes[index]}/program.py"
        _write(layout, path, source, uid)
        address = f"{layout.rpc}/{trial}.{index}"
        text = stub.SOURCE.format(
            library=layout.library, address=address, path=f"{evaluator}/{name}",
            source=f"{evaluator}/source/{name}",
            clock=(index, f"{layout.rpc}/{trial}.turns", *clock) if clock else None,
        ).encode()  # fmt: skip
        _write(layout, f"{evaluator}/{name}", memoryview(text), layout.first_uid)
        others = tuple(home for home in homes if home != homes[index])
        around = (layout.evaluator, layout.kept_evaluator, layout.temporary, layout.rpc)
        hidden = (*around, evaluator, *others, *((layout.data,) if layout.own_root else ()))
        place = Confinement(uid, homes[index], hidden, (layout.library,), apart=True)
        programs.append(PreparedProgram(place, path, _listener(layout, address)))
    request = {
        "paths": [f"{evaluator}/{name}" for name in names],
        "sources": os.pathsep.join(f"{evaluator}/source/{name}" for name in names),
        "directory": evaluator,
        "uid": layout.first_uid,
    }
    return programs, request


@dataclass(frozen=True)
class _Owner:
    """Makes folders that an identity may write, and files that it can read and not change."""

    layout: SandboxLayout
    uid: int

    def make(self, path: str) -> None:
        _directory(self.layout, path, self.uid)

    def write(self, path: str, contents: memoryview) -> None:
        _write(self.layout, path, contents, self.uid)


def _shared_folder(
    layout: SandboxLayout, directory: str, numbers: tuple[int, int], folder: ProgramFolder
) -> tuple[list[PreparedProgram], dict[str, Any]]:
    """Puts the folder of a program into the directory of the evaluator's process."""
    uid, home = layout.uid_of(numbers[1]), f"{directory}/{HOME}"
    _directory(layout, home, uid)
    top = f"{home}/{FOLDER}"
    folder.lay_out(layout, top, _Owner(layout, uid))
    files = [f"{top}/{path}" for path in folder.texts]
    programs = [PreparedProgram(of_evaluator(layout, uid, home), top, None)]
    request = {"paths": [top], "sources": top, "directory": home, "uid": uid, "files": files}
    return programs, request


def _guarded_folder(
    layout: SandboxLayout, directory: str, numbers: tuple[int, int], folder: ProgramFolder
) -> tuple[list[PreparedProgram], dict[str, Any]]:
    """Puts a program into a folder of its own, and the stub of its entry into the evaluator's.

    The evaluator's folder has the fixed files and those of the program that are no Python modules:
    a module of the program that the evaluator imported would run in the evaluator's process.
    """
    trial, first = numbers
    uid, evaluator, home = layout.uid_of(first), f"{directory}/e", f"{directory}/{HOME}"
    _directory(layout, evaluator, layout.first_uid)
    _directory(layout, f"{evaluator}/source", layout.first_uid)
    _directory(layout, home, uid)
    top, source, own = (f"{place}/{FOLDER}" for place in (evaluator, f"{evaluator}/source", home))
    folder.lay_out(layout, own, _Owner(layout, uid))
    folder.lay_out(layout, source, _Owner(layout, layout.first_uid))
    address, entry = f"{layout.rpc}/{trial}.0", f"{top}/{folder.entry}"
    text = stub.SOURCE.format(
        library=layout.library, address=address, path=entry, source=f"{source}/{folder.entry}",
        clock=None,
    ).encode()  # fmt: skip
    folder.seen_from_outside(memoryview(text)).lay_out(
        layout, top, _Owner(layout, layout.first_uid)
    )
    around = (layout.evaluator, layout.kept_evaluator, layout.temporary, layout.rpc)
    hidden = (*around, evaluator, *((layout.data,) if layout.own_root else ()))
    place = Confinement(uid, home, hidden, (layout.library,), apart=True)
    listener = _listener(layout, address)
    programs = [PreparedProgram(place, f"{own}/{folder.entry}", listener, own)]
    request = {
        "paths": [top],
        "sources": source,
        "directory": evaluator,
        "uid": layout.first_uid,
        "files": [entry],
    }
    return programs, request


def _names(suffixes: list[str]) -> list[str]:
    if len(suffixes) == 1:
        return ["program" + suffixes[0]]
    return [f"program_{index}{suffix}" for index, suffix in enumerate(suffixes)]


def _directory(layout: SandboxLayout, path: str, uid: int) -> None:
    """Makes a directory that `uid` may write, and from which this process may remove files."""
    with group_of(layout, uid):
        os.mkdir(path)
        os.chmod(path, 0o770)


def _write(layout: SandboxLayout, path: str, contents: memoryview, uid: int) -> None:
    """Writes a file that `uid` can read and not change."""
    with group_of(layout, uid):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o440)
        try:
            frames.write_all(fd, contents)
            os.fchmod(fd, 0o440)
        finally:
            os.close(fd)


def _listener(
    layout: SandboxLayout, address: str, kind: socket.SocketKind = socket.SOCK_STREAM
) -> socket.socket:
    """Returns a socket that the evaluator's identity alone can connect to."""
    listener = socket.socket(socket.AF_UNIX, kind)
    old = os.umask(0o117)
    try:
        with group_of(layout, layout.first_uid):
            listener.bind(address)
    finally:
        os.umask(old)
    listener.listen(16)
    listener.setblocking(False)
    return listener
