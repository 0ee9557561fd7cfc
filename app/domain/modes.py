"""Modes: whether a seed has equal measurements in both modes of the sandbox, and why it may not."""

import ast
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.domain.evaluation import Evaluation, fitness, merged_metrics
from app.domain.problem import Mode
from app.domain.program import ProgramId
from app.domain.source.syntax import tree_or_none

MOST_SHOWN = 5
_MOST_QUOTED = 300
_CLOSE = 1e-9
"""Relative tolerance; the same arithmetic in two processes gives the same bits."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A measurement that depends on the mode.

    Attributes:
      case: Name of a metric, or "failure".
      here: Its value in the problem's mode; "nothing" where it is absent.
      there: Its value in the other mode, the same in two trials.
    """

    case: str
    here: str
    there: str


def other(mode: Mode) -> Mode:
    """Returns the other mode."""
    return Mode.COMPATIBLE if mode is Mode.GUARDED else Mode.GUARDED


def differences(
    player: ProgramId, here: Evaluation, there: Evaluation, again: Evaluation
) -> list[Difference]:
    """Returns the measurements of a program that differ between the two modes.

    A measurement that differs between two trials in the same mode is noise (a time, a random draw)
    and is skipped.

    Args:
      player: The program.
      here: Its evaluation in the problem's mode.
      there: In the other mode.
      again: In the other mode a second time; `there` itself if it already equals `here`.
    """
    if here.failure or there.failure or again.failure:
        kinds = [_failure(evaluation) for evaluation in (here, there, again)]
        if kinds[1] != kinds[2] or kinds[0] == kinds[1]:
            return []
        return [Difference("failure", _quoted(here), _quoted(there))]
    values, others, repeated = (_numbers(player, one) for one in (here, there, again))
    return [
        Difference(name, _text(values.get(name)), _text(others.get(name)))
        for name in sorted({*values, *others})
        if _same(others.get(name), repeated.get(name))
        and not _same(values.get(name), others.get(name))
    ]


def alike(player: ProgramId, here: Evaluation, there: Evaluation) -> bool:
    """Returns whether all measurements are equal, without allowance for noise."""
    return not differences(player, here, there, there)


def explained(
    seed: str, stage: str, mode: Mode, differing: Sequence[Difference], reasons: Sequence[str]
) -> str:
    """Returns a text of what differs, why it may, and what to do; "" where nothing differs.

    Args:
      seed: The name of the seed.
      stage: The stage of the trial.
      mode: The problem's mode.
      differing: The differences.
      reasons: From `reasons`, the likeliest first.
    """
    if not differing:
        return ""
    values = "; ".join(
        f"{difference.case} is {difference.here} in {mode.value} and {difference.there} in "
        f"{other(mode).value} mode"
        for difference in differing[:MOST_SHOWN]
    )
    more = f"; and {len(differing) - MOST_SHOWN} more" if len(differing) > MOST_SHOWN else ""
    why = " Likely: " + "; ".join(reasons) + "." if reasons else ""
    return (
        f"The seed {seed!r} measures differently at {stage}: {values}{more}.{why} {_REMEDY[mode]}"
    )


_REMEDY = {
    Mode.GUARDED: (
        "The run stays in guarded mode, where no program can forge a score; `--set "
        "sandbox.mode=compatible` leaves it, and labels every score unverified."
    ),
    Mode.COMPATIBLE: "The run stays in compatible mode, as asked; every score is unverified.",
}


def _numbers(player: ProgramId, evaluation: Evaluation) -> dict[str, float]:
    numbers = merged_metrics(player, [evaluation])
    value = fitness(player, [evaluation])
    return numbers if value is None else {**numbers, "fitness": value}


def _failure(evaluation: Evaluation) -> str:
    return evaluation.failure.kind.value if evaluation.failure else "no failure"


def _quoted(evaluation: Evaluation) -> str:
    """Returns how an evaluation failed, with the beginning of its detail on one line."""
    detail = " ".join(evaluation.failure.shown.split()) if evaluation.failure else ""
    cut = detail if len(detail) <= _MOST_QUOTED else f"{detail[:_MOST_QUOTED]} …"
    return f"{_failure(evaluation)} ({cut})" if cut else _failure(evaluation)


def _same(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=_CLOSE, abs_tol=1e-12)


def _text(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.10g}"


_BY_NAME = {
    "exec": "the evaluator executes text itself, and in guarded mode the text at `program_path` is "
    "a stand-in's",
    "getsource": "the evaluator asks for source with `inspect`",
    "runpy": "the evaluator runs the program with `runpy`",
    "isinstance": "the evaluator tests types, and in guarded mode objects of the program are "
    "proxies",
    "subprocess": "the evaluator starts processes; one that runs a copy of the program runs the "
    "stand-in",
}
_READERS = frozenset({"open", "read_text", "read_bytes", "getsize", "stat", "copy", "copyfile"})
_CLOCKS = frozenset(
    {"time", "perf_counter", "monotonic", "process_time", "perf_counter_ns", "timeit"}
)
_READS = (
    "the evaluator reads files; the program's text is at the path in the environment variable "
    "EVOQ_PROGRAM_SOURCE, while `program_path` holds a stand-in in guarded mode"
)
_TIMES = "the evaluator measures time, and in guarded mode a call crosses between two processes"
_SEEDS = (
    "the evaluator seeds `random` or NumPy for the program too, which in guarded mode has a "
    "generator of its own: pass it a seed or a generator's values"
)
_SUBCLASSES = "the evaluator derives from a class of the program, which cannot cross"
_SETS = "the evaluator sets names in the program's module, which the program does not see"
_ALWAYS = (
    "the program changes an argument in place, which its caller sees in compatible mode only",
    "the program and the evaluator share a module's state",
)


def reasons(texts: Iterable[str]) -> list[str]:
    """Returns why the two modes may differ, the likeliest first, one clause each.

    The reasons are advice, taken from the syntax tree; nothing is decided by them.

    Args:
      texts: The evaluator's Python files; a file that does not parse is skipped.
    """
    clauses: dict[str, None] = {}
    for text in texts:
        tree = tree_or_none(text)
        for node in ast.walk(tree) if tree else ():
            clauses.update(dict.fromkeys(_clauses(node)))
    return [*clauses, *_ALWAYS][:4]


def _clauses(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            if name in _BY_NAME:
                yield _BY_NAME[name]
            if name in _READERS:
                yield _READS
            if name in _CLOCKS:
                yield _TIMES
            if name == "seed":
                yield _SEEDS
        case ast.Attribute(value=ast.Name(id=name)) if name in ("runpy", "subprocess"):
            yield _BY_NAME[name]
        case ast.ClassDef(bases=[ast.Attribute(), *_]):
            yield _SUBCLASSES
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name))]) if name != "self":
            yield _SETS
        case _:
            return
