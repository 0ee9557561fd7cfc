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

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import FailedChild

CAPTURED = frozenset(("stdout", "stderr"))
"""Artifacts that hold the output of the program rather than a choice of the evaluator."""

_PHRASES = {
    FailureKind.RUNTIME: "it raised an exception, or ended by itself",
    FailureKind.TIMEOUT: "it was not done in time",
    FailureKind.MEMORY: "it took more memory than it may",
    FailureKind.OUTPUT_LIMIT: "it wrote more than it may",
    FailureKind.INVALID_SIGNATURE: "a function is missing, or takes other arguments",
    FailureKind.INVALID_RESULT: "what it returned cannot be scored",
    FailureKind.SANDBOX_VIOLATION: "it tried what no program may do",
    FailureKind.SYNTAX: "it does not compile",
    FailureKind.IMPORT_BLOCKED: "it imports what it may not, or what is not there",
}
"""Failures of a program in words; a failure of a reply is shown by its name."""
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
    phrase = _PHRASES[kind] if kind in _PHRASES else kind.value.replace("_", " ")
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
