"""The files beside the one in focus, as prompts show them: in full, in outline, or by name."""

import re
from collections.abc import Iterator, Mapping

from app.domain.problem import EditRules
from app.domain.program import File, Program
from app.domain.prompting.tokens import estimated
from app.domain.source.definitions import outline

_SHARE = 3
"""The files beside the one in focus take at most a third of a prompt's tokens."""
_MOST_NAMES = 200

CHANGING_OTHERS = (
    "To change another file that evolves as well, write its path on a line of its own above the"
    " code for it.\n"
)
_REMOVING = (
    "To remove a file that evolves, write `*** Delete File: PATH` on a line of its own, outside of"
    " code.\n"
)


def beside(
    program: Program, context: Mapping[str, str], tokens: int, *, invited: EditRules | None
) -> str:
    """Returns the part of a prompt about the files beside the one in focus; "" for a single file.

    The files that the one in focus names come first.  Each is shown in full where a third of the
    prompt's budget has room for it, else as its functions' headers, else by its path alone.

    Args:
      program: The program, with the file in focus that the prompt shows by itself.
      context: Path to text of the fixed files that may be shown.
      tokens: The prompt's budget.
      invited: How the reply may change more than the file in focus; None where it may not.
    """
    if not program.path:
        return ""
    fixed = [File(path, text) for path, text in sorted(context.items())]
    listed = [(file, "evolves") for file in program.others] + [(file, "fixed") for file in fixed]
    listed.sort(key=lambda pair: not _mentions(program.source, pair[0].path))
    left, shown = tokens // _SHARE, []
    for file, _ in listed:
        for text in _versions(file):
            if (size := estimated(text)) <= left:
                shown.append(text)
                left -= size
                break
    names = [f"- {file.path} ({kind})\n" for file, kind in listed[:_MOST_NAMES]]
    more = len(listed) - len(names)
    return (
        f"# The files of the program\nThe current program below is its file `{program.path}`. "
        f"Beside it there are:\n{''.join(names)}"
        f"{f'- and {more} more' if more else ''}"
        f"{_invitation(program, invited) if invited else ''}{''.join(shown)}"
    )


def _invitation(program: Program, rules: EditRules) -> str:
    text = CHANGING_OTHERS if program.others or rules.new_files else ""
    if rules.new_files:
        where = ", ".join(f"`{pattern}`" for pattern in rules.evolve)
        text += (
            f"At most {rules.new_files} new file(s) may be added, at paths that match {where}.\n"
        )
    if rules.remove and program.others:
        text += _REMOVING
    return text


def _versions(file: File) -> Iterator[str]:
    """Yields how a file may be shown, the longest text first."""
    yield f"## {file.path}\n```{file.language}\n{file.source.rstrip()}\n```\n"
    if file.language == "python":
        short = outline(file.source, []).rstrip()
        yield f"## {file.path}, in outline\n```python\n{short}\n```\n"


def _mentions(source: str, path: str) -> bool:
    """Returns whether a text names a file, or the module that it is."""
    stem = path.rpartition("/")[2].partition(".")[0]
    return re.search(rf"\b{re.escape(stem)}\b", source) is not None
