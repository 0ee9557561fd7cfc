"""What a run waits for: steps that no worker takes, models that do not answer, a queue.

Nothing is decided by it: it is for people to read.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.adapters.model.congestion.status import EndpointStatus, published, without_secrets
from app.adapters.model.providers.spec import model_spec
from app.adapters.queue.address import client_url
from app.adapters.queue.ticks import ticking
from app.config.settings import stored_settings
from app.domain.run import Run, RunState
from app.domain.search.fleets import queue_of, waiting_text
from app.engine.quotas import quota_reason
from app.ports.ledger import Transaction
from app.ports.workers import Presence, QueueDemand

SILENT_SECONDS = 5.0
"""Time without an answer after which a run is said to wait for a model."""
_AGAIN_SECONDS = 1.0
_PREFIX = "waiting: "


@dataclass(frozen=True, slots=True)
class QueueState:
    """What the queue's server shows.

    Attributes:
      planning: Whether beat and a worker that plans were at work in the last seconds.
      endpoints: The status of each endpoint that was lately in use.
      fault: Why the rest is not known; "" where it is.
    """

    planning: bool = True
    endpoints: Sequence[EndpointStatus] = ()
    fault: str = ""


def read_queue(redis_url: str) -> QueueState:
    """Returns the state of the queue; one that does not answer is a fault."""
    try:
        address = client_url(redis_url)
        return QueueState(ticking(address), published(address))
    except OSError as error:
        return QueueState(fault=str(error))


def watched_queue(
    redis_url: str, clock: Callable[[], float] = time.monotonic
) -> Callable[[], QueueState]:
    """Returns a function that returns the state of the queue, read once a second at most."""
    state, read_at = QueueState(), -_AGAIN_SECONDS

    def current() -> QueueState:
        nonlocal state, read_at
        if clock() - read_at >= _AGAIN_SECONDS:
            state, read_at = read_queue(redis_url), clock()
        return state

    return current


def endpoints_of(run: Run, endpoints: Sequence[EndpointStatus]) -> list[EndpointStatus]:
    """Returns those of the endpoints that a run uses; none if it asks no model."""
    models = [] if run.state.final else stored_settings(run.settings).llm.every_model
    if any(model.base_url is None and model.provider is None for model in models):
        # The environment of the workers decides which of the endpoints the run uses.
        return list(endpoints)
    used = {without_secrets(model_spec(model, os.environ.get).base_url) for model in models}
    return [endpoint for endpoint in endpoints if endpoint.endpoint in used]


def waiting_of(tx: Transaction, run: Run, queue: QueueState) -> str:
    """Returns what a run waits for, as the ledger and the queue show it; see `waits_for`."""
    if run.state is not RunState.RUNNING:
        return ""
    demand, presence = tx.workers.demand(run.id), tx.workers.presence()
    return waits_for(run, demand, presence, queue, quota_reason(tx.projects, run))


def read_unserved(tx: Transaction) -> dict[str, int]:
    """Returns how many steps wait at queues with labels that no worker serves, by queue."""
    return unserved(tx.workers.demand(), tx.workers.presence())


def unserved(demand: Sequence[QueueDemand], presence: Presence) -> dict[str, int]:
    """Returns how many steps wait at queues with labels that no worker serves, by queue."""
    waiting = Counter[str]()
    for one in demand:
        name = queue_of(one.queue, one.tag)
        if one.tag and one.waiting and name not in presence.queues:
            waiting[name] += one.waiting
    return dict(waiting)


def waits_for(
    run: Run,
    demand: Sequence[QueueDemand],
    presence: Presence,
    queue: QueueState,
    quota: str = "",
) -> str:
    """Returns what a run waits for, in a line; "" where nothing is missing, or it does not run.

    Args:
      run: The run.
      demand: What it has for each queue.
      presence: Which steps have a worker.
      queue: What the queue's server shows.
      quota: The quota of its project that keeps it from planning; "" where none does.
    """
    if run.state is not RunState.RUNNING:
        return ""
    reasons = [queue.fault] if queue.fault else []
    reasons += [text for text in (waiting_text(unserved(demand, presence)), quota) if text]
    if not queue.planning:
        reasons.append("nothing plans: `beat` or a worker of the queue `control` is missing")
    asked = {one.queue for one in demand if one.steps}
    unlabelled = {one.queue for one in demand if one.steps and not one.tag}
    served = presence.generating and "gpu" in presence.queues
    if "gpu" in unlabelled and not served:
        reasons.append("no worker of the queue `gpu` generates")
    elif "gpu" in asked:
        reasons += _silent(endpoints_of(run, queue.endpoints))
    served = presence.evaluating and "cpu" in presence.queues
    if "cpu" in unlabelled and not served:
        reasons += presence.faults or ["no worker of the queue `cpu` evaluates"]
    if run.reason:
        reasons.append(run.reason.removeprefix(_PREFIX))
    return "; ".join(dict.fromkeys(reasons))


def _silent(endpoints: Sequence[EndpointStatus]) -> list[str]:
    """Returns a reason where no endpoint that a run asks has answered for seconds.

    An endpoint that is writing replies answers, however long they take: the reason says so.  Before
    the first token a machine without a GPU reads for a minute, and while it reads another prompt,
    its replies pause.
    """
    silent = [each for each in endpoints if each.silent_seconds >= SILENT_SECONDS]
    if endpoints and len(silent) == len(endpoints):
        if all(each.in_flight and not each.recent for each in silent):
            each = [f"{e.endpoint} reads {e.prompts} for {e.silent_seconds:.0f} s" for e in silent]
            return [f"no model answers yet: {', '.join(each)}"]
        each = [f"{e.endpoint} for {e.silent_seconds:.0f} s ({e.text})" for e in silent]
        pausing = all(each.writing for each in silent)
        said = "replies in progress pause" if pausing else "no model answers"
        return [f"{said}: {', '.join(each)}"]
    answering = any(each.unanswered_seconds < SILENT_SECONDS for each in endpoints)
    return [] if answering else [f"{e.endpoint}: {e.progress}" for e in endpoints if e.writing]
