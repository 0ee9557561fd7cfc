"""One process for many questions: its start takes far more than most answers do."""

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping

END = "end of the answer to this question\n"
SECONDS = 120.0
"""For one answer."""


class Session:
    """Asks one process, and a new one where the last has ended, as with its container."""

    def __init__(self, command: Callable[[], list[str]], environment: Mapping[str, str]) -> None:
        """Starts nothing yet.

        Args:
          command: Returns the command that starts a process now.  It reads questions, prints `END`
            after each answer, and ends at the first error.
          environment: The variables it is given.
        """
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: str) -> str:
        """Returns the answer to a question, which is asked again where the process ended over it.

        Raises:
          AssertionError: It ended again, or gave no answer in two minutes.
        """
        whole = self._process is not None and self._ask(question)
        if not whole:
            self.close()
            self._start()
            whole = self._ask(question)
        if not whole:
            raise AssertionError(f"{question}: {self._said.decode()}")
        return self._said.decode().removesuffix(END)

    def close(self) -> None:
        """Ends the process.  Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command(),
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )

    def _ask(self, question: str) -> bool:
        """Fills `_said` with the answer; returns False where the process ended before."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._said = b""
        try:
            self._process.stdin.write(question.encode())
        except BrokenPipeError:
            return False
        deadline = time.monotonic() + SECONDS
        while not self._said.endswith(END.encode()):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                raise AssertionError(f"not within {SECONDS:g} s: {question}")
            printed = os.read(self._process.stdout.fileno(), 1 << 16)
            if not printed:
                return False
            self._said += printed
        return True
