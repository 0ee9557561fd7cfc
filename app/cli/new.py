"""`evoq new`: a problem to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import Debug, Json
from app.cli.output import Screen
from app.cli.starters import STARTERS
from app.config.layers import UsageError


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The folder to make.")],
    format: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", help="openevolve, funsearch, problem or repository."
        ),
    ] = "openevolve",
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Writes a folder with a small, commented problem that runs at once.

    An existing folder is used if it is empty.

    Examples:
      evoq new my_problem
      evoq new my_search --format funsearch
      evoq new my_library --format repository
    """
    screen, folder = Screen(json=as_json), Path(name)
    if format not in STARTERS:
        raise UsageError(
            "unknown format",
            where="--format",
            value=format,
            remedy=f"Choose one of {', '.join(STARTERS)}.",
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(
            "exists and is not an empty folder",
            where=name,
            remedy="Choose another name.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    files = STARTERS[format]
    for file, text in files.items():
        filled = text.replace("{name}", folder.resolve().name).replace("{path}", name)
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(filled if file == "README.md" else text, encoding="utf-8")
    screen.say(f"{name}: {', '.join(files)}")
    screen.say(f"Try it: evoq check {name}; evoq run {name} --iterations 100")
    screen.answer({"folder": str(folder), "format": format, "files": list(files)})
