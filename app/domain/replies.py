"""Replies: how a model's text becomes a child, or a failure that says precisely why not."""

import ast
import re
from dataclasses import dataclass

from app.domain.edits import apply_edits, parse_edits, summary
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program, fingerprint
from app.domain.regions import enforce, parse

_THOUGHT = re.compile(r"^[ \t]*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.MULTILINE)
_ENDED_THOUGHT = re.compile(
    r"\A.*(?:^[ \t]*</(?:think|thinking|reasoning)>|</(?:think|thinking|reasoning)>[ \t]*$)",
    re.DOTALL | re.MULTILINE,
)
_OPEN_THOUGHT = re.compile(r"^[ \t]*<(?:think|thinking|reasoning)>.*\Z", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`\n]*")

_ALIASES = {"py": "python", "python3": "python", "c++": "cpp", "js": "javascript", "rs": "rust"}
_PROSE = frozenset({"text", "txt", "markdown", "md", "plaintext"})
_EMPTY = "The reply is empty."


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced passage; not `closed` where the reply ends inside it."""

    language: str
    text: str
    closed: bool


def read_edited(reply: Completion, parent: Program, rules: EditRules) -> Child:
    """Returns the child that a reply's SEARCH/REPLACE blocks make of the parent."""
    text = _answer(reply)
    if isinstance(text, Failure):
        return text
    edits = parse_edits(text, rules)
    if isinstance(edits, Failure):
        return _cut_off(edits.kind, edits.detail) if reply.finish == "length" else edits
    source = apply_edits(parent.source, edits)
    if isinstance(source, Failure):
        return source
    return as_child(source, parent, rules, summary(edits))


def read_rewritten(reply: Completion, parent: Program, rules: EditRules) -> Child:
    """Returns the child that a reply holds in full.

    The program is the first fence of the parent's language, else the first fence, else the whole
    reply where that is a program.  Where the parent has EVOLVE-BLOCK regions, a fence with as many
    comes before one without.
    """
    text = _answer(reply)
    if isinstance(text, Failure):
        return text
    fence = _chosen(fences(text), parent)
    if fence is None:
        if not _is_program(text, parent.language):
            return Failure(FailureKind.NO_CODE, "The reply holds no fenced program.")
        fence = Fence(parent.language, text.strip("\n") + "\n", True)
    if reply.finish == "length" and not fence.closed:
        return _cut_off(FailureKind.NO_CODE, "Its program is not closed by a fence.")
    source = fence.text
    if "\r\n" in parent.source:
        source = source.replace("\n", "\r\n")
    return as_child(source, parent, rules, "Full rewrite")


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
        ast.parse(program.source)
    except SyntaxError as error:
        shown = (error.text or "").strip()[:160]
        return f"line {error.lineno}: {error.msg}" + (f"\n    {shown}" if shown else "")
    except ValueError as error:
        return f"not a source text: {error}"
    except (RecursionError, MemoryError):
        return "an expression is nested too deeply for the compiler"
    return None


def without_thoughts(text: str) -> str:
    """Returns a reply without its reasoning, which some endpoints leave in the text.

    A thought whose start was part of the prompt ends with a tag alone; one that never ends takes
    the rest of the reply with it.
    """
    kept = _THOUGHT.sub("", text)
    kept = _ENDED_THOUGHT.sub("", kept)
    return _OPEN_THOUGHT.sub("", kept)


def fences(text: str) -> list[Fence]:
    """Returns the fenced passages in order, each without the indentation of its fence."""
    found: list[Fence] = []
    opening: re.Match[str] | None = None
    body: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if opening is None:
            opening, body = match, []
        elif (
            match is not None and not match.group(3) and match.group(2).startswith(opening.group(2))
        ):
            found.append(_fence(opening, body, True))
            opening = None
        else:
            body.append(line)
    if opening is not None:
        found.append(_fence(opening, body, False))
    return found


def _fence(opening: re.Match[str], body: list[str], closed: bool) -> Fence:
    margin = opening.group(1)
    text = "".join(line.removeprefix(margin) + "\n" for line in body)
    return Fence(_canonical(opening.group(3)), text.rstrip("\n") + "\n", closed)


def _chosen(found: list[Fence], parent: Program) -> Fence | None:
    blocks = len(parse(parent.source).blocks)
    language = _canonical(parent.language)
    ranked = sorted(
        (fence for fence in found if fence.text.strip()),
        key=lambda fence: (
            bool(blocks) and len(parse(fence.text).blocks) != blocks,
            fence.language != language,
        ),
    )
    return ranked[0] if ranked else None


def _canonical(language: str) -> str:
    return _ALIASES.get(language.lower(), language.lower())


def _is_program(text: str, language: str) -> bool:
    """Says whether an unfenced reply is a program and not a sentence.

    A word of apology is a Python expression; so a Python program must do more than name things.
    """
    if language in _PROSE:
        return True
    if language != "python":
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(not isinstance(statement, ast.Expr) for statement in tree.body)


def _answer(reply: Completion) -> str | Failure:
    """Returns the reply's text without reasoning; never judged by what its prose says."""
    if reply.finish == "content_filter":
        return Failure(FailureKind.REFUSED, "The endpoint withheld the reply: content_filter.")
    text = without_thoughts(reply.text.replace("\r\n", "\n").replace("\r", "\n"))
    if text.strip():
        return text
    detail = "The reply holds nothing but reasoning." if reply.text.strip() else _EMPTY
    return (
        _cut_off(FailureKind.NO_CODE, detail)
        if reply.finish == "length"
        else Failure(FailureKind.NO_CODE, detail)
    )


def _cut_off(kind: FailureKind, detail: str) -> Failure:
    return Failure(kind, f"The reply was cut off at its token limit. {detail}")
