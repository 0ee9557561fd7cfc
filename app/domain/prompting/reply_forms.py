"""Reply forms: how the reply to a prompt begins and ends, for endpoints that can bind it.

A model that must go on after the header of a function writes its body, and no sentence before it
nor an example after it.  The opening costs no tokens of the answer.
"""

import ast
import json
import textwrap
from collections import Counter
from collections.abc import Sequence

from app.domain.operator import ReplyForm
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.source.definitions import Definition
from app.domain.source.functions import Function, next_header
from app.domain.source.regions import lines, parse
from app.domain.source.syntax import DEFINITION_NODES, first_line, tree_or_none

_ABOVE, _MIDDLE, _BELOW = "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n"
_MOST_LINES = 400
_FENCE = "```"
_CLOSED = f"\n{_FENCE}"
_EXAMPLES = ("\nif __name__", "\nprint(", "\n# Example", "\n# Test")
"""Lines below a function with which a model goes on to use or to test it."""
_DEFINITIONS = ("\ndef ", "\nclass ", "\n@")


def definition_form(program: Program, wanted: Definition) -> ReplyForm:
    """Returns the form of a reply that is one definition: it begins with its header and docstring.

    Args:
      program: A Python program.
      wanted: One of its definitions.
    """
    header = ""
    tree = tree_or_none(program.source)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, DEFINITION_NODES) and first_line(node) == wanted.first:
            first = node.body[0]
            end = first.lineno - 1
            if ast.get_docstring(node, clean=False) is not None:
                end = first.end_lineno or first.lineno
            if end >= node.lineno:
                header = textwrap.dedent("".join(lines(program.source)[wanted.first : end]))
            break
    return _fenced("python", header.replace("\r\n", "\n"), _EXAMPLES)


def version_form(own: Function, number: int) -> ReplyForm:
    """Returns the form of a reply that is the next version of a function.

    Args:
      own: The function of the program that gets the version.
      number: That of the version.
    """
    return _fenced("python", next_header(own, number), (*_DEFINITIONS, *_EXAMPLES))


def program_form(program: Program) -> ReplyForm | None:
    """Returns the form of a reply that is a whole program; None for a program of several files.

    With one EVOLVE-BLOCK the text above and below it is given, so that the model writes the block.
    With several, the text above the first is.
    """
    if program.path:
        return None
    text, blocks = lines(program.source.replace("\r\n", "\n")), parse(program.source).blocks
    if not blocks:
        return _fenced(program.language, "")
    above = "".join(text[: blocks[0].first])
    if len(blocks) > 1:
        return _fenced(program.language, above)
    end = text[blocks[0].end].strip()
    below = "".join(text[blocks[0].end :]).rstrip("\n")
    return ReplyForm(
        f"{_FENCE}{program.language}\n{above}", (end, _CLOSED), f"\n{below}{_CLOSED}\n"
    )


def edits_form(program: Program, rules: EditRules) -> ReplyForm | None:
    """Returns the form of a reply that is SEARCH/REPLACE blocks; None where there is none.

    There is none for a long program, nor for one of several files, whose paths may stand between
    the blocks.

    Its grammar lets a model seek nothing but lines of the program that may change: each SEARCH
    section begins with a line that occurs once, and blocks follow the order of the program.

    Args:
      program: The program to edit.
      rules: Only the usual form of blocks has a grammar.
    """
    text = [line.rstrip("\r\n") for line in lines(program.source)]
    regions = parse(program.source)
    if program.path or len(text) > _MOST_LINES or rules.diff_pattern != EditRules().diff_pattern:
        return None
    may_change = {n for n, _ in enumerate(text) if regions.holds(n) or not rules.enforce_blocks}
    occur = Counter(line.strip() for line in text)
    starts = [n for n in sorted(may_change) if text[n].strip() and occur[text[n].strip()] == 1]
    if not starts:
        return None
    parts = [
        f"root ::= from{starts[0]}",
        f"with ::= {_literal(_MIDDLE)} line* {_literal(_BELOW)}",
        r'line ::= ([^<=>\n] [^\n]*)? "\n"',
    ]
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        later = f" | from{following}" if following is not None else ""
        parts.append(f"from{start} ::= {_literal(_ABOVE)} at{start}{later}")
    for n in sorted(may_change):
        further = next((start for start in starts if start > n), None)
        ends = "with" if further is None else f"with from{further}?"
        on = f"at{n + 1} | " if n + 1 in may_change else ""
        parts.append(f"at{n} ::= {_literal(text[n] + chr(10))} ({on}{ends})")
    return ReplyForm(grammar="\n".join(parts) + "\n")


def _literal(text: str) -> str:
    """Returns a text as a grammar writes it: with the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _fenced(language: str, above: str, stops: Sequence[str] = ()) -> ReplyForm:
    return ReplyForm(f"{_FENCE}{language}\n{above}", (_CLOSED, *stops), f"{_CLOSED}\n")
