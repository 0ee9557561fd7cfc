"""The folder of a program of several files: its own texts, and the fixed files around them.

The fixed files are in the sandbox once, where no trial can change them.  In the folder of a trial
they are links, so that a trial costs what its own files cost; a problem that builds in the folder
gets copies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .sandbox_layout import SandboxLayout

NAME = "program"
HOME = "p0"
"""The directory of the first program of a trial, in which its folder is."""
_FIXED = "fixed-files"
"""The name is no identifier, so that nothing can import the folder as a package."""


class Placing(Protocol):
    """Makes folders and files that one identity of the sandbox can read."""

    def make(self, path: str) -> None: ...

    def write(self, path: str, contents: memoryview) -> None: ...


@dataclass(frozen=True)
class ProgramFolder:
    """One program of several files.

    Attributes:
      entry: Path of the file that guarded mode loads; "" in compatible mode, if there is none.
      texts: Path to text of each of its files.
      copied: Whether fixed files are copied, so that a build may write beside them.
      hidden: Paths that are neither written nor linked.
    """

    entry: str
    texts: Mapping[str, memoryview]
    copied: bool
    hidden: tuple[str, ...] = ()

    @classmethod
    def received(cls, header: dict[str, Any], contents: memoryview) -> ProgramFolder:
        """Returns the program that a worker sent.

        Args:
          header: With `entry`, `paths`, `sizes` and `copied`.
          contents: The texts one after the other, in the order of the paths.
        """
        texts, start = {}, 0
        for path, size in zip(header["paths"], header["sizes"], strict=True):
            texts[path] = contents[start : start + size]
            start += size
        return cls(header["entry"], texts, header["copied"])

    def seen_from_outside(self, stub: memoryview) -> ProgramFolder:
        """Returns what an evaluator apart from the program is given: of its modules, the stub.

        Args:
          stub: The text that stands in for the entry.
        """
        texts = {path: text for path, text in self.texts.items() if not path.endswith(".py")}
        hidden = tuple(path for path in self.texts if path.endswith(".py") and path != self.entry)
        return ProgramFolder(self.entry, {**texts, self.entry: stub}, self.copied, hidden)

    def lay_out(self, layout: SandboxLayout, top: str, place: Placing) -> None:
        """Makes the folder with all files of the program and the fixed ones around them.

        Args:
          layout: The sandbox's.
          top: The folder, which does not exist yet.
          place: Makes folders and files of the identity that the folder is for.
        """
        own = {*self.texts, *self.hidden}
        folders = {folder for path in own for folder in _around(path)}
        place.make(top)
        for folder in sorted(folders):
            place.make(f"{top}/{folder}")
        fixed = f"{layout.library}/{_FIXED}"
        if os.path.isdir(fixed):
            self._show_fixed(fixed, top, folders, own, place)
        for path, text in self.texts.items():
            place.write(f"{top}/{path}", text)

    def _show_fixed(
        self,
        fixed: str,
        top: str,
        folders: set[str],
        own: set[str],
        place: Placing,
        inside: str = "",
    ) -> None:
        """Shows the fixed files of a folder; of a subfolder without own files, all at once."""
        for entry in os.scandir(f"{fixed}/{inside}"):
            path = f"{inside}{entry.name}"
            if path in own:
                continue
            if path in folders:
                self._show_fixed(fixed, top, folders, own, place, f"{path}/")
            elif not self.copied:
                os.symlink(entry.path, f"{top}/{path}")
            elif entry.is_dir():
                place.make(f"{top}/{path}")
                self._show_fixed(fixed, top, folders, own, place, f"{path}/")
            else:
                with open(entry.path, "rb") as file:
                    place.write(f"{top}/{path}", memoryview(file.read()))


def keep_fixed(layout: SandboxLayout, path: str, contents: bytearray) -> None:
    """Writes a fixed file to where every trial may read it and none may change it."""
    target = f"{layout.library}/{_FIXED}/{path}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        file.write(contents)


def named(path: str) -> str:
    """Returns a space and the path of a file below a program's folder; "" for any other file."""
    below = path.partition(f"/{HOME}/{NAME}/")[2]
    return f" {below}" if below else ""


def _around(path: str) -> list[str]:
    """Returns the folders around a file, relative like its path, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]
