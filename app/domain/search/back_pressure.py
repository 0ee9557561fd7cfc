"""Back-pressure: how many proposals of a run may wait for a model, and how many for evaluation.

The limit of each stage follows from Little's law (L = λ W: the mean number in a stage is the
throughput times the mean time in it): the number at work, and a reserve so that the stage never
waits for the planner.  The law holds for means, so medians are not used.
"""

import math
from dataclasses import dataclass, replace

HEADROOM = 1.5
"""Factor of the number at work: it lets a run grow when a stage gets faster."""
LEAD_SECONDS = 0.5
"""Longest time until a needed proposal is planned: the interval of Celery beat."""
LEAST, MOST = 8, 1024
FEWEST_MEASURED = 8
STEP = 0.1
"""Least relative change of a limit; a smaller change is ignored."""
BATCH_SECONDS = 0.02
"""Time of work that justifies a message: shorter steps share one."""
LARGEST_BATCH = 8
MESSAGES = 8
"""Least number of messages for a full stage, so that one batch never empties it."""


@dataclass(frozen=True, slots=True)
class InFlightLimits:
    """How many proposals of a run may be in flight: the back-pressure on the two queues.

    Attributes:
      generating: Proposals that wait for their operator.
      evaluating: Proposals under evaluation beyond which nothing new is planned.
      generate_batch, evaluate_batch: Most proposals and most trials that one message names.
    """

    generating: int
    evaluating: int
    generate_batch: int = 1
    evaluate_batch: int = 1


STARTING = InFlightLimits(128, 64)
"""The limits while nothing is measured."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits set by the user; None for a measured limit."""

    generating: int | None = None
    evaluating: int | None = None

    @property
    def fixed(self) -> bool:
        """Whether the user has set both limits, so that only the sizes of batches are measured."""
        return self.generating is not None and self.evaluating is not None


@dataclass(frozen=True, slots=True)
class Flow:
    """The speed of a run, measured over its last settled proposals.

    Attributes:
      settled: How many proposals settled within `span_seconds`.
      generating_seconds: Mean time of a proposal at a model; 0 for completions read from the
        ledger.
      evaluating_seconds: Mean time of a proposal in a sandbox; 0 for proposals without a trial.
      testing: Trials that workers hold now.  They can be more than rate times duration, because a
        trial also waits, for a warm sandbox for example.
    """

    settled: int
    span_seconds: float
    generating_seconds: float
    evaluating_seconds: float
    testing: int = 0

    @property
    def generating(self) -> float:
        """Mean number of proposals at a model."""
        return self.per_second * self.generating_seconds

    @property
    def evaluating(self) -> float:
        """Number of proposals under evaluation: the mean, or the number now if that is larger."""
        return max(self.per_second * self.evaluating_seconds, float(self.testing))

    @property
    def per_second(self) -> float:
        """Settled proposals a second.

        A burst shorter than the duration of one proposal gives no rate: proposals that settle
        together also started together.
        """
        duration = self.generating_seconds + self.evaluating_seconds
        return (self.settled - 1) / max(self.span_seconds, duration, 1e-3)


def window(unsettled: int) -> int:
    """Returns how many settled proposals to measure: two for each in flight, and at least 32."""
    return max(32, 2 * unsettled)


def sized(
    flow: Flow | None, caps: Caps, before: InFlightLimits, *, least: int = 1
) -> InFlightLimits:
    """Returns the limits for the measured flow.

    Args:
      flow: None while too few proposals have settled; then `before` stays.
      caps: The limits set by the user, which stay as they are.
      before: The present limits.
      least: Proposals that must fit in any case: those of one cohort.
    """
    if flow is None or flow.settled < FEWEST_MEASURED:
        measured = before
    else:
        measured = InFlightLimits(
            _limit(flow.generating, flow.per_second, before.generating, least),
            _limit(flow.evaluating, flow.per_second, before.evaluating, least),
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

    The steps of a message run one after the other, so a batch is as large as `BATCH_SECONDS` allow:
    a step that calls a model or takes long has a message of its own.  The size is a power of two,
    so that it seldom changes.

    Args:
      seconds: Mean duration of a step; >= 0.
      in_flight: Limit of the stage.
    """
    most = min(LARGEST_BATCH, in_flight // MESSAGES, int(BATCH_SECONDS / max(seconds, 1e-6)))
    return 1 << max(0, most.bit_length() - 1)


def plannable(limits: InFlightLimits, caps: Caps, *, generating: int, evaluating: int) -> int:
    """Returns how many more proposals may be planned.

    An excess of proposals under evaluation is subtracted from the limit of generation instead of
    stopping it: a stage that stops until the other has drained is empty when the other needs it
    again.  A limit of evaluation that the user has set does stop planning.

    Args:
      limits: The present limits.
      caps: The limits set by the user.
      generating: Proposals that wait for their operator.
      evaluating: Proposals under evaluation.
    """
    if caps.evaluating is not None and evaluating >= caps.evaluating:
        return 0
    beyond = max(0, evaluating - limits.evaluating)
    return max(0, limits.generating - generating - beyond)


def reason(flow: Flow | None, *, evaluating: bool, cap: int | None) -> str:
    """Returns why a limit is what it is, in a few words.

    Args:
      flow: As for `sized`.
      evaluating: Whether the limit is that of evaluation.
      cap: The limit set by the user; None for a measured limit.
    """
    if cap is not None:
        return "set"
    if flow is None or flow.settled < FEWEST_MEASURED:
        return "nothing measured yet"
    seconds = flow.evaluating_seconds if evaluating else flow.generating_seconds
    mean = flow.per_second * seconds
    if evaluating and flow.evaluating > mean:
        return f"{flow.testing} at work now"
    return f"{flow.per_second:.3g}/s × {seconds:.3g} s = {mean:.3g} at work"


def _limit(at_work: float, per_second: float, before: int, least: int) -> int:
    """Returns the number at work with headroom, two standard deviations (Poisson), and the lead."""
    wanted = HEADROOM * at_work + 2 * math.sqrt(at_work) + per_second * LEAD_SECONDS
    limit = min(MOST, max(least, LEAST, math.ceil(wanted)))
    return before if abs(limit - before) <= STEP * before else limit
