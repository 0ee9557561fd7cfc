"""Syntax of Python programs: trees, faults, and the names and numbers in a tree."""

import ast
import builtins
import functools
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias, TypeVar

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode: TypeAlias = FunctionNode | ast.ClassDef
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITION_NODES = (*FUNCTION_NODES, ast.ClassDef)
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What `syntax_tree` raises for a text that is not Python, or is too deeply nested to parse."""
_ATTEMPTS = 8
_BUILTINS = frozenset(dir(builtins))
_HUGE = 1e15
_REMEMBERED = 4096
SHARED = 8
"""Trees that are kept: of parents, and of the texts on the way to a child.  Some take megabytes."""

_MARKS = frozenset(
    mark
    for kind in (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
    for mark in kind.__subclasses__()
)
"""Kinds of nodes of which there is one each, without parts."""
_ENDS = frozenset({ast.Name, ast.Constant})
_HOLDING_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_NAMING = frozenset({
    ast.Name, ast.Global, ast.Nonlocal, ast.arg, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.ClassDef, ast.ExceptHandler, ast.MatchMapping, ast.MatchAs, ast.MatchStar, ast.Import,
    ast.ImportFrom,
})  # fmt: skip

Fact = TypeVar("Fact")


def remembered(fact: Callable[[str], Fact]) -> Callable[[str], Fact]:
    """Keeps the results of a pure function of a source text, of up to `_REMEMBERED` texts.

    A parent is looked at once for each of its children, and a child by several checks.  The digests
    of the texts are kept, not the texts, so the results must be small.  Threads may share it: each
    operation on the dictionary is atomic, and at worst a result is computed twice.
    """
    results: dict[bytes, Fact] = {}

    @functools.wraps(fact)
    def recalled(text: str) -> Fact:
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        try:
            return results[key]
        except KeyError:
            result = fact(text)
        if len(results) >= _REMEMBERED:
            results.clear()
        results[key] = result
        return result

    return recalled


def syntax_tree(text: str | bytes) -> ast.Module:
    """Returns the tree of a program; see `ast.parse`.

    CPython before 3.11.8 and 3.12.2 counts the nesting depth of all threads in one place, so that a
    switch between two threads can raise `SystemError: AST constructor recursion depth mismatch`
    (https://github.com/python/cpython/issues/106905).  The error does not depend on the text, so
    parsing is attempted again.

    Raises:
      SyntaxError, ValueError, RecursionError, MemoryError: As `ast.parse`.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)


def tree_or_none(text: str) -> ast.Module | None:
    """Returns the tree of a program; None where the text does not parse."""
    try:
        return syntax_tree(text)
    except UNPARSABLE:
        return None


def top_level(text: str) -> list[ast.stmt]:
    """Returns the statements of a program; [] where the text does not parse."""
    tree = tree_or_none(text)
    return tree.body if tree is not None else []


def first_line(node: ast.stmt) -> int:
    """Returns a statement's first line, from 0: of a definition, that of its first decorator."""
    decorators = node.decorator_list if isinstance(node, DEFINITION_NODES) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1


def called_name(node: ast.Call) -> str:
    """Returns the name of a function or method that is called; "" where it has none."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


@functools.lru_cache(maxsize=SHARED)
def shared_tree(text: str) -> ast.Module:
    """Returns the tree of a program, which nobody may change: the checks of one text share it.

    Raises:
      SyntaxError, ValueError, RecursionError, MemoryError: As `ast.parse`.
    """
    return syntax_tree(text)


@remembered
def syntax_fault(text: str) -> str | None:
    """Returns why a text is not Python, with the line; None where it parses."""
    try:
        shared_tree(text)
    except SyntaxError as error:
        line = (error.text or "").strip()[:160]
        return f"line {error.lineno}: {error.msg}" + (f"\n    {line}" if line else "")
    except ValueError as error:
        return f"not a source text: {error}"
    except (RecursionError, MemoryError):
        return "an expression is nested too deeply for the compiler"
    return None


def nodes(root: ast.AST, kinds: Collection[type[ast.AST]] | None = None) -> list[ast.AST]:
    """Returns the nodes of a tree in the order of `ast.walk`, in 0.4 of its time.

    Left out are operators, and what says whether a name is read or written.

    Args:
      root: The tree; also a node.
      kinds: The types of the nodes to return; None for all.
    """
    found = [root]
    for node in found:
        if type(node) not in _ENDS:
            values = vars(node)
            for field in node._fields:
                value = values.get(field)
                if isinstance(value, list):
                    found += [part for part in value if isinstance(part, ast.AST)]
                elif isinstance(value, ast.AST) and type(value) not in _MARKS:
                    found.append(value)
    return found if kinds is None else [node for node in found if type(node) in kinds]


def statements(tree: ast.Module) -> list[ast.AST]:
    """Returns a tree and its statements, handlers and cases, in the order of `ast.walk`.

    A walk that leaves out the expressions takes a fifth of the time of `nodes`.
    """
    found: list[ast.AST] = [tree]
    for node in found:
        for value in vars(node).values():
            if isinstance(value, list):
                found += [part for part in value if isinstance(part, _HOLDING_STATEMENTS)]
    return found


def with_replaced(node: ast.AST, new: Mapping[ast.AST, ast.AST]) -> ast.AST:
    """Returns a copy of a node with some nodes inside it replaced; the node stays as it is.

    The two have in common what does not change.
    """
    if node in new:
        return new[node]
    if type(node) in _ENDS:
        return node
    changed: dict[str, object] = {}
    values = vars(node)
    for field in node._fields:
        value = values.get(field)
        if isinstance(value, list):
            parts = [
                with_replaced(part, new) if isinstance(part, ast.AST) else part for part in value
            ]
            if any(part is not before for part, before in zip(parts, value, strict=True)):
                changed[field] = parts
        elif isinstance(value, ast.AST) and type(value) not in _MARKS:
            part = with_replaced(value, new)
            if part is not value:
                changed[field] = part
    return type(node)(**{**values, **changed}) if changed else node


def tree_text(node: ast.AST, new: Mapping[ast.AST, ast.AST]) -> str:
    """Returns a text that trees share if they are equal, in 0.6 of the time of `ast.dump`.

    Args:
      node: The tree.
      new: Replacements of nodes, in which nodes are replaced too.
    """
    node = new.get(node, node)
    if isinstance(node, ast.Name):
        return f"(Name {node.id!r} {type(node.ctx).__name__})"
    parts = [type(node).__name__]
    values = vars(node)
    for field in node._fields:
        value = values.get(field)
        if type(value) in _MARKS:
            parts.append(type(value).__name__)
        elif isinstance(value, ast.AST):
            parts.append(tree_text(value, new))
        elif isinstance(value, list):
            inner = [
                tree_text(part, new) if isinstance(part, ast.AST) else repr(part) for part in value
            ]
            parts.append(f"[{','.join(inner)}]")
        else:
            parts.append(repr(value))
    return f"({' '.join(parts)})"


def number(node: ast.expr) -> int | float | None:
    """Returns the value of a literal number, its sign included; None for anything else.

    Huge numbers give None too: they are masks and sentinels, and arithmetic on them overflows.
    """
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value) if abs(value) < _HUGE:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as operand):
            positive = number(operand)
            return None if positive is None else -positive
    return None


def literal(value: int | float) -> ast.expr:
    """Returns the expression of a number; a negative number is a sign and a number, as parsed."""
    if value < 0 or (value == 0 and str(value).startswith("-")):
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def bound_names(statements: Sequence[ast.stmt]) -> frozenset[str]:
    """Returns the names that statements bind in their own scope."""
    names: set[str] = set()
    for statement in statements:
        if isinstance(statement, DEFINITION_NODES):
            names.add(statement.name)
            continue
        for node in nodes(statement, _NAMING):
            match node:
                case ast.Name(id=name, ctx=ast.Store()):
                    names.add(name)
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    names.update(_imported_name(alias) for alias in aliases)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names.add(name)
                case ast.ExceptHandler(name=str(name)):
                    names.add(name)
    return frozenset(names)


def argument_names(arguments: ast.arguments) -> tuple[str, ...]:
    """Returns the names of all parameters, in order."""
    parameters = (
        *(*arguments.posonlyargs, *arguments.args, arguments.vararg),
        *(*arguments.kwonlyargs, arguments.kwarg),
    )
    return tuple(parameter.arg for parameter in parameters if parameter is not None)


@remembered
def unbound_names(text: str) -> frozenset[str]:
    """Returns names that a function reads on a line before the first line that binds them.

    The order of the text is taken for the order of execution.  So a name that a loop binds for its
    next round is reported too, and a name of an enclosing function: compare the result with that of
    the program's parent.

    Raises:
      SyntaxError, ValueError, RecursionError, MemoryError: The text is not Python.
    """
    tree = shared_tree(text)
    known = bound_names(tree.body) | _BUILTINS
    unbound: set[str] = set()
    for node in statements(tree):
        if isinstance(node, FUNCTION_NODES):
            unbound |= _unbound_in(node, known)
    return frozenset(unbound)


def _unbound_in(function: FunctionNode, known: frozenset[str]) -> set[str]:
    first_bound: dict[str, int] = dict.fromkeys(argument_names(function.args), 0)
    reads: list[ast.Name] = []

    def bind(name: str, line: int) -> None:
        first_bound[name] = min(first_bound.get(name, line), line)

    for node in nodes(function, _NAMING):
        match node:
            case ast.Name(ctx=ast.Load()):
                reads.append(node)
            case ast.Name(id=name, lineno=line) | ast.ExceptHandler(name=str(name), lineno=line):
                bind(name, line)
            case (
                ast.Import(names=aliases, lineno=line) | ast.ImportFrom(names=aliases, lineno=line)
            ):
                for alias in aliases:
                    bind(_imported_name(alias), line)
            case ast.FunctionDef(name=name, lineno=line) if node is not function:
                bind(name, line)
            case ast.arg(arg=name):
                # Such arguments belong to lambdas and inner functions.
                first_bound.setdefault(name, 0)
    return {
        read.id
        for read in reads
        if (
            read.id not in known
            if read.id not in first_bound
            else first_bound[read.id] > read.lineno
        )
    }


_INTROSPECTION = frozenset({"locals", "vars", "dir", "eval", "exec", "globals"})


def numbered_locals(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """Returns numbered names in the place of the local variables of each function.

    A name is left as it is where it may mean something else than a local variable: a parameter, a
    name that the module, an import, a definition or a pattern binds, a built-in.  So is every name
    of a function that looks at names or defines a class, and of a module that imports `*`.
    """
    imports = (node for node in statements(tree) if isinstance(node, ast.ImportFrom))
    if any(node.names[0].name == "*" for node in imports):
        return {}
    return _numbered_in(tree, bound_names(tree.body) | _BUILTINS)


def _numbered_in(scope: ast.Module | ast.ClassDef, known: frozenset[str]) -> dict[ast.AST, ast.AST]:
    numbered: dict[ast.AST, ast.AST] = {}
    for statement in scope.body:
        if isinstance(statement, ast.ClassDef):
            numbered |= _numbered_in(statement, known)
        elif isinstance(statement, FUNCTION_NODES):
            numbered |= _numbered_in_function(statement, known)
    return numbered


def _numbered_in_function(function: FunctionNode, known: frozenset[str]) -> dict[ast.AST, ast.AST]:
    naming = nodes(function, _NAMING)[1:]
    uses = [node for node in naming if isinstance(node, ast.Name)]
    introspective = any(use.id in _INTROSPECTION for use in uses)
    if introspective or any(isinstance(node, ast.ClassDef) for node in naming):
        return {}
    kept = set(known) | {*argument_names(function.args)}
    for node in naming:
        match node:
            case ast.Name():
                # Most of the nodes are names.
                pass
            case ast.Global(names=names):
                kept.update(names)
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                kept.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchMapping(rest=str(name)):
                kept.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                kept.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                kept.update(_imported_name(alias) for alias in aliases)
            case ast.Nonlocal(names=names):
                kept.update(names)
    stored = (use.id for use in uses if isinstance(use.ctx, ast.Store) and use.id not in kept)
    numbers = {name: f"local {n}" for n, name in enumerate(dict.fromkeys(stored))}
    return {use: ast.Name(numbers[use.id], use.ctx) for use in uses if use.id in numbers}


def _imported_name(alias: ast.alias) -> str:
    return (alias.asname or alias.name).split(".")[0]
