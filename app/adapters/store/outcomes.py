"""Outcomes of jobs that later runs may reuse."""

from app.adapters.store.driver import DriverConnection
from app.domain.problem import Outcome

_RECALL = """
    SELECT result, stdout, stderr, wall_seconds, cpu_seconds, peak_memory_mib FROM outcomes
    WHERE job = %(job)s
"""
_KEEP = """
    INSERT INTO outcomes (job, result, stdout, stderr, wall_seconds, cpu_seconds, peak_memory_mib)
    VALUES (%(job)s, %(result)s, %(stdout)s, %(stderr)s, %(wall)s, %(cpu)s, %(peak)s)
    ON CONFLICT DO NOTHING
"""


class SqlOutcomes:
    """See `app.ports.outcomes.Outcomes`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def recall(self, job: str) -> Outcome | None:
        found = self._c.row(_RECALL, {"job": job})
        if found is None:
            return None
        return Outcome(
            bytes(found.result),
            None,
            bytes(found.stdout),
            bytes(found.stderr),
            found.wall_seconds,
            found.cpu_seconds,
            found.peak_memory_mib,
            reused=True,
        )

    def keep(self, job: str, outcome: Outcome) -> None:
        if outcome.result is None:
            raise ValueError(f"the outcome of job {job[:12]} has no result to keep")
        values = {
            "job": job,
            "result": outcome.result,
            "stdout": outcome.stdout,
            "stderr": outcome.stderr,
            "wall": outcome.wall_seconds,
            "cpu": outcome.cpu_seconds,
            "peak": outcome.peak_memory_mib,
        }
        self._c.write(_KEEP, values)
