"""Commands as candidates, and as what evaluates, criticises and compares their folders."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.patterns.outcomes import Answer

SCORE = 3
"""The descriptor on which a command may write its score."""
KEPT_BYTES = 4096
"""Of a command's output, the end."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that runs in the folder of a branch; it succeeds if it exits with 0.

    Its score is the number that it writes on descriptor 3, if it writes one.

    Attributes:
      variables: Of its environment, beside those of this process.
    """

    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, path: Path) -> Answer:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as score:
            status = self._run(path, output.fileno(), score.fileno())
            printed, scored = _end_of(output.fileno()), _end_of(score.fileno()).strip()
        value = {"exit_status": status, "output": printed}
        if status != 0:
            return Answer(False, None, printed.strip() or f"exit status {status}", value)
        try:
            return Answer(True, float(scored) if scored else None, "", value)
        except ValueError:
            error = f"the score on descriptor {SCORE} is no number: {scored!r:.100}"
            return Answer(False, None, error, value)

    def text(self, path: Path) -> str:
        """Returns what the command prints on standard output.

        Raises:
          subprocess.CalledProcessError: It exits with another status than 0.
        """
        environment = {**os.environ, **self.variables}
        return subprocess.run(
            self.arguments,
            cwd=path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            errors="replace",
        ).stdout.strip()

    def number(self, path: Path) -> float:
        """Returns the number that the command prints.

        Raises:
          ValueError: It prints something else.
          subprocess.CalledProcessError: It exits with another status than 0.
        """
        return float(self.text(path))

    def _run(self, path: Path, output: int, score: int) -> int:
        """Runs it with `score` as descriptor 3.

        A small shell moves the descriptor, because this process may use 3 for something else.
        """
        moved = ["/bin/sh", "-c", f'exec "$@" {SCORE}>>/dev/fd/{score}', "sh"]
        return subprocess.run(
            [*moved, *self.arguments],
            cwd=path,
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(score,),
            check=False,
        ).returncode


def _end_of(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    start = max(0, size - KEPT_BYTES)
    return os.pread(descriptor, KEPT_BYTES, start).decode(errors="replace")
