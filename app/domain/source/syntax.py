"""Syntax trees, from threads too."""

import ast

_ATTEMPTS = 8


def syntax_tree(text: str | bytes) -> ast.Module:
    """Returns the tree of a program; see `ast.parse`.

    CPython before 3.11.8 and 3.12.2 counts the depth of all threads in one place, and a switch
    between two of them can end as `SystemError: AST constructor recursion depth mismatch`
    (https://github.com/python/cpython/issues/106905).  It says nothing of the text.

    Raises:
      SyntaxError, ValueError, RecursionError, MemoryError: As `ast.parse`.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)
