"""Work that no trial waits for: ending cells and booting spares, in threads of their own."""

import logging
import threading
from collections.abc import Callable

from app.ports.protocols import Unavailable

_FINISHING_SECONDS = 15.0

log = logging.getLogger(__name__)


class Chores:
    """Short jobs in the background, awaited at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()

    def begin(self, chore: Callable[[], None]) -> None:
        """Has `chore` done by a thread of its own.

        An engine that does not answer costs one line: the container ends by itself when its
        streams break, and a later sweep takes what could not be removed.
        """

        def do() -> None:
            try:
                chore()
            except Unavailable as error:
                log.warning("sandbox: %s", error)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=do, name="sandbox chore", daemon=True)
        with self._lock:
            self._threads.add(thread)
            thread.start()

    def finish(self) -> None:
        """Waits for what was begun; what hangs is left to the end of this process."""
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(_FINISHING_SECONDS)
