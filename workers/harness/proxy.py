"""What stands for the program's objects in the evaluator, and asks the program about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from . import wire
from .errors import REMEDY, CannotCross, ProgramCrashed


class Line(Protocol):
    """A connection to the program, as its objects use it.

    Attributes:
      generation: How many processes of the program there have been.
      ended: Numbers of iterators that have said they are at their end.
      own_iterators: Numbers of objects that have said they are their own iterators.
    """

    generation: int
    ended: set[int]
    own_iterators: set[int]

    def ask(self, *request: Any) -> Any: ...
    def read(self, *request: Any) -> Any: ...


class Proxy:
    """An object of the program that cannot cross.

    Comparisons and arithmetic are not passed on: an object that equals everything would be a score.
    What has been read of it stays as it was read until the evaluator lets the program run again, so
    that what is scored is what was checked.
    """

    __slots__ = ("_evoq",)

    def __init__(self, session: Line, number: int, generation: int) -> None:
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
        told = self._read("special", "__iter__", [])
        if told is None:
            session.own_iterators.add(number)
            return self
        if not isinstance(told, list) or len(told) != 2 or not isinstance(told[0], list):
            raise wire.WireError("not the parts of an object")
        return _parts(*told)

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

    def _present(self) -> tuple[Line, int]:
        session, number, generation = self._evoq
        if generation != session.generation:
            raise ProgramCrashed("this object was lost when the program's process ended")
        return session, number


def _parts(first: list[Any], rest: Any) -> Iterator[Any]:
    """Yields the parts that were sent with the answer, then those that were too many for it."""
    yield from first
    if isinstance(rest, Proxy):
        yield from rest
