"""The pages of a program and of a proposal: its text, what was asked, how it was measured."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nicegui import ui

from app.dashboard.pages.layout import (
    Cell,
    Grid,
    Link,
    Tiles,
    folded,
    heading,
    late,
    links,
    page,
    program_link,
    say,
    table,
    text_block,
)
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import diff_html, shown
from app.domain.digits import number_text, number_texts
from app.domain.run import Run
from app.reports.metrics import MetricsRow
from app.reports.patch import Change
from app.reports.program import ProgramDocument, ReplyDocument, TrialDocument, agent_logs
from app.reports.program_files import file_tree
from app.reports.text import usd

MOST_FILES = 100
"""Files of a program whose texts a page shows; `/api` has all of them."""
MOST_OPEN = 8
"""Differences of files up to which all are open at first."""


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/program/{program}", response_timeout=30)
    async def program_page(name: str, program: str, against: str = "") -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(f"Program {program[:12]} of {run.name}"):
            async with late():
                await _read(sources, run, program, against)

    @ui.page("/run/{name}/proposal/{ordinal}", response_timeout=30)
    async def proposal_page(name: str, ordinal: int) -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(f"Proposal {ordinal} of {run.name}"):
            async with late():
                await _read_proposal(sources, run, ordinal)


async def _read_proposal(sources: Sources, run: Run, ordinal: int) -> None:
    base = f"/run/{run.id}"
    try:
        found = await asyncio.to_thread(sources.reader.proposal, run, ordinal)
    except LookupError as error:
        say(shown(f"{error}. The page of the run shows what is in flight."))
        links([Link(run.name, base)])
        return
    born = found.proposal
    ways = [Link(run.name, base)]
    if born.program:
        ways.append(Link(f"Program {born.program[:12]}", f"{base}/program/{born.program}"))
    if born.parent:
        ways.append(Link(f"Parent {born.parent[:12]}", f"{base}/program/{born.parent}"))
    links(ways)
    tiles = Tiles(("fitness", "state", "operator", "island", "generation", "tokens"))
    told_apart = (await sources.tail(run)).course.progress.told_apart
    tiles.show(fitness=number_text(born.fitness, *told_apart), tokens=f"{born.tokens:,}")
    _show_birth(tiles, born)
    if not born.program:
        say("No program came of it.", "grey")
    _draw_logs(found.replies)
    _draw_replies(found.replies)
    if not found.replies:
        say("No model was asked for it, or its replies are not kept.", "grey")


async def _read(sources: Sources, run: Run, program: str, against: str) -> None:
    try:
        found = await asyncio.to_thread(sources.reader.program, run, program)
    except LookupError as error:
        say(shown(f"{error}. The archive of the run lists its elites."))
        links([Link(run.name, f"/run/{run.id}"), Link("Archive", f"/run/{run.id}/archive")])
        return
    other, diff = against or next(iter(found.parents), ""), ""
    changes: list[Change] = []
    read, of = sources.reader, (run, other, found.program)
    if other:
        try:
            if found.files:
                changes = await asyncio.to_thread(read.changes, *of)
            else:
                diff = await asyncio.to_thread(read.diff, *of)
        except LookupError as error:
            say(shown(f"{error}, so there is nothing to compare with."), "notice")
    title = f"Difference to {against[:12]}" if against else "Difference to its parent"
    told_apart = (await sources.tail(run)).course.progress.told_apart
    _draw(run, found, _Difference(title, diff, changes), told_apart)


@dataclass(frozen=True, slots=True)
class _Difference:
    """How a program differs from another one.

    Attributes:
      text: Of programs of one file; "" where there is nothing to show.
      changes: Of programs of several files.
    """

    title: str
    text: str
    changes: Sequence[Change]


def _draw(
    run: Run,
    program: ProgramDocument,
    difference: _Difference,
    told_apart: Sequence[float | None],
) -> None:
    base = f"/run/{run.id}"
    born = program.proposals[0] if program.proposals else None
    links(
        [
            Link(run.name, base),
            Link("Lineage", f"{base}/lineage/{program.program}"),
            *(
                Link(f"Parent {parent[:12]}", f"{base}/program/{parent}")
                for parent in program.parents[:1]
            ),
            Link("Source as text", f"/api/runs/{run.id}/programs/{program.program}/source"),
        ]
    )
    tiles = Tiles(("fitness", "state", "operator", "island", "generation", "proposal"))
    values = [program.fitness, *(child.fitness for child in program.children)]
    fitness, *of_children = number_texts(values, told_apart)
    tiles.show(fitness=fitness)
    if born is not None:
        tiles.show(proposal="seed" if born.ordinal < 0 else str(born.ordinal))
        _show_birth(tiles, born)
    if program.fitness_names and program.fitness_names != ["combined_score"]:
        say(f"Fitness: the mean of {shown(', '.join(program.fitness_names[:20]))}.", "grey")
    if difference.text:
        heading(difference.title)
        text_block(diff_html(difference.text), markup=True, name=difference.title)
    if program.files:
        _draw_files(program.files, difference)
    else:
        heading("Source")
        text_block(program.source, name="Source")
    _draw_logs(program.replies)
    _draw_trials(program.trials, (program.fitness, *told_apart))
    _draw_replies(program.replies)
    children = table(
        "Children",
        ("program", "fitness", "changes"),
        "No child of it was measured.",
        numbers=("fitness",),
        words="changes",
    )
    children.show(
        [
            [
                program_link(run.id, child.program),
                of_child,
                shown(child.changes)[:400],
            ]
            for child, of_child in zip(program.children, of_children, strict=True)
        ]
    )


def _draw_files(files: Mapping[str, str], difference: _Difference) -> None:
    """Draws the tree of a program's files, how each changed one differs, and their texts."""
    changes = difference.changes
    heading("Files")
    marks = {change.path: change.kind for change in changes}
    text_block("\n".join(file_tree(files, marks)), name="Files")
    if changes:
        heading(difference.title)
    for change in changes[:MOST_FILES]:
        with folded(f"{change.kind}: {shown(change.path)}", opened=len(changes) <= MOST_OPEN):
            text_block(diff_html(change.difference), markup=True, name="Difference")
    heading("Source")
    for path, text in list(files.items())[:MOST_FILES]:
        with folded(shown(path)):
            text_block(text, name="Source")
    if (more := max(len(files), len(changes)) - MOST_FILES) > 0:
        say(f"… {more:,} more files: the source as text has all of them.", "grey")


def _draw_logs(replies: Sequence[ReplyDocument]) -> None:
    """Draws what agents printed, without the files that they left."""
    for log in agent_logs(replies):
        heading("Log of the agent")
        text_block(log, name="Log of the agent")


def _show_birth(tiles: Tiles, born: MetricsRow) -> None:
    """Says how a proposal came about, and why nothing came of it."""
    tiles.show(
        state=born.state,
        operator=born.operator,
        island=str(born.island),
        generation=str(born.generation),
    )
    if born.failure:
        say(shown(f"{born.failure}: {born.detail}"), "notice")
    elif born.cut:
        say(f"cut: {born.cut}", "notice")


def _draw_trials(trials: list[TrialDocument], told_apart: Sequence[float | None]) -> None:
    columns = ("trial", "result", "wall s", "CPU s", "peak MiB", "verified")
    grid = table("Measurements", columns, "It was never measured.", numbers=columns[2:5])
    grid.show([_trial_cells(trial, told_apart) for trial in trials])
    for trial in trials:
        if trial.metrics or trial.features:
            with folded(f"Metrics of {trial.stage}", opened=len(trials) == 1):
                title = f"Metrics of {trial.stage}"
                metrics = Grid(("name", "value"), name=title, empty="None.", numbers=("value",))
                values = dict(sorted({**trial.features, **trial.metrics}.items()))
                texts = number_texts(list(values.values()), told_apart)
                metrics.show([[shown(name), t] for name, t in zip(values, texts, strict=True)])
        for name, text in sorted(trial.artifacts.items()):
            with folded(f"Artifact {shown(name)} of {trial.stage}"):
                text_block(text, name="Artifact")


def _trial_cells(trial: TrialDocument, told_apart: Sequence[float | None]) -> list[Cell]:
    texts = number_texts(list(trial.scores.values()), told_apart)
    named = list(map(" ".join, zip(trial.scores, texts, strict=True)))
    scores = ", ".join(named[:8])
    return [
        trial.stage,
        shown(f"{trial.failure.kind}: {trial.failure.detail[:400]}" if trial.failure else scores),
        f"{trial.wall_seconds:.3f}",
        f"{trial.cpu_seconds:.3f}",
        number_text(trial.peak_memory_mib),
        "yes" if trial.verified else "no",
    ]


def _draw_replies(replies: Sequence[ReplyDocument]) -> None:
    if not replies:
        return
    heading("Prompts and replies of models")
    for reply in replies:
        title = (
            f"{reply.asker}, turn {reply.turn + 1}: {reply.model} "
            f"({reply.prompt_tokens:,} + {reply.completion_tokens:,} tokens, "
            f"{reply.latency_seconds:.1f} s, {usd(reply.cost_usd, '–')})"
        )
        with folded(shown(title)):
            _draw_prompt(reply)
            text_block(reply.text, name="Reply")


def _draw_prompt(reply: ReplyDocument) -> None:
    if reply.user is None:
        say("The run keeps no prompts: `prompts.log_prompts` is off.", "grey")
        return
    if reply.system:
        with folded("System text of the prompt"):
            text_block(reply.system, name="System text")
    with folded("Prompt"):
        text_block(reply.user, name="Prompt")
