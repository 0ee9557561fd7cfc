"""What can go wrong with a workspace, a branch or a candidate's process."""

from collections.abc import Sequence

_MOST_NAMED = 10


class BranchingError(RuntimeError):
    """Any error of this package."""


class MountError(BranchingError):
    """A folder cannot be a workspace; the message says why and what to do."""


class BranchError(BranchingError):
    """An operation on a branch failed."""


class BranchStaleError(BranchError):
    """The branch has been committed or aborted, or its workspace has been closed."""


class CommitError(BranchError):
    """A branch cannot be committed; its base is as it was."""


class ConflictError(CommitError):
    """The base has changed since the branch was made.

    Attributes:
      paths: What differs, relative to the base and sorted; empty where a commit since then
        changed nothing that can be named.
    """

    def __init__(self, base: str, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        named = ", ".join(self.paths[:_MOST_NAMED]) or "by a commit that left no path different"
        more = len(self.paths) - _MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        super().__init__(f"{base} has changed since the branch was made: {named}{rest}")


class ProcessBranchError(BranchingError):
    """A candidate raised, or its process ended without a result."""


class LimitError(ProcessBranchError):
    """The candidates of a pattern exceeded a limit of their group together."""


class IsolationError(BranchingError):
    """Nothing here keeps a candidate apart; the message says why and what to do."""
