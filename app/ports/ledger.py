"""The transaction of the ledger: intentions, not rows, in a repository for each aggregate.

Booleans are compare-and-sets: *True* means that the caller is the first.  Locks are taken in one
order everywhere: programs by id, cohorts by id, fingerprints sorted, islands by index, the run.
Two transactions can therefore wait for each other, but never in a circle.  What a transaction does
to the run itself, and completions, which are counted on it, it does last: all others of the run
wait from there on.  Events are numbered right before the commit, under the run's row lock, so that
their numbers have no gaps and their order is commit order.
"""

from typing import Protocol

from app.ports.archive import Archive
from app.ports.cohorts import Cohorts
from app.ports.completions import Completions
from app.ports.copies import Copies
from app.ports.events import Events
from app.ports.fleets import Fleets, Projects
from app.ports.history import History
from app.ports.leases import Leases
from app.ports.outcomes import Outcomes
from app.ports.problems import Problems
from app.ports.programs import Programs
from app.ports.proposals import Proposals
from app.ports.retention import Retention
from app.ports.runs import Runs
from app.ports.trials import Trials
from app.ports.workers import Workers


class Transaction(Protocol):
    """Reads and writes that commit together."""

    problems: Problems
    runs: Runs
    programs: Programs
    cohorts: Cohorts
    proposals: Proposals
    trials: Trials
    outcomes: Outcomes
    copies: Copies
    leases: Leases
    archive: Archive
    completions: Completions
    events: Events
    workers: Workers
    fleets: Fleets
    projects: Projects
    history: History
    retention: Retention
