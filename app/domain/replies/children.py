"""Children: how a reply becomes a child of its parent, or a failure that says precisely why not."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program, fingerprint
from app.domain.replies.edit_blocks import Applied, Blocks, apply_blocks, parse_blocks
from app.domain.replies.fences import (
    PROSE,
    Fence,
    canonical,
    definitions,
    fences,
    is_program,
    is_whole,
    likeliest_program,
    whole_program,
)
from app.domain.replies.paths import across_files
from app.domain.replies.reply_text import cut_off, declines, no_code, reply_text
from app.domain.replies.second_thoughts import elides, is_example, starts_anew, withdraws
from app.domain.source.edits import Edit, apply_edits, edits_between, summary
from app.domain.source.functions import with_definitions
from app.domain.source.regions import enforce
from app.domain.source.syntax import syntax_fault

_NO_CODE = FailureKind.NO_CODE
_BETWEEN_TAGS = re.compile(
    r"^<(?:answer|solution|code|program|python|final)>\n(.*?)^</", re.M | re.S
)
_TRIED = 4
"""Most texts of an unfenced reply that are parsed."""
_MOST_DESCRIBED = 12
"""Most edits that are described one by one; more are a rewrite."""

Describe = Callable[[Sequence[Edit]], str]
"""Describes edits in prose."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The question that a reply answers."""

    parent: Program
    rules: EditRules
    describe: Describe


def read_edited(
    reply: Completion, parent: Program, rules: EditRules, describe: Describe = summary
) -> Child:
    """Returns the child that a reply's SEARCH/REPLACE blocks make of the parent.

    A reply without blocks that certainly contains a whole program is read as that program, and
    one that contains some of the parent's functions as the parent with these.  A whole program
    after the blocks goes before them, and so does one whose blocks do not apply.  If a reply was
    cut off inside a block, the blocks before it apply if each matches exactly and once.
    """
    return _of_files(_edited_file, reply, _Asked(parent, rules, describe))


def _edited_file(reply: Completion, text: str, asked: _Asked) -> Child:
    parent, blocks = asked.parent, parse_blocks(text, asked.rules)
    if isinstance(blocks, Blocks):
        return _edited(reply, blocks, asked, edits_asked=True)
    source = _written(fences(text), parent)
    if source is not None:
        return _rewritten(source, asked)
    return no_code(reply, blocks.detail) if blocks.kind is _NO_CODE else _cut(reply, blocks)


def read_rewritten(
    reply: Completion, parent: Program, rules: EditRules, describe: Describe = summary
) -> Child:
    """Returns the child that a reply contains in full.

    The program is the fence that `likeliest_program` returns, with the functions that the reply
    corrects after it; else the whole reply where that is a program.  A reply of SEARCH/REPLACE
    blocks is read as edits.
    """
    return _of_files(_rewritten_file, reply, _Asked(parent, rules, describe))


def _of_files(
    read: Callable[[Completion, str, _Asked], Child], reply: Completion, asked: _Asked
) -> Child:
    """Returns the child of a reply, which names the files that it changes beside that in focus."""
    text = reply_text(reply)
    if isinstance(text, Failure):
        return text
    if not asked.parent.path:
        return read(reply, text, asked)

    def read_file(reply: Completion, program: Program, *, named: bool) -> Child:
        # Below its path a file may stand as a whole, whatever was asked for.
        way = _rewritten_file if named else read
        return way(reply, reply.text, replace(asked, parent=program))

    return across_files(read_file, reply, text, asked.parent, asked.rules)


def _rewritten_file(reply: Completion, text: str, asked: _Asked) -> Child:
    parent, blocks = asked.parent, parse_blocks(text, EditRules())
    if isinstance(blocks, Blocks) and blocks.blocks:
        return _edited(reply, blocks, asked, edits_asked=False)
    passages = fences(text)
    source = _written(passages, parent)
    if source is not None:
        return _rewritten(source, asked)
    unfinished = reply.finish == "length" and bool(passages) and not passages[-1].closed
    if unfinished and definitions(parent):
        return cut_off(_NO_CODE, "Its program is not closed by a fence.")
    closed = [fence for fence in passages if fence.closed] if unfinished else passages
    fence = likeliest_program(closed, parent)
    if fence is not None:
        return _rewritten(fence.text, asked)
    if unfinished:
        return cut_off(_NO_CODE, "Its program is not closed by a fence.")
    unfenced = _unfenced(text, parent)
    if unfenced is None:
        return no_code(reply, "The reply holds no fenced program.")
    if reply.finish == "length":
        return cut_off(_NO_CODE, "Its program is not closed by a fence.")
    return _rewritten(unfenced, asked)


def _edited(reply: Completion, blocks: Blocks, asked: _Asked, *, edits_asked: bool) -> Child:
    """Returns the child of a reply that has blocks, and perhaps a whole program beside them."""
    passages = fences(blocks.rest)
    whole = whole_program(passages, asked.parent)
    if whole is None or not _is_answer(whole, asked.parent):
        return _edited_and_corrected(reply, blocks, passages, asked)
    written = _with_functions(whole.text, passages, whole.end, asked.parent) or whole.text
    later = [block for block in blocks.blocks if block.first >= whole.end]
    if not later:
        return _rewritten(written, asked)
    corrected = apply_blocks(written, later, inside=asked.rules.enforce_blocks)
    if isinstance(corrected, Applied) and _matches(written, corrected.edits[0]):
        return _rewritten(corrected.source, asked)
    if not edits_asked and not withdraws(whole.below):
        return _rewritten(written, asked)
    child = _of_blocks(reply, blocks, asked)
    unusable = isinstance(child, Failure) and child.kind is FailureKind.BAD_EDIT
    return _rewritten(written, asked) if unusable else child


def _edited_and_corrected(
    reply: Completion, blocks: Blocks, passages: Sequence[Fence], asked: _Asked
) -> Child:
    """Returns the child of the blocks, or of the functions that the reply writes after them."""
    child = _of_blocks(reply, blocks, asked)
    end = blocks.blocks[-1].end if blocks.blocks else 0
    after = [fence for fence in passages if fence.first >= end]
    if not after or not blocks.blocks:
        return child
    between = "\n".join(blocks.rest.split("\n")[end : after[0].first])
    edited = isinstance(child, Offspring) and not starts_anew(between)
    base = child.program.source if edited and isinstance(child, Offspring) else asked.parent.source
    written = _with_functions(base.replace("\r\n", "\n"), after, end, asked.parent)
    return child if written is None else _rewritten(written, asked)


def _matches(source: str, edit: Edit) -> bool:
    return isinstance(apply_edits(source, [edit], certain=True), str)


def _is_answer(whole: Fence, parent: Program) -> bool:
    """Returns whether a whole program beside blocks is more than what the blocks are about."""
    unchanged = fingerprint(parent.changed(whole.text)) == fingerprint(parent)
    return not unchanged and not is_example(whole.above, whole.text)


def _written(passages: Sequence[Fence], parent: Program) -> str | None:
    """Returns the program of which a reply contains the whole, or whole functions.

    Functions and classes after the whole program correct it; without a whole program they take the
    place of the parent's.  None where the reply has neither.
    """
    whole = whole_program(passages, parent)
    if whole is not None:
        return _with_functions(whole.text, passages, whole.end, parent) or whole.text
    return _with_functions(parent.source.replace("\r\n", "\n"), passages, 0, parent)


def _with_functions(
    source: str, passages: Sequence[Fence], first: int, parent: Program
) -> str | None:
    """Returns a source with the functions of the passages from line `first` on; None without any.

    Passages that are marked as examples, withdrawn, elided or not closed do not count.
    """
    changed = False
    for fence in passages if parent.language == "python" else ():
        if not fence.closed or fence.first < first or is_whole(fence, parent):
            continue
        if is_example(fence.above, fence.text) or withdraws(fence.below):
            continue
        corrected = None
        if not elides(fence.text, parent.source):
            corrected = with_definitions(source, fence.text)
        if corrected is not None:
            source, changed = corrected, True
    return source if changed else None


def _of_blocks(reply: Completion, blocks: Blocks, asked: _Asked) -> Child:
    parent, rules, describe = asked.parent, asked.rules, asked.describe
    if not blocks.unfinished:
        applied = apply_blocks(parent.source, blocks.blocks, inside=rules.enforce_blocks)
        if isinstance(applied, Failure):
            return applied
        return _edited_child(applied.source, parent, rules, describe, describe(applied.edits))
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


def _rewritten(source: str, asked: _Asked) -> Child:
    if "\r\n" in asked.parent.source:
        source = source.replace("\n", "\r\n")
    return described_child(source, asked.parent, asked.rules, asked.describe, "Full rewrite")


def described_child(
    source: str, parent: Program, rules: EditRules, describe: Describe, otherwise: str
) -> Child:
    """Returns a source as a child with its changes in prose; see `as_child`, `with_changes`."""
    return with_changes(as_child(source, parent, rules, ""), parent, describe, otherwise)


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
    child = parent.changed(source)
    if child.length > rules.max_code_chars:
        return Failure(
            FailureKind.TOO_LONG,
            f"The program has {child.length} characters; the limit is {rules.max_code_chars}.",
        )
    fault = syntax_fault(source) if child.language == "python" else None
    if fault is not None:
        return Failure(FailureKind.SYNTAX, fault)
    if source == parent.source or fingerprint(child) == fingerprint(parent):
        return Failure(
            FailureKind.UNCHANGED, "The program equals its parent but for layout and comments."
        )
    return Offspring(child, changes)


def _unfenced(text: str, parent: Program) -> str | None:
    """Returns the program that an unfenced reply is, or contains between tags; None without one."""
    if declines(text.strip()):
        return None
    tagged = [match.group(1) for match in _BETWEEN_TAGS.finditer(text)]
    texts: list[str] = [text, *reversed(tagged)]
    prose = canonical(parent.language) in PROSE
    for each in texts[:_TRIED]:
        source = each.strip("\n") + "\n"
        if prose or (parent.language == "python" and is_program(Program(source))):
            return source
    return None
