"""Problems and runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert

from app.adapters.store import tables as t
from app.adapters.store.codec import built, clean
from app.adapters.store.driver import row, rows, value, write
from app.config.rules import rules_of
from app.config.settings import stored_settings
from app.domain.problem import Axis, Problem, ProblemDigest
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.cohort import ProposalId, State
from app.domain.search.strategy import Ranking
from app.ports.records import ComparedRuns, InsideRun, InsideTotals, NewRun, StoredProblem

ELAPSED = "extract(epoch FROM clock_timestamp() - runs.created_at)::float8 AS elapsed_seconds"
_RARELY_CHANGES = (
    *("name", "problem", "strategy", "settings", "seed", "islands", "parent", "in_process"),
)
"""Columns of which only `revise` changes any, which counts up the column `revision`."""
_NOT_READ = ("weight", "trials_at_once")
RUN_COLUMNS = ", ".join(
    [
        f"runs.{column.name}::text" if isinstance(column.type, JSONB) else f"runs.{column.name}"
        for column in t.runs.columns
        if column.name not in (*_RARELY_CHANGES, *_NOT_READ)
    ]
    + [ELAPSED]
)
"""The columns that `run_of` reads.  JSON as text: the same grid is read thousands of times,
and parsed once."""
_FOUNDED = f"""
    SELECT runs.id, {", ".join(f"runs.{name}" for name in _RARELY_CHANGES)},
        problems.name AS problem_name
    FROM runs JOIN problems ON problems.digest = runs.problem WHERE runs.id = ANY(%(runs)s)
"""
_RUN = f"SELECT {RUN_COLUMNS} FROM runs"
_ONE = f"{_RUN} WHERE runs.id = %(run)s"
_NAMED = f"{_RUN} WHERE runs.name = %(name)s OR runs.id = %(id)s ORDER BY runs.name = %(name)s DESC"
_NEWEST = f"{_RUN} WHERE runs.parent IS NULL ORDER BY runs.id DESC LIMIT %(limit)s"
_INSIDE = f"""
    SELECT proposals.id AS proposal, proposals.ordinal, proposals.state AS proposal_state,
        proposals.reserved, {RUN_COLUMNS}
    FROM proposals LEFT JOIN runs ON runs.parent = proposals.id
    WHERE proposals.run = %(run)s AND {{which}} ORDER BY proposals.id LIMIT %(limit)s
"""
_RESERVING = _INSIDE.format(which="proposals.reserved > 0")
_ALL_INSIDE = _INSIDE.format(which="runs.id IS NOT NULL")
_SEARCHING = f"{_RUN} WHERE runs.parent = %(proposal)s"
_AROUND = f"""
    SELECT proposals.state AS proposal_state, {RUN_COLUMNS}
    FROM proposals JOIN runs ON runs.id = proposals.run WHERE proposals.id = %(proposal)s
"""
_SUM_INSIDE = """
    SELECT count(*) AS runs, coalesce(sum(inside.proposals), 0) AS proposals,
        coalesce(sum(inside.tokens), 0) AS tokens, coalesce(sum(inside.cost_usd), 0) AS cost_usd
    FROM proposals JOIN runs AS inside ON inside.parent = proposals.id
    WHERE proposals.run = %(run)s
"""
_STAYS = "SELECT state FROM runs WHERE id = %(run)s FOR NO KEY UPDATE"
_COMPARED = r"'^[^.]+\.[^.]+\.[^.]+\.[0-9]+$'"
"""Names of runs of comparisons; see `app.ports.records.ComparedRuns`."""
_COMPARISONS = f"""
    SELECT split_part(name, '.', 1) AS name,
        array_agg(DISTINCT split_part(name, '.', 2)) AS problems,
        array_agg(DISTINCT split_part(name, '.', 3)) AS arms,
        count(*) AS runs, count(*) FILTER (WHERE state = 'finished') AS finished
    FROM runs WHERE name ~ {_COMPARED} GROUP BY 1 ORDER BY max(id) DESC LIMIT %(limit)s
"""
_OF_COMPARISON = f"""
    {_RUN} WHERE starts_with(name, %(name)s || '.') AND name ~ {_COMPARED}
    ORDER BY runs.id LIMIT %(limit)s
"""
_EXCLUSIVE = "SELECT pg_try_advisory_xact_lock(%(space)s, %(run)s)"
_EXPLAIN = """
    UPDATE runs SET reason = %(reason)s
    WHERE id = %(run)s AND state = 'running' AND reason <> %(reason)s
"""
_COUNT_PLANNED = """
    UPDATE runs SET cohorts = cohorts + %(cohorts)s, proposals = proposals + %(proposals)s,
        ordinals = ordinals + %(ordinals)s
    WHERE id = %(run)s
"""
_GIVE_BACK = """
    UPDATE runs SET proposals = proposals - %(proposals)s
    WHERE id = %(run)s AND (parent IS NULL OR EXISTS (
        SELECT FROM proposals WHERE proposals.id = runs.parent AND proposals.reserved > 0
    ))
"""
_SPENT = "SELECT proposals FROM runs WHERE id = %(run)s FOR NO KEY UPDATE"
_SET_OPERATORS = "UPDATE runs SET operators = CAST(%(operators)s AS jsonb) WHERE id = %(run)s"
_SET_RANKING = "UPDATE runs SET ranking = %(ranking)s WHERE id = %(run)s"
_SET_LIMITS = """
    UPDATE runs SET generating = %(generating)s, evaluating = %(evaluating)s,
        generate_batch = %(generate_batch)s, evaluate_batch = %(evaluate_batch)s
    WHERE id = %(run)s
"""
_PLANNING = 0x65766F71
"""First key of the advisory lock that planning takes; the second is the run's id."""


def run_of(c: Connection, row: Any) -> Run:
    """Builds a run from a row with `RUN_COLUMNS`."""
    [run] = runs_of(c, [row])
    return run


def runs_of(c: Connection, result: Sequence[Any]) -> list[Run]:
    """Builds runs; what rarely changes of one, its settings above all, a connection reads once."""
    known = c.info.setdefault(__name__, {})
    versions = {record.id: (record.created_at, record.revision) for record in result}
    unknown = [run for run, version in versions.items() if known.get(run, ())[:1] != (version,)]
    if unknown:
        for founded in rows(c, _FOUNDED, {"runs": unknown}):
            rules = rules_of(founded.strategy, founded.settings)
            known[founded.id] = versions[founded.id], founded, rules
    return [built(record, *known[record.id][1:]) for record in result]


def count_planned(c: Connection, run: int, cohorts: int, proposals: int, ordinals: int) -> None:
    """Counts what was just planned; the constraint `runs_budget_is_a_cap` has the last word.

    Args:
      c: The connection.
      run: The run.
      cohorts: Cohorts that were planned.
      proposals: Of the budget, with what is set aside for runs inside.
      ordinals: Proposals of the cohorts.
    """
    values = {"run": run, "cohorts": cohorts, "proposals": proposals, "ordinals": ordinals}
    write(c, _COUNT_PLANNED, values)


def as_json(value: object) -> str:
    """Returns compact JSON text, for parameters that are cast to jsonb."""
    return json.dumps(value, separators=(",", ":"))


class SqlProblems:
    """See `app.ports.ledger.Problems`."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def add(self, problem: Problem) -> None:
        added = self._c.execute(
            upsert(t.problems)
            .values(
                digest=problem.digest,
                name=problem.name,
                format=problem.format,
                options=dict(problem.options),
            )
            .on_conflict_do_nothing()
            .returning(t.problems.c.digest)
        ).first()
        if added is not None and problem.files:
            self._c.execute(
                insert(t.problem_files),
                [
                    {"problem": problem.digest, "path": path, "content": content}
                    for path, content in sorted(problem.files.items())
                ],
            )

    def get(self, digest: ProblemDigest) -> StoredProblem:
        result = self._c.execute(select(t.problems).where(t.problems.c.digest == digest)).first()
        if result is None:
            raise LookupError(f"the ledger holds no problem {digest!r}")
        files = self._c.execute(
            select(t.problem_files.c.path, t.problem_files.c.content).where(
                t.problem_files.c.problem == digest
            )
        )
        contents = {path: bytes(content) for path, content in files}
        return StoredProblem(result.format, result.name, contents, result.options)


class SqlRuns:
    """See `app.ports.ledger.Runs`.

    Args:
      connection: Of the transaction.
      write_last: Postpones a write to the end of the transaction.
    """

    def __init__(
        self, connection: Connection, write_last: Callable[[Callable[[], object]], None]
    ) -> None:
        self._c = connection
        self._write_last = write_last

    def add(self, new: NewRun) -> Run:
        queue = stored_settings(new.settings).queue
        added = self._c.execute(
            upsert(t.runs)
            .values(
                name=new.name,
                problem=new.problem,
                strategy=new.strategy,
                settings=dict(new.settings),
                operators=dict(new.operators),
                axes=[asdict(axis) for axis in new.axes],
                seed=new.seed,
                islands=new.islands,
                budget=new.budget.proposals,
                budget_wall_seconds=new.budget.wall_seconds,
                budget_tokens=new.budget.tokens,
                budget_cost_usd=new.budget.cost_usd,
                generating=new.limits.generating,
                evaluating=new.limits.evaluating,
                weight=queue.weight,
                trials_at_once=queue.trials_at_once,
                parent=new.parent,
                in_process=new.in_process,
                state=RunState.RUNNING,
            )
            .on_conflict_do_nothing(index_elements=[t.runs.c.name])
            .returning(t.runs.c.id)
        ).first()
        if added is None:
            raise ValueError(f"a run named {new.name!r} exists; choose another --name or resume it")
        self._c.execute(
            insert(t.islands), [{"run": added.id, "index": n} for n in range(new.islands)]
        )
        return self.get(added.id)

    def get(self, run: int) -> Run:
        result = row(self._c, _ONE, {"run": run})
        if result is None:
            raise LookupError(f"the ledger holds no run {run}")
        return run_of(self._c, result)

    def named(self, name: str) -> Run | None:
        number = int(name) if name.isascii() and name.isdigit() and len(name) < 19 else -1
        result = row(self._c, _NAMED, {"name": name, "id": number})
        return run_of(self._c, result) if result else None

    def newest(self, limit: int = 100) -> list[Run]:
        return runs_of(self._c, rows(self._c, _NEWEST, {"limit": limit}))

    def comparisons(self, limit: int = 100) -> list[ComparedRuns]:
        return [
            ComparedRuns(**record._asdict())
            for record in rows(self._c, _COMPARISONS, {"limit": limit})
        ]

    def of_comparison(self, name: str, limit: int = 1000) -> list[Run]:
        params = {"name": name, "limit": limit}
        return runs_of(self._c, rows(self._c, _OF_COMPARISON, params))

    def searching(self, proposal: ProposalId) -> Run | None:
        result = row(self._c, _SEARCHING, {"proposal": proposal})
        return run_of(self._c, result) if result else None

    def around(self, proposal: ProposalId) -> tuple[Run, State]:
        result = row(self._c, _AROUND, {"proposal": proposal})
        return run_of(self._c, result), State(result.proposal_state)

    def inside(self, run: int, *, reserving: bool, limit: int = 1000) -> list[InsideRun]:
        query = _RESERVING if reserving else _ALL_INSIDE
        return [
            InsideRun(
                found.proposal,
                found.ordinal,
                State(found.proposal_state),
                found.reserved,
                run_of(self._c, found) if found.id is not None else None,
            )
            for found in rows(self._c, query, {"run": run, "limit": limit})
        ]

    def sum_inside(self, run: int) -> InsideTotals:
        found = row(self._c, _SUM_INSIDE, {"run": run})
        return InsideTotals(found.runs, int(found.proposals), int(found.tokens), found.cost_usd)

    def goes_on(self, run: int) -> bool:
        return not RunState(value(self._c, _STAYS, {"run": run})).final

    def running(self, *, in_process: bool = False) -> list[int]:
        query = select(t.runs.c.id).where(
            t.runs.c.state == RunState.RUNNING, t.runs.c.in_process.is_(in_process)
        )
        return list(self._c.execute(query.order_by(t.runs.c.id)).scalars())

    def lock_planning(self, run: int) -> bool:
        return bool(value(self._c, _EXCLUSIVE, {"space": _PLANNING, "run": run % 2**31}))

    def set_state(
        self, run: int, before: Sequence[RunState], after: RunState, reason: str = ""
    ) -> bool:
        moved = self._c.execute(
            update(t.runs)
            .where(t.runs.c.id == run, t.runs.c.state.in_(list(before)))
            .values(state=after, reason=reason)
        )
        return moved.rowcount == 1

    def explain(self, run: int, reason: str) -> None:
        write(self._c, _EXPLAIN, {"run": run, "reason": clean(reason)})

    def revise(self, run: Run, settings: Mapping[str, Any], operators: Mapping[str, float]) -> bool:
        queue = stored_settings(settings).queue
        revised = self._c.execute(
            update(t.runs)
            .where(t.runs.c.id == run.id, t.runs.c.revision == run.revision)
            .values(
                settings=dict(settings),
                operators=dict(operators),
                weight=queue.weight,
                trials_at_once=queue.trials_at_once,
                revision=run.revision + 1,
            )
        )
        return revised.rowcount == 1

    def set_axes(self, run: int, axes: Sequence[Axis]) -> None:
        self._c.execute(
            update(t.runs).where(t.runs.c.id == run).values(axes=[asdict(axis) for axis in axes])
        )

    def set_ranking(self, run: int, ranking: Ranking) -> None:
        write(self._c, _SET_RANKING, {"run": run, "ranking": ranking})

    def set_operators(self, run: int, operators: Mapping[str, float]) -> None:
        write(self._c, _SET_OPERATORS, {"run": run, "operators": as_json(operators)})

    def give_back(self, run: int, proposals: int) -> None:
        values = {"run": run, "proposals": proposals}

        def give() -> None:
            # After the lock, the next statement sees whether the run's slice was returned.
            self.lock_spent(run)
            write(self._c, _GIVE_BACK, values)

        self._write_last(give)

    def lock_spent(self, run: int) -> int:
        return int(value(self._c, _SPENT, {"run": run}))

    def set_limits(self, run: int, limits: InFlightLimits) -> None:
        values = {"run": run, **asdict(limits)}
        self._write_last(lambda: write(self._c, _SET_LIMITS, values))

    def set_budget(self, run: int, budget: Budget) -> None:
        self._c.execute(
            update(t.runs)
            .where(t.runs.c.id == run)
            .values(
                budget=func.greatest(budget.proposals, t.runs.c.proposals),
                budget_wall_seconds=budget.wall_seconds,
                budget_tokens=budget.tokens,
                budget_cost_usd=budget.cost_usd,
            )
        )
