"""`evoq check`: what the engine understands of a problem, and whether a run of it can begin."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from app.cli.measurement import print_measurements
from app.cli.options import Assignments, Config, Debug, Json, Problem, Strict, Verbose
from app.cli.output import DONE, FAILED, MOST_NAMES, ErrorReport, Screen
from app.cli.prompt import tokens_of_first_prompt
from app.cli.tables import labelled_table
from app.client.measuring import (
    PYTHON,
    Calls,
    Measurement,
    Overhead,
    comparable,
    compare_modes,
    count_calls,
    measure,
    measure_overhead,
    open_sandbox,
    validating,
)
from app.client.noise import Noise, measure_noise
from app.client.protections import protection_lines
from app.client.requirements import Unchangeable, unchangeable
from app.client.setting_layers import load_problem, named_problem, read_layers
from app.config.checks import axes_of
from app.config.resolve import resolved
from app.config.rules import islands_of
from app.config.settings import RunSettings
from app.domain.problem import Mode
from app.domain.problem import Problem as LoadedProblem
from app.ports.protocols import Protection, Sandbox

_NOTABLE_SECONDS = 1.0
_ALL_FAILED = "every seed failed"
_MEND_SEED = "Mend the evaluator or the initial program, and check again."


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

    Needs no service. Exit status 1 when no seed can be measured.

    Examples:
      evoq check examples/online_bin_packing
      evoq check my_problem --strict --json
    """
    screen = Screen(json=as_json)
    paths, config = named_problem(problem, config)
    layers = read_layers(assignments, config)
    loaded = load_problem(paths, layers, strict=strict)
    resolution = resolved(layers.choices, loaded.suggestions, loaded.suggested_by)
    compare = resolution.settings.sandbox.compare_modes and loaded.players == 1
    compare = compare and comparable(loaded)
    with open_sandbox(resolution.settings.sandbox, screen) as sandbox:
        tried = _try(loaded, sandbox, compare=compare)
        noise = measure_noise(loaded, sandbox, tried.seeds[0])
    noisy = _noisy(noise, resolution.settings) if noise else []
    notices = [*loaded.notices, *resolution.notices, *tried.notices, *noisy]
    unchanging = unchangeable(loaded, layers) if tried.measured_any else None
    files = _files_of(loaded, resolution.settings)
    usable = tried.measured_any
    document = {
        **_understood(loaded, resolution.settings, notices),
        **({"program": asdict(files)} if files else {}),
        **tried.document(),
        "references": list(loaded.references),
        "modes_compared": compare,
        "measured_again": list(noise.measured) if noise else [],
        "usable": usable,
        "needs": f"{unchanging.reason} {unchanging.remedy}" if unchanging else "",
    }
    _print_understood(loaded, resolution.settings, files, screen)
    _print_tried(tried, screen, verbose=verbose)
    if compare and not tried.differences and usable:
        screen.say(f"modes: {_agreement(loaded)}")
    if not comparable(loaded):
        screen.say("modes: one only, because guarded mode needs an entry in Python and no build")
    for notice in notices:
        screen.note(f"notice: {notice}")
    if usable:
        screen.say(_searching(unchanging) if unchanging else _beginning(tried.seeds))
        screen.answer(document)
        return DONE
    error = _all_failed(loaded, tried)
    screen.note(f"error: {error.message}")
    screen.answer({**document, "error": error.document()})
    return FAILED


@dataclass(frozen=True, slots=True)
class _Tried:
    """What the sandbox measured of a problem.

    Attributes:
      names: Names of the seeds, in the order of `seeds`.
      validation: The first seed on validation data; None without any.
      calls: None where the calls of a program cannot be counted.
      differences: A text for each seed and stage that measures differently in the other mode.
    """

    protections: Sequence[Protection]
    names: Sequence[str]
    seeds: Sequence[Measurement]
    validation: Measurement | None
    differences: Sequence[str]
    overhead: Overhead
    calls: Calls | None
    guarded: bool

    @property
    def measured_any(self) -> bool:
        return any(seed.fitness is not None for seed in self.seeds)

    @property
    def notices(self) -> list[str]:
        expensive = _expensive(self.calls, self.overhead) if self.calls and self.guarded else []
        return [*self.differences, *expensive]

    def document(self) -> dict[str, object]:
        named = zip(self.names, self.seeds, strict=True)
        return {
            "sandbox": {protection.name: protection.on for protection in self.protections},
            "seeds": [{"name": name, **measured.document()} for name, measured in named],
            "validation": self.validation.document() if self.validation else None,
            "overhead": asdict(self.overhead),
            "calls": asdict(self.calls) if self.calls else None,
        }


def _try(problem: LoadedProblem, sandbox: Sandbox, *, compare: bool) -> _Tried:
    seeds = [measure(problem, sandbox, seed, problem.thresholds) for seed in problem.seeds]
    first = problem.seeds[0]
    validated = measure(validating(problem), sandbox, first) if problem.validation else None
    names = {program: name for name, program in problem.baselines.items()}
    cost = measure_overhead(sandbox, problem.first_job().mode)
    return _Tried(
        protections=sandbox.protections(),
        names=[names.get(seed.id, seed.id[:12]) for seed in problem.seeds],
        seeds=seeds,
        validation=validated,
        differences=_differences(problem, sandbox, seeds) if compare else [],
        overhead=cost,
        calls=count_calls(problem, sandbox),
        guarded=cost.mode is Mode.GUARDED,
    )


def _print_tried(tried: _Tried, screen: Screen, *, verbose: bool) -> None:
    for line in protection_lines(tried.protections, verbose=verbose):
        screen.say(line)
    named = list(zip(tried.names, tried.seeds, strict=True))
    if tried.validation:
        named.append((f"{tried.names[0]}, validation", tried.validation))
    print_measurements(named, screen)
    screen.say(tried.overhead.text)
    if tried.calls and tried.guarded:
        screen.say(tried.calls.text(tried.overhead))


def _searching(unchanging: Unchangeable) -> str:
    """Returns what a run needs beside a problem that can be measured."""
    return (
        f"The problem can be measured. A run cannot begin yet, because no proposal could change "
        f"the program: {unchanging.reason} {unchanging.remedy}"
    )


def _all_failed(problem: LoadedProblem, tried: _Tried) -> ErrorReport:
    """Returns that no run can begin, because every seed failed, with the failure of the first."""
    message = f"{_ALL_FAILED}; a run of this problem could not begin. {_MEND_SEED}"
    failure = tried.seeds[0].failure
    value = f"{failure.kind}: {failure.detail}" if failure else ""
    where = f"{problem.first_job().evaluator.entry}, {tried.names[0]}"
    return ErrorReport("problem", message, _ALL_FAILED, where, value, _MEND_SEED)


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


def _noisy(noise: Noise, settings: RunSettings) -> list[str]:
    """Returns a notice where one measurement of a program says little."""
    if settings.search.measurements > 1 or not noise.notable:
        return []
    values = ", ".join(f"{value:.4g}" for value in noise.measured)
    return [
        f"The fitness of the first seed differs from one measurement to the next: {values} "
        f"(standard deviation {noise.deviation:.2g}), which hides smaller improvements. Let the "
        f"evaluator average over more, or `--set search.measurements=5`."
    ]


def _differences(
    problem: LoadedProblem, sandbox: Sandbox, seeds: Sequence[Measurement]
) -> list[str]:
    """Returns one text for each seed and stage that measures differently in the other mode."""
    texts = []
    for seed, measured in zip(problem.seeds, seeds, strict=True):
        for trial, evaluation in measured.trials.items():
            texts.append(compare_modes(sandbox, problem, trial, {seed.id: seed}, evaluation))
    return [text for text in texts if text]


def _agreement(problem: LoadedProblem) -> str:
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
) -> dict[str, object]:
    job = problem.first_job()
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
        "islands": islands_of(settings),
        "axes": [asdict(axis) for axis in axes_of(problem, settings)],
        "limits": asdict(job.limits),
        "mode": job.mode.value,
        "edit": asdict(problem.edit),
        "suggestions": dict(problem.suggestions),
        "notices": list(notices),
    }


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a problem whose programs have several.

    Attributes:
      evolve: Path to characters of each file of the first seed, all of which evolve.
      entry: The file whose functions a guarded evaluator calls; "" for none.
      fixed: How many files of the root do not evolve.
      context: Paths of those that prompts may show.
      prompt_tokens: Of a run's first prompt, estimated; None where its operator asks no model.
    """

    evolve: dict[str, int]
    entry: str
    fixed: int
    context: list[str]
    prompt_tokens: int | None

    def rows(self) -> dict[str, str]:
        """Returns what is shown of them, by label."""
        size = sum(self.evolve.values())
        prompt = "none" if self.prompt_tokens is None else f"about {self.prompt_tokens} tokens"
        return {
            "evolve": f"{_named(list(self.evolve))} ({len(self.evolve)} files, {size} characters)",
            "entry": self.entry or "none",
            "fixed": f"{self.fixed} files; prompts may show {_named(self.context) or 'none'}",
            "first prompt": prompt,
            "never shown": "hidden files, files beside the root, and other fixed files",
        }


def _files_of(problem: LoadedProblem, settings: RunSettings) -> _Files | None:
    """Returns the files of programs of several; None where they have one."""
    folder = problem.first_job().folder
    if folder is None:
        return None
    return _Files(
        evolve={file.path: len(file.source) for file in problem.seeds[0].files},
        entry=folder.entry,
        fixed=len(problem.fixed),
        context=sorted(problem.context),
        prompt_tokens=tokens_of_first_prompt(problem, settings),
    )


def _named(names: Sequence[str]) -> str:
    """Returns the first of some names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"


def _print_understood(
    problem: LoadedProblem, settings: RunSettings, several: _Files | None, screen: Screen
) -> None:
    job, files = problem.first_job(), problem.files
    axes = ", ".join(f"{axis.name} ({axis.bins} bins)" for axis in axes_of(problem, settings))
    thresholds = ", ".join(f"{threshold:g}" for threshold in problem.thresholds)
    size = sum(len(content) for content in files.values())
    rows = {
        "problem": f"{problem.name} ({problem.format}, {problem.language})",
        "files": f"{_named(list(files))} ({size} bytes)",
        **(several.rows() if several else {}),
        "evaluator": job.evaluator.entry,
        "stages": ", ".join(problem.stages) + (f"; thresholds {thresholds}" if thresholds else ""),
        "axes": f"{axes or 'none'}; {islands_of(settings)} islands",
        "limits": f"{job.limits.wall_seconds:g} s, {job.limits.cpu_seconds:g} s of CPU, "
        f"{job.limits.memory_mib} MiB",
        "mode": job.mode.value,
    }
    screen.out.print(labelled_table(rows.items()))
