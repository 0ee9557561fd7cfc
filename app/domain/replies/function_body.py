"""Function bodies: how a reply becomes the next body of the evolving function."""

import ast
import re

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.children import Describe, described_child
from app.domain.replies.fences import Fence, fences
from app.domain.replies.reply_text import cut_off, no_code, reply_text
from app.domain.replies.second_thoughts import elides, is_example, withdraws
from app.domain.source.functions import Function, earlier_calls, find_function, indented, renamed
from app.domain.source.syntax import DEFINITION_NODES, UNPARSABLE, syntax_fault, syntax_tree

_FAKE = "def completed():\n"
_CUTS = 20
"""Most cuts of a body at syntax errors; prose after a function takes one or two."""


def read_completed(
    reply: Completion, parent: Program, name: str, number: int, rules: EditRules, describe: Describe
) -> Child:
    """Returns the parent with the body that a reply gives its function.

    A reply contains the whole function, under the name of any version, or its body alone; in a
    fence or not.  A body is cut at the line of each syntax error until it parses, as FunSearch
    does; a whole function is not.  Other definitions of the reply go into the body.

    Args:
      reply: The completion.
      parent: The program that gets the body.
      name: The evolving function.
      number: The version that the prompt asks for.
      rules: What a child may change.
      describe: Describes the changes in prose.
    """
    text = reply_text(reply)
    if isinstance(text, Failure):
        return text
    own = find_function(parent.source.replace("\r\n", "\n"), name)
    if own is None:
        return Failure(FailureKind.NO_CODE, f"The parent has no function {name!r} to complete.")
    fence = _function_fence(fences(text), own, parent, number)
    if reply.finish == "length" and (fence is None or not fence.closed):
        return cut_off(FailureKind.NO_CODE, "Its function may not be whole.")
    body = _body(fence.text if fence else text, own, number)
    if isinstance(body, Failure):
        return no_code(reply, body.detail) if body.kind is FailureKind.NO_CODE else body
    body = renamed(body, f"{name}_v{number}", name)
    earlier = earlier_calls(body, name)
    if earlier:
        return Failure(
            FailureKind.BAD_EDIT,
            f"The body names {earlier[0]}; an earlier version cannot be called, write it out.",
        )
    source = own.source(body)
    if "\r\n" in parent.source:
        source = source.replace("\n", "\r\n")
    return described_child(source, parent, rules, describe, f"New body of {name}")


def _function_fence(
    passages: list[Fence], own: Function, parent: Program, number: int
) -> Fence | None:
    """Returns the fence that is most likely the function or its body; None without any.

    The criteria, in this order: it defines the function, it is not marked as an example, it is
    whole, it is not withdrawn after it, it can be read, it is closed, later in the reply.
    """
    header = re.compile(rf"^(?:async )?def {re.escape(own.name)}(?:_v\d+)?\b", re.MULTILINE)
    filled = [fence for fence in passages if fence.text.strip()]
    if len(filled) < 2:
        return next(iter(filled), None)

    def faults(fence: Fence) -> tuple[bool, ...]:
        return (
            header.search(fence.text) is None,
            is_example(fence.above, fence.text),
            elides(fence.text, parent.source),
            withdraws(fence.below),
            isinstance(_body(fence.text, own, number), Failure),
            not fence.closed,
        )

    return min(reversed(filled), key=faults)


def _body(text: str, own: Function, number: int) -> str | Failure:
    if re.search(r"^(?:async )?def \w", text, re.MULTILINE):
        return _from_function(text, own, number)
    body = _trimmed(text, own.indent)
    if not body:
        return Failure(FailureKind.NO_CODE, f"The reply holds no body of {own.name}.")
    return body


def _from_function(text: str, own: Function, number: int) -> str | Failure:
    fault = syntax_fault(text)
    if fault is not None:
        return Failure(FailureKind.SYNTAX, fault)
    tree = syntax_tree(text)
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    versions = [name for name in defined if re.fullmatch(rf"{re.escape(own.name)}_v\d+", name)]
    wanted = f"{own.name}_v{number}"
    candidates = (wanted, own.name, *reversed(versions), *(defined if len(defined) == 1 else ()))
    name = next((name for name in candidates if name in defined), None)
    function = find_function(text, name) if name else None
    if function is None:
        return Failure(FailureKind.NO_CODE, f"The reply does not define {wanted}.")
    if function.parameters != own.parameters:
        return Failure(
            FailureKind.BAD_EDIT,
            f"The function takes ({', '.join(function.parameters)}); it must take "
            f"({', '.join(own.parameters)}).",
        )
    if not function.body.strip():
        return Failure(FailureKind.NO_CODE, f"The body of {function.name} is empty.")
    body = indented(function.body, function.indent, own.indent)
    if name not in (wanted, own.name):
        body = renamed(body, function.name, own.name)
    others = _other_definitions(tree, text, {function.name, *versions, own.name}, own)
    return others + body.rstrip("\n") + "\n"


def _other_definitions(tree: ast.Module, text: str, versions: set[str], own: Function) -> str:
    """Returns the imports, constants and helpers of a reply, for the start of the body."""
    program = own.source("")
    values = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    kinds = (*values, *DEFINITION_NODES)
    parts = []
    for node in tree.body:
        if not isinstance(node, kinds) or (
            isinstance(node, ast.FunctionDef) and node.name in versions
        ):
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            # This import is valid at the beginning of a file only.
            continue
        segment = ast.get_source_segment(text, node) or ""
        if segment and f"\n{segment}\n" not in f"\n{program}\n":
            parts.append(indented(segment + "\n", "", own.indent))
    return "".join(parts)


def _trimmed(text: str, indent: str) -> str:
    """Returns as much of a body as parses, indented; "" where that is expressions only.

    Source: FunSearch's released code, `_trim_function_body`.
    """
    rows = text.strip("\n").split("\n")
    if rows and rows[0].strip() and not rows[0][0].isspace():
        rows = indented("\n".join(rows), "", indent).split("\n")
    for _ in range(_CUTS):
        if not rows:
            break
        try:
            tree = syntax_tree(_FAKE + "\n".join(rows) + "\n")
        except SyntaxError as error:
            rows = rows[: min(len(rows) - 1, max((error.lineno or 2) - 2, 0))]
            continue
        except UNPARSABLE:
            return ""
        function = tree.body[0]
        assert isinstance(function, ast.FunctionDef)
        end = (function.end_lineno or 1) - 1
        if all(isinstance(node, ast.Expr) for node in function.body):
            return ""
        return "\n".join(rows[:end]) + "\n"
    return ""
