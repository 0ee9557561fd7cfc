"""`evoq show`: one run, or one of its programs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.syntax import Syntax
from rich.table import Table

from app.cli.artifacts import print_artifacts
from app.cli.costs import cost_rows
from app.cli.funnel import print_funnel
from app.cli.options import Debug, Json, RunName
from app.cli.output import MOST_NAMES, Screen, counted, counted_measured, mean_of
from app.cli.tables import columns_table, labelled_table
from app.client.local_state import read_local_state
from app.client.notes import CommandError
from app.client.target import find_target, open_run, stored_problem, worked_on
from app.config.layers import UsageError
from app.domain.digits import number_text, number_texts
from app.domain.problem import Problem
from app.domain.program import ProgramId
from app.domain.run import Run
from app.ports.ledger import Transaction
from app.reports import program as programs
from app.reports.artifacts import ARTIFACT_CHARS, artifacts_document
from app.reports.documents import Json as JsonValues
from app.reports.documents import RunDocument, read_run, to_json
from app.reports.measured import MeasuredProgram
from app.reports.patch import Change, changes_of
from app.reports.program import (
    ProgramDocument,
    TrialDocument,
    agent_logs,
    read_changes,
    read_difference,
    read_program,
)
from app.reports.program_files import file_tree
from app.reports.ratings import RatedProgram
from app.reports.summary import BestProgram, Summary
from app.reports.text import duration
from app.reports.waiting import read_queue

MOST_TEXT = 1_000_000
"""Characters of an artifact that is shown as a whole."""
_PROMPT_TEXTS = ("system", "user")
MAX_LINES = 200
"""Lines of the best program shown on the screen; its file holds all of them."""
MOST_RATINGS = 10
"""Rated programs of a game that are shown on the screen; --json has all of them."""

ProgramOption = Annotated[
    str | None,
    typer.Option("--program", metavar="ID", help="One of its programs: beginning of an id."),
]
Replies = Annotated[
    bool, typer.Option("--reply", help="With --program: what models answered to make it.")
]
Prompts = Annotated[
    bool, typer.Option("--prompt", help="With --program: what models were asked to make it.")
]
Difference = Annotated[
    bool, typer.Option("--diff", help="With --program: its difference to its parent.")
]
Artifacts = Annotated[
    bool, typer.Option("--artifacts", help="With --program: its artifacts as a whole.")
]


def show(
    name: RunName,
    program: ProgramOption = None,
    reply: Replies = False,
    prompt: Prompts = False,
    diff: Difference = False,
    artifacts: Artifacts = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Shows a run: its state and why, counts, failures by kind, the best program; ratings of games.

    With --program: that program, its metrics and artifacts in each trial, and the wall, CPU and
    boot time and memory of the trial; of several files their tree and the difference to its parent.
    --prompt, --reply, --diff and --artifacts add to it.

    Examples:
      evoq show online_bin_packing-1
      evoq show 1 --json
      evoq show 1 --program 1c44a52c --diff --prompt --reply
    """
    if program is None:
        given = {"--reply": reply, "--prompt": prompt, "--diff": diff, "--artifacts": artifacts}
        _require_program(given)
        _show_run(name, Screen(json=as_json))
        return
    added = _Added(replies=reply, prompts=prompt, difference=diff, artifacts=artifacts)
    _show_program(name, program, Screen(json=as_json), added)


@dataclass(frozen=True, slots=True)
class _Added:
    """What of a program is shown beside its source and measurements."""

    replies: bool
    prompts: bool
    difference: bool
    artifacts: bool


def _require_program(given: Mapping[str, bool]) -> None:
    """Raises where an option that adds to a program is given without one."""
    for option in (option for option, on in given.items() if on):
        raise UsageError(
            "it adds to a program, and none is named",
            where=option,
            remedy="Add --program ID; `evoq metrics RUN` lists the programs of a run.",
        )


def _show_run(name: str, screen: Screen) -> None:
    target = find_target()
    with open_run(name, target) as (ledger, run):
        problem = stored_problem(ledger.store, run)
        queue = read_queue(ledger.redis_url)
        document = read_run(
            ledger.store, run, problem, queue, lambda current: worked_on(target, current)
        )
    folder = Path(read_local_state(ledger.home, run.name).out)
    document = replace(document, out=str(folder) if folder.is_dir() else None)
    summary = document.summary
    screen.out.print(labelled_table(_rows(document)))
    if not screen.json:
        print_funnel(summary.funnel, screen)
        _print_programs(summary, problem, document.ratings, screen)
    screen.answer(to_json(document))


def _rows(document: RunDocument) -> Iterator[tuple[str, str]]:
    """Returns what is shown of a run, each with its label, in order."""
    summary, run = document.summary, document.summary.run
    reason = f": {run.reason}" if run.reason and not document.waiting else ""
    if document.worked_on is False:
        reason += f"; nobody is at work on it: `evoq resume {run.name}` continues it"
    yield "run", f"{run.name} (number {run.id})"
    if run.parent is not None:
        yield "inside of", run.name.rpartition(":")[0]
    yield "problem", f"{run.problem_name} ({run.problem[:12]})"
    yield "state", f"{run.state.value}{reason}"
    if document.waiting:
        yield "waits", document.waiting
    yield (
        "settled",
        f"{summary.iterations} of {run.budget.proposals}: "
        f"{counted_measured(summary.measured, summary.entered)}, "
        f"{sum(summary.cuts.values())} cut, {sum(summary.failures.values())} failed",
    )
    if run.rules.nested is not None:
        inside = summary.inside
        yield "inside", f"{inside.proposals} proposals of {inside.runs} runs, {run.name}:NUMBER"
    yield "cut", counted(summary.cuts)
    yield "failures", counted(summary.failures)
    if summary.explanation is not None:
        yield "commonest failure", summary.explanation.text
    yield "not evaluated", summary.savings.text
    yield "seed", str(run.seed)
    yield from cost_rows(summary.costs).items()
    yield "took", duration(summary.seconds)
    yield "files", document.out or "none here"
    if summary.load is not None:
        yield "generating", summary.load.generating.text
        yield "evaluating", summary.load.evaluating.text
    if summary.places is not None:
        yield "places", summary.places.text
    for endpoint in document.models:
        yield "model", f"{endpoint.endpoint}: {endpoint.text}"
    for text in summary.notices:
        yield "notice", text


def _print_programs(
    summary: Summary, problem: Problem, ratings: Sequence[RatedProgram] | None, screen: Screen
) -> None:
    print_best(summary, problem, screen)
    if summary.validated:
        screen.say("")
        screen.out.print(_validated(summary))
    if ratings:
        shown = f"{min(len(ratings), MOST_RATINGS)} of {len(ratings)}"
        screen.say(f"\nratings, with 95 % intervals ({shown}):\n")
        screen.out.print(_ratings(ratings))


def _ratings(ratings: Sequence[RatedProgram]) -> Table:
    counts = ("rating", "from", "to", "Elo", "points", "games")
    table = columns_table("program", *counts, right=counts)
    for rating in ratings[:MOST_RATINGS]:
        numbers = (f"{value:.0f}" for value in (rating.rating, rating.low, rating.high, rating.elo))
        table.add_row(rating.program[:12], *numbers, f"{rating.points:g}", str(rating.games))
    return table


def print_best(summary: Summary, problem: Problem, screen: Screen) -> None:
    """Prints the best program, and its measurements beside those of the baselines."""
    best = summary.best
    if best is None:
        screen.say("no program has been measured")
        return
    origin = (
        f"proposal {best.settled.ordinal} by {best.settled.operator}, "
        f"generation {best.settled.generation}"
        if best.settled.ordinal >= 0
        else "a seed of the problem"
    )
    unverified = "" if best.measured.verified else "; unverified: evaluated in compatible mode"
    screen.say(f"\nbest program of {summary.run.name} ({origin}{unverified}):\n")
    if best.program.path:
        _print_changes(best, problem, screen)
    else:
        _print_lines(best.source, problem.language, "in the file", screen)
    screen.say("")
    columns = {"best": best.measured, **summary.baselines}
    screen.out.print(_measurements(columns, summary.told_apart))
    if mean := mean_of(best.measured.fitness_names, game=problem.players > 1):
        screen.say(mean)
    if best.validation is not None:
        _print_validation(summary, best.validation, problem, screen)


def _print_changes(best: BestProgram, problem: Problem, screen: Screen) -> None:
    """Prints which files of the best program differ from the first start program, and how."""
    changes = changes_of(problem.seeds[0], best.program)
    if not changes:
        screen.say("the first start program, as it is")
        return
    named = ", ".join(change.path for change in changes[:MOST_NAMES])
    more = f" and {len(changes) - MOST_NAMES} more" if len(changes) > MOST_NAMES else ""
    screen.say(f"{len(changes)} of {len(best.program.files)} files differ: {named}{more}\n")
    _print_lines("".join(change.patch for change in changes), "diff", "of the patch", screen)


def _print_lines(text: str, language: str, place: str, screen: Screen) -> None:
    """Prints the first lines of a text, and how many more there are in which place."""
    lines = text.rstrip().splitlines()
    shown = "\n".join(lines[:MAX_LINES])
    if screen.out.is_terminal:
        screen.out.print(Syntax(shown, language, background_color="default"))
    else:
        screen.say(shown)
    if len(lines) > MAX_LINES:
        screen.say(f"… {len(lines) - MAX_LINES} more lines {place}")


def _measurements(
    columns: Mapping[str, MeasuredProgram], beside: Iterable[float | None] = ()
) -> Table:
    """Returns a table of fitness and metrics, with the digits that distinguish the programs.

    Args:
      columns: The programs by name, a column each.
      beside: Other values that the digits of the fitness distinguish.
    """
    table, programs = columns_table("", *columns, right=columns), list(columns.values())
    fitness = number_texts([one.fitness for one in programs], beside)
    table.add_row("fitness", *fitness, style="bold")
    for metric in sorted({name for program in programs for name in program.metrics}):
        table.add_row(metric, *number_texts([one.metrics.get(metric) for one in programs]))
    return table


def _print_validation(
    summary: Summary, best: MeasuredProgram, problem: Problem, screen: Screen
) -> None:
    """Prints the result on validation data, beside the programs that have a name."""
    named = {name: program.measured for program in summary.validated for name in program.names}
    shown = (*problem.baselines, *problem.references)
    columns = {"best": best, **{name: named[name] for name in shown if name in named}}
    searched = [validated for validated in summary.validated if validated.admitted]
    screen.say(
        f"\nvalidation, on data that the search never saw: the best of {len(searched)} programs of "
        f"the search\n"
    )
    screen.out.print(_measurements(columns))
    for validated in searched:
        if validated.failure:
            who, detail = (
                validated.measured.program[:8],
                validated.failure.shown.strip().splitlines()[:1],
            )
            screen.say(f"left out: {who}: {': '.join([validated.failure.kind.value, *detail])}")


def _validated(summary: Summary) -> Table:
    """Returns a table of all validated programs, with both scores."""
    scores = ("by search", "by validation")
    table = columns_table("validated", *scores, "", right=scores)
    searched = number_texts(
        [one.admitted.fitness if one.admitted else None for one in summary.validated],
        summary.told_apart,
    )
    measured = number_texts([one.measured.fitness for one in summary.validated])
    for validated, by_search, by_validation in zip(
        summary.validated, searched, measured, strict=True
    ):
        table.add_row(
            validated.measured.program[:8],
            by_search,
            validated.failure.kind.value if validated.failure else by_validation,
            ", ".join(validated.names),
        )
    return table


def _show_program(name: str, beginning: str, screen: Screen, added: _Added) -> None:
    with open_run(name) as (ledger, run):
        problem = stored_problem(ledger.store, run)
        with ledger.store.begin() as tx:
            program = program_named(tx, run, beginning)
            best, start = tx.history.best_quality(run), tx.history.start(run.id)
        document = read_program(ledger.store, run, program, problem)
        parents, diff = document.parents[:1], None
        if added.difference:
            diff = "".join(read_difference(ledger.store, run, one, program) for one in parents)
        changes: list[Change] = []
        # A program of a run inside another may have a parent that is none of this run.
        with suppress(LookupError):
            for parent in parents if document.files else ():
                changes = read_changes(ledger.store, run, parent, program)
    if not screen.json:
        if document.files:
            _print_files(document, changes, diff, screen)
        else:
            screen.say(document.source.rstrip())
        for log in agent_logs(document.replies):
            screen.say("\nlog of the agent:\n")
            _print_lines(log, "text", "with --reply", screen)
        _print_more(document, diff, added, screen)
        screen.out.print(_trials(document.trials, (best.fitness if best else None, start)))
        for trial in document.trials:
            if trial.failure:
                screen.say(f"{trial.stage}: {trial.failure.kind}: {trial.failure.detail}")
            print_artifacts(trial.stage, trial.artifacts, screen, whole=added.artifacts)
        if mean := mean_of(document.fitness_names, game=problem.players > 1):
            screen.say(mean)
    screen.answer(_as_asked(to_json(_within(document, added)), diff, added))


def _print_files(
    document: ProgramDocument, changes: Sequence[Change], diff: str | None, screen: Screen
) -> None:
    """Prints the files of a program, and the difference to its parent where none was asked for."""
    marks = {change.path: change.kind for change in changes}
    screen.say("\n".join(file_tree(document.files, marks)))
    if changes and diff is None:
        screen.say("\ndifference to its parent:\n")
        patch = "".join(change.patch for change in changes)
        _print_lines(patch, "diff", "with --diff", screen)
        screen.say("")


def _within(program: ProgramDocument, added: _Added) -> ProgramDocument:
    """Returns the document with the beginning and the end of each artifact, or the whole of it."""
    chars = MOST_TEXT if added.artifacts else ARTIFACT_CHARS
    trials = [
        replace(trial, artifacts=artifacts_document(trial.artifacts, chars))
        for trial in program.trials
    ]
    return replace(program, trials=trials)


def _as_asked(answer: JsonValues, diff: str | None, added: _Added) -> JsonValues:
    """Returns the document of a program with the prompts, replies and difference that were asked.

    A reply has the texts of its prompt in `prompts` only.
    """
    replies = answer.pop("replies")
    if added.replies:
        answer["replies"] = [
            {name: value for name, value in reply.items() if name not in _PROMPT_TEXTS}
            for reply in replies
        ]
    if added.prompts:
        names = ("asker", "turn", "model", "prompt", *_PROMPT_TEXTS)
        answer["prompts"] = [{name: reply[name] for name in names} for reply in replies]
    if diff is not None:
        answer["diff"] = diff
    return answer


def _print_more(program: ProgramDocument, diff: str | None, added: _Added, screen: Screen) -> None:
    if diff is not None:
        screen.say("\n" + (diff or "no difference: it has no parent in this run") + "\n")
    for reply in program.replies if added.prompts else ():
        screen.say(f"\nprompt to {reply.model} ({reply.asker}, turn {reply.turn + 1}):")
        if reply.user is None:
            screen.say("not kept: prompts.log_prompts is off in this run\n")
        else:
            screen.say(f"\n{reply.system}\n\n{reply.user.rstrip()}\n")
    for reply in program.replies if added.replies else ():
        screen.say(
            f"\nreply of {reply.model} ({reply.asker}, turn {reply.turn + 1}, "
            f"{reply.completion_tokens} tokens):\n{reply.text.rstrip()}\n"
        )
    if not program.replies and (added.replies or added.prompts):
        screen.say("no model was asked for it")


def program_named(tx: Transaction, run: Run, beginning: str) -> ProgramId:
    """Returns the program of a run whose id has this beginning.

    Raises:
      UsageError: It is not the beginning of an id.
      CommandError: No id or several have this beginning.
    """
    if not re.fullmatch(r"[0-9a-f]{4,64}", beginning):
        raise UsageError(
            "not the beginning of a program's id",
            where="--program",
            value=beginning,
            remedy="Give 4 to 64 of its hexadecimal digits; `evoq metrics` lists them.",
        )
    try:
        return programs.program_named(tx, run, beginning)
    except LookupError as error:
        raise CommandError(f"{error}; `evoq metrics {run.name}` lists them") from error


def _trials(trials: Sequence[TrialDocument], told_apart: Sequence[float | None]) -> Table:
    columns = ("trial", "result", "wall s", "CPU s", "peak MiB", "boot s", "verified")
    table = columns_table(*columns)
    for trial in trials:
        texts = number_texts(list(trial.metrics.values()), told_apart)
        table.add_row(
            trial.stage,
            trial.failure.kind
            if trial.failure
            else ", ".join(map(" ".join, zip(trial.metrics, texts, strict=True))),
            f"{trial.wall_seconds:.3f}",
            f"{trial.cpu_seconds:.3f}",
            number_text(trial.peak_memory_mib),
            f"{trial.boot_seconds:.3f}",
            "yes" if trial.verified else "no",
        )
    return table
