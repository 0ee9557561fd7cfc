"""Deletion of runs and of logged prompts.

A run that is deleted is marked, and its name is given away; that is one small transaction.  The
rows follow in transactions of some hundred proposals, which lock rows of the deleted run alone, and
for the moment in which they delete programs, the table of programs against new ones.  A process
that dies in between loses one such transaction, and any other goes on.
"""

from collections.abc import Sequence

from app.adapters.store.driver import DriverConnection
from app.adapters.store.fleets import TODAY
from app.domain.run import RunState
from app.ports.retention import DeletionReason, Removed, StoredRun

_LAST = """
    coalesce((
        SELECT at FROM events WHERE events.run = runs.id ORDER BY seq DESC LIMIT 1
    ), runs.created_at)
"""
_WITH_INSIDE = """
    WITH RECURSIVE family AS (
        SELECT id, name FROM runs WHERE id = {run}
        UNION ALL
        SELECT inside.id, inside.name FROM family JOIN proposals ON proposals.run = family.id
            JOIN runs AS inside ON inside.parent = proposals.id
    )
"""
"""A run, the runs inside it, and inside those."""
_NESTED = "coalesce(runs.settings -> 'nested' -> 'strategy' <> 'null', false)"
"""Whether a run may have runs inside: only then its proposals are read for them."""
_STORED = f"""
    SELECT runs.id, runs.name, problems.name AS problem, runs.state, runs.proposals, runs.kept,
        extract(epoch FROM clock_timestamp() - {_LAST})::float8 AS age_seconds,
        (
            SELECT fitness FROM proposals WHERE proposals.run = runs.id AND state = 'admitted'
            ORDER BY stages_left, fitness DESC, ordinal LIMIT 1
        ) AS best, {_NESTED} AS nested
    FROM runs JOIN problems ON problems.digest = runs.problem
    WHERE runs.parent IS NULL AND NOT deleted
        AND (cardinality(CAST(%(runs)s AS bigint[])) = 0 OR runs.id = ANY(%(runs)s))
        AND (NOT %(ended)s OR NOT kept AND state IN ('finished', 'cancelled', 'failed'))
        AND {_LAST} <= clock_timestamp() - %(older)s * interval '1 second'
    ORDER BY age_seconds DESC, runs.id
"""
_LEASES = """
    SELECT (SELECT count(*) FROM proposals WHERE run = ANY(%(runs)s) AND state = 'planned'
            AND leased_until > now())
        + (SELECT count(*) FROM trials WHERE run = ANY(%(runs)s) AND evaluation IS NULL
            AND NOT withdrawn AND leased_until > now())
"""
_FAMILY = _WITH_INSIDE.format(run="%(run)s") + "SELECT id, name FROM family ORDER BY id"
_KEEP = "UPDATE runs SET kept = %(kept)s WHERE id = %(run)s"
_LOCK = "SELECT deleted FROM runs WHERE id = %(run)s FOR UPDATE"
_DELETE = """
    WITH gone AS (
        SELECT id, name, proposals FROM runs WHERE id = ANY(%(runs)s) ORDER BY id FOR UPDATE
    ), noted AS (
        INSERT INTO deletions (run, name, reason, proposals)
        SELECT id, name, %(reason)s, proposals FROM gone
    )
    UPDATE runs SET deleted = true, name = 'deleted ' || runs.id,
        state = CASE WHEN state IN ('running', 'paused') THEN 'cancelled' ELSE state END
    FROM gone WHERE runs.id = gone.id
"""
"""No user can give a run a name with a space in it."""
_UNSWEPT = "SELECT run FROM deletions WHERE swept_at IS NULL ORDER BY run DESC"
"""Runs inside are younger than the proposals that they refer to, so they are swept before them."""

_COHORTS = "SELECT id FROM cohorts WHERE run = %(run)s ORDER BY id LIMIT %(most)s"
_PROGRAMS = """
    SELECT DISTINCT program FROM (
        SELECT program FROM proposals WHERE cohort = ANY(%(cohorts)s)
        UNION SELECT unnest(players) FROM trials WHERE cohort = ANY(%(cohorts)s)
    ) AS used WHERE program IS NOT NULL
"""
_OF_COHORTS = ("completions", "trials", "proposals", "cohorts")
"""Each refers to the later ones."""
_AWAIT = "SET LOCAL lock_timeout = '500ms'"
_HOLD = "LOCK TABLE texts, programs IN SHARE ROW EXCLUSIVE MODE"
"""A transaction that stores a program and has not ended yet is waited for, because the program may
be one that is about to be deleted, and others store none until this transaction ends."""
_DELETE_PROGRAMS = """
    WITH measured AS (
        SELECT unnest(players) AS program FROM trials JOIN (
            SELECT id FROM cohorts WHERE operator = 'validate'
            UNION ALL SELECT id FROM cohorts WHERE operator = 'branch'
        ) AS cohorts ON trials.cohort = cohorts.id
    )
    DELETE FROM programs WHERE id = ANY(%(programs)s)
        AND NOT EXISTS (SELECT FROM proposals WHERE proposals.program = programs.id)
        AND id NOT IN (SELECT program FROM measured)
    RETURNING digests
"""
"""Cohorts without members have programs that no proposal has, or no proposal of their run."""
_DELETE_TEXTS = """
    DELETE FROM texts WHERE digest = ANY(%(digests)s) AND NOT EXISTS (
        SELECT FROM programs WHERE digests IS NOT NULL AND digests @> ARRAY[texts.digest]
    )
"""
_SOME = """
    DELETE FROM {table} WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM {table} WHERE run = %(run)s LIMIT %(most)s
    ))
"""
_OF_RUN = ("events", "fingerprints", "elites", "islands", "worker_times")
_DELETE_RUN = "DELETE FROM runs WHERE id = %(run)s AND deleted RETURNING problem"
_HOLD_PROBLEMS = "LOCK TABLE problems IN SHARE ROW EXCLUSIVE MODE"
_UNUSED = "SELECT NOT EXISTS (SELECT FROM runs WHERE problem = %(problem)s)"
_DELETE_FILES = "DELETE FROM problem_files WHERE problem = %(problem)s"
_DELETE_PROBLEM = "DELETE FROM problems WHERE digest = %(problem)s"
_SWEPT = f"""
    WITH days AS (DELETE FROM project_days WHERE run = %(run)s RETURNING *), today AS (
        SELECT runs.project, runs.tokens - days.tokens AS tokens,
            runs.cost_usd - days.cost_usd AS cost_usd
        FROM days JOIN runs ON runs.id = days.run WHERE days.day = {TODAY}
    )
    UPDATE deletions SET swept_at = now(), database_bytes = pg_database_size(current_database()),
        project = coalesce((SELECT project FROM today), ''),
        tokens = coalesce((SELECT tokens FROM today), 0),
        cost_usd = coalesce((SELECT cost_usd FROM today), 0)
    WHERE run = %(run)s AND swept_at IS NULL
"""
"""A deletion gives no quota back: what the run has spent today is kept in its place."""
_USELESS_BEFORE = """
    (SELECT least(min(created_at), now() - interval '1 day') FROM runs
        WHERE NOT kept OR state IN ('running', 'paused'))
"""
"""What is older belongs to runs that have left; those that are kept do without."""
_FORGET_OUTCOMES = f"""
    DELETE FROM outcomes WHERE job = ANY(ARRAY(
        SELECT job FROM outcomes WHERE kept_at < {_USELESS_BEFORE} LIMIT %(most)s
    ))
"""
_FORGET_WORKERS = f"""
    WITH gone AS (
        SELECT id FROM workers WHERE seen_at < {_USELESS_BEFORE} AND NOT EXISTS (
            SELECT FROM worker_times WHERE worker = workers.id AND run IS NOT NULL
        ) LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ), idle AS (
        DELETE FROM worker_times USING gone WHERE worker = gone.id
    )
    DELETE FROM workers USING gone WHERE workers.id = gone.id
"""
_LOGGED = f"""
    SELECT id FROM runs
    WHERE NOT prompts_removed AND NOT kept AND NOT deleted
        AND state IN ('finished', 'cancelled', 'failed')
        AND {_LAST} <= clock_timestamp() - %(older)s * interval '1 second'
    ORDER BY id LIMIT 1
"""
_STRIP = """
    UPDATE completions SET system_text = NULL, user_text = NULL
    WHERE ctid = ANY(ARRAY(
        SELECT completions.ctid FROM cohorts JOIN completions ON completions.cohort = cohorts.id
        WHERE cohorts.run = %(run)s AND (system_text IS NOT NULL OR user_text IS NOT NULL)
        LIMIT %(most)s
    ))
"""
_STRIPPED = "UPDATE runs SET prompts_removed = true WHERE id = %(run)s"
_GROWN = """
    SELECT CASE WHEN EXISTS (SELECT FROM deletions WHERE swept_at IS NULL)
            OR size <= coalesce((
                SELECT database_bytes FROM deletions WHERE reason = 'size'
                ORDER BY swept_at DESC LIMIT 1
            ), 0) * 1.05 THEN 0 ELSE size END::bigint
    FROM pg_database_size(current_database()) AS size
"""
"""Postgres gives the room of deleted rows to new ones, and the files stay as large: only a database
that has grown beyond what it was after the last deletion needs another one.  The margin is for rows
that no vacuum has visited yet."""


class SqlRetention:
    """See `app.ports.retention.Retention`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def stored(
        self, runs: Sequence[int] = (), *, ended: bool = False, older_seconds: float = 0.0
    ) -> list[StoredRun]:
        params = {"runs": list(runs), "ended": ended, "older": older_seconds}
        found = []
        for row in self._c.rows(_STORED, params):
            family = self._c.rows(_FAMILY, {"run": row.id}) if row.nested else []
            members = [one.id for one in family] or [row.id]
            going = RunState(row.state) in (RunState.RUNNING, RunState.PAUSED)
            found.append(
                StoredRun(
                    row.id,
                    row.name,
                    row.problem,
                    RunState(row.state),
                    row.proposals,
                    row.best,
                    row.age_seconds,
                    row.kept,
                    int(self._c.value(_LEASES, {"runs": members})) if going else 0,
                    tuple(one.name for one in family if one.id != row.id),
                )
            )
        return found

    def keep(self, run: int, *, kept: bool) -> None:
        self._c.write(_KEEP, {"run": run, "kept": kept})

    def delete(self, run: int, reason: DeletionReason) -> bool:
        locked = self._c.row(_LOCK, {"run": run})
        # After the lock nothing begins to work on it, and whoever does already is seen.
        stored = self.stored([run])
        if locked is None or locked.deleted or any(one.obstacle for one in stored):
            return False
        members = [one.id for one in self._c.rows(_FAMILY, {"run": run})]
        self._c.write(_DELETE, {"runs": members, "reason": reason})
        return True

    def unswept(self) -> list[int]:
        return self._c.values(_UNSWEPT, {})

    def sweep(self, run: int, most: int) -> Removed:
        cohorts = self._c.values(_COHORTS, {"run": run, "most": most})
        if cohorts:
            return self._sweep_cohorts(cohorts)
        for table in _OF_RUN:
            # An event and a fingerprint are small beside a proposal with its trials.
            removed = self._c.write(_SOME.format(table=table), {"run": run, "most": 8 * most})
            if removed:
                return {table: removed}
        self._c.write(_SWEPT, {"run": run})
        problem = self._c.value(_DELETE_RUN, {"run": run})
        return {} if problem is None else {"runs": 1, **self._sweep_problem(problem)}

    def _sweep_cohorts(self, cohorts: Sequence[int]) -> Removed:
        programs = self._c.values(_PROGRAMS, {"cohorts": list(cohorts)})
        removed = {}
        for table in _OF_COHORTS:
            column = "id" if table == "cohorts" else "cohort"
            statement = f"DELETE FROM {table} WHERE {column} = ANY(%(cohorts)s)"
            removed[table] = self._c.write(statement, {"cohorts": list(cohorts)})
        self._c.write(_AWAIT, {})
        self._c.write(_HOLD, {})
        gone = self._c.rows(_DELETE_PROGRAMS, {"programs": programs})
        removed["programs"] = len(gone)
        digests = sorted({digest for row in gone for digest in row.digests or ()})
        if digests:
            removed["texts"] = self._c.write(_DELETE_TEXTS, {"digests": digests})
        return removed

    def _sweep_problem(self, problem: str) -> Removed:
        self._c.write(_AWAIT, {})
        self._c.write(_HOLD_PROBLEMS, {})
        if not self._c.value(_UNUSED, {"problem": problem}):
            return {}
        files = self._c.write(_DELETE_FILES, {"problem": problem})
        return {
            "problem_files": files,
            "problems": self._c.write(_DELETE_PROBLEM, {"problem": problem}),
        }

    def forget(self, most: int) -> Removed:
        statements = {"outcomes": _FORGET_OUTCOMES, "workers": _FORGET_WORKERS}
        removed = {name: self._c.write(each, {"most": most}) for name, each in statements.items()}
        return {name: n for name, n in removed.items() if n}

    def strip_prompts(self, older_seconds: float, most: int) -> int:
        run = self._c.value(_LOGGED, {"older": older_seconds})
        if run is None:
            return 0
        stripped = self._c.write(_STRIP, {"run": run, "most": most})
        if not stripped:
            self._c.write(_STRIPPED, {"run": run})
            return self.strip_prompts(older_seconds, most)
        return stripped

    def grown_bytes(self) -> int:
        return int(self._c.value(_GROWN, {}))
