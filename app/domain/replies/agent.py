"""Replies of agents: what a command printed, and the files that it left."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Child, Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.agent_files import agent_files
from app.domain.replies.children import Describe, as_child, with_changes
from app.domain.replies.paths import without_files
from app.domain.source.edits import summary
from app.domain.source.globs import matches

OVERDUE = "agent_ended"
"""Finish reason of an agent that was ended: it took too long, or wrote too much."""
_MARK = "===== files that the agent left ====="
_SHOWN_CHARS = 2_000
"""Of an agent's output, in the failure of its proposal."""
_SAID_CHARS = 400
"""Of an agent's output, in the changes of its child."""


@dataclass(frozen=True, slots=True)
class LeftFiles:
    """The files that an agent left.

    Attributes:
      files: Path to text of each file that it changed or added.
      removed: Paths that it removed.
      refused: Why a file was not taken, one line each.
    """

    files: Mapping[str, str]
    removed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def agent_reply(status: str, output: str, left: LeftFiles) -> str:
    """Returns the text of an agent's reply: how it ended, what it printed, and its files."""
    return f"{status}\n\n{output.strip()}\n\n{_MARK}\n{json.dumps(asdict(left))}\n"


def agent_log(reply: str) -> str:
    """Returns how an agent ended and what it printed: its reply without the files that it left."""
    before, mark, whole = reply.rpartition(_MARK)
    return (before if mark else whole).strip()


def read_agent(reply: Completion, parent: Program, rules: EditRules, describe: Describe) -> Child:
    """Returns the child of an agent's reply; see `child_of_files`."""
    text, _, document = reply.text.rpartition(_MARK)
    if reply.finish == OVERDUE:
        return Failure(FailureKind.NO_CODE, f"The agent was ended: {_shown(text)}")
    try:
        left = LeftFiles(**json.loads(document))
    except (ValueError, TypeError):
        return Failure(FailureKind.NO_CODE, f"The agent left no files: {_shown(text)}")
    return child_of_files(left, parent, rules, describe, text)


def child_of_files(
    left: LeftFiles, parent: Program, rules: EditRules, describe: Describe = summary, text: str = ""
) -> Child:
    """Returns the child that an agent left, of its changes to files that evolve.

    Other files that it changed are left out.  Files that it removed stay as they are where a child
    may not be without them.

    Args:
      left: The files.
      parent: The program that the agent found.
      rules: The changes that it may make.
      describe: Describes edits in prose.
      text: How the agent ended, and what it printed; "" while it works.
    """
    if not parent.path:
        return _one_file(left, parent, rules, describe, text)
    known = {file.path for file in parent.files}
    evolving = {
        path: source
        for path, source in left.files.items()
        if path in known or matches(path, rules.evolve)
    }
    added = sorted(evolving.keys() - known)
    if len(added) > rules.new_files:
        return Failure(
            FailureKind.BAD_EDIT,
            f"The agent added {', '.join(added)}, and a child may add {rules.new_files or 'no'} "
            "files.",
        )
    return _changed(evolving, parent, rules, describe, text, left)


def _changed(
    evolving: Mapping[str, str],
    parent: Program,
    rules: EditRules,
    describe: Describe,
    text: str,
    left: LeftFiles,
) -> Child:
    child, changes = parent, []
    for path, source in sorted(evolving.items()):
        known = any(file.path == path for file in child.files)
        view = (child if known else child.added(path, "")).focused(path)
        made = with_changes(as_child(source, view, rules, ""), view, describe, "rewritten")
        if isinstance(made, Offspring):
            child = made.program
            changes.append(f"{path}: {made.changes}")
        elif made.kind is not FailureKind.UNCHANGED:
            return Failure(made.kind, f"{path}: {made.detail}")
    evolving_before = {file.path for file in parent.files}
    removed = [path for path in left.removed if path in evolving_before]
    if removed and rules.remove:
        return without_files(child, removed, parent, rules, changes)
    if not changes:
        return _nothing(text, left)
    return Offspring(child.focused(parent.path), "\n".join([*_said(text), *changes]))


def _one_file(
    left: LeftFiles, parent: Program, rules: EditRules, describe: Describe, text: str
) -> Child:
    """Returns the child of a program of one file, whose name in the folder is its only one."""
    [file] = agent_files(parent)
    if file.path not in left.files:
        return _nothing(text, left)
    child = as_child(left.files[file.path], parent, rules, "")
    child = with_changes(child, parent, describe, "Full rewrite")
    if isinstance(child, Failure):
        return child
    return replace(child, changes="\n".join([*_said(text), child.changes]))


def _said(text: str) -> list[str]:
    """Returns the end of an agent's output for the next tasks; empty where it printed nothing."""
    output = text.strip().partition("\n\n")[2].strip()
    return [f"The agent said: {output[-_SAID_CHARS:]}"] if output else []


def _nothing(text: str, left: LeftFiles) -> Failure:
    others = sorted({*left.files, *left.removed})
    outside = f" It changed files that do not evolve: {', '.join(others)[:500]}." if others else ""
    refused = f" Not taken: {'; '.join(left.refused)[:500]}." if left.refused else ""
    return Failure(
        FailureKind.UNCHANGED,
        f"The agent changed no file that evolves.{outside}{refused}\n{_shown(text)}",
    )


def _shown(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _SHOWN_CHARS else f"[...]\n{text[-_SHOWN_CHARS:]}"
