"""The evaluator's side of guarded mode: proxies for a program that lives in another process.

The file an evaluator is given as `program_path` is `SOURCE`.  Importing it, with importlib,
`__import__` or from a child process, yields functions that call the program over a socket.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from typing import Any

from . import wire

SOURCE = """\
# This file stands in for the program, which runs in another process.  Its text is at the path in
# the environment variable EVOQ_PROGRAM_SOURCE.
import sys as _sys
if {library!r} not in _sys.path:
    _sys.path.append({library!r})
from evoq_harness.stub import bind as _bind
_bind(globals(), {address!r})
"""

_MAX_MESSAGE = 2000
_FAITHFUL: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ValueError, TypeError, KeyError, IndexError, LookupError, ZeroDivisionError,
        AttributeError, ArithmeticError, OverflowError, FloatingPointError, NotImplementedError,
        AssertionError, RecursionError, MemoryError, SyntaxError, IndentationError, ImportError,
        ModuleNotFoundError, NameError, UnboundLocalError, RuntimeError, OSError, EOFError,
        FileNotFoundError, PermissionError, TimeoutError, BufferError, FileExistsError,
    )
}  # fmt: skip


class ProgramError(RuntimeError):
    """The program raised a class of its own, or one that has no counterpart here."""


class ProgramCrashed(RuntimeError):
    """The program's process ended during a call."""


class InvalidValue(ValueError):
    """The program returned something that cannot cross as plain values."""


class Remark:
    """What the program's side said about an exception, for the outcome.

    Attributes:
      kind: A FailureKind's value, or "" where the exception decides.
      trace: The frames inside the program, innermost last, as text.
    """

    __slots__ = ("kind", "trace")

    def __init__(self, kind: str, trace: str) -> None:
        self.kind = kind
        self.trace = trace


def _exception(name: str, message: str, kind: str, trace: str) -> Exception:
    mother = _FAITHFUL.get(name)
    message = message[:_MAX_MESSAGE]
    error: Exception
    if kind == "invalid_result":
        error = InvalidValue(message)
    elif mother is None:
        error = ProgramError(f"{name[:100]}: {message}")
    else:
        error = mother(message)
    error.__dict__["evoq_remark"] = Remark(kind, trace)  # read by `result`
    return error


class Session:
    """One connection to the program; each opens its own process of it, importing it afresh.

    A call that was interrupted or answered wrongly ends the connection, and the next one makes a
    new one.  A forked child of the evaluator makes its own.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.RLock()
        self._sock: socket.socket | None = None
        self._owner = os.getpid()
        self._numbers = itertools.count(1)
        self._callbacks: dict[int, Any] = {}
        self.generation = 0

    def ask(self, *request: Any) -> Any:
        """Returns the program's answer to one request.

        Raises:
          Exception: What the program raised, as a class of the same name where that is built in.
        """
        if os.getpid() != self._owner:  # a lock or socket inherited through fork is not ours
            self._owner, self._lock, self._sock = os.getpid(), threading.RLock(), None
        with self._lock:
            whole = False
            try:
                answer = self._exchange(request)
                whole = True
            except (EOFError, OSError):
                raise ProgramCrashed("the program ended during the call") from None
            finally:
                if not whole:
                    self._hang_up()
        if answer[1] == "returned":
            return answer[2]
        if answer[1] == "stopped":
            raise StopIteration
        raise _exception(*(str(part) for part in answer[2:6]))

    def _exchange(self, request: tuple[Any, ...]) -> list[Any]:
        if self._sock is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(self._address)
            self._sock = sock
            self.generation += 1
        number = next(self._numbers)
        wire.send_frame(self._sock, wire.encode([number, *request], self._export))
        while True:
            answer = wire.decode(wire.receive_frame(self._sock), self._resolve)
            if not isinstance(answer, list) or len(answer) < 2:
                raise wire.WireError("not an answer")
            if answer[0] == "call" and len(answer) == 4:
                self._serve_callback(answer)
                continue
            lengths = {"returned": 3, "raised": 6, "stopped": 2}
            if answer[0] != number or lengths.get(str(answer[1])) != len(answer):
                raise wire.WireError("not an answer to this request")
            return answer

    def _serve_callback(self, call: list[Any]) -> None:
        assert self._sock is not None
        _, number, arguments, keywords = call
        try:
            value = self._callbacks[number](*arguments, **keywords)
            reply = wire.encode(["returned", value], self._export)
        except Exception as error:  # the evaluator's own: the program sees its name and text
            reply = wire.encode(["raised", type(error).__name__, str(error)[:_MAX_MESSAGE]])
        wire.send_frame(self._sock, reply)

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _export(self, value: Any) -> list[Any] | None:
        if isinstance(value, Proxy):
            session, number, generation = value._evoq
            if session is self and generation == self.generation:
                return ["own", number]
        elif callable(value) and not isinstance(value, type):
            number = next(self._numbers)
            self._callbacks[number] = value
            return ["callback", number]
        return None

    def _resolve(self, kind: Any, number: Any) -> Any:
        if kind == "callback" and type(number) is int and number in self._callbacks:
            return self._callbacks[number]
        if kind != "object" or type(number) is not int:
            raise wire.WireError("not a handle")
        return Proxy(self, number, self.generation)


class Proxy:
    """An object of the program that cannot cross: everything about it is asked for there."""

    __slots__ = ("_evoq",)

    def __init__(self, session: Session, number: int, generation: int) -> None:
        self._evoq = (session, number, generation)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._ask("attribute", name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._ask("call", list(arguments), keywords)

    def __getitem__(self, index: Any) -> Any:
        return self._ask("special", "__getitem__", [index])

    def __len__(self) -> int:
        return int(self._ask("special", "__len__", []))

    def __iter__(self) -> Any:
        return self._ask("special", "__iter__", [])

    def __next__(self) -> Any:
        return self._ask("special", "__next__", [])

    def __repr__(self) -> str:
        return f"<object {self._evoq[1]} of the program>"

    def _ask(self, operation: str, *rest: Any) -> Any:
        session, number, generation = self._evoq
        if generation != session.generation:
            raise ProgramCrashed("this object was lost when the program's process ended")
        return session.ask(operation, number, *rest)


def bind(namespace: dict[str, Any], address: str) -> None:
    """Fills a module's namespace with the program's names.

    Functions become real functions, so that `inspect.isfunction` and `__name__` hold; everything
    else is fetched when it is used.
    """
    session = Session(address)
    names = session.ask("import")
    if not isinstance(names, dict):
        raise wire.WireError("not a table of names")
    names = {name: doc for name, doc in names.items() if _plain(name)}

    def fetch(name: str) -> Any:
        if name not in names:
            raise _exception(
                "AttributeError", f"the program defines no {name!r}", "invalid_signature", ""
            )
        return session.ask("global", name)

    for name, description in names.items():
        if description is not None:
            namespace[name] = _function(session, name, description)
    namespace["__getattr__"] = fetch
    namespace["__dir__"] = lambda: sorted(names)
    namespace["__all__"] = [name for name in names if not name.startswith("_")]


def _plain(name: Any) -> bool:
    """Whether a name the program gave may stand in the stub: never one with a meaning there."""
    return isinstance(name, str) and name.isidentifier() and not name.startswith("__")


def _function(session: Session, name: str, description: str) -> Any:
    def remote(*arguments: Any, **keywords: Any) -> Any:
        return session.ask("invoke", name, list(arguments), keywords)

    remote.__name__ = remote.__qualname__ = name
    remote.__doc__ = description
    return remote
