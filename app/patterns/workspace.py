"""A folder that branches: each branch is the folder of its own files, and one commit wins.

Beside the folder NAME lies `.NAME.branches` while it is in use: a lock, the number of commits, and
a folder for each open workspace, which holds its branches.  What a killed process left there is
removed when the folder is next opened.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Literal, Self

from app.adapters.locked_folders import LockedFolder, mounts_below, remove_left_folders
from app.adapters.snapshots import PathState, Snapshot, differing, settled, snapshot
from app.patterns.errors import (
    BranchError,
    BranchStaleError,
    CommitError,
    ConflictError,
    MountError,
)
from app.patterns.storage import (
    TREE,
    Storage,
    choose,
    commit,
    create,
    discard,
    exchange,
    lower_layers,
)

_LOCK, _COMMITS, _SESSION = "lock", "commits", "session-"
_GROUP, _BEFORE = "group-", "before.json"
_KEPT_SECONDS = 7 * 86_400.0
"""How long the branches of a group are kept whose process was killed."""
_HOME = "home"


class Workspace:
    """A folder from which branches are made.

    Attributes:
      path: The folder.  A commit puts another one in its place: a shell that is in it needs `cd .`.
      storage: How branches get their files here.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        storage: Storage | None = None,
        shared: bool = False,
        group: str = "",
    ) -> None:
        """Opens a folder and tries what the machine can do.

        Args:
          folder: The folder; its parent must be writable and on the same file system.
          storage: Only this kind of branch; None takes the first that works.
          shared: Whether other machines see the folder, and shall see its branches.
          group: Names branches that outlive a killed process: the next workspace of the group makes
            the same ones in the same order, and finds their files.  Needs `shared`.

        Raises:
          MountError: The folder cannot be a workspace.
        """
        self.path = _require_replaceable(Path(folder).resolve())
        self._state = self.path.parent / f".{self.path.name}.branches"
        self._shared, self._group = shared, group
        self._branches: list[Branch] = []
        self._made = 0
        self._session: LockedFolder | None = None
        try:
            self._session = self._open_session()
        except OSError as error:
            raise MountError(
                f"{self._state}: {error.strerror or error}; it must be writable"
            ) from error
        with ExitStack() as undo:
            undo.callback(self.close)
            self._check_exchange(self._folder)
            self.storage = choose(self.path, self._folder, storage, shared=shared)
            undo.pop_all()

    def branch(
        self,
        name: str = "",
        *,
        on_success: Literal["commit"] | None = "commit",
        on_error: Literal["abort"] | None = "abort",
        since: "Branch | None" = None,
    ) -> "Branch":
        """Returns a new branch, which a `with` statement ends.

        Args:
          name: For messages.
          on_success: What the end of the `with` statement does; None leaves the branch open until
            its workspace is closed.
          on_error: The same, when an exception ends it.
          since: A branch of this workspace: whatever changed after it was made is a conflict for
            the new one, too.  This saves reading the folder again.

        Raises:
          BranchStaleError: The workspace has been closed.
          MountError: A file of the folder cannot be copied.
          OSError: A file cannot be read, or the disk is full.
        """
        folder = self._folder / str(self._made + 1)
        with self._hold_lock():
            self._made += 1
            if self._group and (kept := _kept(folder)) is not None:
                tree, (before, commits) = folder / TREE, kept
            elif since is None:
                before, commits = settled(self.path), self._commits()
                tree = self._make(folder, before, commits)
            else:
                before, commits = since._before, since._commits
                tree = self._make(folder, before, commits)
        branch = Branch(self, name or str(self._made), tree, before, commits, on_success, on_error)
        self._branches.append(branch)
        return branch

    def _make(self, folder: Path, before: Snapshot, commits: int) -> Path:
        """Makes the files of a branch; returns their folder."""
        if folder.exists():
            discard(folder)
        folder.mkdir()
        with ExitStack() as undo:
            undo.callback(discard, folder)
            tree = create(self.storage, self.path, folder)
            if self._group:
                # It is written last: without it, a branch was not made to its end.
                unfinished = folder / f"{_BEFORE}.new"
                states = {path: asdict(state) for path, state in before.items()}
                unfinished.write_text(json.dumps([commits, states]))
                unfinished.rename(folder / _BEFORE)
            undo.pop_all()
        return tree

    def close(self) -> None:
        """Aborts what is still open and removes what lies beside the folder.  Idempotent."""
        session, self._session = self._session, None
        if session is None:
            return
        for branch in list(self._branches):
            branch.abort()
        with self._hold_lock():
            if not session.remove():
                raise BranchError(f"{session.folder} cannot be removed; remove it by hand")
            if not any(any(self._state.glob(f"{kind}*")) for kind in (_SESSION, _GROUP)):
                discard(self._state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _folder(self) -> Path:
        """The folder of its branches, while it is open."""
        if self._session is None:
            raise BranchStaleError(f"the workspace {self.path} has been closed")
        return Path(self._session.folder)

    def _open_session(self) -> LockedFolder:
        with self._hold_lock():
            remove_left_folders(_SESSION, str(self._state))
            remove_left_folders(_GROUP, str(self._state), unused_seconds=_KEPT_SECONDS)
            if not self._group:
                return LockedFolder(_SESSION, str(self._state))
            session = LockedFolder.of(str(self._state / f"{_GROUP}{self._group}"))
            if session is None:
                raise MountError(
                    f"{self.path}: another process works on the group {self._group!r}; wait for "
                    f"its end, or give another name"
                )
            return session

    def _check_exchange(self, folder: Path) -> None:
        pair = [folder / name for name in ("first", "second")]
        for each in pair:
            each.mkdir()
        try:
            exchange(*pair)
        except OSError as error:
            raise MountError(
                f"{self.path}: its file system cannot exchange two folders ({error}), which a "
                "commit needs; use a folder of a local disk, such as ext4, XFS, Btrfs or tmpfs"
            ) from error
        finally:
            for each in pair:
                each.rmdir()

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Holds the lock that all workspaces of the folder share, in every process."""
        while True:
            self._state.mkdir(mode=0o700, exist_ok=True)
            try:
                lock = os.open(self._state / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                # The last user removed the folder meanwhile.
                continue
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, self._state / _LOCK):
                break
            os.close(lock)
        try:
            yield
        finally:
            # A child process may have inherited the descriptor, and would keep the lock.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _commits(self) -> int:
        """Returns how many commits the folder has had while it was in use."""
        try:
            return (self._state / _COMMITS).stat().st_size
        except FileNotFoundError:
            return 0

    def _commit(self, branch: "Branch", folder: Path, before: Snapshot, commits: int) -> None:
        with self._hold_lock():
            since = self._commits()
            changed = differing(before, snapshot(self.path), copied=since != commits)
            if changed or since != commits:
                raise ConflictError(str(self.path), changed)
            _require_replaceable(self.path)
            with open(self._state / _COMMITS, "ab") as counted:
                # A crash cannot halve a single byte.
                counted.write(b".")
            try:
                commit(self.storage, self.path, folder)
            except (OSError, RecursionError) as error:
                raise CommitError(f"branch {branch.name} of {self.path}: {error}") from error
        self._branches.remove(branch)
        # A branch that is still open shows the files of the old base through its overlay.
        if not self._branches:
            discard(folder)

    def _abort(self, branch: "Branch", folder: Path) -> None:
        self._branches.remove(branch)
        discard(folder)


class Branch:
    """A folder with the files of its base, whose changes stay in it until they are committed.

    Attributes:
      name: For messages.
      path: The folder.
      state: "open", "committed" or "aborted".
    """

    def __init__(
        self,
        workspace: Workspace,
        name: str,
        path: Path,
        before: Snapshot,
        commits: int,
        on_success: Literal["commit"] | None,
        on_error: Literal["abort"] | None,
    ) -> None:
        """Is called by `Workspace.branch`."""
        self.name, self.path = name, path
        self.state: Literal["open", "committed", "aborted"] = "open"
        self._workspace, self._before, self._commits = workspace, before, commits
        self._on_success, self._on_error = on_success, on_error
        self._inner: Workspace | None = None

    @property
    def home(self) -> Path:
        """A folder for what is not committed, which ends with the branch; it may not exist."""
        return self.path.parent / _HOME

    def branch(
        self,
        name: str = "",
        *,
        on_success: Literal["commit"] | None = "commit",
        on_error: Literal["abort"] | None = "abort",
        since: "Branch | None" = None,
    ) -> "Branch":
        """Returns a branch of this branch, which commits into it.

        Raises:
          BranchStaleError: This branch has ended.
        """
        self._check_open()
        if self._inner is None:
            around = self._workspace
            self._inner = Workspace(self.path, shared=around._shared, group=around._group)
        return self._inner.branch(name, on_success=on_success, on_error=on_error, since=since)

    def commit(self) -> None:
        """Makes the files of this branch those of its base; open branches of it are aborted.

        Does nothing if that has been done.

        Raises:
          ConflictError: The base has changed since the branch was made.  The branch stays open, so
            that its files can be looked at.
          CommitError: The file system refused; the base is as it was.
          BranchStaleError: The branch has been aborted.
        """
        if self.state == "committed":
            return
        self._check_open()
        self._close_inner()
        self._workspace._commit(self, self.path.parent, self._before, self._commits)
        self.state = "committed"

    def abort(self) -> None:
        """Removes the branch.  Does nothing if it has ended."""
        if self.state != "open":
            return
        self._close_inner()
        self._workspace._abort(self, self.path.parent)
        self.state = "aborted"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None and self._on_success == "commit" and self.state == "open":
            with ExitStack() as undo:
                if self._on_error == "abort":
                    undo.callback(self.abort)
                self.commit()
                undo.pop_all()
        elif error is not None and self._on_error == "abort":
            self.abort()

    def _check_open(self) -> None:
        if self.state != "open":
            raise BranchStaleError(f"branch {self.name} has been {self.state}")

    def _close_inner(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None


def _require_replaceable(folder: Path) -> Path:
    """Returns the folder, if a commit can put another one in its place.

    Raises:
      MountError: It is none, or something is mounted at or below it.
    """
    if not folder.is_dir():
        raise MountError(f"{folder} is no folder")
    if folder.is_mount() and not lower_layers(folder):
        raise MountError(
            f"{folder} is a mount point, which no commit can replace; use a folder in it"
        )
    if below := mounts_below(folder):
        raise MountError(f"{below[0]} is mounted below {folder}; unmount it, or use another folder")
    return folder


def _kept(folder: Path) -> tuple[Snapshot, int] | None:
    """Returns what a branch was made from that a killed process has left; None if there is none."""
    try:
        commits, before = json.loads((folder / _BEFORE).read_text())
    except FileNotFoundError:
        return None
    states = {p: PathState(**{**s, "owner": tuple(s["owner"])}) for p, s in before.items()}
    return states, commits


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
