"""Commands in processes of their own, which are forked from this one.

A fresh interpreter spends a second of a processor and more on the imports of a command.
"""

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from app.cli import main
from app.embedded.forks import ForkedProcess


class Command(ForkedProcess):
    """`evoq` in a session of its own.

    Attributes:
      stdout: What it prints.
    """

    def __init__(
        self,
        arguments: Sequence[object],
        *,
        errors: int,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it.

        Args:
          arguments: Those of `evoq`.
          errors: Becomes its standard error; this process closes its own.
          folder: None is that of this process.
          environment: None is that of this process.
        """
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _run([str(argument) for argument in arguments], writing, errors, folder, environment)
        super().__init__(pid)
        os.close(writing)
        os.close(errors)
        self.stdout = os.fdopen(reading)

    def document(self) -> Any:
        """Returns the JSON document that it prints first."""
        lines = []
        for line in self.stdout:
            lines.append(line)
            if line == "}\n":
                break
        return json.loads("".join(lines))

    def rest(self, seconds: float) -> str:
        """Returns what it still prints; waits for its end.

        Raises:
          psutil.TimeoutExpired: It has closed its output, and has not ended in so many seconds.
        """
        text = "" if self.stdout.closed else self.stdout.read()
        self.stdout.close()
        self.wait(seconds)
        return text


def _run(
    arguments: list[str],
    output: int,
    errors: int,
    folder: Path | None,
    environment: Mapping[str, str] | None,
) -> NoReturn:
    """Runs the command in a fork of pytest, and never returns into pytest's frames."""
    status: object = 1
    try:
        gc.freeze()  # what pytest has made is not looked through, and so stays shared
        os.setsid()
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (errors, 2)):
            os.dup2(source, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdin = os.fdopen(0)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        if folder is not None:
            os.chdir(folder)
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        main(arguments)
    except SystemExit as ended:
        status = ended.code
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status if isinstance(status, int) else 1)


def in_a_fork(act: Callable[[], Any]) -> Any:
    """Returns what a call returns in a fork of this process, which may become another user there.

    Args:
      act: Returns what JSON can hold; what it raises is printed there.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            gc.freeze()
            with os.fdopen(writing, "w") as file:
                json.dump(act(), file)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    assert os.waitpid(pid, 0)[1] == 0, "the fork failed: its traceback is above"
    return json.loads(text)
