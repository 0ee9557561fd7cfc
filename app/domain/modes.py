"""Whether a seed scores alike in both modes of the sandbox, and in words why it may not."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.evaluation import Evaluation, fitness, merged_metrics
from app.domain.problem import Mode
from app.domain.program import ProgramId

MOST_SHOWN = 5
_CLOSE = 1e-9  # relative; the same arithmetic in two processes gives the same bits


@dataclass(frozen=True, slots=True)
class Difference:
    """One measurement that depends on the mode.

    Attributes:
      case: A metric's name, or "failure".
      here: Its value in the problem's mode; "nothing" where it is absent.
      there: Its value in the other mode, twice the same.
    """

    case: str
    here: str
    there: str


def other(mode: Mode) -> Mode:
    """Returns the mode that `mode` is not."""
    return Mode.COMPATIBLE if mode is Mode.GUARDED else Mode.GUARDED


def differences(
    player: ProgramId, here: Evaluation, there: Evaluation, again: Evaluation
) -> list[Difference]:
    """Returns what a program measures differently in the two modes.

    What the other mode itself measures differently from one time to the next is noise (a time, a
    random draw) and left out.

    Args:
      player: The program.
      here: In the problem's mode.
      there: In the other mode.
      again: In the other mode once more; `there` itself where it equals `here` already.
    """
    if here.failure or there.failure or again.failure:
        said = [_failure(one) for one in (here, there, again)]
        if said[1] != said[2] or said[0] == said[1]:
            return []
        return [Difference("failure", said[0], said[1])]
    ours, theirs, noise = (_numbers(player, one) for one in (here, there, again))
    found = []
    for name in sorted({*ours, *theirs}):
        if _same(theirs.get(name), noise.get(name)) and not _same(ours.get(name), theirs.get(name)):
            found.append(Difference(name, _shown(ours.get(name)), _shown(theirs.get(name))))
    return found


def alike(player: ProgramId, here: Evaluation, there: Evaluation) -> bool:
    """Returns whether nothing at all differs, noise included."""
    return not differences(player, here, there, there)


def explained(
    seed: str, stage: str, mode: Mode, found: Sequence[Difference], reasons: Sequence[str]
) -> str:
    """Returns in words what differs, why it may, and what to do; "" where nothing does.

    Args:
      seed: The program's name.
      stage: Where it was measured.
      mode: The problem's.
      found: What differs.
      reasons: From `app.domain.mode_reasons`, the likeliest first.
    """
    if not found:
        return ""
    told = "; ".join(
        f"{one.case} is {one.here} in {mode.value} and {one.there} in {other(mode).value} mode"
        for one in found[:MOST_SHOWN]
    )
    more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    why = " Likely: " + "; ".join(reasons) + "." if reasons else ""
    return f"The seed {seed!r} measures differently at {stage}: {told}{more}.{why} {_REMEDY[mode]}"


_REMEDY = {
    Mode.GUARDED: (
        "The run stays in guarded mode, where no program can forge a score; `--set "
        "sandbox.mode=compatible` leaves it, and labels every score unverified."
    ),
    Mode.COMPATIBLE: "The run stays in compatible mode, as asked; every score is unverified.",
}


def _numbers(player: ProgramId, one: Evaluation) -> dict[str, float]:
    numbers = merged_metrics(player, [one])
    value = fitness(player, [one])
    return numbers if value is None else {**numbers, "fitness": value}


def _failure(one: Evaluation) -> str:
    return one.failure.kind.value if one.failure else "no failure"


def _same(one: float | None, two: float | None) -> bool:
    if one is None or two is None:
        return one is two
    return math.isclose(one, two, rel_tol=_CLOSE, abs_tol=1e-12)


def _shown(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.10g}"
