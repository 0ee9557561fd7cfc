"""A file that is touched while this process is alive, so that a health check costs nothing.

`celery inspect ping` takes a second and a half of CPU time for every worker and every check; a
`touch` every two seconds takes none.  The age of the file grows when the worker's main loop hangs
and when its connection to Redis is lost, when the worker cannot use the ledger, and when it can
boot no sandbox.
"""

import os
from pathlib import Path
from typing import Any

from celery import signals

from workers.intake import intake

VARIABLE = "EVOQ_HEARTBEAT_FILE"
"""The path of the file; without the variable there is none."""


@signals.heartbeat_sent.connect
def worker_is_alive(**_: Any) -> None:
    """Records that a worker's main loop runs, its connection is up, and it can work."""
    if not intake.lacking:
        _touch()


@signals.beat_init.connect
def beat_begins(**_: Any) -> None:
    """Lets beat record every message it publishes, at least every three seconds."""
    signals.after_task_publish.connect(beat_is_alive)


def beat_is_alive(**_: Any) -> None:
    """Records that beat has published."""
    _touch()


def _touch() -> None:
    path = os.environ.get(VARIABLE)
    if path:
        Path(path).touch()
