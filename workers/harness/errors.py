"""How an exception crosses between evaluator and program: by name, text and kind, never itself."""

from __future__ import annotations

MAX_MESSAGE = 2000
KINDS_OF_A_PROGRAM = frozenset(
    {
        "runtime", "memory", "syntax", "output_limit", "import_blocked", "invalid_result",
        "invalid_signature",
    }
)  # fmt: skip
"""Failure kinds that may be reported of a program from inside the sandbox."""
REMEDY = ", or set sandbox.mode=compatible, in which scores are unverified."
FAITHFUL: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ValueError, TypeError, KeyError, IndexError, LookupError, ZeroDivisionError,
        AttributeError, ArithmeticError, OverflowError, FloatingPointError, NotImplementedError,
        AssertionError, RecursionError, MemoryError, SyntaxError, IndentationError, ImportError,
        ModuleNotFoundError, NameError, UnboundLocalError, RuntimeError, OSError, EOFError,
        FileNotFoundError, PermissionError, TimeoutError, BufferError, FileExistsError,
    )
}  # fmt: skip


class ProgramError(RuntimeError):
    """The program raised a class of its own, or one that has no counterpart here."""


class ProgramCrashed(RuntimeError):
    """The program's process ended during a call."""


class ClockExpired(RuntimeError):
    """A player of a game has used the time of its move, or of its game."""


class InvalidValue(ValueError):
    """The program returned something that cannot cross as plain values."""


class CannotCross(TypeError):
    """The evaluator did what only one shared process allows; the message describes it."""


class ProgramRemark:
    """What the program's side reported about an exception, for the outcome.

    Attributes:
      kind: A FailureKind's value, or "" where the exception decides.
      trace: The frames inside the program, innermost last, as text.
      seat: The place of the program among those of a game, from 0; None outside games.
    """

    __slots__ = ("kind", "seat", "trace")

    def __init__(self, kind: str, trace: str, seat: int | None = None) -> None:
        self.kind = kind
        self.trace = trace
        self.seat = seat


def blamed(error: Exception, kind: str, seat: int) -> Exception:
    """Returns an exception that a player of a game caused, marked with its seat."""
    remark = error.__dict__.get("evoq_remark")
    trace = remark.trace if isinstance(remark, ProgramRemark) else ""
    error.__dict__["evoq_remark"] = ProgramRemark(kind, trace, seat)
    return error


def exception(name: str, message: str, kind: str, trace: str) -> Exception:
    mother = FAITHFUL.get(name)
    message = message[:MAX_MESSAGE]
    error: Exception
    if kind == "invalid_result":
        error = InvalidValue(message)
    elif mother is None:
        error = ProgramError(f"{name[:100]}: {message}")
    else:
        error = mother(message)
    # `result` reads this entry.
    error.__dict__["evoq_remark"] = ProgramRemark(kind, trace)
    return error
