"""Quotas of projects: how much a run may plan beside others of its project, and why no more."""

import sys

from app.domain.run import Run
from app.domain.search.quotas import exceeded
from app.ports.fleets import Projects


def project_room(projects: Projects, run: Run, *, least: int) -> int:
    """Returns how many proposals the quotas of a run's project let it plan.

    No other run of the project plans until the transaction ends.

    Args:
      projects: Of the transaction of the planning.
      run: The run.
      least: Proposals of one cohort, which fits where the project has none in flight.
    """
    quota = projects.quota(run.rules.project) if run.rules.project else None
    if quota is None or run.in_process:
        return sys.maxsize
    projects.lock(quota.project)
    projects.begin_day(run.id)
    use = projects.use(quota.project, run.id)
    if exceeded(quota, use):
        return 0
    if quota.proposals is None:
        return sys.maxsize
    return max(quota.proposals - use.proposals, 0 if use.proposals else least)


def quota_reason(projects: Projects, run: Run) -> str:
    """Returns the quota that keeps a run from planning; "" where none does."""
    quota = projects.quota(run.rules.project) if run.rules.project else None
    if quota is None or run.in_process:
        return ""
    return exceeded(quota, projects.use(quota.project, run.id))
