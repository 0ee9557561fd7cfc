"""What can go wrong on the way to a running embedded stack."""

from pathlib import Path

TAIL_LINES = 12


class EmbeddedError(RuntimeError):
    """A server or worker of the embedded stack cannot be started here.

    The message says what failed, where, and what to do about it.
    """


def tail(log: Path) -> str:
    """Returns the last lines of a log, indented; a note when there are none."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError as error:
        return f"  (no log: {error})"
    return "\n".join(f"  {line}" for line in lines) if lines else "  (the log is empty)"


def remedy(output: str) -> str:
    """Returns what to do about a server's own complaint; a general hint where none is known."""
    known = (
        ("No space left on device", "free some disk space and start again"),
        ("Disk quota exceeded", "free some of your disk quota and start again"),
        ("Read-only file system", "choose a folder on a writable file system"),
        ("Permission denied", "make the folder writable for the user that runs this"),
        ("Address already in use", "end the program that uses this port, or choose another"),
        ("could not look up effective user ID", "run as a user that has an entry in /etc/passwd"),
        ("incompatible with server", "the data was written by another Postgres version: move it"),
        ("cannot allocate memory", "free some memory and start again"),
    )
    for complaint, advice in known:
        if complaint.lower() in output.lower():
            return advice
    return "read its log, or use servers of your own (EVOQ_DATABASE_URL, EVOQ_REDIS_URL)"
