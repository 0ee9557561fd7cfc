"""The table of commands."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Command:
    """A command that is imported when it is called.

    Attributes:
      place: Its module and function, with a colon between them.
      help: The first sentence of its help, which the list of commands shows.
      below: The function that returns the commands below it, by name, as `place`; "" for none.
    """

    place: str
    help: str
    below: str = ""


def imported(place: str) -> Callable[..., Any]:
    """Imports a function of the table."""
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


COMMANDS: dict[str, Command] = {
    "run": Command("app.cli.run:run", "Starts a search and follows it to its end."),
    "resume": Command(
        "app.cli.run:resume",
        "Continues a run that was paused, interrupted, killed or cancelled, or that failed.",
    ),
    "change": Command(
        "app.cli.change:change",
        "Gives a run other settings while it runs, or before it is resumed.",
    ),
    "watch": Command(
        "app.cli.runs:watch",
        "Follows a run that another process works on. Ctrl-C stops watching, not the run.",
    ),
    "list-runs": Command("app.cli.runs:list_runs", "Lists the newest hundred runs."),
    "show": Command(
        "app.cli.show:show",
        "Shows a run: its state and why, counts, failures by kind, the best program; "
        "ratings of games.",
    ),
    "costs": Command(
        "app.cli.costs:costs",
        "Shows the costs of all runs together, and the workers' time without work.",
    ),
    "scale": Command(
        "app.cli.scale:scale",
        "Shows how many workers each fleet should have, and why; starts none.",
    ),
    "pause": Command(
        "app.cli.runs:pause", "Stops a run: no step begins any more, and steps in progress end."
    ),
    "cancel": Command(
        "app.cli.runs:cancel",
        "Ends a run now; what is in flight is withdrawn and spends nothing of the budget.",
    ),
    "delete": Command(
        "app.cli.delete:delete",
        "Deletes runs, with the runs inside them, and what no other run uses.",
    ),
    "keep": Command(
        "app.cli.delete:keep",
        "Protects a run from `evoq delete` and from the limits of the ledger.",
    ),
    "export-best": Command(
        "app.cli.export:export_best",
        "Writes the source of a run's best program; one of several files into a new or empty "
        "folder.",
    ),
    "export-programs": Command(
        "app.cli.export:export_programs",
        "Writes every program of a run to a file, and an index of their metrics.",
    ),
    "export-checkpoint": Command(
        "app.cli.export:export_checkpoint",
        "Writes the admitted programs of a run as a checkpoint of OpenEvolve.",
    ),
    "export": Command(
        "app.cli.transfer:export_run",
        "Writes the whole ledger of a run to one file, for `evoq import`.",
    ),
    "apply": Command(
        "app.cli.apply:apply",
        "Commits the best program of a run, which has several files, to a folder in one step.",
    ),
    "import": Command(
        "app.cli.transfer:import_run",
        "Adds the run of a file to this ledger; a broken file, or a name that is taken, "
        "adds nothing.",
    ),
    "metrics": Command(
        "app.cli.export:metrics",
        "Writes the metrics of every settled proposal, or generation; with --json as one list.",
    ),
    "plot": Command(
        "app.cli.export:plot",
        "Draws evolution.png, failures.png, archive.png and, of generations, generations.png.",
    ),
    "report": Command(
        "app.cli.report:report",
        "Writes a self-contained HTML report: curves, archive, lineage, failures, cost, settings.",
    ),
    "compare": Command(
        "app.cli.compare:compare",
        "Runs arms of a search with the same budget and reports how they did.",
    ),
    "new": Command(
        "app.cli.new:new", "Writes a folder with a small, commented problem that runs at once."
    ),
    "check": Command(
        "app.cli.check:check",
        "Loads a problem, evaluates its seeds in the sandbox, and prints what was understood.",
    ),
    "prompt": Command(
        "app.cli.prompt:prompt", "Shows the prompt that a model would get; asks no model."
    ),
    "answer": Command(
        "app.cli.answer:answer",
        "Shows a prompt of a run that asks a person (llm.provider=human), or answers it.",
    ),
    "replay": Command(
        "app.cli.replay:replay",
        "Writes the recorded events of a run again, without a model or a worker.",
    ),
    "play": Command(
        "app.cli.play:play",
        "Plays a game against a program of a run: one move on each line of standard input.",
    ),
    "evaluate": Command(
        "app.cli.evaluate:evaluate",
        "Evaluates program files by a problem's evaluator, one after the other in one sandbox.",
    ),
    "branch": Command(
        "app.cli.branch:branch",
        "Runs commands side by side, each on a copy of a folder of its own, and keeps one copy.",
        below="app.cli.branch:commands",
    ),
    "doctor": Command(
        "app.cli.doctor:doctor",
        "Checks what is installed, reachable and missing: one line each, with the remedy.",
    ),
    "up": Command(
        "app.cli.up:up", "Keeps the embedded stack running for several runs, until Ctrl-C."
    ),
    "quota": Command(
        "app.cli.quota:quota",
        "Shows the projects of a deployment with their weights and quotas, or sets one's.",
    ),
    "dashboard": Command(
        "app.cli.dashboard:dashboard",
        "Shows the runs in a browser, live, until Ctrl-C; programs read the same at /api and /ws.",
    ),
    "mock-llm": Command(
        "app.cli.mock_llm:mock_llm",
        "Serves a SIMULATED language model, OpenAI-compatible, until Ctrl-C.",
    ),
}
