"""State that libraries keep where a walk over the evaluator's values does not find it.

It is in C, in context variables, or behind private names: how NumPy treats errors and prints, the
locale, the handlers of `logging`, the precision of `mpmath`.  A trial that changes it would change
later ones, so a process in which it differs from what it was after the import ends.  Only libraries
that are imported already are asked, and none is imported; one that a trial imports first counts as
a change, because nobody knows how it was before.
"""

from __future__ import annotations

import _locale
import contextvars
import gc
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_OWN_CONTEXT = "decimal_context"
"""The context variable that is put back after each trial."""


class LibraryState:
    """What the imported libraries hold now."""

    def __init__(self) -> None:
        self._values = _read_or_none()

    def unchanged(self) -> bool:
        """Returns whether they hold the same; False, too, where one does not say what it holds."""
        return self._values is not None and _read_or_none() == self._values


class _Same:
    """Compares an object by identity, and keeps it alive so that its address is not used again."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    __hash__ = None  # type: ignore[assignment]  # compared only


def _read_or_none() -> dict[str, Any] | None:
    """Returns what each holds; None where one does not say: a stand-in of that name."""
    try:
        return {
            "interpreter": _interpreter(),
            "context": _context(),
            **{
                name: reader(module)
                for name, reader in _READERS.items()
                if (module := sys.modules.get(name)) is not None
            },
        }
    except Exception:
        return None


def _interpreter() -> tuple[Any, ...]:
    hooks = (sys.displayhook, sys.excepthook, sys.unraisablehook, threading.excepthook)
    shown = (warnings.showwarning, warnings.formatwarning)
    finders = (*sys.meta_path, *sys.path_hooks, *gc.callbacks)
    return (
        sys.get_int_max_str_digits(),
        sys.getswitchinterval(),
        sys.getdlopenflags(),
        sys.get_coroutine_origin_tracking_depth(),
        gc.get_threshold(),
        gc.get_debug(),
        threading.stack_size(),
        _locale.setlocale(_locale.LC_ALL),
        (time.timezone, time.tzname),
        [_Same(each) for each in (*hooks, *shown, *finders)],
    )


def _context() -> list[tuple[str, _Same]]:
    """Returns the context variables that are set; NumPy's treatment of errors is one of them."""
    variables = contextvars.copy_context().items()
    found = [(variable.name, _Same(value)) for variable, value in variables]
    return sorted((pair for pair in found if pair[0] != _OWN_CONTEXT), key=lambda pair: pair[0])


def _numpy(numpy: types.ModuleType) -> tuple[Any, ...]:
    printed = {
        name: _Same(value) if callable(value) else value
        for name, value in numpy.get_printoptions().items()
    }
    return numpy.geterr(), _Same(numpy.geterrcall()), numpy.getbufsize(), _frozen(printed)


def _frozen(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns options whose dictionaries of functions are compared by these functions."""
    return [
        (name, [(key, _Same(each)) for key, each in value.items()])
        if isinstance(value, dict)
        else (name, value)
        for name, value in sorted(options.items())
    ]


def _logging(logging: types.ModuleType) -> tuple[Any, ...]:
    root = logging.getLogger()
    named = root.manager.loggerDict
    loggers = [("", root), *((name, named[name]) for name in sorted(named))]
    return (
        root.manager.disable,
        logging.raiseExceptions,
        dict(vars(logging)["_levelToName"]),
        [_Same(logging.lastResort), _Same(logging.getLoggerClass())],
        _Same(logging.getLogRecordFactory()),
        [(name, state) for name, each in loggers if (state := _logger(each, logging))],
    )


def _logger(logger: Any, logging: types.ModuleType) -> tuple[Any, ...]:
    """Returns what was set at a logger; () where it is as it is made, or stands for a name only."""
    if not isinstance(logger, logging.Logger):
        return ()
    parts = [_Same(each) for each in (*logger.handlers, *logger.filters)]
    levels = [each.level for each in logger.handlers]
    settings = (logger.level, logger.propagate, logger.disabled)
    as_made = settings == (logging.NOTSET, True, False) and not parts
    return () if as_made else (*settings, parts, levels)


def _leaves(value: Any) -> Iterator[Any]:
    """Yields the parts of nested dictionaries: plain values as they are, others by identity."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _leaves(part)
    elif isinstance(value, str | int | float | bool | None | tuple):
        yield value
    else:
        yield _Same(value)


_READERS: Mapping[str, Callable[[types.ModuleType], Any]] = {
    "numpy": _numpy,
    "logging": _logging,
    "decimal": lambda module: repr(module.DefaultContext),
    "socket": lambda module: module.getdefaulttimeout(),
    "tracemalloc": lambda module: module.is_tracing(),
    "faulthandler": lambda module: module.is_enabled(),
    "atexit": lambda module: module._ncallbacks(),
    "copyreg": lambda module: list(module.dispatch_table),
    "scipy.special": lambda module: module.geterr(),
    "pandas._config.config": lambda module: list(_leaves(module._global_config)),
    "sklearn": lambda module: list(_leaves(module.get_config())),
    "networkx": lambda module: repr(module.config),
    "mpmath": lambda module: (module.mp.prec, module.iv.prec, module.mp.pretty),
}
"""Module to what it holds; read only where it is imported."""
