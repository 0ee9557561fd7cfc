"""The document of the system: workers, queues, endpoints, leases, disk."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from app.adapters.queue.address import client_url
from app.adapters.queue.ticks import lengths
from app.domain.search.shares import InFlight
from app.ports.ledger import Transaction
from app.ports.protocols import Store
from app.ports.workers import WORKER_KINDS
from app.reports.waiting import QueueState, read_unserved

Installation: TypeAlias = Callable[[], Sequence[Mapping[str, object]]]
"""Returns findings of `evoq doctor`, each as `name`, `ok`, `detail`, `remedy` and `required`."""


@dataclass(frozen=True, slots=True)
class LeasesDocument:
    """The steps of a running run.

    Attributes:
      generating, evaluating: Its unsettled proposals by stage.
      held: Steps in progress: their leases are renewed.
      lapsed: Unfinished steps whose lease has run out: their worker was lost, or hangs.
      repeated: How often steps were begun again.
    """

    run: int
    weight: float
    generating: int
    evaluating: int
    held: int
    lapsed: int
    repeated: int


@dataclass(frozen=True, slots=True)
class WorkerDocument:
    """A live worker.

    Attributes:
      fault: Why it cannot evaluate; "" where it can.
      usd_per_hour: None where its price is not known.
      protections: Of its sandbox, each with what would add it; "" of one that holds.
      queues: Those that it serves.
    """

    id: str
    kind: str
    fault: str
    usd_per_hour: float | None
    protections: dict[str, str]
    queues: list[str]


@dataclass(frozen=True, slots=True)
class SystemDocument:
    """Workers, queues, endpoints, leases and disk.

    Attributes:
      model_places, sandbox_places: Of all live workers; None where none has reported.
      queues: Messages that wait, by queue; empty where Redis does not answer.
      unserved: Queue with a label that no live worker serves, to the number of steps that wait.
      planning: Whether beat and a worker that plans are at work; None where it is not known.
      fault: Why the queue is not known; "" where it is.
      leases: Of running runs.
      ledger_bytes: Size of the database.
      disk_free_bytes, disk_bytes: Of the disk of the machine or container of the dashboard; an
        embedded ledger is on it.
    """

    workers: list[WorkerDocument]
    model_places: int | None
    sandbox_places: int | None
    queues: dict[str, int]
    unserved: dict[str, int]
    planning: bool | None
    endpoints: list[dict[str, object]]
    fault: str
    leases: list[LeasesDocument]
    ledger_bytes: int
    disk_free_bytes: int
    disk_bytes: int


def queues_of(tx: Transaction) -> list[str]:
    """Returns the queues without labels, and those that live workers serve or steps wait at."""
    served = (queue for worker in tx.workers.live() for queue in worker.queues)
    return sorted({*WORKER_KINDS, *served, *read_unserved(tx)})


def _by_run(in_flight: Sequence[InFlight]) -> dict[int, list[InFlight]]:
    runs: dict[int, list[InFlight]] = {}
    for one in in_flight:
        runs.setdefault(one.run, []).append(one)
    return runs


def system_document(
    store: Store, redis_url: str, queue: QueueState, folder: Path
) -> SystemDocument:
    """Returns the document of the deployment.

    Args:
      store: The ledger.
      redis_url: The queue's address.
      queue: What the queue's server shows.
      folder: Its disk is described; where it does not exist, that of the nearest one above it.
    """
    with store.begin() as tx:
        workers, capacity = tx.workers.live(), tx.workers.capacity()
        leases = [
            LeasesDocument(
                run,
                each[0].weight,
                sum(one.generating for one in each),
                sum(one.evaluating for one in each),
                held=tx.leases.held(run),
                lapsed=tx.leases.lapsed(run),
                repeated=tx.leases.repeated(run),
            )
            for run, each in _by_run(tx.proposals.in_flight()).items()
        ]
        queues, unserved = queues_of(tx), read_unserved(tx)
        ledger_bytes = tx.history.ledger_bytes()
    fault = queue.fault
    try:
        waiting = lengths(client_url(redis_url), queues)
    except OSError as error:
        waiting, fault = {}, str(error)
    folder = folder.absolute()
    disk = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists()))
    return SystemDocument(
        workers=[
            WorkerDocument(
                worker.id,
                worker.kind,
                worker.fault,
                worker.usd_per_hour,
                dict(worker.protections or ()),
                list(worker.queues),
            )
            for worker in workers
        ],
        model_places=capacity.model,
        sandbox_places=capacity.sandbox,
        queues=waiting,
        unserved=unserved,
        planning=None if fault else queue.planning,
        endpoints=[{**asdict(each), "text": each.text} for each in queue.endpoints],
        fault=fault,
        leases=leases,
        ledger_bytes=ledger_bytes,
        disk_free_bytes=disk.free,
        disk_bytes=disk.total,
    )
