"""Errors that an evaluator reports: it caught what a program did wrong, and returned a result.

OpenEvolve's and ShinkaEvolve's evaluators rarely raise: they catch the exception and return a score
of 0, with the text in a metric `error` or in an artifact.  Such a result is a failure of the
program, and no score.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from app.domain.evaluation import COMBINED, Failure, FailureKind

ERROR = "error"
TIMEOUT = "timeout"

ERROR_TEXTS = (
    *(ERROR, "error_message", "error_msg", "error_info", "error_details", "exception"),
    *("failure_reason", "fail_reason", "invalid_reason", "traceback", "stack_trace"),
)
"""Names of texts that say what went wrong, as metrics or as artifacts; the most telling first."""
ERROR_KINDS = ("error_type", "exception_type", "failure_stage")
"""Names of texts that say of which kind an error is, as metrics or as artifacts."""
VERDICTS = frozenset(
    (
        *("success", "correct", "valid", "validity", "is_valid", "is_correct", "passed"),
        *("runs_successfully", "runs", "compiled", "compiles"),
    )
)
"""Names of metrics that say whether the result counts at all, by 0 or false."""
REASONS = ("message", "reason", "feedback", "text_feedback", "details", "stderr")
"""Names of texts that are an error beside such a verdict only."""

_NOTHING = frozenset(
    ("", "none", "null", "false", "nan", "[]", "{}", '""', "no error", "no errors", "ok")
)
_MEASURED_TIMES = re.compile(r"time|seconds|duration|latency|_m?s\Z", re.IGNORECASE)
_REPORTED = "the evaluator reports an error"
_TRACEBACK = "Traceback (most recent call last):"
_LAST_LINES = 3


@dataclass(frozen=True, slots=True)
class Report:
    """What an evaluator returned, by kind.

    Attributes:
      numbers: Finite numbers among the metrics.
      flags: Booleans among the metrics.
      texts: Metrics that are no number, as text.
      unusable: Metrics that are numbers, but not finite.
      artifacts: The texts beside the metrics.
    """

    numbers: Mapping[str, float]
    flags: Mapping[str, bool]
    texts: Mapping[str, str]
    unusable: Collection[str]
    artifacts: Mapping[str, str]


def reported_error(report: Report) -> Failure | None:
    """Returns the failure that an evaluator reports of the program; None where it reports none.

    These are reports, in this order:

    * `timeout: true`.
    * A text that `ERROR_TEXTS` names among the metrics, or `error: true`, where `combined_score`
      is not above 0.
    * A text that `ERROR_TEXTS` or `ERROR_KINDS` names, among the metrics or the artifacts, where
      the program has no score above 0 at all.
    * A verdict of 0 or false beside a text of `REASONS`, where the score is 0 or none.

    A number named `error` is a metric, and a text that says "none" is none.  A program that was
    scored above 0 in spite of an error keeps its score.
    """
    no_words = {*report.unusable, *report.flags}
    metrics = {name: text for name, text in report.texts.items() if name not in no_words}
    if report.flags.get(TIMEOUT):
        return Failure(
            FailureKind.TIMEOUT, _first(metrics, (ERROR,)) or "the evaluator reports a time-out"
        )
    texts = {**report.artifacts, **metrics}
    own, any_text = _first(metrics, ERROR_TEXTS), _first(texts, ERROR_TEXTS)
    combined = report.numbers.get(COMBINED, 0.0)
    if combined <= 0 and (own or report.flags.get(ERROR)):
        return Failure(FailureKind.RUNTIME, _detail(texts, own or any_text))
    if _most(report.numbers) <= 0 and (any_text or _first(texts, ERROR_KINDS)):
        return Failure(_kind(report, any_text), _detail(texts, any_text))
    reason = _first(texts, REASONS)
    if reason and combined == 0 and _rejected(report) and _most(report.numbers) <= 0:
        return Failure(FailureKind.INVALID_RESULT, _detail(texts, reason))
    return None


def _kind(report: Report, text: str) -> FailureKind:
    """Returns whether the program raised, or its result was rejected, by an error in artifacts."""
    return FailureKind.INVALID_RESULT if not text and _rejected(report) else FailureKind.RUNTIME


def _rejected(report: Report) -> bool:
    verdicts: dict[str, float] = {**report.numbers, **report.flags}
    return any(value == 0 for name, value in verdicts.items() if name.lower() in VERDICTS)


def _most(numbers: Mapping[str, float]) -> float:
    """Returns the combined score; without one the largest number that is no time nor an error."""
    if COMBINED in numbers:
        return numbers[COMBINED]
    scores = [
        value
        for name, value in numbers.items()
        if name != ERROR and not _MEASURED_TIMES.search(name)
    ]
    return max(scores, default=-math.inf)


def _first(texts: Mapping[str, str], names: Collection[str]) -> str:
    """Returns the first text of these names that says something; "" where there is none."""
    by_name = {name.lower(): text.strip() for name, text in texts.items()}
    found = (by_name.get(name, "") for name in names)
    return next((text for text in found if _says_something(text)), "")


def _says_something(text: str) -> bool:
    if text.lower().rstrip(".!") in _NOTHING:
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _detail(texts: Mapping[str, str], text: str) -> str:
    """Returns the error in words: its type, its text, and the lines at which it was raised."""
    text = _raised(text or _first(texts, REASONS) or _REPORTED)
    kind = _first(texts, ERROR_KINDS[:2])
    stage = _first(texts, ERROR_KINDS[2:])
    lines = [text if not kind or kind in text else f"{kind}: {text}"]
    trace = _first(texts, ("traceback", "stack_trace")).splitlines()[-_LAST_LINES:]
    known = (*lines, _TRACEBACK)
    lines += [line for line in trace if line.strip() and not any(line.strip() in k for k in known)]
    if stage:
        lines.append(f"failure stage: {stage}")
    return "\n".join(lines)


def _raised(text: str) -> str:
    """Returns the last line of a traceback, which names the exception; any other text whole."""
    return text.splitlines()[-1].strip() if text.startswith(_TRACEBACK) else text
