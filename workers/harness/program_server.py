"""The program's side of guarded mode: imports it and answers the stub's requests.

Runs in the program's own process and identity; everything here may be rewritten by the program,
so the evaluator's side validates everything it sends.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import itertools
import operator
import os
import signal
import socket
import sys
import traceback
from importlib.machinery import ModuleSpec, SourceFileLoader
from time import monotonic
from types import ModuleType
from typing import Any

from . import script, wire
from .errors import FAITHFUL
from .program_folder import named

MODULE_NAME = "program"
SPECIAL = (
    "__getitem__", "__len__", "__iter__", "__next__", "__setitem__", "__contains__", "__bool__",
    "__float__", "__int__", "__str__", "__enter__", "__exit__",
)  # fmt: skip
"""What a proxy passes on.  Never a comparison or arithmetic: its answer would be the program's."""

_BUILT_IN: dict[str, Any] = {
    "__bool__": bool, "__contains__": operator.contains, "__float__": float, "__int__": int,
    "__str__": str, "__iter__": lambda target: _parts(target), "__len__": len,
}  # fmt: skip
_PARTS_AT_ONCE, _PARTS_SECONDS = 1000, 0.1
_getpid, _exit = os.getpid, os._exit
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_ALARMS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)
_getitimer, _mask = signal.getitimer, signal.pthread_sigmask
_BLOCK, _UNBLOCK = signal.SIG_BLOCK, signal.SIG_UNBLOCK
_alarms_held: list[bool] = []
_REHEARSALS = 10
"""The interpreter specialises code that has run eight times."""
_REHEARSED = "VALUE = 1.0\n\n\ndef solve(x):\n    return x * VALUE\n"
_MAX_MESSAGE = 2000
_MAX_TRACE_FRAMES = 6


class WrongSignature(Exception):
    """What was called is not callable, or not with these arguments."""


class ProgramServer:
    """Serves one connection until the evaluator closes it.

    Args:
      sock: The connection.
      path: The file that is loaded.
      folder: The folder of a program of several files, whose modules it may import; "" for one
        file.
    """

    def __init__(self, sock: socket.socket, path: str, folder: str = "") -> None:
        self._sock = sock
        self._path = path
        self._folder = folder
        if folder:
            sys.path[:0] = dict.fromkeys((os.path.dirname(path), folder))
        self._numbers = itertools.count(1)
        self._objects: dict[int, Any] = {}
        self._module: Any = None
        self._pid = _getpid()

    def serve(self) -> None:
        try:
            while True:
                self._answer(self._receive())
        except (EOFError, OSError):
            # The evaluator has closed the connection.
            return

    def _receive(self) -> Any:
        return wire.decode(wire.receive_frame(self._sock), self._resolve)

    def _answer(self, request: list[Any]) -> None:
        number, operation, rest = request[0], request[1], request[2:]
        del request
        try:
            try:
                value = self._perform(operation, rest)
            finally:
                _hold_alarms()
            reply = wire.encode([number, "returned", value], self._export)
            del value, rest
        except BaseException as error:
            if _getpid() != self._pid:
                # A forked child ends with its exception, as without the harness.
                raise
            if isinstance(error, StopIteration) and operation == "special":
                reply = wire.encode([number, "stopped"])
            else:
                reply = wire.encode([number, "raised", *self._describe(error)])
        for stream in (sys.stdout, sys.stderr):
            # The program may have closed or replaced the stream.
            with contextlib.suppress(Exception):
                stream.flush()
        if _getpid() != self._pid:
            # A forked child does not answer: only the process that serves the request does.
            _exit(0)
        wire.send_frame(self._sock, reply)

    def _perform(self, operation: str, rest: list[Any]) -> Any:
        _release_alarms()
        if operation == "invoke":
            return _call(getattr(self._loaded(), rest[0]), rest[1], rest[2])
        if operation == "import":
            return self._import()
        if operation == "main":
            return script.run(self._sock, self._path, rest[0], self._adopt)
        if operation == "global":
            return getattr(self._loaded(), rest[0])
        if operation == "await":
            return _run(_call(getattr(self._loaded(), rest[0]), rest[1], rest[2]))
        target = self._objects[rest[0]]
        if operation == "attribute":
            return getattr(target, rest[1])
        if operation == "set":
            return setattr(target, rest[1], rest[2])
        if operation == "call":
            return _call(target, rest[1], rest[2])
        if operation == "isinstance":
            return isinstance(rest[1], target)
        if operation == "special" and rest[1] in SPECIAL:
            return _BUILT_IN.get(rest[1], _special(rest[1]))(target, *rest[2])
        raise wire.WireError(f"no such operation: {operation}")

    def _adopt(self, module: Any) -> None:
        self._module = module

    def _loaded(self) -> Any:
        """Returns the program's module, imported afresh in each process of it."""
        if self._module is None:
            # Not by `importlib`, which looks for bytecode first, and whose objects would be copied.
            loader = SourceFileLoader(MODULE_NAME, self._path)
            with open(self._path, "rb") as file:
                source = file.read()
            module = ModuleType(MODULE_NAME)
            spec = ModuleSpec(MODULE_NAME, loader, origin=self._path)
            spec.has_location = True
            vars(module).update(
                __spec__=spec, __loader__=loader, __file__=self._path, __package__=""
            )
            sys.modules[MODULE_NAME] = module
            exec(compile(source, self._path, "exec", dont_inherit=True), vars(module))
            self._module = module
        return self._module

    def _import(self) -> dict[str, list[Any]]:
        return {
            name: self._sketch(value)
            for name, value in list(vars(self._loaded()).items())
            if not name.startswith("__")
        }

    def _sketch(self, value: Any) -> list[Any]:
        """Returns what the stub shows of a name: its kind, and the signature of a function."""
        if not inspect.isfunction(value):
            return ["value"]
        code = value.__code__
        line = code.co_firstlineno if code.co_filename == self._path else 0
        kind = "coroutine" if inspect.iscoroutinefunction(value) else "function"
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2])
        counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
        defaults = [len(value.__defaults__ or ()), *list(value.__kwdefaults__ or ())]
        return [kind, str(value.__doc__ or ""), line, names, counts, defaults]

    def _describe(self, error: BaseException) -> tuple[str, str, str, str]:
        """Returns the exception's class name, text, failure kind and frames in the program."""
        try:
            message = str(error)[:_MAX_MESSAGE] + _about_place(error)
        except BaseException:
            message = "<an exception that cannot be printed>"
        return (
            type(error).__name__,
            message,
            kind_of(error, self._module is None),
            self._trace(error),
        )

    def _trace(self, error: BaseException) -> str:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == self._path or (self._folder and named(frame.filename))
        ]
        return "\n".join(
            f"program{named(frame.filename)} line {frame.lineno}, in {frame.name}: "
            f"{frame.line or ''}".rstrip(": ")
            for frame in frames[-_MAX_TRACE_FRAMES:]
        )

    def _export(self, value: Any) -> list[Any]:
        if isinstance(value, _Callback):
            return ["callback", value.number]
        number = next(self._numbers)
        self._objects[number] = value
        return ["object", number]

    def _resolve(self, kind: Any, number: Any) -> Any:
        return _Callback(self, number) if kind == "callback" else self._objects[number]

    def call_back(self, number: int, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        wire.send_frame(
            self._sock, wire.encode(["call", number, arguments, keywords], self._export)
        )
        while True:
            reply = self._receive()
            if reply[0] == "returned":
                return reply[1]
            if reply[0] == "raised":
                raise FAITHFUL.get(reply[1], RuntimeError)(
                    f"the evaluator's callback failed: {reply[1]}"
                )
            # Any other reply is a call of the program by the callback.
            self._answer(reply)


def rehearse(path: str) -> None:
    """Does in this process what a program's will do, so that forks find it done.

    What the interpreter makes at the first use, or rewrites after some, is then shared.

    Args:
      path: Of a file to write, which is removed again.
    """
    for _ in range(_REHEARSALS):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with open(path, "w") as file:
                file.write(_REHEARSED)
            server = ProgramServer(theirs, path)
            for request in ([1, "import"], [2, "invoke", "solve", [1], {}]):
                wire.send_frame(ours, wire.encode(request, server._export))
                server._answer(server._receive())
                wire.receive_frame(ours)
        del sys.modules[MODULE_NAME]
        os.unlink(path)


class _Callback:
    """A function of the evaluator, as the program sees it."""

    def __init__(self, player: ProgramServer, number: int) -> None:
        self._player = player
        self.number = number

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._player.call_back(self.number, list(arguments), keywords)


def kind_of(error: BaseException, importing: bool) -> str:
    """Returns the failure kind of an exception that left the program, "" for a plain one."""
    if isinstance(error, wire.WireError):
        return "invalid_result"
    if isinstance(error, WrongSignature):
        return "invalid_signature"
    if isinstance(error, MemoryError) or _short_of_memory(error):
        return "memory"
    if isinstance(error, SyntaxError) or (importing and _undecodable(error)):
        return "syntax"
    if isinstance(error, ImportError):
        return "import_blocked"
    if isinstance(error, OSError) and error.errno in (errno.EFBIG, errno.ENOSPC, errno.EDQUOT):
        return "output_limit"
    return "runtime"


def _short_of_memory(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ENOMEM


def _about_place(error: BaseException) -> str:
    """Returns where a program may write that wrote where it may not."""
    if not isinstance(error, PermissionError) or not str(error.filename).startswith("/tmp"):
        return ""
    return " (a program's directory for temporary files is tempfile.gettempdir())"


def _undecodable(error: BaseException) -> bool:
    """Whether the source's bytes, not something the program read, could not be compiled."""
    frame = error.__traceback__
    inside = False
    while frame is not None:
        inside = inside or frame.tb_frame.f_globals.get("__name__") == MODULE_NAME
        frame = frame.tb_next
    return isinstance(error, (ValueError, RecursionError, OverflowError)) and not inside


def _call(function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    if not callable(function):
        raise WrongSignature(f"a {type(function).__name__} is not callable")
    try:
        return function(*arguments, **keywords)
    except TypeError as error:
        inner = error.__traceback__.tb_next if error.__traceback__ else None
        if inner is None and not _accepts(function, arguments, keywords):
            raise WrongSignature(str(error)) from None
        raise


def _parts(target: Any) -> list[Any] | None:
    """Returns an object's first parts and an iterator over the rest, None where these are all.

    None instead of both means that the object is an iterator itself.
    """
    rest = iter(target)
    if rest is target:
        return None
    first: list[Any] = []
    until = monotonic() + _PARTS_SECONDS
    for part in rest:
        first.append(part)
        if len(first) >= _PARTS_AT_ONCE or monotonic() > until:
            return [first, rest]
    return [first, None]


def _special(name: str) -> Any:
    return lambda target, *rest: getattr(target, name)(*rest)


def _run(awaitable: Any) -> Any:
    # asyncio is a quarter of the harness's imports, and few programs need it.
    import asyncio

    return asyncio.run(_awaited(awaitable))


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def _accepts(function: Any, arguments: list[Any], keywords: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*arguments, **keywords)
    except TypeError:
        return False
    except ValueError:
        # A built-in may have no signature.
        return True
    return True


def _hold_alarms() -> None:
    """Blocks the alarms of timers that are set: none fires in the harness between two calls."""
    if any(_getitimer(timer)[0] for timer in _TIMERS):
        _mask(_BLOCK, _ALARMS)
        _alarms_held.append(True)


def _release_alarms() -> None:
    """Delivers the alarms that were blocked, now that the program's code runs."""
    if _alarms_held:
        _alarms_held.clear()
        _mask(_UNBLOCK, _ALARMS)
