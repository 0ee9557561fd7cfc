"""What in an evaluator's text can make guarded mode differ from compatible mode.

Advice, read off the syntax tree; nothing is decided by it.
"""

import ast
from collections.abc import Iterator

from app.domain.source.syntax import syntax_tree

_BY_NAME = {
    "exec": "the evaluator executes text itself, and in guarded mode the text at `program_path` is "
    "a stand-in's",
    "getsource": "the evaluator asks for source with `inspect`",
    "runpy": "the evaluator runs the program with `runpy`",
    "isinstance": "the evaluator tests types, and in guarded mode objects of the program are "
    "proxies",
    "subprocess": "the evaluator starts processes; one that runs a copy of the program runs the "
    "stand-in",
}
_READERS = frozenset({"open", "read_text", "read_bytes", "getsize", "stat", "copy", "copyfile"})
_CLOCKS = frozenset(
    {"time", "perf_counter", "monotonic", "process_time", "perf_counter_ns", "timeit"}
)
_READS = (
    "the evaluator reads files; the program's text is at the path in the environment variable "
    "EVOQ_PROGRAM_SOURCE, while `program_path` holds a stand-in in guarded mode"
)
_TIMES = "the evaluator measures time, and in guarded mode a call crosses between two processes"
_SEEDS = (
    "the evaluator seeds `random` or NumPy for the program too, which in guarded mode has a "
    "generator of its own: pass it a seed or a generator's values"
)
_SUBCLASSES = "the evaluator derives from a class of the program, which cannot cross"
_SETS = "the evaluator sets names in the program's module, which the program does not see"
_ALWAYS = (
    "the program changes an argument in place, which its caller sees in compatible mode only",
    "the program and the evaluator share a module's state",
)


def reasons(texts: Iterator[str] | list[str]) -> list[str]:
    """Returns why the two modes may differ, the likeliest first, one clause each.

    Args:
      texts: Of the evaluator's Python files; one that does not parse is left out.
    """
    found: dict[str, None] = {}
    for text in texts:
        try:
            tree = syntax_tree(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            found.update(dict.fromkeys(_of(node)))
    return [*found, *_ALWAYS][:4]


def _of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            if name in _BY_NAME:
                yield _BY_NAME[name]
            if name in _READERS:
                yield _READS
            if name in _CLOCKS:
                yield _TIMES
            if name == "seed":
                yield _SEEDS
        case ast.Attribute(value=ast.Name(id=name)) if name in ("runpy", "subprocess"):
            yield _BY_NAME[name]
        case ast.ClassDef(bases=[ast.Attribute(), *_]):
            yield _SUBCLASSES
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name))]) if name != "self":
            yield _SETS
        case _:
            return
