"""Decides whether a TypeError results from a call that the program's function does not accept.

In a shared process no proxy separates evaluator and program, so the call is looked up in the
evaluator's text by its position, never by the message of the error.
"""

from __future__ import annotations

import ast
import inspect
import types
from typing import Any

_MISSING = object()


def refused_by_program(error: BaseException, program_paths: tuple[str, ...]) -> bool:
    """Returns whether the evaluator called something of a program with arguments it cannot take.

    Args:
      error: What left the stage function.
      program_paths: Where the programs' source is, or their stand-ins.
    """
    trace = error.__traceback__
    if type(error) is not TypeError or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    if code.co_filename in program_paths:
        return False
    call = _call_at(code, trace.tb_lasti)
    if call is None:
        return False
    function = _value(call.func, trace.tb_frame)
    if function is _MISSING or not callable(function):
        # The stub's module has functions only; any other attribute was a plain value.
        return _is_of_program(call.func, trace.tb_frame, program_paths)
    bound = 0
    if inspect.isclass(function):
        function, bound = vars(function).get("__init__"), 1
    if not inspect.isfunction(function) or function.__code__.co_filename not in program_paths:
        return False
    return not _takes(function, call, bound)


def _call_at(code: types.CodeType, offset: int) -> ast.Call | None:
    """Returns the call that an instruction belongs to; None if it cannot be determined."""
    positions = list(code.co_positions())
    place = positions[offset // 2] if offset // 2 < len(positions) else None
    if place is None or None in place:
        return None
    try:
        with open(code.co_filename, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    # SystemError: CPython 3.11 counts the depth of all threads' trees in one place.
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError, SystemError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            position = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
            if position == place:
                return node
    return None


def _value(node: ast.expr, frame: types.FrameType) -> Any:
    """Returns what a name, or an attribute of a module, referred to; runs no code of an object."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id, _MISSING))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        if isinstance(owner, types.ModuleType):
            return vars(owner).get(node.attr, _MISSING)
    return _MISSING


def _is_of_program(node: ast.expr, frame: types.FrameType, program_paths: tuple[str, ...]) -> bool:
    if not isinstance(node, ast.Attribute):
        return False
    owner = _value(node.value, frame)
    return isinstance(owner, types.ModuleType) and vars(owner).get("__file__") in program_paths


def _takes(function: types.FunctionType, call: ast.Call, bound: int) -> bool:
    """Returns whether the function takes so many arguments after `bound` first ones, by name."""
    names = [keyword.arg for keyword in call.keywords]
    if None in names or any(isinstance(argument, ast.Starred) for argument in call.args):
        # The text does not determine the arguments.
        return True
    try:
        inspect.signature(function).bind(
            *range(bound), *call.args, **{str(name): None for name in names}
        )
    except TypeError:
        return False
    except ValueError:
        return True
    return True
