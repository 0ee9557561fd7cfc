"""Runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy.dialects.postgresql import JSONB

from app.adapters.store import tables as t
from app.adapters.store.codec import as_json, built, clean
from app.adapters.store.driver import DriverConnection, Json, Record
from app.config.fleets import fleets_of
from app.config.rules import rules_of
from app.config.settings import stored_settings
from app.domain.problem import Axis
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.cohort import ProposalId, State
from app.domain.search.strategy import Ranking
from app.ports.runs import ComparedRuns, InsideRun, InsideTotals, NewRun

ELAPSED = "extract(epoch FROM clock_timestamp() - runs.created_at)::float8 AS elapsed_seconds"
_RARELY_CHANGES = (
    *("name", "problem", "strategy", "settings", "seed", "islands", "parent", "in_process"),
)
"""Columns of which only `revise` changes any, which counts up the column `revision`."""
_NOT_READ = (
    *("weight", "trials_at_once", "project", "priority", "queues"),
    *("kept", "deleted", "prompts_removed"),
)
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
_ADD = """
    WITH added AS (
        INSERT INTO runs (name, problem, strategy, settings, operators, axes, seed, islands, budget,
            budget_wall_seconds, budget_tokens, budget_cost_usd, generating, evaluating, weight,
            trials_at_once, project, priority, queues, parent, in_process, state)
        VALUES (%(name)s, %(problem)s, %(strategy)s, %(settings)s, %(operators)s, %(axes)s,
            %(seed)s, %(islands)s, %(proposals)s, %(wall_seconds)s, %(tokens)s, %(cost_usd)s,
            %(generating)s, %(evaluating)s, %(weight)s, %(trials_at_once)s, %(project)s,
            %(priority)s, %(queues)s, %(parent)s, %(in_process)s, 'running')
        ON CONFLICT (name) DO NOTHING RETURNING id, islands
    ), with_islands AS (
        INSERT INTO islands (run, "index") SELECT id, generate_series(0, islands - 1) FROM added
    )
    SELECT id FROM added
"""
_RUN = f"SELECT {RUN_COLUMNS} FROM runs"
_ONE = f"{_RUN} WHERE runs.id = %(run)s AND NOT deleted"
_NAMED = f"""
    {_RUN} WHERE (runs.name = %(name)s OR runs.id = %(id)s) AND NOT deleted
    ORDER BY runs.name = %(name)s DESC
"""
_NEWEST = f"""
    {_RUN} WHERE runs.parent IS NULL AND NOT deleted ORDER BY runs.id DESC LIMIT %(limit)s
"""
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
"""Names of runs of comparisons; see `app.ports.runs.ComparedRuns`."""
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
_RUNNING = """
    SELECT id FROM runs WHERE state = 'running' AND in_process = %(in_process)s ORDER BY id
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
_SET_STATE = """
    UPDATE runs SET state = %(after)s, reason = %(reason)s
    WHERE id = %(run)s AND state = ANY(%(before)s) AND NOT deleted
"""
_REVISE = """
    UPDATE runs SET settings = %(settings)s, operators = %(operators)s, weight = %(weight)s,
        trials_at_once = %(trials_at_once)s, project = %(project)s, priority = %(priority)s,
        queues = %(queues)s, revision = revision + 1
    WHERE id = %(run)s AND revision = %(revision)s
"""
_SET_AXES = "UPDATE runs SET axes = %(axes)s WHERE id = %(run)s"
_SET_BUDGET = """
    UPDATE runs SET budget = greatest(%(proposals)s, proposals),
        budget_wall_seconds = %(wall_seconds)s, budget_tokens = %(tokens)s,
        budget_cost_usd = %(cost_usd)s
    WHERE id = %(run)s
"""
_SPENT = "SELECT proposals FROM runs WHERE id = %(run)s FOR NO KEY UPDATE"
_SET_OPERATORS = "UPDATE runs SET operators = %(operators)s WHERE id = %(run)s"
_SET_RANKING = "UPDATE runs SET ranking = %(ranking)s WHERE id = %(run)s"
_SET_LIMITS = """
    UPDATE runs SET generating = %(generating)s, evaluating = %(evaluating)s,
        generate_batch = %(generate_batch)s, evaluate_batch = %(evaluate_batch)s,
        unplaced = %(unplaced)s, held = %(held)s
    WHERE id = %(run)s
"""
_PLANNING = 0x65766F71
"""First key of the advisory lock that planning takes; the second is the run's id."""


def run_of(c: DriverConnection, row: Record) -> Run:
    """Builds a run from a row with `RUN_COLUMNS`."""
    [run] = runs_of(c, [row])
    return run


def runs_of(c: DriverConnection, result: Sequence[Record]) -> list[Run]:
    """Builds runs; what rarely changes of one, its settings above all, a connection reads once."""
    known = c.kept
    versions = {record.id: (record.created_at, record.revision) for record in result}
    unknown = [run for run, version in versions.items() if known.get(run, ())[:1] != (version,)]
    if unknown:
        for founded in c.rows(_FOUNDED, {"runs": unknown}):
            rules = rules_of(founded.strategy, founded.settings)
            known[founded.id] = versions[founded.id], founded, rules
    return [built(record, *known[record.id][1:]) for record in result]


def count_planned(
    c: DriverConnection, run: int, cohorts: int, proposals: int, ordinals: int
) -> None:
    """Counts what was just planned; the constraint `runs_budget_is_a_cap` has the last word.

    Args:
      c: The connection.
      run: The run.
      cohorts: Cohorts that were planned.
      proposals: Of the budget, with what is set aside for runs inside.
      ordinals: Proposals of the cohorts.
    """
    values = {"run": run, "cohorts": cohorts, "proposals": proposals, "ordinals": ordinals}
    c.write(_COUNT_PLANNED, values)


class SqlRuns:
    """See `app.ports.runs.Runs`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def add(self, new: NewRun) -> Run:
        added = self._c.value(
            _ADD,
            {
                "name": new.name,
                "problem": new.problem,
                "strategy": new.strategy,
                "axes": _axes_json(new.axes),
                "seed": new.seed,
                "islands": new.islands,
                **asdict(new.budget),
                "generating": new.limits.generating,
                "evaluating": new.limits.evaluating,
                "parent": new.parent,
                "in_process": new.in_process,
                **_set_by_users(new.settings, new.operators),
            },
        )
        if added is None:
            raise ValueError(f"a run named {new.name!r} exists; choose another --name or resume it")
        return self.get(added)

    def get(self, run: int) -> Run:
        result = self._c.row(_ONE, {"run": run})
        if result is None:
            raise LookupError(f"the ledger holds no run {run}")
        return run_of(self._c, result)

    def named(self, name: str) -> Run | None:
        number = int(name) if name.isascii() and name.isdigit() and len(name) < 19 else -1
        result = self._c.row(_NAMED, {"name": name, "id": number})
        return run_of(self._c, result) if result else None

    def newest(self, limit: int = 100) -> list[Run]:
        return runs_of(self._c, self._c.rows(_NEWEST, {"limit": limit}))

    def comparisons(self, limit: int = 100) -> list[ComparedRuns]:
        return [
            ComparedRuns(**record._asdict())
            for record in self._c.rows(_COMPARISONS, {"limit": limit})
        ]

    def of_comparison(self, name: str, limit: int = 1000) -> list[Run]:
        params = {"name": name, "limit": limit}
        return runs_of(self._c, self._c.rows(_OF_COMPARISON, params))

    def searching(self, proposal: ProposalId) -> Run | None:
        result = self._c.row(_SEARCHING, {"proposal": proposal})
        return run_of(self._c, result) if result else None

    def around(self, proposal: ProposalId) -> tuple[Run, State]:
        result = self._c.row(_AROUND, {"proposal": proposal})
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
            for found in self._c.rows(query, {"run": run, "limit": limit})
        ]

    def sum_inside(self, run: int) -> InsideTotals:
        found = self._c.row(_SUM_INSIDE, {"run": run})
        return InsideTotals(found.runs, int(found.proposals), int(found.tokens), found.cost_usd)

    def goes_on(self, run: int) -> bool:
        return not RunState(self._c.value(_STAYS, {"run": run})).final

    def running(self, *, in_process: bool = False) -> list[int]:
        return self._c.values(_RUNNING, {"in_process": in_process})

    def lock_planning(self, run: int) -> bool:
        return bool(self._c.value(_EXCLUSIVE, {"space": _PLANNING, "run": run % 2**31}))

    def set_state(
        self, run: int, before: Sequence[RunState], after: RunState, reason: str = ""
    ) -> bool:
        params = {"run": run, "before": list(before), "after": after, "reason": reason}
        return self._c.write(_SET_STATE, params) == 1

    def explain(self, run: int, reason: str) -> None:
        self._c.write(_EXPLAIN, {"run": run, "reason": clean(reason)})

    def revise(self, run: Run, settings: Json, operators: Mapping[str, float]) -> bool:
        params = {"run": run.id, "revision": run.revision, **_set_by_users(settings, operators)}
        return self._c.write(_REVISE, params) == 1

    def set_axes(self, run: int, axes: Sequence[Axis]) -> None:
        self._c.write(_SET_AXES, {"run": run, "axes": _axes_json(axes)})

    def set_ranking(self, run: int, ranking: Ranking) -> None:
        self._c.write(_SET_RANKING, {"run": run, "ranking": ranking})

    def set_operators(self, run: int, operators: Mapping[str, float]) -> None:
        self._c.write(_SET_OPERATORS, {"run": run, "operators": as_json(operators)})

    def give_back(self, run: int, proposals: int) -> None:
        # After the lock, the next statement sees whether the run's slice was returned.
        self.lock_spent(run)
        self._c.write(_GIVE_BACK, {"run": run, "proposals": proposals})

    def lock_spent(self, run: int) -> int:
        return int(self._c.value(_SPENT, {"run": run}))

    def set_limits(self, run: int, limits: InFlightLimits) -> None:
        self._c.write(_SET_LIMITS, {"run": run, **asdict(limits)})

    def set_budget(self, run: int, budget: Budget) -> None:
        self._c.write(_SET_BUDGET, {"run": run, **asdict(budget)})


def _axes_json(axes: Sequence[Axis]) -> str:
    return as_json([asdict(axis) for axis in axes])


def _set_by_users(settings: Json, operators: Mapping[str, float]) -> dict[str, object]:
    """Returns the columns that hold a run's settings, some of them once more for statements."""
    stored = stored_settings(settings)
    queue = stored.queue
    return {
        "settings": as_json(dict(settings)),
        "operators": as_json(dict(operators)),
        "weight": queue.weight,
        "trials_at_once": queue.trials_at_once,
        "project": queue.project,
        "priority": queue.priority,
        "queues": fleets_of(stored).queues,
    }
