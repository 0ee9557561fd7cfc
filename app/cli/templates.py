"""The setting `prompts.template_dir`: a folder of prompt templates, for one run."""

from pathlib import Path

from app.config.layers import Choices, UsageError
from app.domain.prompting.templates import TEMPLATES

SETTING = "prompts.template_dir"
_SUFFIX = ".txt"


def with_templates(said: Choices, around: Path) -> Choices:
    """Returns the choices with the templates of the folder they name, by name.

    What the same source says of one template wins over the folder's file.

    Args:
      said: What one source says.
      around: What a relative path is relative to.

    Raises:
      UsageError: There is no such folder, nothing in it is a template, or a file is not text.
    """
    if SETTING not in said.values:
        return said
    rest = {name: value for name, value in said.values.items() if name != SETTING}
    told = said.values[SETTING]
    folder = around / str(told)
    if not folder.is_dir():
        raise UsageError(
            "not a folder",
            where=f"{SETTING} ({said.source})",
            value=str(told),
            remedy="Name a folder that holds templates such as diff_user.txt.",
        )
    found = {
        f"prompts.templates.{path.stem}": _text(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))
    }
    if not {name.rsplit(".", 1)[1] for name in found} & set(TEMPLATES):
        raise UsageError(
            "the folder holds no template",
            where=f"{SETTING} ({said.source})",
            value=str(told),
            remedy=f"Name files {', '.join(sorted(TEMPLATES))}, each with the ending {_SUFFIX}.",
        )
    return Choices(said.source, {**found, **rest})


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "a template cannot be read",
            where=str(path),
            value=str(error),
            remedy="It must be text in UTF-8.",
        ) from error
