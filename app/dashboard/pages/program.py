"""The page of a program: its text, how it differs from its parent, and how it was measured."""

import asyncio

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
    say,
    text_block,
)
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import diff_html, number, shown, usd
from app.dashboard.programs import ProgramDocument, ReplyDocument, TrialDocument
from app.domain.run import Run
from app.reports.metrics import MetricsRow


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/program/{program}", response_timeout=30)
    async def program_page(name: str, program: str) -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(f"Program {program[:12]} of {run.name}"):
            async with late():
                await _read(sources, run, program)


async def _read(sources: Sources, run: Run, program: str) -> None:
    try:
        found = await asyncio.to_thread(sources.reader.program, run, program)
    except LookupError as error:
        say(shown(f"{error}. The archive of the run lists its elites."))
        links([Link(run.name, f"/run/{run.id}"), Link("Archive", f"/run/{run.id}/archive")])
        return
    diff = ""
    if found.parents:
        parent = found.parents[0]
        diff = await asyncio.to_thread(sources.reader.diff, run, parent, found.program)
    _draw(run, found, diff)


def _draw(run: Run, program: ProgramDocument, diff: str) -> None:
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
    tiles.show(fitness=number(program.fitness))
    if born is not None:
        tiles.show(
            state=born.state,
            operator=born.operator,
            island=str(born.island),
            generation=str(born.generation),
            proposal="seed" if born.ordinal < 0 else str(born.ordinal),
        )
        _tell_failure(born)
    if program.fitness_names and program.fitness_names != ["combined_score"]:
        say(f"Fitness: the mean of {shown(', '.join(program.fitness_names[:20]))}.", "grey")
    if diff:
        heading("Difference to its parent")
        text_block(diff_html(diff), markup=True, name="Difference to its parent")
    heading("Source")
    text_block(program.source, name="Source")
    _draw_trials(program.trials)
    _draw_replies(program)
    heading("Children")
    children = Grid(
        ("program", "fitness", "changes"),
        name="Children",
        empty="No child of it was admitted.",
        numbers=("fitness",),
        words="changes",
    )
    children.show(
        [
            [
                Link(child.program[:12], f"{base}/program/{child.program}"),
                number(child.fitness),
                shown(child.changes)[:400],
            ]
            for child in program.children
        ]
    )


def _tell_failure(born: MetricsRow) -> None:
    if born.failure:
        say(shown(f"{born.failure}: {born.detail}"), "notice")
    elif born.cut:
        say(f"cut: {born.cut}", "notice")


def _draw_trials(trials: list[TrialDocument]) -> None:
    heading("Measurements")
    columns = ("trial", "result", "wall s", "CPU s", "peak MiB", "verified")
    grid = Grid(columns, name="Measurements", empty="It was never measured.", numbers=columns[2:5])
    grid.show([_trial_cells(trial) for trial in trials])
    for trial in trials:
        if trial.metrics or trial.features:
            with folded(f"Metrics of {trial.stage}", opened=len(trials) == 1):
                title = f"Metrics of {trial.stage}"
                metrics = Grid(("name", "value"), name=title, empty="None.", numbers=("value",))
                metrics.show(
                    [
                        [shown(name), number(value)]
                        for name, value in sorted({**trial.features, **trial.metrics}.items())
                    ]
                )
        for name, text in sorted(trial.artifacts.items()):
            with folded(f"Artifact {shown(name)} of {trial.stage}"):
                text_block(text, name="Artifact")


def _trial_cells(trial: TrialDocument) -> list[Cell]:
    scores = ", ".join(f"{name} {number(value)}" for name, value in list(trial.scores.items())[:8])
    return [
        trial.stage,
        shown(f"{trial.failure}: {trial.detail[:400]}" if trial.failure else scores),
        f"{trial.wall_seconds:.3f}",
        f"{trial.cpu_seconds:.3f}",
        number(trial.peak_memory_mib),
        "yes" if trial.verified else "no",
    ]


def _draw_replies(program: ProgramDocument) -> None:
    if not program.replies:
        return
    heading("Prompts and replies of models")
    for reply in program.replies:
        title = (
            f"{reply.asker}, turn {reply.turn + 1}: {reply.model} "
            f"({reply.prompt_tokens:,} + {reply.completion_tokens:,} tokens, "
            f"{reply.latency_seconds:.1f} s, {usd(reply.cost_usd)})"
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
