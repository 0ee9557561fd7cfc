"""Replies: how a model's text becomes a child, or a failure that says precisely why not."""

import ast
from collections.abc import Callable, Sequence

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program, fingerprint
from app.domain.replies.answer import answer, cut_off, declines, no_code
from app.domain.replies.edit_blocks import Blocks, parse_blocks
from app.domain.replies.fences import PROSE, Fence, chosen, fences, whole
from app.domain.source.differences import edits_between, summary
from app.domain.source.edits import Edit, apply_edits
from app.domain.source.regions import enforce
from app.domain.source.syntax import syntax_tree

_LONGEST_TOLD = 12  # more edits than that are a rewrite, and not worth telling one by one

Tell = Callable[[Sequence[Edit]], str]
"""Puts edits into prose."""


def read_edited(
    reply: Completion, parent: Program, rules: EditRules, tell: Tell = summary
) -> Child:
    """Returns the child that a reply's SEARCH/REPLACE blocks make of the parent.

    A reply without blocks that holds one whole program beyond doubt is read as that program.  Of a
    reply that was cut off inside a block, the blocks before it count if each is found exactly and
    once.
    """
    text = answer(reply)
    if isinstance(text, Failure):
        return text
    blocks = parse_blocks(text, rules)
    if isinstance(blocks, Failure):
        if blocks.kind is not FailureKind.NO_CODE:
            return _cut(reply, blocks)
        fence = whole(fences(text), parent)
        if fence is None:
            return no_code(reply, blocks.detail)
        return _rewritten(fence, parent, rules, tell)
    return _edited(reply, blocks, parent, rules, tell)


def read_rewritten(
    reply: Completion, parent: Program, rules: EditRules, tell: Tell = summary
) -> Child:
    """Returns the child that a reply holds in full.

    The program is the fence that `fences.chosen` ranks first, else the whole reply where that is a
    program.  A reply of SEARCH/REPLACE blocks is read as edits.
    """
    text = answer(reply)
    if isinstance(text, Failure):
        return text
    blocks = parse_blocks(text, EditRules())
    if isinstance(blocks, Blocks) and blocks.edits:
        return _edited(reply, blocks, parent, rules, tell)
    fence = chosen(fences(text), parent)
    if fence is None:
        if declines(text.strip()) or not _is_program(text, parent.language):
            return no_code(reply, "The reply holds no fenced program.")
        fence = Fence(parent.language, text.strip("\n") + "\n", True)
    if reply.finish == "length" and not fence.closed:
        return cut_off(FailureKind.NO_CODE, "Its program is not closed by a fence.")
    return _rewritten(fence, parent, rules, tell)


def _edited(
    reply: Completion, blocks: Blocks, parent: Program, rules: EditRules, tell: Tell
) -> Child:
    if not blocks.unfinished:
        source = apply_edits(parent.source, blocks.edits, inside=rules.enforce_blocks)
        if isinstance(source, Failure):
            return source
        return _edited_child(source, parent, rules, tell, tell(blocks.edits))
    failure = _cut(reply, Failure(FailureKind.BAD_EDIT, blocks.unfinished))
    if reply.finish != "length" or not blocks.edits:
        return failure
    source = apply_edits(parent.source, blocks.edits, certain=True)
    if isinstance(source, Failure):
        return failure
    told = tell(blocks.edits) + "\n(The reply was cut off here.)"
    child = _edited_child(source, parent, rules, tell, told)
    return child if isinstance(child, Offspring) else failure


def _edited_child(source: str, parent: Program, rules: EditRules, tell: Tell, told: str) -> Child:
    """Returns an edited source as a child; what the regions undid is no change to tell of."""
    child = as_child(source, parent, rules, told)
    if isinstance(child, Offspring) and child.program.source != source:
        return changed(child, parent, tell, told)
    return child


def _cut(reply: Completion, failure: Failure) -> Failure:
    return cut_off(failure.kind, failure.detail) if reply.finish == "length" else failure


def _rewritten(fence: Fence, parent: Program, rules: EditRules, tell: Tell) -> Child:
    source = fence.text
    if "\r\n" in parent.source:
        source = source.replace("\n", "\r\n")
    return changed(as_child(source, parent, rules, ""), parent, tell, "Full rewrite")


def changed(child: Child, parent: Program, tell: Tell, otherwise: str) -> Child:
    """Returns a child with its changes in prose, or in one word where they are too many."""
    if isinstance(child, Failure):
        return child
    edits = edits_between(parent.source, child.program.source)
    return Offspring(child.program, tell(edits) if len(edits) <= _LONGEST_TOLD else otherwise)


def as_child(source: str, parent: Program, rules: EditRules, changes: str) -> Child:
    """Returns a source as a child of its parent, once it has passed what needs no sandbox.

    In this order: the regions are enforced, the length is held to, Python must compile as far as
    its grammar goes, and more than layout and comments must differ from the parent.
    """
    if rules.enforce_blocks:
        merged = enforce(parent.source, source)
        if isinstance(merged, Failure):
            return merged
        source = merged
    if len(source) > rules.max_code_chars:
        return Failure(
            FailureKind.TOO_LONG,
            f"The program has {len(source)} characters; the limit is {rules.max_code_chars}.",
        )
    child = Program(source, parent.language)
    fault = syntax_fault(child)
    if fault is not None:
        return Failure(FailureKind.SYNTAX, fault)
    if source == parent.source or fingerprint(child) == fingerprint(parent):
        return Failure(
            FailureKind.UNCHANGED, "The program equals its parent but for layout and comments."
        )
    return Offspring(child, changes)


def syntax_fault(program: Program) -> str | None:
    """Returns what Python's grammar has against a program, with the line; None where nothing."""
    if program.language != "python":
        return None
    try:
        syntax_tree(program.source)
    except SyntaxError as error:
        shown = (error.text or "").strip()[:160]
        return f"line {error.lineno}: {error.msg}" + (f"\n    {shown}" if shown else "")
    except ValueError as error:
        return f"not a source text: {error}"
    except (RecursionError, MemoryError):
        return "an expression is nested too deeply for the compiler"
    return None


def _is_program(text: str, language: str) -> bool:
    """Says whether an unfenced reply is a program and not a sentence.

    A word of apology is a Python expression; so a Python program must do more than name things.
    """
    if language in PROSE:
        return True
    if language != "python":
        return False
    try:
        tree = syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(not isinstance(statement, ast.Expr) for statement in tree.body)
