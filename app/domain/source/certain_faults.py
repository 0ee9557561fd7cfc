"""Faults of a Python program that are certain before it runs: of names, calls and returns.

Each rule is silent where it cannot be sure: a fault that is none costs a request to a model.
"""

import ast
import builtins
import functools
import symtable
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from app.domain.source.syntax import (
    FUNCTION_NODES,
    SHARED,
    UNPARSABLE,
    FunctionNode,
    nodes,
    shared_tree,
    syntax_tree,
)

MOST_FAULTS = 4

_ALWAYS_BOUND = frozenset(
    (
        *dir(builtins),
        *("__name__", "__file__", "__doc__", "__spec__", "__loader__", "__package__", "__path__"),
        *("__annotations__", "__cached__", "__class__", "__module__", "__qualname__", "__dict__"),
    )
)
_BINDS_UNSEEN = frozenset(
    ("exec", "eval", "globals", "locals", "vars", "setattr", "__builtins__", "builtins")
)
"""Names with which a program may bind names that its text does not show."""

_SCOPES = (*FUNCTION_NODES, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a program; the same fault on another line is equal."""

    what: str
    line: int = field(compare=False)

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


def new_faults(child: str, parent: str) -> tuple[Fault, ...]:
    """Returns the faults of a child that its parent, which ran, does not have; at most four.

    Found are names that are read and nowhere bound, calls of a function of the program with
    arguments that it does not take, and returned tuples of another length than the callers unpack
    or, where the program does not call the function, than the parent returns.  Nothing is said of
    names where the parent itself reads one that it does not bind: it is given names from outside.
    """
    before, after = _read(parent), _read(child)
    if before is None or after is None:
        return ()
    names = [] if _unbound(before) else _unbound(after)
    known = {*_wrong_calls(before), *_wrong_unpackings(before)}
    others = [*_wrong_calls(after), *_wrong_unpackings(after), *_unlike(after, before)]
    faults = dict.fromkeys([*names, *(fault for fault in others if fault not in known)])
    return tuple(faults)[:MOST_FAULTS]


@dataclass(frozen=True, slots=True)
class _Program:
    """A program as its syntax.

    Attributes:
      nodes: Of its tree without what runs only as a script, and without annotations that are not
        evaluated.
      bound: The names that the module binds, in whichever scope.
      reads: The names that are read from the module or from Python.
      functions: The functions of the module whose name nothing else binds, without decorators.
      caught: The exceptions that a handler names.
    """

    nodes: Sequence[ast.AST]
    bound: frozenset[str]
    reads: frozenset[str]
    functions: Mapping[str, FunctionNode]
    caught: frozenset[str]

    @property
    def loads(self) -> Iterator[ast.Name]:
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node


@functools.lru_cache(maxsize=SHARED)
def _read(source: str) -> _Program | None:
    """Returns a program; None where it does not parse, or may bind names that nobody sees."""
    try:
        whole = shared_tree(source)
        every = nodes(whole)
        names = list(_module_names(source))
        run, evaluated, read = whole, every, names
        if any(map(_is_skipped, every)):
            run = _Evaluated(whole).visit(syntax_tree(source))
            evaluated, read = nodes(run), list(_module_names(ast.unparse(run)))
    except UNPARSABLE:
        return None
    bound = {name for name, _, binds in names if binds}
    reads = {name for name, reads, _ in read if reads}
    stars = any(
        alias.name == "*"
        for node in every
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
    if stars or _BINDS_UNSEEN & (reads | bound):
        return None
    times = Counter(_bindings(every))
    functions = {
        node.name: node
        for node in run.body
        if isinstance(node, FUNCTION_NODES) and times[node.name] == 1 and not node.decorator_list
    }
    handlers = [node.type for node in every if isinstance(node, ast.ExceptHandler)]
    caught = {
        name.id
        for kinds in handlers
        if kinds is not None
        for name in nodes(kinds)
        if isinstance(name, ast.Name)
    }
    return _Program(evaluated, frozenset(bound), frozenset(reads), functions, frozenset(caught))


def _is_skipped(node: ast.AST) -> bool:
    """Returns whether a node is one of those that `_Evaluated` looks at."""
    match node:
        case ast.If(test=test):
            return _is_script(test)
        case ast.ImportFrom(module="__future__") | ast.AnnAssign():
            return True
        case _:
            return False


def _is_script(test: ast.expr) -> bool:
    """Returns whether a condition holds only where the program runs as a script."""
    parts = nodes(test)
    named = any(isinstance(part, ast.Name) and part.id == "__name__" for part in parts)
    return named and any(
        isinstance(part, ast.Constant) and part.value == "__main__" for part in parts
    )


class _Evaluated(ast.NodeTransformer):
    """Takes out of a tree what is not evaluated where the program is imported."""

    def __init__(self, tree: ast.Module) -> None:
        self._lazy = any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in tree.body
        )
        self._inside = False

    def visit_If(self, node: ast.If) -> ast.AST:
        """Leaves out what runs only as a script; its `else` stays."""
        if _is_script(node.test):
            node.body = [ast.copy_location(ast.Pass(), node)]
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        inside, self._inside = self._inside, False
        self.generic_visit(node)
        self._inside = inside
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if self._inside or self._lazy:
            node.annotation = ast.copy_location(ast.Constant(None), node.annotation)
        self.generic_visit(node)
        return node

    def _function(self, node: FunctionNode) -> ast.AST:
        if self._lazy:
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        inside, self._inside = self._inside, True
        self.generic_visit(node)
        self._inside = inside
        return node


def _module_names(source: str) -> Iterator[tuple[str, bool, bool]]:
    """Yields names of the module with whether a scope reads it, and whether a scope binds it.

    In CPython 3.11 `Symbol.is_global` also holds of what a function of the name `top` binds,
    because the module's table has that name.
    """
    module = symtable.symtable(source, "program", "exec")
    pending = [module]
    while pending:
        scope = pending.pop()
        pending += scope.get_children()
        for symbol in scope.get_symbols():
            binds = symbol.is_assigned() or symbol.is_imported()
            implied = symbol.is_global() and not binds and not symbol.is_parameter()
            if scope is module or symbol.is_declared_global() or implied:
                yield symbol.get_name(), symbol.is_referenced(), binds


def _bindings(every: Sequence[ast.AST]) -> Iterator[str]:
    """Yields each name as often as any scope binds or deletes it, or declares where it is bound."""
    for node in every:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case _:
                pass


def _unbound(program: _Program) -> list[Fault]:
    missing = program.reads - program.bound - _ALWAYS_BOUND
    if not missing or "NameError" in program.caught:
        return []
    called = {node.func.id for node in _calls(program) if isinstance(node.func, ast.Name)}
    faults: dict[str, Fault] = {}
    for node in program.loads:
        if node.id in missing:
            noun, verb = ("function", "called") if node.id in called else ("name", "used")
            what = f"the {noun} `{node.id}` is {verb}, but never defined or imported"
            faults.setdefault(node.id, Fault(what, node.lineno))
    return sorted(faults.values(), key=lambda fault: fault.line)


def _calls(program: _Program) -> Iterator[ast.Call]:
    for node in program.nodes:
        if isinstance(node, ast.Call):
            yield node


def _wrong_calls(program: _Program) -> list[Fault]:
    if "TypeError" in program.caught:
        return []
    faults = []
    for call in _calls(program):
        function = program.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if function is not None and (wrong := _mismatch(call, function)):
            faults.append(Fault(f"`{function.name}` is called {wrong}", call.lineno))
    return faults


def _mismatch(call: ast.Call, function: FunctionNode) -> str:
    """Returns how a call's arguments do not fit; "" where they do, or where nobody can say."""
    given = {keyword.arg for keyword in call.keywords if keyword.arg}
    if len(given) < len(call.keywords) or any(isinstance(arg, ast.Starred) for arg in call.args):
        return ""
    wanted = function.args
    by_place = [arg.arg for arg in (*wanted.posonlyargs, *wanted.args)]
    by_name = {arg.arg for arg in (*wanted.args, *wanted.kwonlyargs)}
    if len(call.args) > len(by_place) and not wanted.vararg:
        return f"with {_counted(len(call.args))}, but takes at most {len(by_place)}"
    if not wanted.kwarg and (unknown := sorted(given - by_name)):
        return f"with an argument `{unknown[0]}`, which it does not have"
    filled = by_place[: len(call.args)]
    if twice := [name for name in filled if name in given and name in by_name]:
        return f"with two values for its argument `{twice[0]}`"
    required = by_place[: len(by_place) - len(wanted.defaults)]
    required += [
        argument.arg
        for argument, default in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True)
        if default is None
    ]
    if left := [name for name in required if name not in filled and name not in given]:
        return f"without its argument `{left[0]}`"
    return ""


def _wrong_unpackings(program: _Program) -> list[Fault]:
    """Returns functions that return tuples of another length than all of their callers unpack."""
    if {"TypeError", "ValueError"} & program.caught:
        return []
    unpacked: dict[str, list[int]] = {}
    for node in program.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            [*targets] = node.targets
            called, size = node.value.func, _size(targets[0])
            if len(targets) == 1 and size is not None and isinstance(called, ast.Name):
                unpacked.setdefault(called.id, []).append(size)
    reads = Counter(node.id for node in program.loads)
    faults = []
    for name, sizes in unpacked.items():
        function = program.functions.get(name)
        if function is None or len(set(sizes)) > 1 or len(sizes) < reads[name]:
            continue
        if wrong := _other_sizes(function, {sizes[0]}):
            what = f"`{name}` returns {_counted(wrong[1], 'value')}, but its callers unpack"
            faults.append(Fault(f"{what} {sizes[0]}", wrong[0]))
    return faults


def _unlike(program: _Program, parent: _Program) -> list[Fault]:
    """Returns functions for callers outside that return tuples of another length than before."""
    used = {node.id for node in program.loads} | {node.id for node in parent.loads}
    faults = []
    for name, function in program.functions.items():
        before = parent.functions.get(name)
        if before is None or name in used:
            continue
        sizes = {_size(returned.value) for returned in _returns(before)}
        if len(sizes) != 1 or None in sizes:
            continue
        if wrong := _other_sizes(function, sizes):
            [size] = sizes
            what = f"`{name}` returns {_counted(wrong[1], 'value')}, but the program returned"
            faults.append(Fault(f"{what} {size}", wrong[0]))
    return faults


def _other_sizes(function: FunctionNode, sizes: Collection[int | None]) -> tuple[int, int] | None:
    """Returns the line and the length of a returned tuple of another length; None without any."""
    for returned in _returns(function):
        size = _size(returned.value)
        if size is not None and size not in sizes:
            return returned.lineno, size
    return None


def _returns(function: FunctionNode) -> Sequence[ast.Return]:
    """Returns the `return` statements of a function; none of one that yields or is awaited."""
    found: list[ast.Return] = []
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            return ()
        if isinstance(node, ast.Return):
            found.append(node)
        if not isinstance(node, _SCOPES):
            pending += ast.iter_child_nodes(node)
    return () if isinstance(function, ast.AsyncFunctionDef) else found


def _size(node: ast.expr | None) -> int | None:
    """Returns the length of a tuple display of two or more; None of anything else."""
    if not isinstance(node, ast.Tuple) or len(node.elts) < 2:
        return None
    return None if any(isinstance(part, ast.Starred) for part in node.elts) else len(node.elts)


def _counted(number: int, noun: str = "argument") -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
