"""Children: how a reply becomes a child of its parent, or a failure that says precisely why not."""

import ast
from collections.abc import Callable, Sequence

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program, fingerprint
from app.domain.replies.edit_blocks import Blocks, parse_blocks
from app.domain.replies.fences import PROSE, Fence, fences, likeliest_program, only_whole_program
from app.domain.replies.reply_text import cut_off, declines, no_code, reply_text
from app.domain.source.edits import Edit, apply_edits, edits_between, summary
from app.domain.source.regions import enforce
from app.domain.source.syntax import syntax_fault, tree_or_none

_MOST_DESCRIBED = 12  # more edits than this are a rewrite and are not described one by one

Describe = Callable[[Sequence[Edit]], str]
"""Describes edits in prose."""


def read_edited(
    reply: Completion, parent: Program, rules: EditRules, describe: Describe = summary
) -> Child:
    """Returns the child that a reply's SEARCH/REPLACE blocks make of the parent.

    A reply without blocks that certainly contains one whole program is read as that program.  If a
    reply was cut off inside a block, the blocks before it apply if each matches exactly and once.
    """
    text = reply_text(reply)
    if isinstance(text, Failure):
        return text
    blocks = parse_blocks(text, rules)
    if isinstance(blocks, Failure):
        if blocks.kind is not FailureKind.NO_CODE:
            return _cut(reply, blocks)
        fence = only_whole_program(fences(text), parent)
        if fence is None:
            return no_code(reply, blocks.detail)
        return _rewritten(fence, parent, rules, describe)
    return _edited(reply, blocks, parent, rules, describe)


def read_rewritten(
    reply: Completion, parent: Program, rules: EditRules, describe: Describe = summary
) -> Child:
    """Returns the child that a reply contains in full.

    The program is the fence that `likeliest_program` returns, else the whole reply where that is a
    program.  A reply of SEARCH/REPLACE blocks is read as edits.
    """
    text = reply_text(reply)
    if isinstance(text, Failure):
        return text
    blocks = parse_blocks(text, EditRules())
    if isinstance(blocks, Blocks) and blocks.edits:
        return _edited(reply, blocks, parent, rules, describe)
    fence = likeliest_program(fences(text), parent)
    if fence is None:
        if declines(text.strip()) or not _is_program(text, parent.language):
            return no_code(reply, "The reply holds no fenced program.")
        fence = Fence(parent.language, text.strip("\n") + "\n", True)
    if reply.finish == "length" and not fence.closed:
        return cut_off(FailureKind.NO_CODE, "Its program is not closed by a fence.")
    return _rewritten(fence, parent, rules, describe)


def _edited(
    reply: Completion, blocks: Blocks, parent: Program, rules: EditRules, describe: Describe
) -> Child:
    if not blocks.unfinished:
        source = apply_edits(parent.source, blocks.edits, inside=rules.enforce_blocks)
        if isinstance(source, Failure):
            return source
        return _edited_child(source, parent, rules, describe, describe(blocks.edits))
    failure = _cut(reply, Failure(FailureKind.BAD_EDIT, blocks.unfinished))
    if reply.finish != "length" or not blocks.edits:
        return failure
    source = apply_edits(parent.source, blocks.edits, certain=True)
    if isinstance(source, Failure):
        return failure
    changes = describe(blocks.edits) + "\n(The reply was cut off here.)"
    child = _edited_child(source, parent, rules, describe, changes)
    return child if isinstance(child, Offspring) else failure


def _edited_child(
    source: str, parent: Program, rules: EditRules, describe: Describe, changes: str
) -> Child:
    """Returns an edited source as a child; changes that the regions undid are not described."""
    child = as_child(source, parent, rules, changes)
    if isinstance(child, Offspring) and child.program.source != source:
        return with_changes(child, parent, describe, changes)
    return child


def _cut(reply: Completion, failure: Failure) -> Failure:
    return cut_off(failure.kind, failure.detail) if reply.finish == "length" else failure


def _rewritten(fence: Fence, parent: Program, rules: EditRules, describe: Describe) -> Child:
    source = fence.text
    if "\r\n" in parent.source:
        source = source.replace("\n", "\r\n")
    return with_changes(as_child(source, parent, rules, ""), parent, describe, "Full rewrite")


def with_changes(child: Child, parent: Program, describe: Describe, otherwise: str) -> Child:
    """Returns a child with its changes in prose, or `otherwise` where they are too many."""
    if isinstance(child, Failure):
        return child
    edits = edits_between(parent.source, child.program.source)
    return Offspring(child.program, describe(edits) if len(edits) <= _MOST_DESCRIBED else otherwise)


def as_child(source: str, parent: Program, rules: EditRules, changes: str) -> Child:
    """Returns a source as a child of its parent, or the first check without a sandbox that fails.

    The checks, in this order: the regions are enforced, the length is within the limit, Python
    source parses, and the child differs from the parent in more than layout and comments.
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
    fault = syntax_fault(source) if child.language == "python" else None
    if fault is not None:
        return Failure(FailureKind.SYNTAX, fault)
    if source == parent.source or fingerprint(child) == fingerprint(parent):
        return Failure(
            FailureKind.UNCHANGED, "The program equals its parent but for layout and comments."
        )
    return Offspring(child, changes)


def _is_program(text: str, language: str) -> bool:
    """Returns whether an unfenced reply is a program rather than a sentence.

    A single word is a Python expression, so a Python program must contain another statement.
    """
    if language in PROSE:
        return True
    tree = tree_or_none(text) if language == "python" else None
    return tree is not None and any(not isinstance(node, ast.Expr) for node in tree.body)
