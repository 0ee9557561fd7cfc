"""Syntax trees, and unbound names in them."""

import ast
import itertools

import pytest

from app.domain.source import syntax
from app.domain.source.syntax import (
    nodes,
    numbered_locals,
    remembered,
    shared_tree,
    statements,
    syntax_fault,
    syntax_tree,
    tree_text,
    unbound_names,
    with_replaced,
)


def test_a_race_of_the_interpreter_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = iter([SystemError("AST constructor recursion depth mismatch (before=1, after=2)")] * 3)

    def racing(text: str) -> ast.Module:
        for error in raced:
            raise error
        return real(text)

    real = ast.parse
    monkeypatch.setattr(syntax.ast, "parse", racing)

    assert ast.dump(syntax_tree("x = 1\n")) == ast.dump(real("x = 1\n"))


def test_a_text_that_is_no_program_raises_at_once() -> None:
    with pytest.raises(SyntaxError):
        syntax_tree("x = = 1\n")


def test_a_read_before_its_binding_is_reported() -> None:
    text = "def f(a):\n    b = a + c\n    c = 1\n    return b + missing\n"

    assert unbound_names(text) == {"c", "missing"}


def test_a_fact_is_computed_once_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def length(text: str) -> int:
        computed.append(text)
        return len(text)

    recalled = remembered(length)
    assert [recalled("a"), recalled("bb"), recalled("a")] == [1, 2, 1]
    assert computed == ["a", "bb"]

    monkeypatch.setattr(syntax, "_REMEMBERED", 2)
    for text in ("ccc", "a", "a"):
        recalled(text)
    assert computed == ["a", "bb", "ccc", "a"], "a full memory begins anew"


def test_a_text_that_cannot_be_encoded_is_remembered_too() -> None:
    assert syntax_fault("x = '\ud800'") == syntax_fault("x = '\ud800'")


TEXTS = (
    "import os as system\nfrom math import *\nx: int = 1\n",
    "def f(a, *b, c=1, **d):\n    global g\n    g = [a for a in b if a] or {**d}\n"
    "    return -c, g\n",
    "class C(Exception):\n    async def m(self):\n        try:\n            await 1\n"
    "        except OSError as error:\n            raise C from error\n",
    "match x:\n    case [1, *rest] | {'a': rest, **more}:\n        x += 1.0\n"
    "    case C(y=2) as z:\n        del z\n",
    "x = 1\n",
    "x = 1.0\n",
    "x = True\n",
    "x = '1'\n",
    "x = a - b\n",
    "x = a + b\n",
)


@pytest.mark.parametrize("text", TEXTS)
def test_nodes_are_those_of_a_walk_without_operators_and_contexts(text: str) -> None:
    tree = ast.parse(text)
    left_out = ast.expr_context | ast.operator | ast.boolop | ast.unaryop | ast.cmpop

    assert nodes(tree) == [node for node in ast.walk(tree) if not isinstance(node, left_out)]
    assert nodes(tree, [ast.Name]) == [n for n in ast.walk(tree) if isinstance(n, ast.Name)]


def test_trees_have_one_text_if_their_dumps_are_equal() -> None:
    trees = [ast.parse(text) for text in (*TEXTS, *(f"\n{text}# same\n" for text in TEXTS))]

    for one, other in itertools.product(trees, trees):
        assert (tree_text(one, {}) == tree_text(other, {})) == (ast.dump(one) == ast.dump(other))


@pytest.mark.parametrize("text", TEXTS)
def test_statements_are_those_of_a_walk(text: str) -> None:
    tree = ast.parse(text)
    kinds = ast.Module | ast.stmt | ast.ExceptHandler | ast.match_case

    assert statements(tree) == [node for node in ast.walk(tree) if isinstance(node, kinds)]


def test_a_replacement_leaves_the_tree_as_it_was() -> None:
    tree = ast.parse("def f(a):\n    if a < 1:\n        return [a, -2]\n")
    before = ast.dump(tree)
    [number] = [node for node in ast.walk(tree) if isinstance(node, ast.UnaryOp)]

    changed = with_replaced(tree, {number: ast.Name("b", ast.Load())})

    assert ast.unparse(changed) == "def f(a):\n    if a < 1:\n        return [a, b]"
    assert ast.dump(tree) == before
    assert with_replaced(tree, {}) is tree


def test_a_text_has_the_replacements_of_nodes_in_replacements() -> None:
    tree = ast.parse("def f(a):\n    b = a\n    return b\n")
    [function] = tree.body
    bare = ast.parse("def f(a):\n    return a\n").body[0]
    assert isinstance(bare, ast.FunctionDef)
    [read] = [node for node in ast.walk(bare) if isinstance(node, ast.Return)]

    text = tree_text(tree, {function: bare, read: ast.Return(ast.Name("c", ast.Load()))})

    assert text == tree_text(ast.parse("def f(a):\n    return c\n"), {})


def test_locals_are_numbered_in_the_order_of_the_text_of_each_function() -> None:
    tree = ast.parse("def f(a):\n    y, x = a\n    return x\ndef g(b):\n    z = b\n    return z\n")

    text = ast.unparse(with_replaced(tree, numbered_locals(tree)))

    assert text == ast.unparse(tree).replace("y", "local 0").replace("x", "local 1").replace(
        "z", "local 0"
    )


def test_the_checks_of_a_text_share_its_tree() -> None:
    assert shared_tree("shared = 1\n") is shared_tree("shared = 1\n")
