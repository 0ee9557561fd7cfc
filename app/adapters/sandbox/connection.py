"""The connection between a worker and a warm sandbox, whatever runs the sandbox, and its loss."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Protocol


class Loss(Enum):
    """Why a sandbox is lost."""

    UNKNOWN = auto()
    MEMORY = auto()
    """It wanted more memory than it may have."""
    KERNEL = auto()
    """The kernel of its own, as gVisor has one, ended with an error."""


class SandboxLost(Exception):
    """The sandbox ended or sent an invalid frame; a fresh one may succeed."""


class SandboxOverdue(Exception):
    """The sandbox did not answer in time."""


class SandboxConnection(Protocol):
    """A byte stream to and from a sandbox's zygote."""

    def send(self, parts: Sequence[bytes], deadline: float) -> None:
        """Raises SandboxLost or SandboxOverdue; `deadline` is in `time.monotonic` seconds."""
        ...

    def receive(self, size: int, deadline: float) -> bytes:
        """Returns exactly `size` bytes; raises SandboxLost or SandboxOverdue."""
        ...

    def interrupt(self) -> None:
        """Makes a `receive` of another thread, now or later, raise SandboxLost; does not wait."""
        ...

    def silent(self, seconds: float = 0.0) -> bool:
        """Returns whether nothing comes within `seconds`, not even the stream's end.

        What came since the last frame counts, and so does an `interrupt`.
        """
        ...

    def outrun(self) -> bool:
        """Returns whether what runs in the sandbox keeps its zygote from answering.

        It does where it computes; where it does not, the machine has no time for the sandbox.

        Raises:
          Unavailable: What lies between here and the sandbox does not answer.
        """
        ...

    def check(self) -> None:
        """Raises Unavailable if what lies between here and the sandbox does not answer."""
        ...

    def loss(self) -> Loss:
        """Returns why the sandbox is lost.

        Raises:
          Unavailable: What lies between here and the sandbox does not answer.
        """
        ...

    def error_output(self) -> str:
        """Returns what the sandbox wrote to its error stream, bounded."""
        ...

    def close(self) -> None:
        """Ends the sandbox and everything in it.  Idempotent."""
        ...
