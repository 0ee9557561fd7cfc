"""The evaluator's side of guarded mode: stands in for a program that lives in another process.

The file an evaluator is given as `program_path` is `SOURCE`.  Importing it, executing its text or
running it as a script, here or in a child process, uses the program over a socket.
"""

from __future__ import annotations

import builtins
import linecache
import os
import sys
from types import CodeType, FunctionType
from typing import Any

from . import wire
from .errors import exception
from .player_clock import PlayerClock
from .program_client import ProgramClient

SOURCE = """\
# This file stands in for the program, which runs in another process: the sandbox is in guarded
# mode.  The program's text is at the path in the environment variable EVOQ_PROGRAM_SOURCE.
import sys as _sys
if {library!r} not in _sys.path:
    _sys.path.append({library!r})
from evoq_harness.stub import bind as _bind
_bind(globals(), locals(), {path!r}, {source!r}, {address!r}, {clock!r})
"""

_MOST_LINES = 100_000
_MOST_PARAMETERS = 255
_VAR_POSITIONAL, _VAR_KEYWORD = 4, 8
"""`CO_VARARGS` and `CO_VARKEYWORDS` of `co_flags`."""


def bind(
    place: dict[str, Any],
    names: dict[str, Any],
    path: str,
    source: str,
    address: str,
    clock: tuple[int, str, float, float] | None = None,
) -> None:
    """Fills a namespace with the program's names.

    Functions become real functions, so that `inspect` and `__name__` hold; everything else is
    fetched when it is used, or at once where the namespace is not a module's.

    Args:
      place: The globals the stub's text is executed in.
      names: Its locals: the same, unless the evaluator executes the text in two dictionaries.
      path: The stub's.
      source: Path of the program's text, which `inspect.getsource` shows.
      address: The program's.
      clock: What the clock of a player is made from; None for a program that plays no game.
    """
    session = ProgramClient(address, PlayerClock(*clock) if clock else None)
    executed = sys._getframe(1).f_code.co_filename
    own_file = os.path.abspath(place.get("__file__") or "/") == os.path.abspath(executed)
    if place.get("__name__") == "__main__" and vars(sys.modules["__main__"]) is place and own_file:
        _run(session)
    try:
        known = _sketches(session.ask("import"))
    except wire.WireError as error:
        raise session.blame(error, "invalid_result") from None
    _show_source(path, source)

    def fetch(name: str) -> Any:
        if name not in known:
            text = f"the program defines no {name!r}"
            missing = exception("AttributeError", text, "invalid_signature", "")
            raise session.blame(missing, "invalid_signature")
        return session.read("global", name)

    whole = own_file and place.get("__spec__") is not None
    kept = set() if own_file else _evaluators_own(place, names)
    for name, sketch in known.items():
        if name in kept:
            continue
        if sketch[0] in ("function", "coroutine"):
            names[name] = _function(session, name, sketch, path)
        elif not whole:
            names[name] = session.ask("global", name)
    names["__getattr__"] = fetch
    names["__dir__"] = lambda: sorted(known)
    # An evaluator that imports all names keeps its own built-ins.
    shown = known.keys() - vars(builtins).keys()
    names["__all__"] = sorted(name for name in shown if not name.startswith("_"))


def _run(session: ProgramClient) -> None:
    status = session.ask("main", sys.argv[1:])
    if status != 0:
        sys.exit(status if type(status) is int else 1)


def _evaluators_own(place: dict[str, Any], names: dict[str, Any]) -> set[str]:
    """Returns the names that no program may define: those of an evaluator that executes text.

    In its own namespace a program's `sum` or `expected` would replace the evaluator's.
    """
    if place is not names or place.get("__file__") is None:
        return set()
    return {*place, *vars(builtins)}


def _sketches(reply: Any) -> dict[str, list[Any]]:
    if not isinstance(reply, dict):
        raise wire.WireError("not a table of names")
    return {
        name: sketch
        for name, sketch in reply.items()
        if _plain(name) and isinstance(sketch, list) and sketch
    }


def _plain(name: Any) -> bool:
    """Returns whether a name of the program may be defined in the stub: no special name may."""
    return isinstance(name, str) and name.isidentifier() and not name.startswith("__")


def _show_source(path: str, source: str) -> None:
    """Lets `inspect` find the program's text, which is not that of the file it was loaded from."""
    try:
        with open(source, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True)[:_MOST_LINES], path)


def _function(session: ProgramClient, name: str, sketch: list[Any], path: str) -> Any:
    if sketch[0] == "coroutine":

        async def awaited(*arguments: Any, **keywords: Any) -> Any:
            return session.ask("await", name, list(arguments), keywords)

        remote: Any = awaited
    else:

        def called(*arguments: Any, **keywords: Any) -> Any:
            return session.ask("invoke", name, list(arguments), keywords)

        remote = called
    made: FunctionType = remote
    made.__name__ = made.__qualname__ = name
    try:
        _, doc, line, parameters, counts, defaults = sketch
        made.__doc__ = str(doc)
        made.__code__ = _placed(made.__code__, path, line)
        made.__dict__["__signature__"] = _signature(parameters, counts, defaults)
    except (ValueError, TypeError, IndexError, OverflowError, StopIteration):
        # A program with a wrong sketch of itself is called all the same.
        pass
    return made


def _placed(code: CodeType, path: str, line: Any) -> CodeType:
    """Returns the code as if it stood where the program's function does."""
    if type(line) is not int or not 0 < line < _MOST_LINES:
        return code
    return code.replace(co_filename=path, co_firstlineno=line)


def _signature(names: list[str], counts: list[int], defaults: list[Any]) -> Any:
    """Returns the function's parameters; a default's value stays with the program."""
    from inspect import Parameter, Signature

    positional, only, keyword, flags = counts
    if not 0 <= positional + keyword <= _MOST_PARAMETERS:
        raise ValueError("more parameters than a function can have")
    rest = iter(names[positional + keyword :])
    without = positional - defaults[0]
    shown = []
    for index, name in enumerate(names[:positional]):
        kind = Parameter.POSITIONAL_ONLY if index < only else Parameter.POSITIONAL_OR_KEYWORD
        default = Parameter.empty if index < without else ...
        shown.append(Parameter(name, kind, default=default))
    if flags & _VAR_POSITIONAL:
        shown.append(Parameter(next(rest), Parameter.VAR_POSITIONAL))
    for name in names[positional : positional + keyword]:
        default = ... if name in defaults[1:] else Parameter.empty
        shown.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default))
    if flags & _VAR_KEYWORD:
        shown.append(Parameter(next(rest), Parameter.VAR_KEYWORD))
    return Signature(shown)
