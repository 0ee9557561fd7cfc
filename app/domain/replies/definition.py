"""Definitions in replies: how a reply of one function or class becomes a child of its parent."""

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.children import Describe, described_child, read_rewritten
from app.domain.replies.edit_blocks import Blocks, parse_blocks
from app.domain.replies.fences import Fence, fences, whole_program
from app.domain.replies.reply_text import cut_off, no_code, reply_text
from app.domain.replies.second_thoughts import elides, is_example, withdraws
from app.domain.source.definitions import Definition, changeable_definitions, positional
from app.domain.source.functions import indented
from app.domain.source.regions import lines
from app.domain.source.syntax import (
    DEFINITION_NODES,
    FUNCTION_NODES,
    DefinitionNode,
    FunctionNode,
    first_line,
    syntax_fault,
    top_level,
    tree_or_none,
)


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Lines of the parent, from 0, that a text takes the place of; none where both are equal."""

    first: int
    end: int
    text: str


def read_definition(
    reply: Completion, parent: Program, wanted: Definition, rules: EditRules, describe: Describe
) -> Child:
    """Returns the parent with the definition that a reply contains in the place of its own.

    Further definitions of the reply replace those of their names that may change; new ones, and its
    imports and constants, go before the wanted definition.  A reply that is certainly the whole
    program, or that consists of SEARCH/REPLACE blocks, is read as that.

    Args:
      reply: The completion.
      parent: A Python program.
      wanted: One of `changeable_definitions(parent)`.
      rules: What a child may change.
      describe: Describes the changes in prose.
    """
    text = reply_text(reply)
    if isinstance(text, Failure):
        return text
    passages = fences(text)
    blocks = parse_blocks(text, EditRules())
    edited = isinstance(blocks, Blocks) and blocks.edits
    if edited or whole_program(passages, parent) is not None:
        return read_rewritten(reply, parent, rules, describe)
    fence = _defining_fence(passages, wanted, parent)
    if reply.finish == "length" and (fence is None or not fence.closed):
        return cut_off(FailureKind.NO_CODE, f"Its {wanted.name} may not be whole.")
    written = textwrap.dedent(fence.text if fence else text).strip("\n") + "\n"
    fault = syntax_fault(written)
    tree = tree_or_none(written)
    if tree is None:
        if fence is None:
            return no_code(reply, f"The reply does not contain {wanted.name}.")
        return Failure(FailureKind.SYNTAX, fault or "It does not parse.")
    replacements = _replacements(tree, written, parent, wanted)
    if isinstance(replacements, Failure):
        return replacements
    source = _replaced(parent.source, replacements)
    return described_child(source, parent, rules, describe, f"Another {wanted.name}")


def _defining_fence(passages: Sequence[Fence], wanted: Definition, parent: Program) -> Fence | None:
    """Returns the fence that is most likely the definition; None where there is none.

    The criteria, in this order: it contains the definition, it is not marked as an example, it is
    whole, it is not withdrawn after it, it is closed, later in the reply.
    """
    filled = [fence for fence in passages if fence.text.strip()]

    def faults(fence: Fence) -> tuple[bool, ...]:
        tree = tree_or_none(textwrap.dedent(fence.text))
        return (
            tree is None or _find(tree.body, wanted.name) is None,
            is_example(fence.above, fence.text),
            elides(fence.text, parent.source),
            withdraws(fence.below),
            not fence.closed,
        )

    return min(reversed(filled), key=faults, default=None)


def _find(body: Sequence[ast.stmt], name: str) -> DefinitionNode | None:
    """Returns the last definition of a qualified name; a method may stand outside of its class."""
    owner, _, own = name.rpartition(".")
    found: DefinitionNode | None = None
    for node in body:
        if isinstance(node, DEFINITION_NODES) and node.name == own:
            found = node
        elif owner and isinstance(node, ast.ClassDef) and node.name == owner:
            found = _find(node.body, own) or found
    return found


def _replacements(
    tree: ast.Module, written: str, parent: Program, wanted: Definition
) -> list[_Replacement] | Failure:
    node = _find(tree.body, wanted.name)
    if node is None:
        return Failure(FailureKind.NO_CODE, f"The reply does not define {wanted.name}.")
    if isinstance(node, FUNCTION_NODES):
        fault = _fault_of_parameters(node, wanted)
        if fault is not None:
            return fault
    own_lines = lines(written)
    replaced = [_replacement(parent.source, wanted, own_lines, node)]
    own = {each.name: each for each in changeable_definitions(parent)}
    used, further = _names_read(node), [other for other in tree.body if other is not node]
    added: list[str] = []
    for other in reversed(further):
        if isinstance(other, DEFINITION_NODES) and other.name in own:
            if other.name != wanted.name.split(".")[0]:
                replaced.append(_replacement(parent.source, own[other.name], own_lines, other))
                used |= _names_read(other)
        elif _bound_names(other) & used and not _held(other, own_lines, parent):
            added.insert(0, _text(own_lines, other))
            used |= _names_read(other)
    if added:
        at = _top_level_first(parent.source, wanted)
        replaced.append(_Replacement(at, at, "".join(added) + "\n\n"))
    return replaced


def _fault_of_parameters(node: FunctionNode, wanted: Definition) -> Failure | None:
    """Returns the failure of a function that its callers could not call as before; else None."""
    parameters, optional = positional(node), len(node.args.defaults)
    required = parameters[: len(parameters) - optional]
    known = len(wanted.parameters)
    fits = node.args.vararg is not None or (
        parameters[:known] == wanted.parameters and len(required) <= known
    )
    if fits or not wanted.parameters:
        return None
    return Failure(
        FailureKind.BAD_EDIT,
        f"{wanted.name} takes ({', '.join(parameters)}); it must take "
        f"({', '.join(wanted.parameters)}).",
    )


def _names_read(node: ast.stmt) -> set[str]:
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }


def _bound_names(node: ast.stmt) -> set[str]:
    """Returns the names that an import, a constant or a definition binds; none of another one."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.ImportFrom(module="__future__"):
            # Such an import is valid at the beginning of a file only.
            return set()
        case ast.Import() | ast.ImportFrom():
            return {(name.asname or name.name).split(".")[0] for name in node.names}
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return {
                each.id
                for target in targets
                for each in ast.walk(target)
                if isinstance(each, ast.Name)
            }
        case _:
            return set()


def _held(node: ast.stmt, written: Sequence[str], parent: Program) -> bool:
    """Returns whether the parent has a statement already, or a definition of its name."""
    body = top_level(parent.source)
    if isinstance(node, DEFINITION_NODES):
        return any(isinstance(each, DEFINITION_NODES) and each.name == node.name for each in body)
    own, text = lines(parent.source), _text(written, node).strip()
    return any(_text(own, each).strip() == text for each in body)


def _replacement(
    source: str, own: Definition, written: Sequence[str], node: DefinitionNode
) -> _Replacement:
    line = lines(source)[own.first]
    indent = line[: len(line) - len(line.lstrip())]
    return _Replacement(
        own.first, own.end, indented(_text(written, node).rstrip("\n"), "", indent) + "\n"
    )


def _text(written: Sequence[str], node: ast.stmt) -> str:
    return textwrap.dedent("".join(written[first_line(node) : node.end_lineno or node.lineno]))


def _top_level_first(source: str, wanted: Definition) -> int:
    """Returns the first line, from 0, of the top-level statement that holds a definition."""
    for node in top_level(source):
        holds = first_line(node) <= wanted.first < (node.end_lineno or node.lineno)
        if holds and isinstance(node, DEFINITION_NODES):
            return first_line(node)
    return wanted.first


def _replaced(source: str, replacements: Sequence[_Replacement]) -> str:
    windows = "\r\n" in source
    text = lines(source)
    for each in sorted(replacements, key=lambda each: (each.first, each.end), reverse=True):
        text[each.first : each.end] = lines(each.text.replace("\n", "\r\n" if windows else "\n"))
    return "".join(text)
