"""What refusals tell of an endpoint: that it is full, or that it fails by itself now and then.

Pure.  An endpoint that is full refuses one request for each it serves; one that fails by itself
refuses the same share whatever is asked of it.

Sources: Page, Continuous Inspection Schemes (1954), for the sum of evidence that never falls below
zero; Wald, Sequential Tests of Statistical Hypotheses (1945), for the test of two shares.
"""

import math

from app.adapters.model.congestion.samples import SampleWindow

FULL = 0.5
"""Share of refusals of an endpoint that is full."""
LEAST_FAILING, MOST_FAILING = 0.05, 0.35
"""What any endpoint is thought to refuse by itself, at the least and at the most."""
SURE = 6.9
"""Logarithm of the odds at which an endpoint counts as full: a thousand to one."""
SURE_OF_TEST = 4.6
"""Logarithm of the odds at which a test ends, either way: a hundred to one."""
NEGLIGIBLE = 0.02
"""A failure rate below which an endpoint counts as sound."""
SEVERAL, SIGMAS = 0.15, 3.0
"""What a refusal now and then does not explain: such a share beyond the known one, and beyond so
many of its deviations."""
CROWDED = 0.3
"""Share of refusals from which on empty slots are the endpoint's limit: one that is full refuses
one request for each it serves."""
PACKED = 0.42
"""The same where refusals take their time, and hold the slots that quick ones would leave empty."""
FEW, EMPTY = 2.0, 0.25
"""Slots, and share of the window, that chance may keep from work."""
BY_CHANCE = 0.7
"""What to expect again of a share that was looked at because it was high."""


def by_itself(*shares: float) -> float:
    """Returns what share an endpoint may well refuse by itself, where these were seen."""
    return min(MOST_FAILING, max(LEAST_FAILING, *shares))


def worth_knowing(rate: float) -> float:
    """Returns a failure rate; 0 where it is too small to matter."""
    return rate if rate >= NEGLIGIBLE else 0.0


def of_refusal(failing: float) -> float:
    """Returns by how much one refusal speaks for a full endpoint, and against chance."""
    return math.log(FULL / failing)


def of_service(failing: float) -> float:
    """Returns by how much one served request does; it is negative."""
    return math.log((1 - FULL) / (1 - failing))


def alarming(spell: SampleWindow, failing: float) -> bool:
    """Returns whether clearly more was refused than the endpoint refuses by itself."""
    n = spell.answers
    noise = SIGMAS * math.sqrt(n * failing * (1 - failing))
    return spell.refused > n * failing + max(n * SEVERAL, noise)


def crowded(spell: SampleWindow, size: float, debt: int, now: float) -> bool:
    """Returns whether refusals keep too many slots from work for them to be chance.

    Args:
      spell: What was answered of late.
      size: Of the window.
      debt: Its slots that stay empty until another request is served.
      now: By the clock of the spell, in seconds.
    """
    many, share = max(FEW, size * EMPTY), spell.share
    held = debt + spell.held_by_refused(now)
    return (debt > many and share >= CROWDED) or (held > many and share >= PACKED)


def chance(spell: SampleWindow, before: float, fits: float) -> float:
    """Returns the logarithm of the odds that a smaller window is refused as much as the larger was.

    Args:
      spell: What the smaller window was answered.
      before: The share of refusals of the larger, which shrank it; 0 to 1.
      fits: What would be left of it if the larger window was too large; at least half is taken to
        go, or nothing could be told.
    """
    crowded = max(NEGLIGIBLE / 2, min(max(fits, NEGLIGIBLE), before / 2))
    same = max(BY_CHANCE * before, (crowded + before) / 2, 2 * NEGLIGIBLE)
    refused = spell.refused * math.log(same / crowded)
    return refused + spell.served * math.log((1 - same) / (1 - crowded))
