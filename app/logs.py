"""Log records without secrets, and as lines of JSON where that is wanted."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from app.domain.secrets import redacted

_STEP: ContextVar[dict[str, object]] = ContextVar("evoq_step")
"""What the present thread works on: `step`, `run`, and ids of proposals, trials or runs."""


class _FilteredRecord(logging.LogRecord):
    """A log record whose message and traceback hold no secret, whichever handler writes them."""

    def getMessage(self) -> str:
        return redacted(super().getMessage())

    @property
    def exc_text(self) -> str | None:
        """The traceback as text; None before it is first formatted, or where there is none."""
        return self._exc_text

    @exc_text.setter
    def exc_text(self, text: str | None) -> None:
        self._exc_text = None if text is None else redacted(text)


def filter_secrets() -> None:
    """Filters every record that this process logs from now on."""
    logging.setLogRecordFactory(_FilteredRecord)


@contextmanager
def at_work_on(step: str, kind: str, subjects: Sequence[int]) -> Iterator[None]:
    """Says in every JSON line of this thread during the block what it works on.

    Args:
      step: The step's name.
      kind: What the subjects are: `proposals`, `trials` or `runs`.
      subjects: Their ids; () for all.
    """
    before = _STEP.set({"step": step, **({kind: list(subjects)} if subjects else {})})
    try:
        yield
    finally:
        _STEP.reset(before)


def note_subjects(run: str, **ids: Sequence[int]) -> None:
    """Adds the run, and ids of its proposals or trials, to the lines of the present step.

    Nothing happens where the thread is at work on no step.
    """
    known = _STEP.get(None)
    if known is not None:
        known.update(run=run, **{kind: list(of_kind) for kind, of_kind in ids.items() if of_kind})


class _JsonLines(logging.Formatter):
    """Writes a record as one line of JSON: time, level, logger, message, and what it is of."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_STEP.get({}),
        }
        if record.exc_info:
            record.exc_text = self.formatException(record.exc_info)
            line["traceback"] = record.exc_text
        return json.dumps(line, ensure_ascii=False)


def write_json_lines(logger: logging.Logger) -> None:
    """Lets the handlers of a logger write lines of JSON."""
    for handler in logger.handlers:
        handler.setFormatter(_JsonLines())
