"""A sandbox that reads the outcomes of earlier jobs from the ledger, where a run asks for it."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict

from app.adapters.sandbox.bundle import harness_digest
from app.adapters.sandbox.data_mounts import DataIdentities
from app.domain.problem import Evaluator, Job, Outcome
from app.ports.protocols import NEVER, Protection, Sandbox, Stop, Store, Unavailable


class CachedSandbox:
    """Looks for the outcome of an equal job in the ledger, and runs the others.

    Only results are kept: a time-out, a lack of memory and every other failure may be the
    machine's.  Of two equal jobs at once, both run.
    """

    def __init__(self, sandbox: Sandbox, store: Store) -> None:
        self._sandbox = sandbox
        self._store = store
        self._data = DataIdentities()

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        """Returns how the job ended, or how an equal one did; see `Job.reuse`.

        Raises:
          Stopped: It was asked to stop.
          Unavailable: The ledger or the sandbox cannot be reached.
        """
        if not job.reuse:
            return self._sandbox.run(job, stop)
        surroundings = self._sandbox.surroundings(job.evaluator)
        key = digest(job, f"{surroundings} {self._data.of(job.evaluator)}".rstrip())
        with self._store.begin() as tx:
            known = tx.outcomes.recall(key)
        if known is not None:
            return known
        outcome = self._sandbox.run(job, stop)
        if outcome.result is not None and outcome.failure is None:
            with suppress(Unavailable), self._store.begin() as tx:
                tx.outcomes.keep(key, outcome)
        return outcome

    def prepare(self, evaluator: Evaluator) -> None:
        self._sandbox.prepare(evaluator)

    def surroundings(self, evaluator: Evaluator) -> str:
        return self._sandbox.surroundings(evaluator)

    def protections(self) -> list[Protection]:
        return self._sandbox.protections()

    def summary(self) -> str:
        return self._sandbox.summary()

    def close(self) -> None:
        self._sandbox.close()


def digest(job: Job, surroundings: str) -> str:
    """Returns a digest of all that shapes the outcome of a job."""
    shaping = {
        "surroundings": surroundings,
        "harness": harness_digest(),
        "evaluator": job.evaluator.digest,
        "function": job.function,
        "programs": [(suffix, hashlib.sha256(text).hexdigest()) for suffix, text in job.programs],
        "limits": asdict(job.limits),
        "mode": job.mode,
        "seed": job.seed,
        "cases": job.cases,
        **({"folder": asdict(job.folder)} if job.folder else {}),
        **({"game": asdict(job.game)} if job.game else {}),
    }
    return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()
