"""Syntax trees, and unbound names in them."""

import ast

import pytest

from app.domain.source import syntax
from app.domain.source.syntax import remembered, syntax_fault, syntax_tree, unbound_names


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
