"""Imports: which modules a child may import.

The check saves trials and is no protection: a program can get around it, and the sandbox isolates
the program in any case.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from app.domain.evaluation import Failure, FailureKind
from app.domain.program import Program
from app.domain.source.syntax import nodes, tree_or_none

_ALWAYS = "__future__"
_BY_NAME = ("__import__", "import_module")


@dataclass(frozen=True, slots=True)
class ImportPolicy:
    """The modules and packages that a problem's children may import.

    Attributes:
      allow: The only ones allowed; None allows everything.
      deny: Never allowed, even where `allow` names them.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    def refusal_of_child(self, child: Program, seeds: Sequence[Program]) -> Failure | None:
        """Returns the failure of a child with a forbidden import that no seed has, or None.

        A child cannot remove an import outside the EVOLVE-BLOCK regions, and rarely another.
        """
        refused = self.refusal(child)
        if refused is None:
            return None
        trees = [tree for seed in seeds if (tree := tree_or_none(seed.source)) is not None]
        kept = frozenset(name for tree in trees for _, names in _imports(tree) for name in names)
        return self.refusal(child, kept)

    def refusal(self, program: Program, kept: Collection[str] = ()) -> Failure | None:
        """Returns the failure of a program with a forbidden import, or None; `kept` are allowed.

        Programs in other languages pass, and so does a text that does not parse: the compiler in
        the sandbox refuses it.
        """
        if (self.allow is None and not self.deny) or program.language != "python":
            return None
        tree = tree_or_none(program.source)
        if tree is None:
            return None
        for line, names in _imports(tree):
            module = names[0]
            if names[-1] in kept:
                continue
            denied = [package for package in self.deny if any(_within(n, package) for n in names)]
            if denied:
                return self._refused(line, module, f"{denied[0]} is denied")
            if self.allow is not None and not any(
                _within(name, package) for package in (*self.allow, _ALWAYS) for name in names
            ):
                return self._refused(line, module, "it is not among those allowed")
        return None

    def _refused(self, line: int, module: str, why: str) -> Failure:
        allowed = "" if self.allow is None else f" Allowed: {', '.join(self.allow) or 'none'}."
        denied = f" Denied: {', '.join(self.deny)}." if self.deny else ""
        text = f"line {line}: this problem does not allow `{module}` to be imported: {why}."
        return Failure(FailureKind.IMPORT_BLOCKED, text + allowed + denied)


EVERYTHING = ImportPolicy()


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _imports(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Yields each import's line and the dotted names that it may mean, the module first."""
    for node in nodes(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    yield node.lineno, [alias.name]
            case ast.ImportFrom(module=str(module), level=0, names=aliases):
                for alias in aliases:
                    yield node.lineno, [module, f"{module}.{alias.name}"]
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[ast.Constant(value=str(name)), *_],
            ) if called in _BY_NAME:
                yield node.lineno, [name]
