"""`evoq check`: what the engine understands of a problem, and whether a run of it can begin."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from app.cli.options import Assignments, Config, Debug, Json, Problem, Strict, Verbose
from app.cli.output import DONE, FAILED, MOST_NAMES, ErrorReport, Screen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.cli.measurement import Calls, Measurement, Overhead
    from app.config.settings import RunSettings
    from app.domain.problem import Problem as LoadedProblem
    from app.ports.protocols import Sandbox

_NOTABLE_SECONDS = 1.0
_ALL_FAILED = "every seed failed"


def check(
    problem: Problem,
    config: Config = None,
    assignments: Assignments = None,
    strict: Strict = False,
    as_json: Json = False,
    verbose: Verbose = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> int:
    """Loads a problem, evaluates its seeds in the sandbox, and prints what was understood.

    Needs no service. Exit status 1 when a run of the problem could not begin.

    Examples:
      evoq check examples/online_bin_packing
      evoq check my_problem --strict --json
    """
    from app.cli.measurement import (
        calls_of,
        measure,
        open_sandbox,
        overhead,
        print_measurements,
        protection_lines,
        validating,
    )
    from app.cli.plan import UNCHANGEABLE_REMEDY, load_problem, read_layers, unchangeable
    from app.config.resolve import resolved
    from app.domain.problem import Mode

    screen = Screen(json=as_json)
    layers = read_layers(assignments, config)
    loaded = load_problem([Path(path) for path in problem], layers, strict=strict)
    resolution = resolved(layers.choices, loaded.suggestions, loaded.suggested_by)
    compare = resolution.settings.sandbox.compare_modes and loaded.players == 1
    with open_sandbox(resolution.settings.sandbox, screen) as sandbox:
        protections = sandbox.protections()
        seeds = [measure(loaded, sandbox, seed, loaded.thresholds) for seed in loaded.seeds]
        validation = (
            measure(validating(loaded), sandbox, loaded.seeds[0]) if loaded.validation else None
        )
        differences = _differences(loaded, sandbox, seeds) if compare else []
        cost = overhead(sandbox, loaded.first_job().mode)
        counted = calls_of(loaded, sandbox)
    names = {program: name for name, program in loaded.baselines.items()}
    ids = [seed.id for seed in loaded.seeds]
    named = list(zip([names.get(seed, seed[:12]) for seed in ids], seeds, strict=True))
    notices = [*loaded.notices, *resolution.notices, *differences]
    if counted and cost.mode is Mode.GUARDED:
        notices += _expensive(counted, cost)
    measured_any = any(seed.fitness is not None for seed in seeds)
    unchanging = unchangeable(loaded, layers)
    usable = measured_any and not unchanging
    document = {
        **_understood(loaded, resolution.settings, notices),
        "sandbox": {protection.name: protection.on for protection in protections},
        "seeds": [{"name": name, **measured.document()} for name, measured in named],
        "validation": validation.document() if validation else None,
        "references": list(loaded.references),
        "modes_compared": compare,
        "overhead": asdict(cost),
        "calls": asdict(counted) if counted else None,
        "usable": usable,
    }
    _print_understood(document, screen)
    for line in protection_lines(protections, verbose=verbose):
        screen.say(line)
    validated = [(f"{named[0][0]}, validation", validation)] if validation else []
    print_measurements([*named, *validated], screen)
    screen.say(cost.text)
    if counted and cost.mode is Mode.GUARDED:
        screen.say(counted.text(cost))
    if compare and not differences and usable:
        screen.say(f"modes: {_agreement(loaded)}")
    for notice in notices:
        screen.note(f"notice: {notice}")
    if usable:
        screen.say(_beginning(seeds))
        screen.answer(document)
        return DONE
    what = f"no proposal could change the program: {unchanging}" if measured_any else _ALL_FAILED
    message = f"{what}; a run of this problem could not begin."
    if measured_any:
        message = f"{what} {UNCHANGEABLE_REMEDY}"
    screen.note(f"error: {message}")
    screen.answer({**document, "error": ErrorReport("problem", message, what).document()})
    return FAILED


def _expensive(counted: Calls, cost: Overhead) -> list[str]:
    """Returns a notice where guarded mode takes much longer than the calls themselves."""
    added = counted.guarded_seconds(cost)
    if added < max(_NOTABLE_SECONDS, counted.seconds):
        return []
    return [
        f"Guarded mode adds about {added:.1f} s to an evaluation, for {counted.calls} calls of the "
        f"program: `--set sandbox.mode=compatible` leaves them out, and labels every score "
        f"unverified; or let a call do more, as a whole list at once."
    ]


def _differences(
    problem: LoadedProblem, sandbox: Sandbox, seeds: Sequence[Measurement]
) -> list[str]:
    """Returns one text for each seed and stage that measures differently in the other mode."""
    from app.cli.measurement import compared

    texts = []
    for seed, measured in zip(problem.seeds, seeds, strict=True):
        for trial, evaluation in measured.trials.items():
            texts.append(compared(sandbox, problem, trial, {seed.id: seed}, evaluation))
    return [text for text in texts if text]


def _agreement(problem: LoadedProblem) -> str:
    from app.cli.measurement import PYTHON

    if problem.suffix != PYTHON:
        return "one only, because programs that are not Python have no stand-in"
    return "every seed measures alike in guarded and in compatible mode"


def _beginning(seeds: Sequence[Measurement]) -> str:
    measured = [seed for seed in seeds if seed.fitness is not None]
    if all(seed.stopped for seed in measured):
        return "A run can begin, with the metrics that its seeds reached below a threshold."
    return "A run can begin."


def _understood(
    problem: LoadedProblem, settings: RunSettings, notices: Sequence[str]
) -> dict[str, Any]:
    from app.config.checks import axes_of, islands_of

    job, islands, axes = problem.first_job(), islands_of(settings), axes_of(problem, settings)
    return {
        "problem": problem.name,
        "digest": problem.digest,
        "format": problem.format,
        "language": problem.language,
        "suffix": problem.suffix,
        "files": {name: len(content) for name, content in problem.files.items()},
        "evaluator": job.evaluator.entry,
        "stages": list(problem.stages),
        "thresholds": list(problem.thresholds),
        "islands": islands,
        "axes": [asdict(axis) for axis in axes],
        "limits": asdict(job.limits),
        "mode": job.mode.value,
        "edit": asdict(problem.edit),
        "suggestions": dict(problem.suggestions),
        "notices": list(notices),
    }


def _print_understood(document: Mapping[str, Any], screen: Screen) -> None:
    limits, files = document["limits"], document["files"]
    axes = ", ".join(f"{axis['name']} ({axis['bins']} bins)" for axis in document["axes"])
    thresholds = ", ".join(f"{threshold:g}" for threshold in document["thresholds"])
    more = f" and {len(files) - MOST_NAMES} more" if len(files) > MOST_NAMES else ""
    rows = {
        "problem": f"{document['problem']} ({document['format']}, {document['language']})",
        "files": f"{', '.join(list(files)[:MOST_NAMES])}{more} ({sum(files.values())} bytes)",
        "evaluator": document["evaluator"],
        "stages": ", ".join(document["stages"])
        + (f"; thresholds {thresholds}" if thresholds else ""),
        "axes": f"{axes or 'none'}; {document['islands']} islands",
        "limits": f"{limits['wall_seconds']:g} s, {limits['cpu_seconds']:g} s of CPU, "
        f"{limits['memory_mib']} MiB",
        "mode": document["mode"],
    }
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in rows.items():
        table.add_row(*row)
    screen.out.print(table)
