"""A problem made of two Python functions, whose sources are shipped to the sandbox.

The functions are read, never called: what they use of their modules is shipped with them, as
imports, constants and the sources of other functions and classes.
"""

import ast
import inspect
import symtable
import textwrap
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType

from app.adapters.problems import options as option
from app.adapters.problems.files import Source
from app.domain.problem import ProblemError
from app.domain.source import regions

_PROGRAM, _EVALUATOR, _CONFIG = "initial_program.py", "evaluator.py", "config.yaml"
_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, type(None))

_CALLING = """

def evaluate(program_path):
    import importlib.util as _util

    _spec = _util.spec_from_file_location("program", program_path)
    _program = _util.module_from_spec(_spec)
    _spec.loader.exec_module(_program)
    _returned = {evaluator}(_program.{function})
    return _returned if isinstance(_returned, dict) else {{"combined_score": _returned}}
"""


def source_of(function: Callable[..., object], evaluator: Callable[..., object]) -> Source:
    """Returns the files of a problem, in OpenEvolve's form.

    Args:
      function: What evolves; its text is the initial program.
      evaluator: Is called with the function, and returns a score or a dict of metrics.

    Raises:
      ProblemError: One of them is no function with a source text, or uses a value that cannot be
        shipped.
    """
    start, end = f"# {regions.MARKER}-START", f"# {regions.MARKER}-END"
    program = _shipped(function)
    program[-1] = f"{start}\n{program[-1]}\n{end}"
    calling = _CALLING.format(evaluator=evaluator.__name__, function=function.__name__)
    files = {
        _PROGRAM: "\n\n".join(program) + "\n",
        _EVALUATOR: "\n\n".join(_shipped(evaluator)) + calling,
    }
    return Source(
        function.__name__,
        {name: text.encode() for name, text in files.items()},
        {option.INITIAL: _PROGRAM, option.EVALUATOR: _EVALUATOR},
    )


def _shipped(function: Callable[..., object]) -> list[str]:
    """Returns the texts that define a function in a module of its own; its own comes last."""
    if not isinstance(function, FunctionType):
        raise _refused(repr(function), "is no function that was made by `def`", str(type(function)))
    parts: dict[str, str] = {}
    _ship(function, parts, function.__name__)
    return list(parts.values())


def _ship(made: FunctionType | type, parts: dict[str, str], name: str) -> None:
    """Adds what a function or class is made of, then itself."""
    text, tree = _text(made, name)
    if isinstance(made, FunctionType) and made.__code__.co_freevars:
        raise _refused(name, "uses variables of a function around it", made.__code__.co_freevars[0])
    names = vars(inspect.getmodule(made)) if isinstance(made, type) else made.__globals__
    # The name is entered before its parts, so that functions may call each other.
    parts[f"name {name}"] = ""
    for used in sorted(_globals(text, tree)):
        if used in names and used != name and f"name {used}" not in parts:
            _ship_value(used, names[used], made, parts)
    parts.pop(f"name {name}")
    parts[f"name {name}"] = text


def _globals(text: str, tree: ast.Module) -> set[str]:
    """Returns the names that a definition looks up outside itself."""
    tables, found = [symtable.symtable(text, "<source>", "exec")], set[str]()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        found |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
        # Annotations, defaults and bases are looked up in the module's table.
        if table.get_type() == "module":
            found |= {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    return found & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _ship_value(name: str, value: object, user: FunctionType | type, parts: dict[str, str]) -> None:
    if isinstance(value, ModuleType):
        parts[f"name {name}"] = f"import {value.__name__} as {name}"
    elif isinstance(value, FunctionType | type) and value.__module__ == user.__module__:
        _ship(value, parts, name)
    elif isinstance(value, _CONSTANTS) and _literal(value):
        parts[f"name {name}"] = f"{name} = {value!r}"
    elif isinstance(value, FunctionType | BuiltinFunctionType | type):
        parts[f"name {name}"] = f"from {value.__module__} import {value.__qualname__} as {name}"
    else:
        raise _refused(user.__name__, f"uses {name!r}, whose value cannot be shipped", repr(value))


def _literal(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _text(made: FunctionType | type, name: str) -> tuple[str, ast.Module]:
    """Returns the source of a function or class, without decorators."""
    try:
        text = textwrap.dedent(inspect.getsource(made))
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError) as error:
        raise _refused(name, "has no source text that can be read", str(error)) from error
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        raise _refused(name, "is no function with a name", text.strip()[:80])
    return "".join(regions.lines(text)[node.lineno - 1 :]).rstrip(), tree


def _refused(name: str, what: str, value: str) -> ProblemError:
    return ProblemError(
        what,
        where=name,
        value=value[:80],
        remedy="Define it with `def` at the top level of a file; what it uses must be imports, "
        "constants, functions and classes of that file.",
    )
