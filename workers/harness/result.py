"""Turns what a stage function returned or raised into one strict JSON document.

A document is {"result": {"metrics": …, "artifacts": …}} or {"failure": {"kind", "detail"}}.
Whatever `float` takes is a number there, texts excepted.  Values of metrics that JSON cannot hold
are kept recognisable, so that `interpret` can refuse them with a clear message: a float that is not
finite becomes {"__nonfinite__": "nan" | "inf" | "-inf"}, another object {"__object__": its repr,
"type": the name of its class}.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from .arity import refused_by_program
from .errors import REMEDY
from .program_folder import named
from .program_server import kind_of

_MAX_DEPTH = 32
_MAX_NODES = 200_000
_MAX_DETAIL = 4000
_MAX_NAME = 500
_MAX_MOVES, _MAX_MOVE = 2000, 80
_LONGEST_INTEGER_BITS = 13_000
"""Python refuses to read back more than 4,300 digits."""


class NotAResult(Exception):
    """What was returned is not a result; the message gives the reason."""


def document(returned: Any, limit_bytes: int) -> bytes:
    """Returns the document for what a stage function returned."""
    try:
        metrics, artifacts = _parts(returned)
        writer = _Writer()
        body = {
            "metrics": writer.table(metrics, 0),
            "artifacts": _texts(artifacts, limit_bytes // 2),
        }
        encoded = json.dumps({"result": body}, allow_nan=False).encode("ascii")
    except NotAResult as reason:
        return failure("invalid_result", str(reason))
    if len(encoded) > limit_bytes:
        return failure("invalid_result", f"a result of {len(encoded)} bytes exceeds {limit_bytes}")
    return encoded


def is_result(document: bytes) -> bool:
    """Returns whether a document is the result of a stage, not its failure."""
    return document.startswith(b'{"result"')


def failure(kind: str, detail: str, seat: int | None = None, moves: Sequence[str] = ()) -> bytes:
    body: dict[str, Any] = {"kind": kind, "detail": clean(detail)[:_MAX_DETAIL]}
    if seat is not None:
        body |= {"seat": seat, "moves": list(moves)}
    return json.dumps({"failure": body}).encode()


def played(game: Iterator[object], moves: list[str], showing: int | None = None) -> Any:
    """Returns the result of a game that yields its moves, with the moves.

    Args:
      game: What the evaluator's function returned.
      moves: Filled while the game goes on.
      showing: Where each move is written for who watches, until one does not fit; None: nowhere.

    Raises:
      NotAResult: The game has too many moves, or returned no dict.
      Exception: What a player or the evaluator raised.
    """
    while True:
        try:
            move = next(game)
        except StopIteration as end:
            if not isinstance(end.value, dict):
                raise NotAResult(f"the game returned {_article(end.value)}, not a dict") from None
            return {**end.value, "moves": moves}
        if len(moves) == _MAX_MOVES:
            raise NotAResult(f"a game of more than {_MAX_MOVES} moves")
        moves.append(_text(move)[:_MAX_MOVE])
        if showing is not None and not _shown(moves[-1], showing):
            showing = None


def _shown(move: str, showing: int) -> bool:
    """Writes a move as a line of JSON, as a whole or not at all; returns whether it fitted."""
    try:
        os.write(showing, json.dumps(move).encode() + b"\n")
    except OSError:
        # The pipe is full, or has no reader.
        return False
    return True


def raised(
    error: BaseException,
    paths: tuple[str, ...],
    evaluator_root: str,
    shared: bool,
    moves: Sequence[str] = (),
) -> bytes:
    """Returns the document for an exception that left the stage function.

    Args:
      error: What was raised; it may be of a class the program defined.
      paths: What the stage function was given: the programs' files or their stand-ins.
      evaluator_root: Frames in files under it are the evaluator's.
      shared: Whether the programs run in this process.
      moves: Of a game, those until then.
    """
    program_paths = paths if shared else ()
    try:
        remark = error.__dict__.get("evoq_remark")
    except BaseException:
        # A program's class may define anything.
        remark = None
    frames = traceback.extract_tb(error.__traceback__)
    if remark is not None:
        return failure(remark.kind, _detail(error, remark.trace), remark.seat, moves)
    inside = [frame for frame in frames if frame.filename in program_paths]
    kind = "runtime"
    if isinstance(error, NotAResult):
        kind = "invalid_result"
    elif inside or _about(error, program_paths):
        kind = kind_of(error, importing=False)
    elif _is_null_source(error, frames, program_paths):
        kind = "syntax"
    elif isinstance(error, MemoryError):
        kind = "memory"
    elif type(error).__name__ in ("InvalidValue", "WireError"):
        kind = "invalid_result"
    elif _missing_name(error, program_paths) or refused_by_program(error, paths):
        kind = "invalid_signature"
    shown = (
        inside
        if inside or kind in ("syntax", "invalid_signature")
        else [frame for frame in frames if frame.filename.startswith(evaluator_root)]
    )
    place = "\n".join(_placed(frame, frame in inside) for frame in shown[-6:])
    about = _about_missing_file(error, evaluator_root)
    about += "" if shared else _about_programs_file(error, paths)
    return failure(kind, _detail(error, f"{about}{place}"))


def _about_missing_file(error: BaseException, evaluator_root: str) -> str:
    """Returns what to do where a tool or a file was not found that a trial could have had."""
    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, str):
        return ""
    name = error.filename
    tool = any(
        frame.name == "_execute_child" for frame in traceback.extract_tb(error.__traceback__)
    )
    if tool and "/" not in name:
        return (
            f"No tool `{name[:_MAX_NAME]}` is where trials run. Without Docker, install it on the "
            "machine of the worker; with Docker, in an image: a Dockerfile in the folder of the "
            "problem, or one that sandbox.image names\n"
        )
    if not os.path.isabs(name) and os.path.exists(os.path.join(evaluator_root, name)):
        return (
            "The file lies beside the evaluator, and the working directory of a trial is its own. "
            "Open it at os.path.join(os.path.dirname(os.path.abspath(__file__)), "
            f"{name[:_MAX_NAME]!r})\n"
        )
    return ""


def _about_programs_file(error: BaseException, paths: tuple[str, ...]) -> str:
    """Returns what to do where the evaluator did not get at a file of a program."""
    if not isinstance(error, OSError) or not paths:
        return ""
    trial = os.path.dirname(os.path.dirname(paths[0]))
    if not str(error.filename).startswith(f"{trial}/p"):
        return ""
    return (
        "A file of the program is out of the evaluator's sight in guarded mode. Let the program "
        f"return what is in it{REMEDY}\n"
    )


def _placed(frame: traceback.FrameSummary, of_program: bool) -> str:
    """Returns where a frame is, with its text if it is the program's: the evaluator's is hidden."""
    who = f"program{named(frame.filename)}" if of_program else "evaluator"
    text = f": {frame.line}" if of_program and frame.line else ""
    return f"{who} line {frame.lineno}, in {frame.name}{text}"


def _detail(error: BaseException, place: str) -> str:
    try:
        text = str(error)[:_MAX_DETAIL]
    except BaseException:
        text = "<an exception that cannot be printed>"
    name = type(error).__name__[:_MAX_NAME]
    head = text if name == "ProgramError" else f"{name}: {text}"
    return f"{head}\n{place}".strip()


def _about(error: BaseException, program_paths: tuple[str, ...]) -> bool:
    """Whether a SyntaxError is about a program's text."""
    return isinstance(error, SyntaxError) and error.filename in program_paths


def _is_null_source(error: BaseException, frames: Any, program_paths: tuple[str, ...]) -> bool:
    """Returns whether compiling, not running, a program failed on null bytes or its encoding."""
    kinds = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
    if not isinstance(error, kinds) or not program_paths:
        return False
    return any(frame.name in ("source_to_code", "get_code") for frame in frames[-3:])


def _missing_name(error: BaseException, program_paths: tuple[str, ...]) -> bool:
    """Returns whether the evaluator read an attribute that a program's module does not define."""
    if not isinstance(error, AttributeError):
        return False
    module = error.__dict__.get("obj", None) or getattr(error, "obj", None)
    return isinstance(module, type(sys)) and vars(module).get("__file__") in program_paths


def _parts(returned: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    if isinstance(returned, dict):
        return returned, {}
    # By name: the class may be the harness's or that of an installed openevolve.
    if all(kind.__name__ != "EvaluationResult" for kind in type(returned).__mro__):
        raise NotAResult(
            f"the evaluator returned {_article(returned)}, not a dict or an EvaluationResult"
        )
    metrics, artifacts = returned.metrics, returned.artifacts
    if not isinstance(metrics, dict):
        raise NotAResult(f"the metrics are {_article(metrics)}, not a dict")
    if artifacts is not None and not isinstance(artifacts, dict):
        raise NotAResult(f"the artifacts are {_article(artifacts)}, not a dict")
    return metrics, {} if artifacts is None else artifacts


def _article(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__[:_MAX_NAME]}"


class _Writer:
    def __init__(self) -> None:
        self._nodes_left = _MAX_NODES
        self._numpy: Any = sys.modules.get("numpy")

    def table(self, values: dict[Any, Any], depth: int) -> dict[str, Any]:
        return {_name(key): self.value(value, depth + 1) for key, value in dict.items(values)}

    def value(self, value: Any, depth: int) -> Any:
        self._nodes_left -= 1
        if depth > _MAX_DEPTH or self._nodes_left < 0:
            raise NotAResult("the result is nested too deep or has too many parts")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return clean(str.__str__(value))
        if isinstance(value, float):
            return _finite(float.__float__(value))
        if isinstance(value, int):
            number = int.__int__(value)
            if number.bit_length() > _LONGEST_INTEGER_BITS:
                return _finite(float("inf") if number > 0 else float("-inf"))
            return number
        if isinstance(value, dict):
            return self.table(value, depth)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.value(part, depth + 1) for part in value]
        return self._uncommon(value, depth)

    def _uncommon(self, value: Any, depth: int) -> Any:
        if self._numpy is not None and isinstance(value, self._numpy.ndarray):
            plain = value.reshape(())[()] if value.size == 1 else value.tolist()
            return self.value(plain, depth + 1)
        if self._numpy is not None and isinstance(value, self._numpy.generic):
            plain = value.tolist()
            if type(plain) is not type(value):
                return self.value(plain, depth + 1)
        number = _number(value)
        if number is not None:
            return number
        return {"__object__": _described(value), "type": type(value).__name__[:_MAX_NAME]}


def _number(value: Any) -> Any:
    """Returns an object as a number, which may be a tensor, a fraction or a decimal; else None."""
    defined = {name for kind in type(value).__mro__ for name in vars(kind)}
    if "__index__" in defined:
        # A tensor defines it whatever it holds, and refuses where that is no integer.
        with contextlib.suppress(Exception):
            return _Writer().value(operator.index(value), 0)
    try:
        return _finite(float(value)) if "__float__" in defined else None
    except OverflowError:
        return _finite(float("-inf") if value < 0 else float("inf"))
    # An object's own conversion may raise anything, as that of a tensor of several elements does.
    except Exception:
        return None


def _finite(value: float) -> Any:
    if value != value:
        return {"__nonfinite__": "nan"}
    if value in (float("inf"), float("-inf")):
        return {"__nonfinite__": "inf" if value > 0 else "-inf"}
    return value


def _texts(artifacts: dict[Any, Any], limit_bytes: int) -> dict[str, str]:
    """Returns artifacts as texts of at most `limit_bytes` characters together, whole ones first."""
    texts: dict[str, str] = {}
    left = limit_bytes // 2
    for key, value in dict.items(artifacts):
        text = _text(value)
        if len(text) > left:
            text = f"{text[:left]}\n[cut: {len(text) - left} of {len(text)} characters]"
        name = _name(key)
        texts[name] = text
        left = max(0, left - len(text))
        if len(texts) > 1000:
            break
    return texts


def _text(value: Any) -> str:
    if isinstance(value, str):
        return clean(str.__str__(value))
    if isinstance(value, (bytes, bytearray)):
        return clean(bytes(value).decode("utf-8", "replace"))
    try:
        plain = _Writer().value(value, 0)
    except NotAResult:
        return _described(value)
    opaque = isinstance(plain, dict) and "__object__" in plain
    return _described(value) if opaque else clean(json.dumps(plain))


def _described(value: Any) -> str:
    try:
        return clean(repr(value)[:_MAX_DETAIL])
    except Exception:
        # An object's own repr may fail.
        return f"<{type(value).__name__[:_MAX_NAME]}>"


def _name(key: Any) -> str:
    return (clean(str.__str__(key)) if isinstance(key, str) else _described(key))[:_MAX_NAME]


def clean(text: str) -> str:
    """Returns `text` without what databases and terminals cannot store: NUL and lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def describe_broken(error: BaseException, evaluator_root: str) -> str:
    """Returns one or two lines about the place and the error of an evaluator's failed import."""
    file: str | None = None
    line: int | None = None
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith(evaluator_root):
                file, line = frame.filename, frame.lineno
    place = ""
    if file is not None:
        place = f"{file.removeprefix(evaluator_root).lstrip('/')}, line {line}: "
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return clean(f"{place}{type(error).__name__}: {text}")[:_MAX_DETAIL]
