"""The step `sweep`: the ledger's limits, for as long as one tick may take."""

import logging
import time

from app.config.settings import Settings
from app.engine import retention
from app.engine.retention import Limits
from app.ports.protocols import Store
from workers.metrics import step_metrics

SECONDS = 5.0
"""Of one tick: a twelfth of the time, so that a run of any size leaves without a rush."""

log = logging.getLogger(__name__)


def sweep_ledger(store: Store, settings: Settings) -> None:
    """Deletes the runs beyond the limits, and removes rows of deleted runs for some seconds."""
    gib = settings.ledger_keep_gib
    limits = Limits(
        settings.ledger_keep_days,
        None if gib is None else gib * 2**30,
        settings.ledger_keep_prompts_days,
    )
    deadline = time.monotonic() + SECONDS
    for run, reason in ((one.run, one.reason) for one in retention.retire(store, limits)):
        log.info(
            "deleted run %s (%d), %d proposals, whose last event is %.1f days old: %s",
            *(run.name, run.id, run.proposals, run.age_seconds / 86400),
            "EVOQ_LEDGER_KEEP_DAYS" if reason == "age" else "EVOQ_LEDGER_KEEP_GIB",
        )
        step_metrics.deleted_runs.labels(reason).inc()

    def goes_on() -> bool:
        return time.monotonic() < deadline

    removed = retention.sweep(store, goes_on) + retention.strip_prompts(store, limits, goes_on)
    for table, n in removed.items():
        step_metrics.removed_rows.labels(table).inc(n)
    if removed:
        rows = ", ".join(f"{table} {n}" for table, n in sorted(removed.items()))
        log.info("removed rows of deleted runs, and logged prompts: %s", rows)
