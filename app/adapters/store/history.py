"""Folds over proposals and trials: what reports read."""

from collections.abc import Sequence
from dataclasses import replace

from app.adapters.store.archive import SqlArchive
from app.adapters.store.codec import evaluation_of, metrics_of, settled_of
from app.adapters.store.driver import DriverConnection
from app.adapters.store.programs import OF_RUN, admission
from app.domain.evaluation import Evaluation
from app.domain.events import EventKind
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.archive import Quality
from app.domain.search.cohort import CohortId, ProposalId, State
from app.domain.search.strategy import Ranking
from app.ports.cohorts import VALIDATE
from app.ports.history import (
    Birth,
    DetailCount,
    FunnelGroup,
    LockWaits,
    PlannedGame,
    Reached,
    Reused,
    Settled,
    Spent,
    Validation,
)

_REPORTED = """
    CROSS JOIN LATERAL (
        SELECT jsonb_object_agg(reported.key, reported.value ORDER BY trials.id) AS metrics
        FROM trials CROSS JOIN LATERAL
            jsonb_each(evaluation -> 'metrics' -> proposals.program) AS reported
        WHERE trials.cohort = proposals.cohort AND proposals.program = ANY(trials.players)
    ) AS measured
"""
_SETTLED = f"""
    SELECT proposals.*, cohorts.operator,
        extract(epoch FROM proposals.settled_at - runs.created_at)::float8 AS seconds,
        spent.wall_seconds, spent.cpu_seconds, spent.peak_memory_mib, spent.boot_seconds,
        asked.tokens, asked.cost_usd, measured.metrics
    FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
        JOIN runs ON runs.id = proposals.run
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(wall_seconds), 0) AS wall_seconds,
                coalesce(sum(cpu_seconds), 0) AS cpu_seconds,
                max((evaluation ->> 'peak_memory_mib')::float8) AS peak_memory_mib,
                coalesce(sum((evaluation ->> 'boot_seconds')::float8), 0) AS boot_seconds
            FROM trials
            WHERE trials.cohort = proposals.cohort AND proposals.program = ANY(trials.players)
        ) AS spent
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) AS tokens,
                sum(cost_usd) AS cost_usd
            FROM completions
            WHERE completions.cohort = proposals.cohort AND sample = ordinal AND NOT reused
        ) AS asked
        {_REPORTED}
"""


def _settled(which: str, order: str) -> str:
    """Returns a statement that reads some of a run's proposals as `settled_of` takes them."""
    return f"{_SETTLED} WHERE proposals.run = %(run)s AND {which} ORDER BY {order}"


_METRICS = f"""
    SELECT proposals.ordinal, measured.metrics FROM proposals {_REPORTED}
    WHERE proposals.run = %(run)s AND proposals.ordinal = ANY(%(ordinals)s)
        AND measured.metrics IS NOT NULL
"""
_HISTORY = _settled(
    "settled_at IS NOT NULL", "proposals.settled_at, proposals.id LIMIT %(limit)s OFFSET %(after)s"
)
_BEST_QUALITY = """
    SELECT stages_left, fitness FROM proposals
    WHERE run = %(run)s AND state = 'admitted' AND NOT id = ANY(%(besides)s)
    ORDER BY stages_left, fitness DESC LIMIT 1
"""
_START = """
    SELECT max(fitness) FROM proposals WHERE run = %(run)s AND ordinal < 0 AND state = 'admitted'
"""
_FITTEST = _settled(
    """proposals.id IN (
        SELECT id FROM proposals WHERE run = %(run)s AND state = 'admitted'
        ORDER BY stages_left, fitness DESC, ordinal LIMIT %(limit)s
    )""",
    "proposals.stages_left, proposals.fitness DESC, proposals.ordinal",
)
_VALIDATIONS = """
    SELECT trials.players[1] AS program, json_agg(evaluation ORDER BY trials.id) AS evaluations
    FROM cohorts JOIN trials ON trials.cohort = cohorts.id
    WHERE cohorts.run = %(run)s AND cohorts.operator = %(operator)s
    GROUP BY cohorts.id, program ORDER BY min(trials.id)
"""
_OF_CHAMPION = _settled(
    "proposals.state = 'admitted' AND proposals.program = %(program)s", "proposals.ordinal LIMIT 1"
)
_RANKING = "SELECT ranking FROM runs WHERE id = %(run)s"
_PLACED = _settled("proposals.state = 'admitted'", "proposals.ordinal LIMIT %(limit)s")
_OF_CHILD = _settled(
    "proposals.program = %(program)s AND settled_at IS NOT NULL",
    "proposals.settled_at, proposals.id LIMIT %(limit)s",
)
_OF_ORDINAL = _settled(
    "proposals.ordinal = %(ordinal)s AND settled_at IS NOT NULL", "proposals.ordinal"
)
_FIRST = "settled_at, id"
_LINEAGE = f"""
    WITH RECURSIVE line AS (
        SELECT CAST(%(program)s AS text) AS child, 0 AS depth
        UNION ALL
        SELECT parents[1], line.depth + 1
        FROM line CROSS JOIN LATERAL ({admission("parents", "line.child", _FIRST)}) AS born
        WHERE line.depth < %(limit)s AND parents[1] <> line.child
    )
""" + _settled(
    f"proposals.id IN (SELECT ({admission('id', 'line.child', _FIRST)}) FROM line)",
    "proposals.settled_at DESC, proposals.id DESC LIMIT %(limit)s",
)
"""By the first admission of each program, which is later than that of its parent: no circles."""
_ANCESTRY = f"""
    WITH RECURSIVE kept AS (
        SELECT unnest(CAST(%(programs)s AS text[])) AS program
        UNION
        SELECT born.parent FROM kept CROSS JOIN LATERAL (
            {admission("parents[1] AS parent", "kept.program", _FIRST)}
        ) AS born
        WHERE born.parent IS NOT NULL
    )
    SELECT born.program, CASE WHEN born.parents[1] <> born.program THEN born.parents[1] END
            AS parent, born.fitness, cohorts.operator, born.island, born.ordinal, (
            SELECT count(DISTINCT child.program) FROM proposals AS child
            WHERE {OF_RUN} AND child.parents[1] = born.program
                AND child.state = 'admitted' AND child.program <> born.program
        ) AS children
    FROM kept CROSS JOIN LATERAL (
        {admission("*", "kept.program", _FIRST)}
    ) AS born JOIN cohorts ON cohorts.id = born.cohort
    ORDER BY born.settled_at, born.id
"""
_EVALUATED = """
    SELECT cohort, evaluation FROM trials
    WHERE cohort = ANY(%(cohorts)s) AND evaluation IS NOT NULL ORDER BY id
"""
_OF_PROGRAM = """
    SELECT evaluation FROM trials
    WHERE run = %(run)s AND evaluation IS NOT NULL AND %(program)s = ANY(players)
        AND cohort IN (SELECT cohort FROM proposals WHERE run = %(run)s AND program = %(program)s)
    ORDER BY id
"""
_RATED = """
    SELECT cohort, island, jsonb_agg(evaluation -> 'scores' -> %(program)s ORDER BY id) AS scores,
        jsonb_agg(coalesce(evaluation -> 'metrics' -> %(program)s, '{}') ORDER BY id) AS metrics
    FROM trials
    WHERE run = %(run)s AND cardinality(players) > 1 AND %(program)s = ANY(players)
        AND evaluation -> 'scores' -> %(program)s IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM proposals WHERE proposals.cohort = trials.cohort AND settled_at IS NULL
        )
    GROUP BY cohort, island ORDER BY cohort DESC
"""
_GAMES = """
    SELECT id AS trial, players[1] AS first, players[2] AS second, cases[1] AS number,
        evaluation IS NOT NULL AS ended,
        evaluation IS NULL AND coalesce(leased_until > now(), false) AS at_work,
        coalesce(evaluation -> 'artifacts' ->> 'position', '') AS position
    FROM trials
    WHERE cohort = %(cohort)s AND run = %(run)s AND cardinality(players) = 2 AND NOT withdrawn
    ORDER BY ended, at_work DESC, CASE WHEN evaluation IS NULL THEN id ELSE -id END
    LIMIT %(limit)s
"""
_OF_BUDGET = "run = %(run)s AND NOT seed AND cut_reason IS DISTINCT FROM 'returned'"
_STATES = f"SELECT state, count(*) AS n FROM proposals WHERE {_OF_BUDGET} GROUP BY 1"
_FAILURES = """
    SELECT failure_kind, count(*) AS n FROM proposals
    WHERE run = %(run)s AND state = 'failed' AND NOT seed GROUP BY 1 ORDER BY 2 DESC, 1
"""
_UPTIME = "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())"
# `waitstart` is NULL for the first instant of a wait.
_LOCK_WAITS = """
    SELECT count(*) AS sessions,
        coalesce(extract(epoch FROM clock_timestamp() - min(waitstart)), 0)::float8
            AS longest_seconds
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE NOT granted AND datname = current_database()
"""
_USUAL_FAILURE = """
    SELECT detail, count(*) AS n, (array_agg(whole ORDER BY id DESC))[1] AS newest FROM (
        SELECT id, coalesce(failure_detail, '') AS whole,
            split_part(coalesce(failure_detail, ''), chr(10), 1) AS detail FROM proposals
        WHERE run = %(run)s AND failure_kind = %(kind)s AND state = 'failed' AND NOT seed
        ORDER BY id DESC LIMIT %(among)s
    ) AS newest GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1
"""
_CUTS = f"""
    SELECT cut_reason, count(*) AS n FROM proposals
    WHERE state = 'cut' AND {_OF_BUDGET} GROUP BY 1 ORDER BY 2 DESC, 1
"""
_ADMITTED = """
    SELECT count(*) FROM (
        SELECT FROM proposals
        WHERE run = %(run)s AND state = 'admitted' AND NOT seed LIMIT %(limit)s
    ) AS admitted
"""
_FUNNEL = """
    WITH begun AS (
        SELECT proposals.id, cohort, ordinal, state, program, parents[1] AS parent, role,
            fitness, stages_left, failure_kind, cut_reason, settled_at, cohorts.operator
        FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
        WHERE proposals.run = %(run)s AND NOT seed AND cut_reason IS DISTINCT FROM 'returned'
            AND (begun_at IS NOT NULL OR settled_at IS NOT NULL)
        ORDER BY proposals.id LIMIT %(limit)s
    ), entered AS (
        SELECT id, program, settled_at, ARRAY[-stages_left, fitness]::float8[] AS quality
        FROM proposals WHERE run = %(run)s AND state = 'admitted'
    ), born AS (
        SELECT DISTINCT ON (program) program, quality FROM entered
        ORDER BY program, settled_at, id
    ), before AS (
        SELECT id, max(quality) OVER (
            ORDER BY settled_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS best FROM entered
    ), asked AS (
        SELECT begun.id, count(*) FILTER (WHERE NOT reused) AS requests,
            coalesce(sum(prompt_tokens) FILTER (WHERE NOT reused), 0) AS prompt_tokens,
            coalesce(sum(completion_tokens) FILTER (WHERE NOT reused), 0) AS reply_tokens,
            coalesce(sum(latency_seconds) FILTER (WHERE NOT reused), 0) AS model_seconds,
            (array_agg(model ORDER BY turn DESC, place DESC)
                FILTER (WHERE completions.role = coalesce(begun.role, 'generator')))[1] AS model
        FROM begun JOIN completions
            ON completions.cohort = begun.cohort AND sample = ordinal AND asker = 'operator'
        GROUP BY begun.id
    ), tried AS (
        SELECT begun.id, sum(wall_seconds) AS seconds, count(*) FILTER (WHERE ended) AS ended
        FROM begun JOIN (
            SELECT DISTINCT trials.id, cohort, player, wall_seconds, evaluation IS NOT NULL AS ended
            FROM trials CROSS JOIN unnest(players) AS player WHERE run = %(run)s
        ) AS played ON played.cohort = begun.cohort AND played.player = begun.program
        GROUP BY begun.id
    ), reaching AS (
        SELECT operator, model, failure_kind, requests, prompt_tokens, reply_tokens,
            model_seconds, tried.seconds, CASE
                WHEN asked.id IS NULL AND begun.program IS NULL AND failure_kind IS NULL THEN 0
                WHEN begun.program IS NULL AND failure_kind IS DISTINCT FROM 'unchanged' THEN 1
                WHEN begun.program IS NULL
                    OR cut_reason IN ('duplicate', 'similar', 'same_behaviour') THEN 2
                WHEN state NOT IN ('admitted', 'cut') OR coalesce(tried.ended, 0) = 0
                    OR fitness IS NULL THEN 3
                WHEN stages_left > 0 THEN 4
                WHEN born.quality IS NOT NULL AND state = 'admitted'
                    AND ARRAY[-stages_left, fitness]::float8[] > before.best THEN 7
                WHEN ARRAY[-stages_left, fitness]::float8[] > born.quality THEN 6
                ELSE 5
            END AS reached
        FROM begun LEFT JOIN asked ON asked.id = begun.id LEFT JOIN tried ON tried.id = begun.id
            LEFT JOIN born ON born.program = begun.parent LEFT JOIN before ON before.id = begun.id
    )
    SELECT operator, coalesce(model, '') AS model, reached, count(*) AS proposals,
        count(*) FILTER (WHERE reached = 3 AND failure_kind IS NOT NULL) AS erred,
        coalesce(sum(requests), 0)::bigint AS requests,
        coalesce(sum(prompt_tokens), 0)::bigint AS prompt_tokens,
        coalesce(sum(reply_tokens), 0)::bigint AS reply_tokens,
        coalesce(sum(model_seconds), 0)::float8 AS model_seconds,
        coalesce(sum(seconds), 0)::float8 AS sandbox_seconds
    FROM reaching GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
"""A quality is an array: Postgres compares arrays from the left, as `Quality` its fields."""
_ENTERED = """
    SELECT count(*) FROM events WHERE run = %(run)s AND kind = %(kind)s
        AND CAST(data ->> 'proposal' AS bigint) >= 0
"""
_PLANNER = """
    SELECT set_config('enable_hashjoin', %(hash)s, true) AS hash,
        set_config('enable_nestloop', %(loops)s, true) AS loops
"""
"""For the rest of the transaction; connections of the store plan without hash joins."""
_REUSED = """
    SELECT count(*) AS trials, coalesce(sum((evaluation ->> 'saved_seconds')::float8), 0) AS seconds
    FROM trials WHERE run = %(run)s AND evaluation ->> 'saved_seconds' IS NOT NULL
"""
_SPENT = """
    SELECT count(*) AS runs, coalesce(sum(tokens), 0)::bigint AS tokens,
        coalesce(sum(cost_usd), 0) AS cost_usd
    FROM runs WHERE NOT deleted
"""


class SqlHistory:
    """See `app.ports.history.History`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def best(self, run: int) -> Settled | None:
        if self._c.value(_RANKING, {"run": run}) == Ranking.RELATIVE:
            return self._champion(run)
        return self._first(_FITTEST, run, limit=1)

    def _champion(self, run: int) -> Settled | None:
        champion = SqlArchive(self._c).champion(run)
        if champion is None:
            return None
        settled = self._first(_OF_CHAMPION, run, program=champion.program)
        return replace(settled, fitness=champion.fitness) if settled else None

    def _read(self, statement: str, run: int, **params: object) -> list[Settled]:
        return [settled_of(record) for record in self._c.rows(statement, {"run": run, **params})]

    def _first(self, statement: str, run: int, **params: object) -> Settled | None:
        return next(iter(self._read(statement, run, **params)), None)

    def best_quality(self, run: Run, besides: Sequence[ProposalId] = ()) -> Quality | None:
        if run.ranking is Ranking.RELATIVE:
            champion = SqlArchive(self._c).champion(run.id)
            return champion.quality if champion else None
        result = self._c.row(_BEST_QUALITY, {"run": run.id, "besides": list(besides)})
        return Quality(-result.stages_left, result.fitness) if result else None

    def start(self, run: int) -> float | None:
        start: float | None = self._c.value(_START, {"run": run})
        return start

    def settled(self, run: int, after: int = 0, limit: int = 1000) -> list[Settled]:
        return self._read(_HISTORY, run, after=after, limit=limit)

    def of_program(self, run: int, program: ProgramId, limit: int) -> list[Settled]:
        return self._read(_OF_CHILD, run, program=program, limit=limit)

    def of_ordinal(self, run: int, ordinal: int) -> Settled | None:
        return self._first(_OF_ORDINAL, run, ordinal=ordinal)

    def lineage(self, run: int, program: ProgramId, limit: int) -> list[Settled]:
        return self._read(_LINEAGE, run, program=program, limit=limit)

    def ancestry(self, run: int, programs: Sequence[ProgramId]) -> list[Birth]:
        params = {"run": run, "programs": list(programs)}
        return [Birth(**record._asdict()) for record in self._c.rows(_ANCESTRY, params)]

    def placed(self, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
        return self._with_evaluations(_PLACED, {"run": run, "limit": limit})

    def fittest(self, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
        return self._with_evaluations(_FITTEST, {"run": run, "limit": limit})

    def _with_evaluations(
        self, query: str, params: dict[str, object]
    ) -> list[tuple[Settled, list[Evaluation]]]:
        result = self._c.rows(query, params)
        tested: dict[int, list[Evaluation]] = {}
        for record in self._c.rows(
            _EVALUATED, {"cohorts": sorted({record.cohort for record in result})}
        ):
            evaluation = evaluation_of(record.evaluation)
            if evaluation is not None:
                tested.setdefault(record.cohort, []).append(evaluation)
        return [
            (
                settled_of(record),
                [e for e in tested.get(record.cohort, []) if record.program in e.scores],
            )
            for record in result
        ]

    def validations(self, run: int) -> list[Validation]:
        return [
            Validation(
                record.program,
                tuple(one for one in map(evaluation_of, record.evaluations) if one is not None),
                record.evaluations.count(None),
            )
            for record in self._c.rows(_VALIDATIONS, {"run": run, "operator": VALIDATE})
        ]

    def metrics(self, run: int, ordinals: Sequence[int]) -> dict[int, dict[str, float]]:
        found = self._c.rows(_METRICS, {"run": run, "ordinals": list(ordinals)})
        return {record.ordinal: metrics_of(record.metrics) for record in found}

    def evaluations(self, run: int, program: ProgramId) -> list[Evaluation]:
        result = self._c.rows(_OF_PROGRAM, {"run": run, "program": program})
        return [e for record in result if (e := evaluation_of(record.evaluation)) is not None]

    def rated(self, run: int, program: ProgramId, island: int | None) -> list[Evaluation]:
        found = self._c.rows(_RATED, {"run": run, "program": program})
        if not found:
            return []
        chosen = next((record for record in found if record.island == island), found[-1])
        return [
            Evaluation(scores={program: scores}, metrics={program: metrics})
            for scores, metrics in zip(chosen.scores, chosen.metrics, strict=True)
        ]

    def games(self, run: int, cohort: CohortId, limit: int) -> list[PlannedGame]:
        found = self._c.rows(_GAMES, {"run": run, "cohort": cohort, "limit": limit})
        return [
            PlannedGame(**{**record._asdict(), "number": int(record.number or 0)})
            for record in found
        ]

    def states(self, run: int) -> dict[State, int]:
        return {State(record.state): record.n for record in self._c.rows(_STATES, {"run": run})}

    def admitted(self, run: int, limit: int) -> int:
        return int(self._c.value(_ADMITTED, {"run": run, "limit": limit}))

    def entered(self, run: int) -> int:
        return int(self._c.value(_ENTERED, {"run": run, "kind": EventKind.ADMITTED.value}))

    def failures(self, run: int) -> dict[str, int]:
        return {record.failure_kind: record.n for record in self._c.rows(_FAILURES, {"run": run})}

    def usual_failure(self, run: int, kind: str, among: int) -> DetailCount | None:
        result = self._c.row(_USUAL_FAILURE, {"run": run, "kind": kind, "among": among})
        return DetailCount(result.detail, result.n, result.newest) if result else None

    def cuts(self, run: int) -> dict[str, int]:
        return {record.cut_reason: record.n for record in self._c.rows(_CUTS, {"run": run})}

    def funnel(self, run: int, limit: int) -> list[FunnelGroup]:
        # Loops would compare each proposal with every other: a minute for five thousand.
        self._c.row(_PLANNER, {"hash": "on", "loops": "off"})
        groups = [
            FunnelGroup(**{**record._asdict(), "reached": Reached(record.reached)})
            for record in self._c.rows(_FUNNEL, {"run": run, "limit": limit})
        ]
        self._c.row(_PLANNER, {"hash": "off", "loops": "on"})
        return groups

    def reused(self, run: int) -> Reused:
        totals = self._c.row(_REUSED, {"run": run})
        return Reused(totals.trials, totals.seconds)

    def uptime_seconds(self) -> float:
        return float(self._c.value(_UPTIME, {}))

    def lock_waits(self) -> LockWaits:
        waits = self._c.row(_LOCK_WAITS, {})
        return LockWaits(waits.sessions, waits.longest_seconds)

    def ledger_bytes(self) -> int:
        return int(self._c.value("SELECT pg_database_size(current_database())", {}))

    def spent(self) -> Spent:
        totals = self._c.row(_SPENT, {})
        return Spent(totals.runs, totals.tokens, totals.cost_usd)
