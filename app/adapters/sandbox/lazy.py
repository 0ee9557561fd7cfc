"""A sandbox that is opened at its first job."""

import logging
import threading

from app.adapters.sandbox.choose import choose
from app.config.settings import SandboxSettings
from app.domain.problem import Evaluator, Job, Outcome
from app.ports.protocols import NEVER, Protection, Sandbox, Stop

log = logging.getLogger(__name__)


class LazySandbox:
    """Opens a sandbox at its first job, so that workers without jobs need none."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: Sandbox | None = None
        self._summary = ""

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        """See `app.ports.protocols.Sandbox.run`."""
        return self._open().run(job, stop)

    def prepare(self, evaluator: Evaluator) -> None:
        """See `app.ports.protocols.Sandbox.prepare`."""
        self._open().prepare(evaluator)

    def surroundings(self, evaluator: Evaluator) -> str:
        """See `app.ports.protocols.Sandbox.surroundings`."""
        return self._open().surroundings(evaluator)

    def protections(self) -> list[Protection]:
        """See `app.ports.protocols.Sandbox.protections`; logs them in one line if they changed."""
        sandbox = self._open()
        protections, summary = sandbox.protections(), sandbox.summary()
        if summary != self._summary:
            self._summary = summary
            log.warning("%s", summary)
        return protections

    def summary(self) -> str:
        """See `app.ports.protocols.Sandbox.summary`."""
        return self._open().summary()

    def _open(self) -> Sandbox:
        with self._lock:
            if self._opened is None:
                self._opened = choose(self._settings, show_progress=log.warning)
            return self._opened

    def close(self) -> None:
        """Ends every warm sandbox.  Idempotent."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None
