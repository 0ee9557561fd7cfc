"""One session of `psql` for many statements: its start takes far more than most of them do."""

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping

END = b"end of the rows of this statement\n"
SECONDS = 120.0
"""For one statement."""


class PsqlSession:
    """Asks over one `psql`, and over a new one where the last has ended, as with its container."""

    def __init__(self, command: Callable[[], list[str]], environment: Mapping[str, str]) -> None:
        """Starts nothing yet.

        Args:
          command: Returns the command that starts a `psql` now; it must end at the first error.
          environment: The variables it is given.
        """
        self._command = command
        self._environment = environment
        self._psql: subprocess.Popen[bytes] | None = None

    def rows(self, statement: str) -> list[list[str]]:
        """Returns the rows of a statement that only reads, every column as text.

        Raises:
          AssertionError: The statement failed, or did not end in two minutes.
        """
        whole = self._psql is not None and self._ask(statement)
        if not whole:
            self.close()
            self._start()
            whole = self._ask(statement)
        if not whole:
            raise AssertionError(f"{statement}: {self._said.decode()}")
        lines = self._said.removesuffix(END).decode().splitlines()
        return [line.split("\t") for line in lines]

    def close(self) -> None:
        """Ends the session.  Idempotent."""
        psql, self._psql = self._psql, None
        if psql is not None:
            psql.kill()
            psql.communicate()

    def _start(self) -> None:
        self._psql = subprocess.Popen(
            self._command(),
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )

    def _ask(self, statement: str) -> bool:
        """Fills `_said` with what a statement prints; returns False where `psql` ended before."""
        assert self._psql is not None
        assert self._psql.stdin is not None
        assert self._psql.stdout is not None
        self._said = b""
        try:
            self._psql.stdin.write(f"{statement}\n;\n\\echo ".encode() + END)
        except BrokenPipeError:
            return False
        deadline = time.monotonic() + SECONDS
        while not self._said.endswith(END):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._psql.stdout], [], [], left)[0]:
                raise AssertionError(f"not within {SECONDS:g} s: {statement}")
            printed = os.read(self._psql.stdout.fileno(), 1 << 16)
            if not printed:
                return False
            self._said += printed
        return True
