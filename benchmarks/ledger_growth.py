"""What a proposal costs in a run of 10^3 to 10^6 proposals, beside one in a run of 10^3.

    python -m benchmarks.ledger_growth --sizes 1000 10000 100000 1000000
    python -m benchmarks.ledger_growth --sizes 1000 10000 100000 --direct    # hours
    python -m benchmarks.ledger_growth --statements 8            # whose time grows
    python -m benchmarks.ledger_growth --sizes 1000 --pooled     # without prepared statements

Real: Postgres, the steps, prompts, replies, the ledger.  SIMULATED: the model and the evaluator,
which cost nothing.  Steps run one after the other in this process, as messages of up to eight name
them; there is no queue and no beat.  Two ledgers, each with a Postgres of its own, hold the same
run: one stays near 10^3 proposals, one grows.  Windows of the two alternate, so that their ratio
does not depend on what else the machine does.  Without `--direct` the rows of the growing run are
cloned in SQL until it has so many proposals: see `benchmarks.growth_clones`; the proposals that are
measured are real ones.  Prints one JSON document.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias

import psutil
import psycopg

from app.adapters.store import schema
from app.adapters.store.driver import DriverConnection
from app.bootstrap.ledger import context, open_store
from app.bootstrap.process import WorkerProcess
from app.config.settings import QueueSettings, RunSettings, SearchSettings
from app.domain.run import RunState
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.embedded.postgres import EmbeddedPostgres
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import Step
from app.ports.runs import NewRun
from benchmarks.growth_clones import fill
from benchmarks.simulated import SimulatedModel, SimulatedSandbox, problem

BATCH = 8
IN_FLIGHT = 64
WINDOW = 250
"""Proposals of one measurement."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a run has cost, or a proposal in a window.

    Attributes:
      settled: Proposals.
      wall_ms: Milliseconds.
      client_ms: Processor milliseconds in this process.
      postgres_ms: Processor milliseconds in Postgres, with vacuums and checkpoints.
      commits: Transactions.
      blocks: Pages of 8 KiB that statements looked at.
    """

    settled: float
    wall_ms: float
    client_ms: float
    postgres_ms: float
    commits: float
    blocks: float

    @property
    def cpu_ms(self) -> float:
        """Processor milliseconds of both."""
        return self.client_ms + self.postgres_ms

    def of_each(self, before: "Costs") -> "Costs":
        """Returns what a proposal has cost since."""
        n = max(1.0, self.settled - before.settled)
        pairs = zip(astuple(self), astuple(before), strict=True)
        _, *each = ((now - then) / n for now, then in pairs)
        return Costs(self.settled, *each)


@dataclass(frozen=True, slots=True)
class SizeCosts:
    """A run of a size beside one of 10^3 proposals: medians of windows that alternate."""

    size: int
    costs: Costs
    reference: Costs
    cpu_ratio: float
    blocks_ratio: float


class Messages:
    """A queue in this process whose messages name several subjects, as those of workers do."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Step, tuple[int, ...]]] = deque()

    def submit(
        self,
        step: Step,
        subjects: Sequence[int],
        *,
        together: int = 1,
        fleet: str = "",
    ) -> None:
        """Appends messages of up to `together` subjects."""
        for n in range(0, len(subjects), together):
            self._waiting.append((step, tuple(subjects[n : n + together])))

    def queued(self, step: Step, fleet: str = "") -> int:
        """Returns how many messages name the step."""
        return sum(name == step for name, _ in self._waiting)

    def take(self) -> tuple[Step, tuple[int, ...]] | None:
        """Returns the oldest message; None where there is none."""
        return self._waiting.popleft() if self._waiting else None


class GrowingRun:
    """The run, in a Postgres of its own, and what it has cost."""

    def __init__(self, url: str, data: Path, budget: int, *, pooled: bool = False) -> None:
        self.address = url.replace("+psycopg", "")
        self._postmaster = int((data / "postmaster.pid").read_text().split()[0])
        self._store = open_store(url, session_url=url if pooled else None, connections=2)
        self._messages = Messages()
        simulated, model = problem(), SimulatedModel(0.0)
        wired = context(self._store, self._messages, SimulatedSandbox(0), keep_leases=False)
        assert isinstance(wired.process, WorkerProcess)
        self.ctx: Context = replace(
            wired,
            problem=lambda digest: simulated,
            model=lambda run: model,
            limited=None,
            process=replace(wired.process, models=None),
        )
        self._steps = {
            "produce": partial(steps.produce, self.ctx),
            "generate": partial(steps.generate, self.ctx),
            "evaluate": partial(steps.evaluate, self.ctx),
        }
        settings = RunSettings(
            search=SearchSettings(seed=1),
            queue=QueueSettings(generating=IN_FLIGHT, evaluating=IN_FLIGHT),
        )
        self.run = lifecycle.start(
            self.ctx,
            simulated,
            NewRun(
                name="growing",
                problem=simulated.digest,
                strategy="map_elites",
                settings=settings.model_dump(mode="json"),
                operators={"rewrite": 1.0},
                axes=simulated.axes,
                seed=1,
                islands=5,
                budget=Budget(budget),
                limits=InFlightLimits(IN_FLIGHT, IN_FLIGHT, BATCH, BATCH),
            ),
        ).id

    def close(self) -> None:
        """Closes the connections."""
        self._store.close()

    def advance(self, proposals: int) -> None:
        """Runs steps until so many more trials have ended.

        Raises:
          SystemExit: The run has ended before.
        """
        left = proposals
        while left > 0:
            message = self._messages.take()
            if message is None:
                # What beat would do.
                steps.produce(self.ctx, self.run)
                message = self._messages.take()
            if message is None:
                raise SystemExit(f"nothing is left to do with {left} proposals to go")
            step, subjects = message
            self._steps[step](*subjects)
            left -= len(subjects) if step == "evaluate" else 0

    def totals(self) -> Costs:
        """Reads what the run has cost so far.

        Raises:
          SystemExit: It has ended.
        """
        with self._store.begin() as tx:
            run = tx.runs.get(self.run)
            settled = run.proposals - tx.proposals.backlog(self.run).unsettled
        if run.state is not RunState.RUNNING:
            raise SystemExit(f"the run is {run.state.value}: {run.reason}")
        query = (
            "SELECT sum(xact_commit)::bigint, sum(blks_hit + blks_read)::bigint "
            "FROM pg_stat_database"
        )
        with psycopg.connect(self.address, autocommit=True) as connection:
            [(commits, blocks)] = connection.execute(query).fetchall()
        client, postgres = time.process_time(), self._postgres_seconds()
        return Costs(
            settled, 1000 * time.monotonic(), 1000 * client, 1000 * postgres, commits, blocks
        )

    def window(self) -> Costs:
        """Goes on for a window; returns what a proposal cost in it."""
        before = self.totals()
        self.advance(WINDOW)
        return self.totals().of_each(before)

    def _postgres_seconds(self) -> float:
        server = psutil.Process(self._postmaster)
        times = server.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        for child in server.children():
            try:
                own = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += own.user + own.system
        return total

    def bytes_by_table(self) -> dict[str, float]:
        """Returns the bytes of a proposal by table, indices included, and of the database."""
        query = (
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        with psycopg.connect(self.address, autocommit=True) as connection:
            tables: dict[str, int] = dict(connection.execute(query).fetchall())
            [(n,)] = connection.execute("SELECT count(*) FROM proposals").fetchall()
        sizes = {name: round(size / n, 1) for name, size in sorted(tables.items()) if size > n}
        return {**sizes, "all": round(sum(tables.values()) / n, 1)}


_Times: TypeAlias = defaultdict[str, list[float]]


class Statements:
    """Times each statement of the ledger, on the client's side.

    Attributes:
      short, long: Seconds of calls in the two runs.
    """

    def __init__(self) -> None:
        self.short: _Times = defaultdict(list)
        self.long: _Times = defaultdict(list)
        self._into = self.short

    def into(self, times: _Times) -> None:
        """Adds calls from now on to `times`."""
        self._into = times

    def install(self) -> None:
        """Takes the place of `DriverConnection._run`."""
        run = DriverConnection._run

        def timed(connection, statement, params):  # type: ignore[no-untyped-def]
            start = time.perf_counter()
            try:
                return run(connection, statement, params)
            finally:
                self._into[statement].append(time.perf_counter() - start)

        DriverConnection._run = timed  # type: ignore[method-assign]

    def grown(self, most: int) -> list[str]:
        """Returns the statements whose time has grown most, and begins anew."""
        growth = {
            text: sum(times) - sum(self.short.get(text, [])) for text, times in self.long.items()
        }
        lines = [
            f"{1000 * growth[text]:+.0f} ms in {len(self.long[text])} calls, median "
            f"{1000 * median(self.short.get(text) or [0.0]):.2f} to "
            f"{1000 * median(self.long[text]):.2f} ms: {' '.join(text.split())[:150]}"
            for text in sorted(growth, key=lambda text: -growth[text])[:most]
        ]
        self.short.clear()
        self.long.clear()
        return lines


def main() -> None:
    options = _arguments()
    os.nice(options.nice)
    statements = Statements()
    if options.statements:
        statements.install()
    sizes = sorted(options.sizes)
    with (
        _begun(options.folder, 2 * sizes[-1] + 10_000) as reference,
        _begun(options.folder, 2 * sizes[-1] + 10_000, pooled=options.pooled) as growing,
    ):
        for run in (reference, growing):
            run.advance(sizes[0])
        measured = []
        for size in sizes:
            _grow(growing, size, direct=options.direct)
            measured.append(_compared(reference, growing, size, options.pairs, statements))
            print(json.dumps(asdict(measured[-1])), file=sys.stderr, flush=True)
            for line in statements.grown(options.statements):
                print(line, file=sys.stderr, flush=True)
        document = {
            "what": "one process; model and evaluator are SIMULATED"
            + ("" if options.direct else "; most rows of the growing run are CLONES"),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "sizes": [asdict(one) for one in measured],
            "bytes_of_a_proposal": growing.bytes_by_table(),
        }
        print(json.dumps(document, indent=2))


def _grow(growing: GrowingRun, size: int, *, direct: bool) -> None:
    settled = int(growing.totals().settled)
    if size <= settled + WINDOW:
        return
    if direct:
        growing.advance(size - settled)
        return
    fill(growing.address, growing.run, size)
    # The plans of the connection, and what Postgres keeps in memory, are as after a long run.
    growing.advance(WINDOW)


def _compared(
    reference: GrowingRun, growing: GrowingRun, size: int, pairs: int, statements: Statements
) -> SizeCosts:
    short, long = [], []
    for _ in range(pairs):
        statements.into(statements.short)
        short.append(reference.window())
        statements.into(statements.long)
        long.append(growing.window())
    small, large = _median(short), _median(long)
    ratios = [one.cpu_ms / other.cpu_ms for one, other in zip(long, short, strict=True)]
    return SizeCosts(
        size, large, small, round(median(ratios), 3), round(large.blocks / small.blocks, 3)
    )


def _median(windows: Sequence[Costs]) -> Costs:
    return Costs(*(round(median(column), 2) for column in zip(*map(astuple, windows), strict=True)))


@contextmanager
def _begun(parent: str, budget: int, *, pooled: bool = False) -> Iterator[GrowingRun]:
    """Yields a run that has begun, in a Postgres of its own, which is removed with its data."""
    with (
        tempfile.TemporaryDirectory(prefix="evoq-growth-", dir=parent) as name,
        EmbeddedPostgres(Path(name)) as url,
    ):
        schema.upgrade(url)
        growing = GrowingRun(url, Path(name) / "data", budget, pooled=pooled)
        yield growing
        growing.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--direct", action="store_true", help="clone nothing")
    parser.add_argument(
        "--pooled", action="store_true", help="the growing run as behind a pooler of transactions"
    )
    parser.add_argument("--pairs", type=int, default=4, help="windows of each size")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="of the ledgers")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--statements", type=int, default=0, help="how many to list")
    return parser.parse_args()


if __name__ == "__main__":
    main()
