"""Log records without secrets."""

import logging

from app.domain.secrets import redacted


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
