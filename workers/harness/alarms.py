"""Keeps a program's interval timers from firing in the harness's code between two calls."""

from __future__ import annotations

import signal

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_ALARMS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)
_getitimer, _mask = signal.getitimer, signal.pthread_sigmask
_BLOCK, _UNBLOCK = signal.SIG_BLOCK, signal.SIG_UNBLOCK
_held: list[bool] = []


def hold() -> None:
    """Holds back the alarms of timers that are set, until `release`."""
    if any(_getitimer(timer)[0] for timer in _TIMERS):
        _mask(_BLOCK, _ALARMS)
        _held.append(True)


def release() -> None:
    """Lets alarms that were held back come in, now that the program's code runs."""
    if _held:
        _held.clear()
        _mask(_UNBLOCK, _ALARMS)
