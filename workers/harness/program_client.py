"""The evaluator's connection to a program, and the proxies of the program's objects."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

from . import wire
from .errors import KINDS_OF_A_PROGRAM, REMEDY, CannotCross, ProgramCrashed, blamed, exception
from .player_clock import PlayerClock
from .wire_limits import INTEGER_HEX_DIGITS, PRINTED_HEX_DIGITS

_READING = frozenset({"global", "attribute", "isinstance", "import"})
_RUNNING = frozenset({"__next__", "__setitem__", "__enter__", "__exit__"})


class ProgramClient:
    """One connection to the program; each opens its own process of it, importing it afresh.

    A call that was interrupted or answered wrongly ends the connection, and the next one makes a
    new one.  A forked child of the evaluator makes its own.

    Attributes:
      generation: How many processes of the program there have been.
      ended: Numbers of iterators that are exhausted.
      own_iterators: Numbers of objects that are their own iterators.
    """

    def __init__(self, address: str, clock: PlayerClock | None = None) -> None:
        self._address = address
        self._clock = clock
        self._integer_hex_digits = PRINTED_HEX_DIGITS if clock else INTEGER_HEX_DIGITS
        self._lock = threading.RLock()
        self._sock: socket.socket | None = None
        self._owner = os.getpid()
        self._numbers = itertools.count(1)
        self._callbacks: dict[int, Any] = {}
        self._cached: dict[bytes, Any] = {}
        self.generation = 0
        self.ended: set[int] = set()
        self.own_iterators: set[int] = set()

    def read(self, *request: Any) -> Any:
        """Returns the answer to a request, cached until the program runs again.

        Raises:
          Exception: What the program raised; exceptions are not cached.
        """
        self._forget_after_fork()
        with self._lock:
            key = b"".join(map(bytes, self._request(list(request))))
            if key not in self._cached:
                self._cached[key] = self.ask(*request)
            return self._cached[key]

    def ask(self, *request: Any) -> Any:
        """Returns the program's answer to one request.

        Raises:
          Exception: What the program raised, as a class of the same name where that is built in.
        """
        self._forget_after_fork()
        with self._lock:
            if _runs(request):
                self._cached.clear()
            whole = False
            try:
                answer = self._timed(self._clock, request) if self._clock else self._answer(request)
                whole = True
            finally:
                if not whole:
                    self._hang_up()
                # A callback may have filled the cache during the call.
                if _runs(request):
                    self._cached.clear()
        if answer[1] == "returned":
            return answer[2]
        if answer[1] == "stopped":
            # Only where iteration can end: elsewhere it would end a loop of the evaluator early.
            if request[0] != "special" or request[2] != "__next__":
                error = wire.WireError("not an answer to this request")
                raise self.blame(error, "invalid_result")
            raise StopIteration
        name, message, kind, trace = answer[2:]
        raised = exception(name, message + _about_paths(name, request), kind, trace)
        raise self.blame(raised, kind if kind in KINDS_OF_A_PROGRAM else "runtime")

    def blame(self, error: Exception, kind: str) -> Exception:
        """Returns an error that the program caused; of a player of a game, marked with its seat."""
        return blamed(error, kind, self._clock.seat) if self._clock else error

    def _answer(self, request: tuple[Any, ...]) -> list[Any]:
        try:
            return self._exchange(request)
        except TimeoutError:
            # Only a player of a game has a clock, and `_timed` handles its end.
            raise
        except (EOFError, OSError):
            raise ProgramCrashed("the program ended during the call") from None

    def _timed(self, clock: PlayerClock, request: tuple[Any, ...]) -> list[Any]:
        """Returns the answer of a player of a game, which alone is to blame for a wrong one."""
        clock.begin(loads=request[0] == "import")
        try:
            return self._answer(request)
        except TimeoutError:
            raise clock.expired() from None
        except ProgramCrashed as error:
            raise blamed(error, "runtime", clock.seat) from None
        except wire.WireError as error:
            raise blamed(error, "invalid_result", clock.seat) from None
        finally:
            clock.end()

    def _forget_after_fork(self) -> None:
        # A lock or socket inherited through fork belongs to the parent.
        if os.getpid() != self._owner:
            self._owner, self._lock, self._sock = os.getpid(), threading.RLock(), None

    def _exchange(self, request: tuple[Any, ...]) -> list[Any]:
        if self._sock is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(self._address)
            self._sock = sock
            self.generation += 1
            for known in (self._cached, self.ended, self.own_iterators):
                known.clear()
        number = next(self._numbers)
        left_seconds = self._clock.left_seconds if self._clock else None
        if left_seconds is not None:
            self._sock.settimeout(left_seconds())
        wire.send_frame(self._sock, self._request([number, *request]))
        if request[0] == "main":
            socket.send_fds(self._sock, [b"."], [0, 1, 2])
        while True:
            frame = wire.receive_frame(self._sock, left_seconds=left_seconds)
            answer = wire.decode(frame, self._resolve, self._integer_hex_digits)
            if not isinstance(answer, list) or len(answer) < 2:
                raise wire.WireError("not an answer")
            if answer[0] == "call" and len(answer) == 4:
                self._serve_callback(answer)
                continue
            if not _is_answer(answer, number):
                raise wire.WireError("not an answer to this request")
            return answer

    def _request(self, request: list[Any]) -> list[wire.Buffer]:
        try:
            return wire.encode(request, self._export)
        except wire.WireError as error:
            raise CannotCross(
                f"the evaluator passes the program what cannot cross in guarded mode: {error}. "
                f"Pass plain values or functions{REMEDY}"
            ) from None

    def _serve_callback(self, call: list[Any]) -> None:
        assert self._sock is not None
        _, number, arguments, keywords = call
        self._cached.clear()
        try:
            value = self._callbacks[number](*arguments, **keywords)
            reply = wire.encode(["returned", value], self._export)
        except Exception as error:
            # The message may contain facts hidden from the program.
            reply = wire.encode(["raised", type(error).__name__])
        wire.send_frame(self._sock, reply)

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _export(self, value: Any) -> list[Any] | None:
        if isinstance(value, Proxy):
            # `_evoq` is a slot, so reading it makes no request.
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


def _is_answer(answer: list[Any], number: int) -> bool:
    """Returns whether an answer has a known form; a program can forge every part of it.

    Parts that are objects of the program, or integers too long to print, are no texts.
    """
    head, *rest = answer[1:]
    if type(answer[0]) is not int or answer[0] != number or type(head) is not str:
        return False
    if head == "raised":
        return len(rest) == 4 and all(type(part) is str for part in rest)
    return len(rest) == {"returned": 1, "stopped": 0}.get(head)


def _runs(request: tuple[Any, ...]) -> bool:
    """Returns whether a request may change the program's state."""
    if request[0] == "special":
        return request[2] in _RUNNING
    return request[0] not in _READING


def _about_paths(name: str, request: tuple[Any, ...]) -> str:
    """Returns what to do where the program did not find a file that the evaluator spoke of."""
    if name not in ("FileNotFoundError", "PermissionError", "NotADirectoryError"):
        return ""
    lists = [part for part in request[1:] if isinstance(part, list)]
    lists += [list(part.values()) for part in request[1:] if isinstance(part, dict)]
    texts = [item for item in itertools.chain(*lists) if isinstance(item, str) and "/" in item]
    given = next((text for text in texts if os.path.exists(text)), None)
    if given is None:
        return ""
    return (
        f" (the evaluator passed {given[:200]!r}, a file of its own: in guarded mode a program "
        f"sees none of them. Pass what is in it{REMEDY[:-1]})"
    )


class Proxy:
    """An object of the program that cannot cross.

    Comparisons and arithmetic are not passed on: an object that equals everything would be a score.
    What has been read of it stays as it was read until the evaluator lets the program run again, so
    that what is scored is what was checked.
    """

    __slots__ = ("_evoq",)

    def __init__(self, session: ProgramClient, number: int, generation: int) -> None:
        object.__setattr__(self, "_evoq", (session, number, generation))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._read("attribute", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._ask("call", list(arguments), keywords)

    def __getitem__(self, index: Any) -> Any:
        return self._read("special", "__getitem__", [index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._ask("special", "__setitem__", [index, value])

    def __contains__(self, value: Any) -> bool:
        return bool(self._read("special", "__contains__", [value]))

    def __len__(self) -> int:
        return int(self._read("special", "__len__", []))

    def __bool__(self) -> bool:
        return self._read("special", "__bool__", []) is True

    def __float__(self) -> float:
        return float(self._read("special", "__float__", []))

    def __int__(self) -> int:
        return int(self._read("special", "__int__", []))

    def __str__(self) -> str:
        return str(self._read("special", "__str__", []))

    def __iter__(self) -> Any:
        session, number, _ = self._evoq
        if number in session.own_iterators:
            return self
        parts = self._read("special", "__iter__", [])
        if parts is None:
            session.own_iterators.add(number)
            return self
        if not isinstance(parts, list) or len(parts) != 2 or not isinstance(parts[0], list):
            raise wire.WireError("not the parts of an object")
        return _parts(*parts)

    def __next__(self) -> Any:
        session, number, _ = self._evoq
        if number in session.ended:
            raise StopIteration
        try:
            return self._ask("special", "__next__", [])
        except StopIteration:
            session.ended.add(number)
            raise

    def __enter__(self) -> Any:
        return self._ask("special", "__enter__", [])

    def __exit__(self, *exception: object) -> None:
        self._ask("special", "__exit__", [None, None, None])

    def __instancecheck__(self, value: Any) -> bool:
        if not isinstance(value, Proxy) or value._evoq[0] is not self._evoq[0]:
            return False
        return self._read("isinstance", value) is True

    def __mro_entries__(self, bases: Any) -> Any:
        raise CannotCross(
            "the evaluator derives a class from one of the program's, which lives in another "
            f"process in guarded mode. Use its objects{REMEDY}"
        )

    def __repr__(self) -> str:
        return f"<object {self._evoq[1]} of the program>"

    def _ask(self, operation: str, *rest: Any) -> Any:
        session, number = self._present()
        return session.ask(operation, number, *rest)

    def _read(self, operation: str, *rest: Any) -> Any:
        session, number = self._present()
        return session.read(operation, number, *rest)

    def _present(self) -> tuple[ProgramClient, int]:
        session, number, generation = self._evoq
        if generation != session.generation:
            raise ProgramCrashed("this object was lost when the program's process ended")
        return session, number


def _parts(first: list[Any], rest: Any) -> Iterator[Any]:
    """Yields the parts that were sent with the answer, then those that were too many for it."""
    yield from first
    if isinstance(rest, Proxy):
        yield from rest
