"""The folder of one agent: the program's files, its task, and what it leaves."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.adapters.isolated import plain_environment
from app.adapters.model.agents.proxy import TRY
from app.adapters.snapshots import (
    NO_SOURCES,
    Refused,
    Snapshot,
    changes,
    read_own,
    snapshot,
    write_files,
)
from app.domain.replies.agent import LeftFiles
from app.domain.source.globs import expression

FOLDER = "repository"
TASK = "TASK.md"
_OWN = "home"
_TOOLS = "tools"
_MOST_FILE_BYTES = 1 << 20
_MOST_BYTES = 8 << 20
_MOST_FILES = 10_000
_MOST_REFUSED = 100

_TRY = f'''\
#!{{python}}
"""evoq try: measures the files of this folder as a draft of the program."""

import json
import os
import re
import sys
import urllib.error
import urllib.request

if sys.argv[1:] != ["try"]:
    sys.exit("usage: evoq try")
os.chdir({{folder!r}})
files = {{{{}}}}
for folder, _, names in os.walk("."):
    for path in (os.path.normpath(os.path.join(folder, name)) for name in names):
        if path in {{paths!r}} or re.fullmatch({{evolve!r}}, path):
            if os.path.isfile(path) and not os.path.islink(path):
                try:
                    with open(path, encoding="utf-8") as file:
                        files[path] = file.read()
                except UnicodeDecodeError:
                    sys.exit(path + " is no text in UTF-8")
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

    def make(self, task: str, evolving: tuple[str, ...], patterns: tuple[str, ...]) -> Snapshot:
        """Writes the files, the task, and the command `evoq try`; returns what the files are.

        Args:
          task: The text of the task.
          evolving: Paths of the files that are measured.
          patterns: Of the paths at which further files are.
        """
        for name in (FOLDER, _OWN, _TOOLS):
            (self.home / name).mkdir()
        write_files(self.folder, self.files)
        self.task.write_text(task, encoding="utf-8", errors="replace")
        python = os.path.realpath(sys.executable)
        tool = self.home / _TOOLS / "evoq"
        measured = {"paths": evolving, "evolve": expression(patterns)}
        tool.write_text(_TRY.format(python=python, folder=str(self.folder), **measured))
        tool.chmod(0o755)
        return snapshot(self.folder)

    def environment(self, places: list[str]) -> dict[str, str]:
        """Returns the variables of the agent.

        Args:
          places: Where its commands are, beside the system's.
        """
        return {
            **plain_environment(self.home / _OWN, [str(self.home / _TOOLS), *places]),
            "EVOQ_TASK": str(self.task),
            "OPENAI_API_KEY": "held-by-evoqueue",
            "ANTHROPIC_API_KEY": "held-by-evoqueue",
        }

    def left(self, before: Snapshot) -> LeftFiles:
        """Returns what the agent left: regular files alone, and no link is followed.

        Args:
          before: What the files were.
        """
        found = changes(self.folder, before, NO_SOURCES)
        if len(found.changed) > _MOST_FILES:
            return LeftFiles({}, (), (f"more than {_MOST_FILES} files were left",))
        texts: dict[str, str] = {}
        refused = dict(found.refused)
        total = 0
        for path in found.changed:
            try:
                contents = read_own(self.folder / path, _MOST_FILE_BYTES)
                text = contents.decode("utf-8")
            except Refused as error:
                refused[path] = str(error)
                continue
            except UnicodeDecodeError:
                text = "\x00"
            if "\x00" in text:
                refused[path] = "not a text in UTF-8"
                continue
            if contents == self.files.get(path):
                continue
            total += len(text)
            texts[path] = text
            if total > _MOST_BYTES:
                return LeftFiles({}, (), (f"more than {_MOST_BYTES} bytes were changed",))
        lines = [f"{path}: {reason}" for path, reason in refused.items()]
        return LeftFiles(texts, found.removed, tuple(lines[:_MOST_REFUSED]))
