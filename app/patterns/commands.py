"""Commands as data: candidates, and what evaluates, criticises and compares their folders."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

SCORE, STANDARD_OUTPUT = 3, 1
"""The descriptors that are read: of a candidate, and of what judges a folder."""
OUTPUT_BYTES = 4096
"""Of a command's output, the end."""
WRITTEN_BYTES = 65_536
"""Of what a command writes on the descriptor that is read, the end."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that runs in a folder; its parts are data, so that another machine can run it.

    Attributes:
      arguments: The program and what it is given.
      variables: Of its environment, beside those of the place where it runs.
    """

    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)

    def given(self, **variables: str) -> "Command":
        """Returns the command with further variables, each at most 64 KiB: of a longer one the end.

        The kernel takes no variable of more than 128 KiB.
        """
        bounded = {name: text[-WRITTEN_BYTES:] for name, text in variables.items()}
        return replace(self, variables={**self.variables, **bounded})


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended.

    Attributes:
      status: Its exit status.
      output: The end of what it printed, less what was read.
      written: The end of what it wrote on the descriptor that was read.
    """

    status: int
    output: str
    written: str


class RunCommand(Protocol):
    """Runs a command to its end in the first of some folders, all of which it may change.

    `descriptor` is the one that is read: `SCORE` or `STANDARD_OUTPUT`.
    """

    def __call__(
        self, command: Command, folders: Sequence[Path], descriptor: int
    ) -> CommandEnd: ...


def run_here(command: Command, folders: Sequence[Path], descriptor: int) -> CommandEnd:
    """Runs a command as a child of this process, with its environment and in no sandbox.

    A small shell moves the descriptor, because this process may use 3 for something else.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as written:
        moved = ["/bin/sh", "-c", f'exec "$@" {descriptor}>>/dev/fd/{written.fileno()}', "sh"]
        status = subprocess.run(
            [*moved, *command.arguments],
            cwd=folders[0],
            env={**os.environ, **command.variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(written.fileno(),),
            check=False,
        ).returncode
        return CommandEnd(
            status, _end_of(output.fileno(), OUTPUT_BYTES), _end_of(written.fileno(), WRITTEN_BYTES)
        )


def _end_of(descriptor: int, most: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, most, max(0, size - most)).decode(errors="replace")
