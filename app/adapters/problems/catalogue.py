"""The problems of a ledger, as a process keeps them."""

import threading
from collections.abc import Hashable

from app.adapters.problems.loading import is_known, reload
from app.domain.problem import Problem, ProblemDigest
from app.domain.run import Run
from app.ports.protocols import Store


class ProblemCatalogue:
    """Problems by digest, each read from the ledger once per process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._problems: dict[ProblemDigest, Problem] = {}
        self._limited: dict[Hashable, Problem] = {}

    def limited(self, run: Run) -> Problem:
        """Returns a run's problem with the limits that the settings of the run have now."""
        problem = self(run.problem)
        limits = {f"sandbox.{name}": value for name, value in run.rules.limits.items()}
        changed = any(problem.options.get(name) != value for name, value in limits.items())
        if not changed or not is_known(problem.format):
            return problem
        options = {k: v for k, v in {**problem.options, **limits}.items() if v is not None}
        key = run.problem, tuple(limits.items())
        with self._lock:
            loaded = self._limited.get(key)
        if loaded is None:
            loaded = reload(problem.format, problem.name, problem.files, options)
            with self._lock:
                loaded = self._limited.setdefault(key, loaded)
        return loaded

    def __call__(self, digest: ProblemDigest) -> Problem:
        with self._lock:
            loaded = self._problems.get(digest)
        if loaded is not None:
            return loaded
        with self._store.begin() as tx:
            stored = tx.problems.get(digest)
        problem = reload(stored.format, stored.name, stored.files, stored.options)
        if problem.digest != digest:
            raise ValueError(
                f"problem {stored.name!r} was stored as {digest[:12]} and reads as "
                f"{problem.digest[:12]}: this worker's version differs from the one that submitted "
                f"the run"
            )
        with self._lock:
            return self._problems.setdefault(digest, problem)
