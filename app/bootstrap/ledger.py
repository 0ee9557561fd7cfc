"""The ledger of a process, and the context of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.adapters.model.per_run import Models
from app.adapters.problems.catalogue import ProblemCatalogue
from app.adapters.store.group_commit import GroupCommit
from app.adapters.store.leases import LeaseRenewer
from app.adapters.store.sql import SqlStore
from app.adapters.tuning.cma import ask
from app.bootstrap.agents import agents
from app.bootstrap.process import WorkerProcess
from app.bootstrap.settings import process_limits
from app.config.settings import QueueSettings, Settings
from app.domain.operators import operators
from app.engine.context import Context, Pace
from app.ports.protocols import Executor, Sandbox, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.adapters.model.providers.vllm_engine import VllmEngine
    from app.adapters.queue.live_moves import LiveMoves


def open_store(
    database_url: str,
    *,
    session_url: str | None = None,
    connections: int = 16,
    patience_seconds: float = 0.0,
    idle_seconds: float = 0.0,
) -> SqlStore:
    """Returns the ledger; no connection is opened before the first transaction."""
    return SqlStore(
        database_url,
        session_url=session_url,
        connections=connections,
        patience_seconds=patience_seconds,
        idle_seconds=idle_seconds,
    )


def context(
    store: Store,
    executor: Executor,
    sandbox: Sandbox,
    *,
    queue: QueueSettings | None = None,
    engine: VllmEngine | None = None,
    settings: Settings | None = None,
    keep_leases: bool = True,
    listen: Callable[[], Iterator[bool]] | None = None,
    moves: LiveMoves | None = None,
) -> Context:
    """Wires a context.

    Args:
      store: The ledger.
      executor: Enqueues steps.
      sandbox: Runs programs.
      queue: Leases and attempts; None means the defaults.
      engine: Answers the runs that ask for its model; None: there is none in this process.
      settings: This process's share of the models' limits; None: no limits of its own.
      keep_leases: Whether a thread renews leases; not needed without other workers.
      listen: Yields whenever steps may have been withdrawn; see `LeaseRenewer`.
      moves: Shows the moves of games; None: nobody sees them.
    """
    pace = queue or QueueSettings()
    problems = ProblemCatalogue(store)
    models = Models(
        store, engine, process_limits(settings), agents(problems.limited, sandbox, store)
    )
    leases = LeaseRenewer(store, pace.lease_seconds, listen) if keep_leases else None
    return Context(
        store=store,
        model=models,
        embedder=models.embedder,
        sandbox=sandbox,
        executor=executor,
        problem=problems,
        limited=problems.limited,
        operators=operators(ask),
        pace=Pace(pace.lease_seconds, pace.redeliver_seconds, attempts=pace.attempts),
        process=WorkerProcess(GroupCommit(), models, leases, moves=moves),
    )
