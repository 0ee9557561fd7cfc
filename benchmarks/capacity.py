"""The capacity model of docs/capacity.md: what a deployment of any size asks of its parts.

    python -m benchmarks.capacity                          # 1,000 workers, 10^7 programs
    python -m benchmarks.capacity --workers 50 --trial-seconds 2

Every constant is measured by the command in its description.  Prints one JSON document.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

SPARE = 2.0
"""Sessions of a pooler beside those that are busy on average."""
LISTENERS = 1
"""Connections that a worker keeps for notices."""
LEASE_SECONDS = 30.0
RECORD_SECONDS = 3.0
"""Between two records of a worker; see `app.adapters.store.workers`."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What was measured on two cores at a load of 12 to 30; docs/capacity.md has the commands.

    Attributes:
      postgres_ms, worker_ms, redis_ms: Processor time of a proposal.
      commits: Transactions of a proposal.
      commit_ms: How long one occupies a session of Postgres.  A record or a renewal of an idle
        worker is taken for a mean one.
      writes: Transactions of a proposal that write events, and so lock the row of its run.
      row_rate: Those of one run that Postgres commits a second.
      session_mib: Private memory of a session that has run every statement.
      ledger_bytes: Of a proposal, with indexes.
      messages: Of a proposal, where none names several.
    """

    postgres_ms: float = 8.5
    worker_ms: float = 11.8
    redis_ms: float = 0.44
    commits: float = 2.8
    commit_ms: float = 22.0
    writes: float = 0.26
    row_rate: float = 127.0
    session_mib: float = 14.8
    ledger_bytes: float = 5700.0
    messages: float = 2.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment at work.

    Attributes:
      workers: Processes that evaluate.
      places: Trials of each at once.
      trial_seconds: Of a mean trial.
      programs: Of all runs that are kept.
      runs: At work at once.
      connections: Of each process; `EVOQ_DATABASE_CONNECTIONS`.
    """

    workers: int = 1000
    places: int = 4
    trial_seconds: float = 20.0
    programs: int = 10**7
    runs: int = 4
    connections: int = 16


def demand(deployment: Deployment, measured: Constants) -> Mapping[str, float]:
    """Returns what a deployment asks of its parts; a share of a bound is at most 1.0 where it fits.

    Proposals a second follow from Little's law: places at work, divided by the time of a trial.
    """
    rate = deployment.workers * deployment.places / deployment.trial_seconds
    idle = deployment.workers * (1 / RECORD_SECONDS + 3 / LEASE_SECONDS)
    busy = rate * measured.commits * measured.commit_ms / 1000
    direct = deployment.workers * (deployment.connections + LISTENERS)
    pooled = SPARE * max(1.0, busy)
    return {
        "proposals_a_second": rate,
        "postgres_cores": (rate + idle / measured.commits) * measured.postgres_ms / 1000,
        "worker_cores": rate * measured.worker_ms / 1000,
        "redis_share_of_a_core": rate * measured.redis_ms / 1000,
        "messages_a_second": rate * measured.messages,
        "share_of_a_runs_row": rate / deployment.runs * measured.writes / measured.row_rate,
        "connections_without_a_pooler": direct,
        "memory_gib_without_a_pooler": direct * measured.session_mib / 1024,
        "sessions_with_a_pooler": pooled + deployment.workers * LISTENERS,
        "sessions_with_a_pooler_and_no_listening": pooled,
        "ledger_gib": deployment.programs * measured.ledger_bytes / 2**30,
        "days": deployment.programs / rate / 86400,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in fields(Deployment):
        kind = float if field.name == "trial_seconds" else int
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=kind, default=field.default)
    deployment = Deployment(**vars(parser.parse_args()))
    asked = demand(deployment, Constants())
    document = {
        "deployment": asdict(deployment),
        "constants": asdict(Constants()),
        "demand": {name: round(value, 2) for name, value in asked.items()},
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
