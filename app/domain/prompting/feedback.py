"""Feedback: what a prompt shows of a child that failed.

A program sees the inputs of its evaluation and can copy them into the message of an exception, into
its output, even into the name of an exception class.  The evaluator's own message may contain the
answer.  If the next prompt quoted any of these, hidden data would leak into the search and scores
would rise for the wrong reason.  So a failed trial is described by harmless facts: its kind, the
class of the exception if Python or the program's text defines it, and lines of the program, quoted
from the ledger and not from the report.  Artifacts of the evaluator are shown: it chose them.
"""

import builtins
import re
from typing import assert_never

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import FailedChild

CAPTURED = frozenset(("stdout", "stderr"))
"""Artifacts that hold the output of the program rather than a choice of the evaluator."""

_CLASS = re.compile(r"([A-Za-z_]\w{0,79})(?=:|\s|\Z)")
_FRAME = re.compile(r"^program line (\d{1,7}), in ", re.MULTILINE)
_DETAIL_CHARS = 600
_FRAMES = 4


def failure_text(failed: FailedChild, *, messages: bool) -> str:
    """Returns the description of a failure for a prompt, in lines.

    Args:
      failed: The child.
      messages: Whether to quote the message of the failure too.
    """
    kind, detail = failed.failure.kind, failed.failure.detail.strip()
    # The detail is Evoqueue's own text about the reply and the parent.
    if failed.program is None:
        return _clipped(detail or kind.value)
    phrase = _phrase(kind)
    if failed.cases:
        phrase += f", on {', '.join(failed.cases)}"
    if messages:
        return f"{phrase}:\n{_clipped(detail)}" if detail else phrase
    name = _class_name(detail, failed.program.source)
    return "\n".join([f"{phrase}: {name}" if name else phrase, *_frames(failed)])


def quotable_artifacts(failed: FailedChild, *, messages: bool) -> dict[str, str]:
    """Returns the artifacts of a failed child that a prompt may quote."""
    return {
        name: text for name, text in failed.artifacts.items() if messages or name not in CAPTURED
    }


def failing_lines(failure: Failure) -> list[int]:
    """Returns the lines of the program, from 1, that a traceback names; innermost last."""
    return [int(number) for number in _FRAME.findall(failure.detail)]


def _phrase(kind: FailureKind) -> str:
    match kind:
        case FailureKind.RUNTIME:
            return "it raised an exception, or ended by itself"
        case FailureKind.TIMEOUT:
            return "it was not done in time"
        case FailureKind.MEMORY:
            return "it took more memory than it may"
        case FailureKind.OUTPUT_LIMIT:
            return "it wrote more than it may"
        case FailureKind.INVALID_SIGNATURE:
            return "a function is missing, or takes other arguments"
        case FailureKind.INVALID_RESULT:
            return "what it returned cannot be scored"
        case FailureKind.SANDBOX_VIOLATION:
            return "it tried what no program may do"
        case FailureKind.SYNTAX:
            return "it does not compile"
        case FailureKind.IMPORT_BLOCKED:
            return "it imports what it may not, or what is not there"
        case (
            FailureKind.NO_CODE
            | FailureKind.BAD_EDIT
            | FailureKind.UNCHANGED
            | FailureKind.REFUSED
            | FailureKind.TOO_LONG
        ):
            return kind.value.replace("_", " ")
        case _:
            assert_never(kind)


def _class_name(detail: str, source: str) -> str:
    """Returns the name of the exception's class if Python or the program defines it, else ""."""
    match = _CLASS.match(detail)
    if match is None:
        return ""
    name = match.group(1)
    builtin = vars(builtins).get(name)
    standard = isinstance(builtin, type) and issubclass(builtin, BaseException)
    return name if standard or re.search(rf"\bclass {name}\b", source) else ""


def _frames(failed: FailedChild) -> list[str]:
    """Returns the lines of the program, from the ledger, that a traceback names; innermost last."""
    assert failed.program is not None
    text = failed.program.source.split("\n")
    numbers = failing_lines(failed.failure)
    return [
        f"line {number}: {text[number - 1].strip()[:160]}"
        for number in dict.fromkeys(numbers[-_FRAMES:])
        if 0 < number <= len(text)
    ]


def _clipped(text: str) -> str:
    return text if len(text) <= _DETAIL_CHARS else text[:_DETAIL_CHARS] + " ..."
