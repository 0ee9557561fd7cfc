"""The program's side of guarded mode: imports it and answers the stub's requests.

Runs in the program's own process and identity; everything here may be rewritten by the program,
so the other side believes nothing it says.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import inspect
import itertools
import socket
import sys
import traceback
from typing import Any

from . import wire

MODULE_NAME = "program"
_SPECIAL = ("__getitem__", "__len__", "__iter__", "__next__")
_MAX_MESSAGE = 2000
_MAX_TRACE_FRAMES = 6


class WrongSignature(Exception):
    """What was called is not callable, or not with these arguments."""


class Player:
    """Serves one connection until the evaluator hangs up."""

    def __init__(self, sock: socket.socket, path: str) -> None:
        self._sock = sock
        self._path = path
        self._numbers = itertools.count(1)
        self._objects: dict[int, Any] = {}
        self._module: Any = None

    def serve(self) -> None:
        while True:
            try:
                request = wire.decode(wire.receive_frame(self._sock), self._resolve)
            except EOFError:
                return
            number, operation, rest = request[0], request[1], request[2:]
            request = None
            try:
                value = self._perform(operation, rest)
                reply = wire.encode([number, "returned", value], self._export)
                value = rest = None
            except BaseException as error:
                if isinstance(error, StopIteration) and operation == "special":
                    reply = wire.encode([number, "stopped"])
                else:
                    reply = wire.encode([number, "raised", *self._describe(error, operation)])
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # closed or replaced by the program
                    stream.flush()
            try:
                wire.send_frame(self._sock, reply)
            except OSError:  # the evaluator waits no longer, which is its right
                return

    def _perform(self, operation: str, rest: list[Any]) -> Any:
        if operation == "invoke":
            return _call(getattr(self._module, rest[0]), rest[1], rest[2])
        if operation == "import":
            return self._import()
        if operation == "global":
            return getattr(self._module, rest[0])
        target = self._objects[rest[0]]
        if operation == "attribute":
            return getattr(target, rest[1])
        if operation == "call":
            return _call(target, rest[1], rest[2])
        if operation == "special" and rest[1] in _SPECIAL:
            return getattr(target, rest[1])(*rest[2])
        raise wire.WireError(f"no such operation: {operation}")

    def _import(self) -> dict[str, str | None]:
        spec = importlib.util.spec_from_file_location(MODULE_NAME, self._path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self._path} is not Python source")
        module = importlib.util.module_from_spec(spec)
        sys.modules[MODULE_NAME] = module
        spec.loader.exec_module(module)
        self._module = module
        return {
            name: str(value.__doc__ or "") if inspect.isfunction(value) else None
            for name, value in list(vars(module).items())
            if not name.startswith("__")
        }

    def _describe(self, error: BaseException, operation: str) -> tuple[str, str, str, str]:
        """Returns the exception's class name, text, failure kind and frames in the program."""
        try:
            message = str(error)[:_MAX_MESSAGE]
        except BaseException:
            message = "<an exception that cannot be printed>"
        return (
            type(error).__name__,
            message,
            kind_of(error, operation == "import"),
            self._trace(error),
        )

    def _trace(self, error: BaseException) -> str:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == self._path
        ]
        return "\n".join(
            f"program line {frame.lineno}, in {frame.name}: {frame.line or ''}".rstrip(": ")
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
        reply = wire.decode(wire.receive_frame(self._sock), self._resolve)
        if reply[0] == "returned":
            return reply[1]
        raise RuntimeError(f"the evaluator's callback failed: {reply[1]}: {reply[2]}")


class _Callback:
    """A function of the evaluator, as the program sees it."""

    def __init__(self, player: Player, number: int) -> None:
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
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, SyntaxError) or (importing and _undecodable(error)):
        return "syntax"
    if isinstance(error, ImportError):
        return "import_blocked"
    if isinstance(error, OSError) and error.errno in (errno.EFBIG, errno.ENOSPC, errno.EDQUOT):
        return "output_limit"
    return "runtime"


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


def _accepts(function: Any, arguments: list[Any], keywords: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*arguments, **keywords)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return True
    return True
