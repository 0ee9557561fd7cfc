"""Counts what the renovation is measured by: `python infra/count_code.py [ROOT]`, of any checkout.

Code lines are lines with at least one token that is neither a comment nor a docstring of a module,
a class, a function or a field.  A module has one importer when exactly one other module of the
product imports it; `__init__` modules without code are not counted.  A broad except catches
`Exception`, `BaseException` or everything.
"""

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("app", "workers", "mock_llm", "tests", "benchmarks")
PRODUCT = ("app", "workers", "mock_llm")
LONG_FUNCTION = 50
"""Code lines from which a function is counted as long; its docstring is not one of them."""
BROAD = {"Exception", "BaseException"}
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass
class Module:
    """What one file holds."""

    name: str
    lines: set[int]
    tree: ast.Module
    imports: set[str] = field(default_factory=set)


def parsed(path: Path, root: Path) -> Module:
    """Returns a file's code lines, syntax tree and the dotted names that it imports."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and _is_text(node):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    module = Module(name, lines, tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            module.imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module.imports |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
    return module


def _is_text(statement: ast.Expr) -> bool:
    """Returns whether a statement is a docstring: of a module, a class, a function or a field."""
    return isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


def _broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(name is None or (isinstance(name, ast.Name) and name.id in BROAD) for name in names)


def _long(module: Module) -> list[str]:
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            code = len(module.lines.intersection(body))
            if code > LONG_FUNCTION:
                found.append(f"{module.name}.{node.name} ({code})")
    return found


def table(modules: dict[str, list[Module]]) -> None:
    """Prints modules and code lines by package, two levels deep below `app`."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for package, members in modules.items():
        for module in members:
            parts = module.name.split(".")
            depth = 3 if parts[:2] == ["app", "adapters"] else 2
            is_package = len(parts) > depth or (len(parts) > 1 and package != "mock_llm")
            sub = ".".join(parts[:depth]) if is_package and package in ("app", "workers") else ""
            for row in {package, sub or package}:
                rows[row]["modules"] += 1
                rows[row]["lines"] += len(module.lines)
    print(f"{'package':32} {'modules':>8} {'code lines':>11}")
    for row in sorted(rows):
        if rows[row]["modules"] > 1 or "." not in row:
            print(f"{row:32} {rows[row]['modules']:8} {rows[row]['lines']:11,}")


def main(root: Path) -> None:
    """Prints every count of the checkout at `root`."""
    modules = {
        package: [
            module
            for path in sorted((root / package).rglob("*.py"))
            if (module := parsed(path, root)).lines or path.name != "__init__.py"
        ]
        for package in PACKAGES
        if (root / package).is_dir()
    }
    table(modules)
    product = [module for package in PRODUCT for module in modules.get(package, [])]
    importers = Counter(
        name
        for module in product
        for name in {other.name for other in product} & module.imports - {module.name}
    )
    single = [m for m in product if importers[m.name] == 1]
    small = [m.name for m in single if len(m.lines) < 60]
    classes = defaultdict(list)
    totals: Counter[str] = Counter()
    for module in product:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(module.name)
            elif isinstance(node, ast.ExceptHandler) and _broad(node):
                totals[f"broad excepts in {module.name.split('.')[0]}"] += 1
            elif isinstance(node, ast.Name) and node.id == "Any":
                totals[f"Any in {module.name.split('.')[0]}"] += 1
            elif isinstance(node, ast.Name) and node.id in ("getattr", "hasattr"):
                totals[f"getattr, hasattr in {module.name.split('.')[0]}"] += 1
    print(f"\nmodules with one importer: {len(single)}; of them under 60 code lines: {len(small)}")
    print("  " + "\n  ".join(small))
    doubled = {name: where for name, where in classes.items() if len(where) > 1}
    print(f"class names with more than one meaning: {len(doubled)}")
    for name, where in sorted(doubled.items()):
        print(f"  {name}: {', '.join(where)}")
    long = [name for module in product for name in _long(module)]
    print(f"functions over {LONG_FUNCTION} code lines: {len(long)}")
    print("  " + "\n  ".join(long))
    for name in sorted(totals):
        print(f"{name}: {totals[name]}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
