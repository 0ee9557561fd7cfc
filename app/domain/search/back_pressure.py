"""Back-pressure: how much of a run may wait for a model, and how much for evaluation.

Two loops, each sized by Little's law (L = λ W, the mean number in a stage is the throughput times
the mean time in it): what a stage works at, and a reserve so that it never waits for the planner.
Means and not medians, because the law holds for means.
"""

import math
from dataclasses import dataclass, replace

HEADROOM = 1.5
"""A stage may hold so many times what it works at: by this a run grows into a faster stage."""
LEAD_SECONDS = 0.5
"""From the need of a proposal to its plan, at most: beat's interval."""
LEAST, MOST = 8, 1024
FEWEST_MEASURED = 8
STEP = 0.1
"""A limit that would change by less stays."""
BATCH_SECONDS = 0.02
"""What a message's way through the queue is worth: steps that are done sooner share a message."""
LARGEST_BATCH = 8
MESSAGES = 8
"""A stage is spread over at least so many messages, so that a batch never empties it for others."""


@dataclass(frozen=True, slots=True)
class InFlightLimits:
    """How much of a run may be unsettled at once; the back-pressure on the two queues.

    Attributes:
      generating: Proposals that wait for their operator.
      evaluating: Proposals under test beyond which nothing new is planned.
      generate_batch, evaluate_batch: How many cohorts, how many trials, one message may name.
    """

    generating: int
    evaluating: int
    generate_batch: int = 1
    evaluate_batch: int = 1


STARTING = InFlightLimits(128, 64)
"""While nothing is measured."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What a person has fixed; None leaves a limit to be measured."""

    generating: int | None = None
    evaluating: int | None = None

    @property
    def fixed(self) -> bool:
        """Whether no limit is measured: only how long steps take is."""
        return self.generating is not None and self.evaluating is not None


@dataclass(frozen=True, slots=True)
class Flow:
    """What the last settled proposals of a run say of its speed.

    Attributes:
      settled: How many proposals settled within `span_seconds`.
      generating_seconds: Mean time a proposal was asked for at a model; what was read back from the
        ledger counts as none.
      evaluating_seconds: Mean time a proposal spent in a sandbox; those never tested count as none.
      testing: Trials that workers hold at this moment.  More than rate and time explain: a trial
        costs more than its time in the sandbox, such as the wait for a cell.
    """

    settled: int
    span_seconds: float
    generating_seconds: float
    evaluating_seconds: float
    testing: int = 0

    @property
    def asked(self) -> float:
        """Proposals that a model works at, on average."""
        return self.per_second * self.generating_seconds

    @property
    def tested(self) -> float:
        """Proposals that workers test: on average, or now if that is more."""
        return max(self.per_second * self.evaluating_seconds, float(self.testing))

    @property
    def per_second(self) -> float:
        """Settled proposals a second.

        A burst shorter than one proposal's way is not a rate: what settles together was begun
        together.
        """
        way = self.generating_seconds + self.evaluating_seconds
        return (self.settled - 1) / max(self.span_seconds, way, 1e-3)


def window(unsettled: int) -> int:
    """Returns how many settled proposals to measure: as many as settle while one passes twice."""
    return max(32, 2 * unsettled)


def sized(
    flow: Flow | None, caps: Caps, before: InFlightLimits, *, least: int = 1
) -> InFlightLimits:
    """Returns how much of a run may be in flight.

    Args:
      flow: None while too little has settled; what held before then holds on.
      caps: What a person has fixed holds as it is.
      before: The limits as they are.
      least: Proposals that must fit in, whatever was measured; a cohort's at least.
    """
    if flow is None or flow.settled < FEWEST_MEASURED:
        measured = before
    else:
        measured = InFlightLimits(
            _limit(flow.asked, flow.per_second, before.generating, least),
            _limit(flow.tested, flow.per_second, before.evaluating, least),
            batch(flow.generating_seconds, before.generating // least),
            batch(flow.evaluating_seconds, before.evaluating // least),
        )
    return replace(
        measured,
        generating=caps.generating or measured.generating,
        evaluating=caps.evaluating or measured.evaluating,
    )


def batch(seconds: float, in_flight: int) -> int:
    """Returns how many steps of a stage one message may name.

    They are run one after the other, so only as many as are done in `BATCH_SECONDS`: what asks a
    model or runs for long travels alone.  A power of two, so that it seldom changes.

    Args:
      seconds: Mean duration of a step; >= 0.
      in_flight: How many of them the stage may hold.
    """
    most = min(LARGEST_BATCH, in_flight // MESSAGES, int(BATCH_SECONDS / max(seconds, 1e-6)))
    return 1 << max(0, most.bit_length() - 1)


def room(limits: InFlightLimits, caps: Caps, *, generating: int, evaluating: int) -> int:
    """Returns how many proposals there is room for.

    What is too much under test is left out of what may wait for a model, rather than stopping all:
    a stage that is stopped until the other has drained is empty when the other needs it again.  A
    cap on what is under test does stop all.

    Args:
      limits: As they hold.
      caps: What a person has fixed.
      generating: Proposals that wait for their operator.
      evaluating: Proposals under test.
    """
    if caps.evaluating is not None and evaluating >= caps.evaluating:
        return 0
    beyond = max(0, evaluating - limits.evaluating)
    return max(0, limits.generating - generating - beyond)


def reason(flow: Flow | None, *, evaluating: bool, cap: int | None) -> str:
    """Returns why a limit is what it is, in a few words.

    Args:
      flow: As for `sized`.
      evaluating: Which of the two.
      cap: What a person has fixed; None otherwise.
    """
    if cap is not None:
        return "set"
    if flow is None or flow.settled < FEWEST_MEASURED:
        return "nothing measured yet"
    seconds = flow.evaluating_seconds if evaluating else flow.generating_seconds
    mean = flow.per_second * seconds
    if evaluating and flow.tested > mean:
        return f"{flow.testing} at work now"
    return f"{flow.per_second:.3g}/s × {seconds:.3g} s = {mean:.3g} at work"


def _limit(at_work: float, per_second: float, before: int, least: int) -> int:
    """Returns what is at work with headroom, twice its spread (a Poisson count's), and the lead."""
    wanted = HEADROOM * at_work + 2 * math.sqrt(at_work) + per_second * LEAD_SECONDS
    found = min(MOST, max(least, LEAST, math.ceil(wanted)))
    return before if abs(found - before) <= STEP * before else found
