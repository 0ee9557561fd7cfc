"""`evoq check` and `evoq evaluate`: a problem and programs of it, without any service."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from app.adapters.sandbox.choose import AnySandbox
from app.cli.display import number
from app.cli.faults import DONE, FAILED, Failed, Fault
from app.cli.measuring import (
    PYTHON,
    Measurement,
    compared,
    measure,
    open_cells,
    protection_lines,
)
from app.cli.overhead import overhead
from app.cli.plan import layers_of, load
from app.cli.screen import Screen
from app.config.resolve import resolved
from app.domain.evaluation import Failure, FailureKind, Trial
from app.domain.problem import Job, Problem
from app.domain.program import Program

MOST_NAMES = 20
WHOLE = "evaluate"
"""The one stage of a problem without stages: naming it says nothing."""


def check(
    paths: tuple[Path, ...],
    config: Path | None,
    assignments: tuple[str, ...],
    *,
    strict: bool,
    screen: Screen,
) -> int:
    """Says what the engine understands of a problem; returns the exit status."""
    loaded = load(paths, layers_of(assignments, config), strict=strict)
    settings = resolved(loaded.layers, loaded.problem.suggestions, loaded.problem.suggested_by)
    problem = loaded.problem
    with open_cells(settings.settings.sandbox, screen) as sandbox:
        protections = sandbox.protections()
        seeds = [
            (name, measure(problem, sandbox, seed, problem.thresholds))
            for name, seed in _named(problem)
        ]
        both = settings.settings.sandbox.compare_modes
        told_apart = _told_apart(problem, sandbox, seeds) if both else []
        cost = overhead(sandbox, _job(problem).mode)
    notices = [*problem.notices, *settings.notices, *told_apart]
    usable = any(seed.fitness is not None for _, seed in seeds)
    told = {
        **_understood(problem, notices),
        "sandbox": {p.name: p.on for p in protections},
        "seeds": [{"name": name, **shown(seed)} for name, seed in seeds],
        "modes_compared": both,
        "overhead": asdict(cost),
        "usable": usable,
    }
    _print(told, screen)
    for text in protection_lines(protections):
        screen.say(text)
    _print_measurements([(name, seed) for name, seed in seeds], screen)
    screen.say(cost.told)
    if both and not told_apart and usable:
        screen.say(f"modes: {_agreement(problem)}")
    for notice in notices:
        screen.note(f"notice: {notice}")
    if usable:
        screen.say(_beginning([one for _, one in seeds]))
    else:
        what = "every seed failed"
        message = f"{what}; a run of this problem could not begin."
        told["error"] = Fault("problem", message, what).document()
        screen.note(f"error: {message}")
    screen.answer(told)
    return DONE if usable else FAILED


def evaluate(
    path: Path,
    files: tuple[Path, ...],
    config: Path | None,
    assignments: tuple[str, ...],
    *,
    screen: Screen,
) -> None:
    """Measures program files one after the other in one sandbox."""
    loaded = load((path,), layers_of(assignments, config), strict=False)
    settings = resolved(
        loaded.layers, loaded.problem.suggestions, loaded.problem.suggested_by
    ).settings
    contents = [_content(file) for file in files]
    measured = []
    with open_cells(settings.sandbox, screen) as sandbox:
        for file, content in zip(files, contents, strict=True):
            measured.append((str(file), _measured(loaded.problem, sandbox, content)))
    _print_measurements(measured, screen)
    screen.answer([{"file": file, **shown(one)} for file, one in measured])


def _measured(problem: Problem, sandbox: AnySandbox, content: bytes) -> Measurement:
    try:
        source = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        failure = Failure(FailureKind.SYNTAX, f"the file is not text in UTF-8: {error}")
        return Measurement(None, {}, {}, failure, 0.0, 0.0, False, ())
    return measure(problem, sandbox, Program(source, problem.language))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Failed(f"{file}: cannot be read ({error.strerror}). Check the path") from error


def shown(one: Measurement) -> dict[str, Any]:
    """Returns a measurement as JSON values."""
    failure = one.failure
    return {
        "fitness": one.fitness,
        "metrics": dict(one.metrics),
        "features": dict(one.features),
        "failure": {"kind": failure.kind.value, "detail": failure.detail} if failure else None,
        "wall_seconds": round(one.wall_seconds, 6),
        "cpu_seconds": round(one.cpu_seconds, 6),
        "verified": one.verified,
        "stages": list(one.stages),
        "stopped": asdict(one.stopped) if one.stopped else None,
    }


def _named(problem: Problem) -> list[tuple[str, Program]]:
    names = {program: name for name, program in problem.baselines.items()}
    return [(names.get(seed.id, seed.id[:12]), seed) for seed in problem.seeds]


def _told_apart(
    problem: Problem, sandbox: AnySandbox, seeds: Sequence[tuple[str, Measurement]]
) -> list[str]:
    """Returns one text for each seed and stage that measures differently in the other mode."""
    told = []
    for seed, (_, one) in zip(problem.seeds, seeds, strict=True):
        for stage, evaluation in zip(one.stages, one.evaluations, strict=True):
            trial, players = Trial(stage, (seed.id,)), {seed.id: seed}
            told.append(compared(sandbox, problem, trial, players, evaluation))
    return [text for text in told if text]


def _beginning(seeds: Sequence[Measurement]) -> str:
    measured = [one for one in seeds if one.fitness is not None]
    if all(one.stopped for one in measured):
        return "A run can begin, with the metrics that its seeds reached below a threshold."
    return "A run can begin."


def _agreement(problem: Problem) -> str:
    if problem.suffix != PYTHON:
        return "one only, because programs that are not Python have no stand-in"
    return "every seed measures alike in guarded and in compatible mode"


def _job(problem: Problem) -> Job:
    seed = problem.seeds[0]
    return problem.prepare(Trial(problem.stages[0], (seed.id,)), {seed.id: seed})


def _understood(problem: Problem, notices: Sequence[str]) -> dict[str, Any]:
    job = _job(problem)
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
        "axes": [asdict(axis) for axis in problem.axes],
        "limits": asdict(job.limits),
        "mode": job.mode.value,
        "edit": asdict(problem.edit),
        "suggestions": dict(problem.suggestions),
        "notices": list(notices),
    }


def _print(told: Mapping[str, Any], screen: Screen) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    limits = told["limits"]
    axes = ", ".join(f"{axis['name']} ({axis['bins']} bins)" for axis in told["axes"]) or "none"
    gates = ", ".join(f"{gate:g}" for gate in told["thresholds"])
    rows = {
        "problem": f"{told['problem']} ({told['format']}, {told['language']})",
        "files": f"{_names(told['files'])} ({sum(told['files'].values())} bytes)",
        "evaluator": told["evaluator"],
        "stages": ", ".join(told["stages"]) + (f"; thresholds {gates}" if gates else ""),
        "axes": axes,
        "limits": f"{limits['wall_seconds']:g} s, {limits['cpu_seconds']:g} s of CPU, "
        f"{limits['memory_mib']} MiB",
        "mode": told["mode"],
    }
    for name, value in rows.items():
        table.add_row(name, value)
    screen.out.print(table)


def _names(files: Mapping[str, int]) -> str:
    shown = list(files)[:MOST_NAMES]
    more = f" and {len(files) - len(shown)} more" if len(files) > len(shown) else ""
    return ", ".join(shown) + more


def _print_measurements(measured: Sequence[tuple[str, Measurement]], screen: Screen) -> None:
    for name, one in measured:
        metrics = ", ".join(f"{key} {value:.6g}" for key, value in one.metrics.items())
        spent = f"{one.wall_seconds:.2f} s"
        if one.failure is None:
            label = "" if one.verified else ", unverified"
            screen.say(f"{name}: fitness {number(one.fitness)} in {spent}{label} ({metrics})")
            if one.stopped:
                screen.say(f"{name}: {one.stopped}")
        else:
            detail = one.failure.detail.strip() or "no detail"
            kind, stage = one.failure.kind.value, one.stages[-1:]
            where = f" in {stage[0]}" if stage and stage[0] != WHOLE else ""
            screen.say(f"{name}: failed, {kind}{where} after {spent}: {detail}")
