"""The folder of one agent: the program's files, its task, and what it leaves."""

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.adapters.model.agents.proxy import TRY
from app.domain.replies.agent import LeftFiles

FOLDER = "repository"
TASK = "TASK.md"
_OWN = "home"
_TOOLS = "tools"
_MOST_FILE_BYTES = 1 << 20
_MOST_BYTES = 8 << 20
_MOST_FILES = 10_000
_MOST_REFUSED = 100
_LEFT_OUT = (".git", "__pycache__", "node_modules", ".venv", ".aider.tags.cache.v4")

_TRY = f'''\
#!{{python}}
"""evoq try: measures the files of this folder as a draft of the program."""

import json
import os
import sys
import urllib.error
import urllib.request

if sys.argv[1:] != ["try"]:
    sys.exit("usage: evoq try")
paths = {{paths!r}}
files = {{{{}}}}
for path in paths:
    try:
        with open(os.path.join({{folder!r}}, path), encoding="utf-8") as file:
            files[path] = file.read()
    except FileNotFoundError:
        continue
body = json.dumps({{{{"files": files}}}}).encode()
address = os.environ["EVOQ_ADDRESS"] + {TRY!r}
request = urllib.request.Request(address, body, {{{{"Content-Type": "application/json"}}}})
try:
    with urllib.request.urlopen(request) as reply:
        print(json.dumps(json.load(reply), indent=2))
except urllib.error.HTTPError as error:
    sys.exit(json.load(error)["error"]["message"])
'''


@dataclass(frozen=True, slots=True)
class AgentBranch:
    """A folder with all files of a program, for one agent.

    Attributes:
      home: A new folder, which the agent sees as a whole.
      files: Path to contents of every file, fixed ones included.
    """

    home: Path
    files: Mapping[str, bytes]

    @property
    def folder(self) -> Path:
        """Where the files of the program are, and the agent starts."""
        return self.home / FOLDER

    @property
    def task(self) -> Path:
        return self.home / TASK

    def make(self, task: str, evolving: tuple[str, ...]) -> None:
        """Writes the files, the task, and the command `evoq try`.

        Args:
          task: The text of the task.
          evolving: Paths of the files that are measured.
        """
        for name in (FOLDER, _OWN, _TOOLS):
            (self.home / name).mkdir()
        for path, contents in self.files.items():
            place = self.folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(contents)
        self.task.write_text(task, encoding="utf-8", errors="replace")
        python = os.path.realpath(sys.executable)
        tool = self.home / _TOOLS / "evoq"
        tool.write_text(_TRY.format(python=python, paths=evolving, folder=str(self.folder)))
        tool.chmod(0o755)

    def environment(self, path: str) -> dict[str, str]:
        """Returns the variables of the agent: no secret, and nothing of this machine.

        Args:
          path: Where its commands are.
        """
        return {
            "HOME": str(self.home / _OWN),
            "TMPDIR": str(self.home / _OWN),
            "PATH": f"{self.home / _TOOLS}:{path}",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "EVOQ_TASK": str(self.task),
            "OPENAI_API_KEY": "held-by-evoqueue",
            "ANTHROPIC_API_KEY": "held-by-evoqueue",
        }

    def left(self) -> LeftFiles:
        """Returns what the agent left: regular files alone, and no link is followed."""
        found: dict[str, str] = {}
        seen: set[str] = set()
        refused: list[str] = []
        total = count = 0
        # The agent may have removed the folder, or put a link in its place.
        waiting = [""] if self.folder.is_dir() and not self.folder.is_symlink() else []
        while waiting:
            prefix = waiting.pop()
            try:
                with os.scandir(self.folder / prefix) as entries:
                    found_here = sorted(entries, key=lambda each: each.name)
            except OSError:
                refused.append(f"{prefix}: cannot be read")
                continue
            for entry in found_here:
                path, count = f"{prefix}{entry.name}", count + 1
                if count > _MOST_FILES:
                    return LeftFiles({}, (), (f"more than {_MOST_FILES} files were left",))
                if not entry.name.isprintable():
                    refused.append(f"{path!a}: its name has characters that are not printable")
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _LEFT_OUT:
                        waiting.append(f"{path}/")
                    continue
                seen.add(path)
                text = self._text(path, refused)
                if text is not None:
                    total += len(text)
                    found[path] = text
                if total > _MOST_BYTES:
                    return LeftFiles({}, (), (f"more than {_MOST_BYTES} bytes were changed",))
        removed = tuple(sorted(self.files.keys() - seen))
        return LeftFiles(found, removed, tuple(refused[:_MOST_REFUSED]))

    def _text(self, path: str, refused: list[str]) -> str | None:
        """Returns the text of a file if it changed; None for one that did not or is none."""
        try:
            descriptor = os.open(self.folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            refused.append(f"{path}: no regular file")
            return None
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                refused.append(f"{path}: no regular file of its own")
                return None
            if status.st_size > _MOST_FILE_BYTES:
                if len(self.files.get(path, b"")) != status.st_size:
                    refused.append(f"{path}: longer than {_MOST_FILE_BYTES} bytes")
                return None
            contents = file.read(_MOST_FILE_BYTES + 1)
        if contents == self.files.get(path):
            return None
        try:
            text = contents.decode("utf-8")
        except UnicodeDecodeError:
            refused.append(f"{path}: not a text in UTF-8")
            return None
        if "\x00" in text:
            refused.append(f"{path}: not a text in UTF-8")
            return None
        return text
