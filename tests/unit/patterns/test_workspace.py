"""A branch is a folder of its own; one commit to a base wins, wholly or not at all."""

import fcntl
import io
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.adapters import locked_folders
from app.adapters.snapshots import PathState, differing
from app.patterns import storage as storage_module
from app.patterns.errors import (
    BranchError,
    BranchingError,
    BranchStaleError,
    CommitError,
    ConflictError,
    MountError,
    ProcessBranchError,
)
from app.patterns.storage import Storage, choose
from app.patterns.workspace import Workspace

Open = Callable[..., Workspace]
STEP = 53
"""Of some hundred calls and returns of a commit, every one of so many is the last of a process."""


def contents(folder: Path) -> dict[str, str]:
    """Returns every path below a folder with what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "folder" if path.is_dir() else path.read_text()
    return found


def change(folder: Path) -> None:
    """Makes a change of every kind."""
    (folder / "changed.txt").write_text("new")
    (folder / "removed.txt").unlink()
    shutil.rmtree(folder / "gone")
    (folder / "gone").mkdir()  # an overlay marks it as hiding the one below
    (folder / "gone" / "else").write_text("z")
    (folder / "sub" / "deep" / "file").rename(folder / "sub" / "moved")
    (folder / "sub" / "deep").rmdir()
    (folder / "link").unlink()
    (folder / "link").mkdir()
    (folder / "link" / "file").write_text("no link")
    (folder / "added").symlink_to("kept.txt")


AFTER = {
    "added": "-> kept.txt",
    "changed.txt": "new",
    "gone": "folder",
    "gone/else": "z",
    "kept.txt": "kept",
    "link": "folder",
    "link/file": "no link",
    "sub": "folder",
    "sub/moved": "deep",
}


def test_changes_of_a_branch_are_the_bases_after_its_commit_and_not_before(on_each_storage: Open):
    workspace = on_each_storage()
    before = contents(workspace.path)

    branch = workspace.branch()
    change(branch.path)

    assert contents(workspace.path) == before
    branch.commit()
    assert contents(workspace.path) == AFTER
    assert (workspace.path / "kept.txt").stat().st_mode & 0o777 == 0o640
    assert not branch.path.exists()


def test_what_was_committed_can_be_branched_and_committed_again(on_each_storage: Open):
    workspace = on_each_storage()

    for turn in range(3):
        with workspace.branch() as branch:
            (branch.path / f"turn{turn}").write_text("x")
            (branch.path / "changed.txt").write_text(str(turn))

    assert (workspace.path / "changed.txt").read_text() == "2"
    assert sorted(path.name for path in workspace.path.glob("turn*")) == ["turn0", "turn1", "turn2"]


def test_an_aborted_branch_leaves_nothing(on_each_storage: Open):
    workspace = on_each_storage()
    before = contents(workspace.path)
    branch = workspace.branch()
    change(branch.path)

    branch.abort()
    branch.abort()

    assert contents(workspace.path) == before
    assert not branch.path.exists()
    with pytest.raises(BranchStaleError, match="aborted"):
        branch.commit()


def test_the_second_commit_to_a_base_is_a_conflict_that_names_the_paths(on_each_storage: Open):
    workspace = on_each_storage()
    first, second = workspace.branch(), workspace.branch()
    (first.path / "sub" / "new").write_text("first")
    (first.path / "changed.txt").write_text("first")
    (second.path / "changed.txt").write_text("second")

    first.commit()
    with pytest.raises(ConflictError) as conflict:
        second.commit()

    assert conflict.value.paths == ("changed.txt", "sub/new")
    assert (workspace.path / "changed.txt").read_text() == "first"
    assert (second.path / "changed.txt").read_text() == "second"
    assert (second.path / "kept.txt").read_text() == "kept"


def test_a_branch_without_changes_also_wins_over_its_siblings(base: Path):
    with Workspace(base) as workspace:
        first, second = workspace.branch(), workspace.branch()
        first.commit()

        with pytest.raises(ConflictError, match="by a commit that left no path different"):
            second.commit()


@pytest.mark.parametrize(
    "edit",
    [
        lambda base: (base / "kept.txt").write_text("KEPT"),
        lambda base: (base / "sub" / "other").write_text("x"),
        lambda base: (base / "kept.txt").chmod(0o600),
        lambda base: (base / "removed.txt").unlink(),
        lambda base: (base / "sub" / "empty").mkdir(),
    ],
)
def test_a_change_of_the_base_from_outside_is_a_conflict(
    on_each_storage: Open, edit: Callable[[Path], object]
):
    workspace = on_each_storage()
    branch = workspace.branch()
    edit(workspace.path)
    edited = contents(workspace.path)

    with pytest.raises(ConflictError):
        branch.commit()

    assert contents(workspace.path) == edited


def test_a_change_that_keeps_size_and_time_is_a_conflict(on_each_storage: Open):
    workspace = on_each_storage()
    file = workspace.path / "kept.txt"
    times = file.stat()
    branch = workspace.branch()
    file.write_text("KEPT")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    with pytest.raises(ConflictError) as conflict:
        branch.commit()

    assert conflict.value.paths == ("kept.txt",)


def test_of_many_threads_that_commit_to_one_base_exactly_one_wins(on_each_storage: Open):
    workspace = on_each_storage()
    branches = [workspace.branch(str(n)) for n in range(6)]
    start, won = threading.Barrier(len(branches)), []

    def contend(number: int) -> None:
        (branches[number].path / "changed.txt").write_text(str(number))
        start.wait()
        try:
            branches[number].commit()
        except ConflictError:
            return
        won.append(number)

    threads = [threading.Thread(target=contend, args=(n,)) for n in range(len(branches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1
    assert (workspace.path / "changed.txt").read_text() == str(won[0])


@settings(max_examples=20)
@given(
    order=st.permutations(range(4)),
    from_second_workspace=st.sets(st.integers(0, 3)),
    edits=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_of_branches_that_commit_in_any_order_the_first_wins(
    tmp_path_factory: pytest.TempPathFactory,
    order: list[int],
    from_second_workspace: set[int],
    edits: list[bool],
):
    base = tmp_path_factory.mktemp("order")
    (base / "file").write_text("base")
    with Workspace(base, storage=Storage.COPY) as one, Workspace(base) as other:
        branches = [(other if n in from_second_workspace else one).branch() for n in range(4)]
        for number, branch in enumerate(branches):
            if edits[number]:
                (branch.path / "file").write_text(str(number))
        won = []
        for number in order:
            try:
                branches[number].commit()
            except ConflictError:
                continue
            won.append(number)

    assert won == [order[0]]
    assert (base / "file").read_text() == (str(order[0]) if edits[order[0]] else "base")


def test_a_branch_of_a_branch_commits_into_it_and_only_that(on_each_storage: Open):
    workspace = on_each_storage()
    before = contents(workspace.path)

    with workspace.branch("outer", on_success=None) as outer:
        (outer.path / "outer.txt").write_text("outer")
        with outer.branch("inner") as inner:
            change(inner.path)
            with inner.branch("innermost") as innermost:
                assert (innermost.path / "outer.txt").read_text() == "outer"
                (innermost.path / "deepest").write_text("3")
        assert contents(workspace.path) == before
        assert contents(outer.path) == {**AFTER, "outer.txt": "outer", "deepest": "3"}
    outer.commit()

    assert contents(workspace.path) == {**AFTER, "outer.txt": "outer", "deepest": "3"}


def test_of_two_inner_branches_one_wins(on_each_storage: Open):
    workspace = on_each_storage()
    outer = workspace.branch()
    first, second = outer.branch(), outer.branch()
    (first.path / "changed.txt").write_text("first")
    (second.path / "changed.txt").write_text("second")

    second.commit()
    with pytest.raises(ConflictError, match=r"changed\.txt"):
        first.commit()
    outer.commit()

    assert (workspace.path / "changed.txt").read_text() == "second"


def test_an_error_in_a_with_statement_aborts_the_branch(base: Path):
    with Workspace(base) as workspace:
        branch = workspace.branch()

        with pytest.raises(IsADirectoryError), branch:
            (branch.path / "sub").write_text("new")

        assert branch.state == "aborted"
        assert (base / "changed.txt").read_text() == "old"


def test_a_branch_whose_end_is_the_callers_stays_open_and_ends_once(base: Path):
    with Workspace(base) as workspace:
        branch = workspace.branch(on_success=None, on_error=None)
        with pytest.raises(IsADirectoryError), branch:
            (branch.path / "sub").write_text("new")
        with branch:
            (branch.path / "changed.txt").write_text("new")
        assert (branch.state, (base / "changed.txt").read_text()) == ("open", "old")

        branch.commit()
        branch.commit()
        branch.abort()

        assert (branch.state, (base / "changed.txt").read_text()) == ("committed", "new")


def test_an_error_is_of_the_kinds_of_branchcontext():
    assert issubclass(ConflictError, CommitError)
    assert issubclass(CommitError, BranchError)
    assert issubclass(BranchStaleError, BranchError)
    kinds = BranchError, MountError, ProcessBranchError
    assert all(issubclass(kind, BranchingError) for kind in kinds)


def test_nothing_is_left_beside_a_folder_whose_workspaces_are_closed(on_each_storage: Open):
    workspace = on_each_storage()
    other = Workspace(workspace.path)
    for opened in (workspace, other):
        opened.branch().branch()
    workspace.close()
    beside = workspace.path.parent / f".{workspace.path.name}.branches"
    assert beside.exists()

    other.close()

    assert not beside.exists()
    with pytest.raises(BranchStaleError, match="closed"):
        workspace.branch()


def _killed_at(event: int, base: Path) -> bool:
    """Commits in a child that is killed at the nth call or return of our code; says if it was."""
    child = os.fork()
    if child == 0:
        try:
            branch = Workspace(base).branch()
            change(branch.path)
            left = [event]

            def count(frame: FrameType, *_: object) -> None:
                left[0] -= "/app/patterns/" in frame.f_code.co_filename
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.setprofile(count)
            branch.commit()
            sys.setprofile(None)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_commit_that_is_killed_anywhere_leaves_the_base_or_the_result(on_each_storage: Open):
    base = on_each_storage().path  # open, so that no other workspace removes the folder beside it
    before, seen = contents(base), []

    event = 0
    while not seen or seen[-1] == before:
        killed = _killed_at(event, base)
        seen.append(contents(base))
        assert seen[-1] in (before, AFTER)
        assert killed or seen[-1] == AFTER
        event += STEP

    assert before in seen
    with Workspace(base) as again:
        sessions = list((base.parent / f".{base.name}.branches").glob("session-*"))
        assert len(sessions) == 2, "the sessions of killed processes are removed"
        (again.branch().path / "works").touch()


def test_the_choice_is_reflink_then_overlay_then_copy(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    works = {Storage.REFLINK: True, Storage.OVERLAY: True}
    calls = []

    def ioctl(target: int, request: int, source: int) -> int:
        calls.append(request)
        if not works[Storage.REFLINK]:
            raise OSError("not supported")
        return 0

    def mount(*_: object) -> None:
        if not works[Storage.OVERLAY]:
            raise OSError("not permitted")

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    monkeypatch.setattr(storage_module.kernel, "mount", mount)

    assert choose(base, tmp_path) is Storage.REFLINK
    works[Storage.REFLINK] = False
    assert choose(base, tmp_path) is Storage.OVERLAY
    works[Storage.OVERLAY] = False
    assert choose(base, tmp_path) is Storage.COPY
    assert set(calls) == {0x40049409}
    with pytest.raises(MountError, match="no branch by overlay can be made here"):
        choose(base, tmp_path, Storage.OVERLAY)


def test_an_overlay_is_not_mounted_where_the_path_would_be_read_as_an_option(tmp_path: Path):
    base = tmp_path / "a,b"
    base.mkdir()

    with pytest.raises(MountError), Workspace(base, storage=Storage.OVERLAY):
        pass
    with Workspace(base) as workspace:
        assert workspace.branch().path.exists()


def test_a_folder_that_is_none_or_a_mount_point_is_refused(tmp_path: Path):
    with pytest.raises(MountError, match="is no folder"):
        Workspace(tmp_path / "missing")
    with pytest.raises(MountError, match="is a mount point"):
        Workspace("/proc")


def test_a_folder_with_something_mounted_in_it_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
):
    inside = str(base / "sub")
    monkeypatch.setattr("app.patterns.workspace.mounts_below", lambda folder: [inside])

    with pytest.raises(MountError, match=f"{inside} is mounted below {base}; unmount it"):
        Workspace(base)


def test_mount_points_are_read_with_their_escapes(monkeypatch: pytest.MonkeyPatch):
    lines = "1 1 8:1 / /a rw - ext4 d rw\n2 1 8:1 / /a/b\\040c rw - ext4 d rw\n"
    monkeypatch.setattr("builtins.open", lambda *_, **__: io.StringIO(lines))

    assert locked_folders.mounts_below(Path("/a")) == ["/a/b c"]


def test_a_socket_in_the_folder_is_named(base: Path):
    with socket.socket(socket.AF_UNIX) as listener, Workspace(base, storage=Storage.COPY) as opened:
        listener.bind(str(base / "sub" / "s"))

        with pytest.raises(MountError, match="sub/s is a socket or a device"):
            opened.branch()


def test_folders_that_may_not_be_written_can_be_branched_and_removed(on_each_storage: Open):
    workspace = on_each_storage()
    (workspace.path / "sub" / "deep").chmod(0o500)

    with workspace.branch() as branch:
        (branch.path / "new").write_text("x")
        assert (branch.path / "sub" / "deep").stat().st_mode & 0o777 == 0o500

    assert (workspace.path / "sub" / "deep").stat().st_mode & 0o777 == 0o500


def test_differences_name_what_was_added_removed_and_changed():
    entry = PathState(0o100644, (0, 0), 3, 1, "", 5, 1)
    copied = PathState(0o100644, (0, 0), 3, 1, "", 6, 2)
    before, after = (
        {"a": entry, "b": entry, "same": entry},
        {"b": copied, "c": entry, "same": entry},
    )

    assert differing(before, after) == ["a", "b", "c"]
    assert differing(before, after, copied=True) == ["a", "c"]
