"""Syntax trees, and unbound names in them."""

import ast

import pytest

from app.domain.source import syntax
from app.domain.source.syntax import syntax_tree, unbound_names


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

    assert unbound_names(ast.parse(text)) == {"c", "missing"}
