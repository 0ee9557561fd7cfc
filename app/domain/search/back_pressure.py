"""Back-pressure: how many proposals of a run may be in flight, in all and in each stage.

In all: what the machine can hold at once, and in a small run a share of its budget, because a child
learns nothing from proposals that are in flight beside it (`most_in_flight`).

In each stage: by Little's law (L = λ W: the mean number in a stage is the throughput times the mean
time in it) the number at work, and a reserve so that the stage never waits for the planner.  The
law holds for means, so medians are not used.  A limit that holds the run back grows by more than
half with each passage, until the stage has as much as it can do.
"""

import math
from dataclasses import dataclass, replace

from app.domain.setting import MOST as LARGEST
from app.domain.setting import bounded

HEADROOM = 1.5
"""Factor of the number at work: it lets a run grow when a stage gets faster."""
LEAD_SECONDS = 0.5
"""Longest time until a needed proposal is planned: the interval of Celery beat."""
LEAST, MOST = 2, 1024
FIRST, SMALL = 4, 8
"""In flight in any run, however small its budget, if the machine can hold so many: until so many
have settled, and afterwards."""
FIRST_SHARE, LARGEST_SHARE = 1 / 25, 1 / 8
"""Of a run's budget that is in flight at most, in the same two phases."""
FEWEST_MEASURED = 8
STEP = 0.1
"""Least relative change of a limit; a smaller change is ignored."""
GENERATE_BATCH_SECONDS, EVALUATE_BATCH_SECONDS = 0.1, 0.25
"""Time of work that justifies a message: shorter steps share one.  It is longer for trials: they
wait for a place in a sandbox in any case, and models answer requests side by side."""
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
      unplaced: Proposals that would be planned, too, if the workers had places for them.
      held: Whether a quota of its project lets the run plan nothing, so that it needs no worker.
    """

    generating: int
    evaluating: int
    generate_batch: int = 1
    evaluate_batch: int = 1
    unplaced: int = 0
    held: bool = False


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits that the section `queue` sets; None for a measured limit."""

    generating: int | None = bounded(None, ge=1, le=LARGEST)
    """Most proposals that wait for their operator. Without a value, it follows from
    measurements."""
    evaluating: int | None = bounded(None, ge=1, le=LARGEST)
    """Proposals under test from which on no further proposal is planned. Without a value, it
    follows from measurements."""
    trials_at_once: int | None = bounded(None, ge=1, le=LARGEST)
    """Most trials of the run that are in a sandbox at once. Without a value, as many as the workers
    have places."""

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


def most_in_flight(
    budget: int, settled: int, *, model: int | None = None, sandbox: int | None = None
) -> int:
    """Returns how many proposals of a run may be in flight in both stages together.

    Args:
      budget: Proposals of the whole run.
      settled: How many have settled.  A run begins with what the sandboxes hold, and may have one
        more in flight for each that settles: twice as many with each passage.
      model: Requests that models take at once; None where it is not known.
      sandbox: Trials that can be in a sandbox at once; None where it is not known.
    """
    growing = max(FIRST, (sandbox or 0) + 2) + settled
    held = MOST if model is None or sandbox is None else model + sandbox + 2
    return min(MOST, share_of_budget(budget, settled), growing, held)


def share_of_budget(budget: int, settled: int) -> int:
    """Returns how many proposals may be in flight so that most of a budget learns from the rest.

    Args:
      budget: Proposals of the whole run.
      settled: How many have settled.
    """
    first = max(FIRST, int(budget * FIRST_SHARE))
    return first if settled < first else max(SMALL, int(budget * LARGEST_SHARE))


def sized(
    flow: Flow | None,
    caps: Caps,
    before: InFlightLimits,
    *,
    most: int = MOST,
    least: int = 1,
    sandbox: int | None = None,
) -> InFlightLimits:
    """Returns the limits for the measured flow.

    Args:
      flow: None while too few proposals have settled; then each stage may hold `most`.
      caps: The limits set by the user, which stay as they are.
      before: The present limits.
      most: Result of `most_in_flight`.
      least: Proposals that must fit in any case: those of one cohort.
      sandbox: Trials that can be in a sandbox at once; None where it is not known.
    """
    if flow is None or flow.settled < FEWEST_MEASURED:
        measured = InFlightLimits(max(most, least), max(most, least))
    else:
        measured = InFlightLimits(
            _limit(flow.generating, flow.per_second, before.generating, most, least),
            _limit(flow.evaluating, flow.per_second, before.evaluating, most, least),
            batch(flow.generating_seconds, before.generating // least, GENERATE_BATCH_SECONDS),
            batch(
                flow.evaluating_seconds,
                before.evaluating // least,
                EVALUATE_BATCH_SECONDS,
                max(MESSAGES, 2 * (sandbox or 0)),
            ),
        )
    return replace(
        measured,
        unplaced=before.unplaced,
        held=before.held,
        generating=caps.generating or measured.generating,
        evaluating=caps.evaluating or measured.evaluating,
    )


def batch(seconds: float, in_flight: int, longest: float, messages: int = MESSAGES) -> int:
    """Returns how many steps of a stage one message may name.

    The steps of a message run one after the other, so a step that calls a model or takes long has a
    message of its own.  The size is a power of two, so that it seldom changes.

    Args:
      seconds: Mean duration of a step; >= 0.
      in_flight: Limit of the stage.
      longest: Seconds that the steps of a message may take together.
      messages: Least number of messages for a full stage.
    """
    most = min(LARGEST_BATCH, in_flight // messages, int(longest / max(seconds, 1e-6)))
    return 1 << max(0, most.bit_length() - 1)


def plannable(
    limits: InFlightLimits, caps: Caps, *, generating: int, evaluating: int, most: int = MOST
) -> int:
    """Returns how many more proposals may be planned.

    An excess of proposals under evaluation is subtracted from the limit of generation instead of
    stopping it: a stage that stops until the other has drained is empty when the other needs it
    again.  A limit of evaluation that the user has set does stop planning.

    Args:
      limits: The present limits.
      caps: The limits set by the user.
      generating: Proposals that wait for their operator.
      evaluating: Proposals under evaluation.
      most: Result of `most_in_flight`; it does not hold where the user has set both limits.
    """
    if caps.evaluating is not None and evaluating >= caps.evaluating:
        return 0
    beyond = max(0, evaluating - limits.evaluating)
    free = limits.generating - generating - beyond
    if not caps.fixed:
        free = min(free, most - generating - evaluating)
    return max(0, free)


def unplaced(
    flow: Flow | None,
    limits: InFlightLimits,
    caps: Caps,
    *,
    generating: int,
    evaluating: int,
    most: int,
    free: int,
) -> int:
    """Returns how many proposals would be planned beside `free` if workers had places for them.

    An autoscaler needs it: what is planned follows the places that there are, and would never ask
    for others.  It is rounded down to a power of two, so that it seldom changes.

    Args:
      flow: As for `sized`.
      limits: The present limits.
      caps: As for `sized`.
      generating: Proposals that wait for their operator.
      evaluating: Proposals under evaluation.
      most: Result of `most_in_flight` without regard to places.
      free: Result of `plannable`.
    """
    wanted = sized(flow, caps, limits, most=most)
    more = plannable(wanted, caps, generating=generating, evaluating=evaluating, most=most) - free
    return 1 << more.bit_length() - 1 if more > 0 else 0


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


def _limit(at_work: float, per_second: float, before: int, most: int, least: int) -> int:
    """Returns the number at work with headroom, two standard deviations (Poisson), and the lead."""
    wanted = HEADROOM * at_work + 2 * math.sqrt(at_work) + per_second * LEAD_SECONDS
    limit = max(least, min(most, max(LEAST, math.ceil(wanted))))
    return before if abs(limit - before) <= STEP * before else limit
