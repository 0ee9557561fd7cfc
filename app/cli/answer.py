"""`evoq answer`: shows and answers the prompts of a run that asks a person."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.adapters.model.providers import human
from app.cli.options import Debug, Json, RunName
from app.cli.output import Screen
from app.client.notes import CommandError
from app.client.target import open_run
from app.domain.run import Run


def answer(
    name: RunName,
    reply: Annotated[
        str | None,
        typer.Option("--reply", metavar="FILE", help="Answer with this file; - is standard input."),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", metavar="NAME", help="Name of a prompt; the oldest by default."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Shows a prompt of a run that asks a person (llm.provider=human), or answers it.

    Without --reply the oldest open prompt is printed, and the names of the others.

    Examples:
      evoq answer mine-1 > prompt.md
      evoq answer mine-1 --reply reply.md
    """
    screen = Screen(json=as_json)
    with open_run(name) as (_, run):
        folder = _folder(run)
    waiting = human.unanswered(folder)
    names = [question.name for question in waiting]
    chosen = next((question for question in waiting if prompt in (None, question.name)), None)
    if chosen is None:
        what = f"no prompt {prompt!r}" if prompt else "no prompt"
        raise CommandError(f"{what} of {run.name} waits for an answer in {folder}")
    if reply is None:
        if not screen.json:
            sys.stdout.write(chosen.text)
        screen.note(
            f"{chosen.name}: answer with `evoq answer {run.name} --prompt {chosen.name} "
            f"--reply FILE`; {len(names) - 1} more wait"
        )
        document = {"run": run.name, "prompt": chosen.name, "text": chosen.text, "waiting": names}
        screen.answer(document)
        return
    text = _read(reply)
    if not text.strip():
        raise CommandError(
            f"{reply}: is empty, and {chosen.name} still waits. Write the answer into it"
        )
    human.answer(folder, chosen.name, text)
    names.remove(chosen.name)
    screen.say(f"answered {chosen.name}; {len(names)} more wait")
    screen.answer({"run": run.name, "answered": chosen.name, "waiting": names})


def _folder(run: Run) -> Path:
    """Returns the folder of a run's prompts.

    Raises:
      CommandError: The run asks no person.
    """
    llm = run.settings["llm"]
    mixes = [llm, *llm.get("roles", {}).values()]
    providers = [mix.get("provider") for mix in mixes]
    providers += [model.get("provider") for mix in mixes for model in mix.get("models", [])]
    if "human" not in providers:
        raise CommandError(f"{run.name} asks no person: its settings name no provider `human`")
    return Path(llm["answers"]) / run.name


def _read(reply: str) -> str:
    try:
        return sys.stdin.read() if reply == "-" else Path(reply).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{reply}: cannot be read ({error}). Give a text file, or -") from error
