"""`evoq answer`: the other end of a run that asks a person."""

import sys
from pathlib import Path

from app.adapters.model.providers.human import Open, unanswered
from app.adapters.model.providers.human import answer as write
from app.cli.execution import find
from app.cli.faults import Failed
from app.cli.screen import Screen
from app.cli.target import opened, place, require_runs
from app.domain.run import Run


def answer(name: str, reply: str | None, prompt: str | None, screen: Screen) -> None:
    """Shows the oldest open prompt of a run, or answers one.

    Raises:
      Failed: The run asks no person, nothing waits, or the reply cannot be read.
    """
    at = place()
    require_runs(at)
    with opened(at) as ledger:
        run = find(ledger.store, name)
    folder = _folder(run)
    waiting = unanswered(folder)
    chosen = next((one for one in waiting if prompt in (None, one.name)), None)
    if chosen is None:
        what = f"no prompt {prompt!r}" if prompt else "no prompt"
        raise Failed(f"{what} of {run.name} waits for an answer in {folder}")
    if reply is None:
        _show(run, chosen, waiting, screen)
        return
    text = _read(reply)
    if not text.strip():
        raise Failed(f"{reply}: is empty, and {chosen.name} still waits. Write the answer into it")
    write(folder, chosen.name, text)
    left = [one.name for one in waiting if one is not chosen]
    screen.say(f"answered {chosen.name}; {len(left)} more wait")
    screen.answer({"run": run.name, "answered": chosen.name, "waiting": left})


def _folder(run: Run) -> Path:
    llm = run.settings["llm"]
    mixes = [llm, *llm.get("roles", {}).values()]
    asked = [one.get("provider") for one in mixes]
    asked += [model.get("provider") for one in mixes for model in one.get("models", [])]
    if "human" not in asked:
        raise Failed(f"{run.name} asks no person: its settings name no provider `human`")
    return Path(llm["answers"]) / run.name


def _show(run: Run, chosen: Open, waiting: list[Open], screen: Screen) -> None:
    names = [one.name for one in waiting]
    if not screen.json:
        sys.stdout.write(chosen.text)
    screen.note(
        f"{chosen.name}: answer with `evoq answer {run.name} --prompt {chosen.name} --reply FILE`;"
        f" {len(names) - 1} more wait"
    )
    screen.answer({"run": run.name, "prompt": chosen.name, "text": chosen.text, "waiting": names})


def _read(reply: str) -> str:
    try:
        return sys.stdin.read() if reply == "-" else Path(reply).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{reply}: cannot be read ({error}). Give a text file, or -") from error
