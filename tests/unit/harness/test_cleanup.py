"""Cleaning up after a trial: what costs a process for each identity, and what does not."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from workers.harness import cleanup, processes
from workers.harness.confine import RUNTIME
from workers.harness.sandbox_layout import UIDS, SandboxLayout

LAYOUT = SandboxLayout("", "", "", "", (), UIDS, own_processes=False, own_root=False,
                       network_closed=False, first_uid=70_002)  # fmt: skip
ZYGOTE, PROGRAM = 70_001, 70_002
"""Identities that nobody has on this machine; the group of the program is the zygote's, too."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other identities")


@pytest.fixture
def home() -> Iterator[Path]:
    """The directory of a program, in one of a trial that belongs to the zygote."""
    trial = Path(tempfile.mkdtemp())
    home = trial / "p0"
    home.mkdir()
    os.chown(trial, ZYGOTE, ZYGOTE)
    os.chown(home, ZYGOTE, PROGRAM)
    home.chmod(0o770)
    (home / "program.py").write_text("x = 1\n")
    yield home
    shutil.rmtree(trial, ignore_errors=True)


def make(folder: Path) -> None:
    """Makes a folder as the program makes it."""
    folder.mkdir(0o700)
    os.chown(folder, PROGRAM, PROGRAM)


def cleaned(trial: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Cleans up as the zygote; returns the identities for which it wanted a process."""
    with tempfile.TemporaryFile() as wanted:
        pid = os.fork()
        if pid == 0:
            os.setgroups([PROGRAM])
            os.setegid(ZYGOTE)
            os.seteuid(ZYGOTE)
            note = partial(os.write, wanted.fileno())
            monkeypatch.setattr(
                processes, "as_identity", lambda uid, action: note(f"{uid}\n".encode())
            )
            cleanup.clean_files(LAYOUT, str(trial), (PROGRAM,))
            os._exit(0)
        os.waitpid(pid, 0)
        wanted.seek(0)
        return [int(line) for line in wanted.read().split()]


def test_the_runtime_folder_of_a_program_costs_no_process(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(home / RUNTIME)
    assert cleaned(home.parent, monkeypatch) == []
    assert not home.parent.exists()


def test_a_folder_that_the_zygote_may_not_look_into_is_removed_by_its_owner(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(home / "cache")
    (home / "cache" / "left").touch()
    assert cleaned(home.parent, monkeypatch) == [PROGRAM]
