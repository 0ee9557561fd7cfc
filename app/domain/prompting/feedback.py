"""Feedback: what a model may be told of a child that failed.

A program sees the inputs it is tried on, and can put them into the message of an exception, into
what it prints, even into the name of an exception class. An evaluator's own message may hold the
answer. If the next prompt quoted any of that, hidden data would leak into the search and scores
would rise for the wrong reason. So a failed trial is told from what we know to be harmless: its
kind, the class of the exception where Python or the program's text has it, and the program's own
lines, quoted from the ledger and not from the report. Artifacts are the evaluator's to give.
"""

import builtins
import re
from collections.abc import Mapping
from types import MappingProxyType

from app.domain.evaluation import FailureKind
from app.domain.operator import FailedChild

CAPTURED = frozenset(("stdout", "stderr"))
"""Artifacts that were printed and not given."""

_PHRASES: Mapping[FailureKind, str] = MappingProxyType(
    {
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
)
_CLASS = re.compile(r"([A-Za-z_]\w{0,79})(?=:|\s|\Z)")
_FRAME = re.compile(r"^program line (\d{1,7}), in ", re.MULTILINE)
_DETAIL_CHARS = 600
_FRAMES = 4


def told(failed: FailedChild, *, messages: bool) -> str:
    """Returns a failure in lines for a prompt.

    Args:
      failed: The child.
      messages: Whether the failure's own words may be quoted too.
    """
    kind, detail = failed.failure.kind, failed.failure.detail.strip()
    if failed.program is None:  # of a reply: our words, about the reply and the parent
        return _clipped(detail or kind.value)
    parts = [_PHRASES.get(kind, kind.value.replace("_", " "))]
    if failed.cases:
        parts[0] += f", on {', '.join(failed.cases)}"
    if messages:
        return "\n".join([parts[0] + ":", _clipped(detail)]) if detail else parts[0]
    name = _class_name(detail, failed.program.source)
    return "\n".join([f"{parts[0]}: {name}" if name else parts[0], *_frames(failed)])


def shown_artifacts(failed: FailedChild, *, messages: bool) -> dict[str, str]:
    """Returns those of its artifacts that a prompt may quote."""
    return {
        name: text for name, text in failed.artifacts.items() if messages or name not in CAPTURED
    }


def _class_name(detail: str, source: str) -> str:
    """Returns the exception's class, if it is Python's or stands in the program; else ""."""
    match = _CLASS.match(detail)
    if match is None:
        return ""
    name = match.group(1)
    known = vars(builtins).get(name)
    pythons = isinstance(known, type) and issubclass(known, BaseException)
    return name if pythons or re.search(rf"\bclass {name}\b", source) else ""


def _frames(failed: FailedChild) -> list[str]:
    """Returns the program's lines a traceback names, innermost last, from the program's text."""
    assert failed.program is not None
    text = failed.program.source.split("\n")
    numbers = [int(number) for number in _FRAME.findall(failed.failure.detail)]
    return [
        f"line {number}: {text[number - 1].strip()[:160]}"
        for number in dict.fromkeys(numbers[-_FRAMES:])
        if 0 < number <= len(text)
    ]


def _clipped(text: str) -> str:
    return text if len(text) <= _DETAIL_CHARS else text[:_DETAIL_CHARS] + " ..."
