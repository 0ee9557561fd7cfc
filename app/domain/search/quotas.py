"""Quotas: what the runs of a project may have at once, and spend in a day.

A run beyond a quota plans nothing and waits; what it has in flight goes on.
"""

import re
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def project_name(text: str) -> str:
    """Returns the name of a project.

    Raises:
      ValueError: It is none.
    """
    if _NAME.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} names no project: write 1 to 64 letters, digits, `.`, `_`, `@` and `-`, "
            f"with a letter or a digit first"
        )
    return text


@dataclass(frozen=True, slots=True)
class Quota:
    """A project, its weight, and its quotas; None for one that it does not have.

    Attributes:
      project: Its name.
      weight: Of its share of the workers, relative to other projects; > 0.
      runs: Runs that plan at once.
      proposals: Proposals in flight at once, over all of its runs.
      tokens_per_day, usd_per_day: Spent on models since midnight, UTC.
    """

    project: str
    weight: float = 1.0
    runs: int | None = None
    proposals: int | None = None
    tokens_per_day: int | None = None
    usd_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class ProjectUse:
    """What the runs of a project use now.

    Attributes:
      runs: Running ones, those inside another not counted.
      proposals: In flight.
      tokens, usd: Spent since midnight, UTC.
      ahead: Of a run: the running ones of its project that plan before it.
    """

    runs: int = 0
    proposals: int = 0
    tokens: int = 0
    usd: float = 0.0
    ahead: int = 0


def exceeded(quota: Quota, use: ProjectUse) -> str:
    """Returns the quota that keeps a run from planning, in a line; "" where none does."""
    whose = f"project {quota.project!r}"
    if quota.runs is not None and use.ahead >= quota.runs:
        return f"{whose} may have {quota.runs} runs at once, and {use.ahead} are before this one"
    if quota.proposals is not None and use.proposals >= quota.proposals:
        return (
            f"{whose} has {use.proposals} proposals in flight, and its quota is {quota.proposals}"
        )
    if quota.tokens_per_day is not None and use.tokens >= quota.tokens_per_day:
        return (
            f"{whose} has spent {use.tokens} tokens today (UTC), and its quota is "
            f"{quota.tokens_per_day} a day"
        )
    if quota.usd_per_day is not None and use.usd >= quota.usd_per_day:
        return (
            f"{whose} has spent {use.usd:.2f} US dollars today (UTC), and its quota is "
            f"{quota.usd_per_day:g} a day"
        )
    return ""
