"""Signals that end a command: its exit status, and its work after its terminal was closed."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_FOLLOWING = """
import sys, time
from pathlib import Path
from app.cli.interruption import Interruption
with Interruption() as interruption:
    print("ready", flush=True)
    while not interruption.requested:
        time.sleep(0.02)
    print("pausing", flush=True)
Path(sys.argv[1]).write_text("paused")
"""
_STARTING = """
import os, signal, sys
from app.cli import application
def starting(arguments):
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    raise AssertionError("not interrupted")
application.application = lambda name: lambda args, **_: starting(args)
application.main(["list-runs", "--json"])
"""
SECONDS = 60.0


@pytest.mark.timeout(90)
def test_a_command_whose_terminal_is_closed_still_does_what_an_interrupt_asks(tmp_path: Path):
    master, terminal = pty.openpty()
    done = tmp_path / "done"
    process = subprocess.Popen(
        [sys.executable, "-c", _FOLLOWING, str(done)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    printed = b""
    while not printed.endswith(b"\n"):  # what is not yet read of a line is a failing write below
        printed += os.read(master, 100)

    os.close(master)
    process.send_signal(signal.SIGHUP)

    assert process.wait(SECONDS) == 0
    assert done.read_text() == "paused"


@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_at_the_start_is_an_interrupt_with_exit_status_1(name: str):
    done = subprocess.run(
        [sys.executable, "-c", _STARTING, name],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 1
    assert "error: interrupted" in done.stderr
    assert '"kind": "interrupted"' in done.stdout
