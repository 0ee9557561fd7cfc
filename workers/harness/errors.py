"""How an exception crosses between evaluator and program: by name, text and kind, never itself."""

from __future__ import annotations

MAX_MESSAGE = 2000
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


class InvalidValue(ValueError):
    """The program returned something that cannot cross as plain values."""


class CannotCross(TypeError):
    """The evaluator did what only one shared process allows; the message describes it."""


class ProgramRemark:
    """What the program's side reported about an exception, for the outcome.

    Attributes:
      kind: A FailureKind's value, or "" where the exception decides.
      trace: The frames inside the program, innermost last, as text.
    """

    __slots__ = ("kind", "trace")

    def __init__(self, kind: str, trace: str) -> None:
        self.kind = kind
        self.trace = trace


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
    error.__dict__["evoq_remark"] = ProgramRemark(kind, trace)  # read by `result`
    return error
