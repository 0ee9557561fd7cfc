"""Proposals: their leases, and their counts and speed, which planning and reports read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from app.adapters.store.codec import as_json
from app.adapters.store.cohorts import MEMBERS, cohort_of, draft_columns
from app.adapters.store.driver import DriverConnection
from app.adapters.store.runs import RUN_COLUMNS, run_of
from app.domain.operator import Direction, Draft
from app.domain.run import Run
from app.domain.search.back_pressure import Flow
from app.domain.search.cohort import ProposalId, State, TrialId
from app.domain.search.shares import InFlight
from app.ports.leases import Exhausted
from app.ports.proposals import Backlog, LeasedProposals, TracedProposal

_CLAIMED = """claimed.cohort
            AND (proposals.id = claimed.proposal OR proposals.visible_at IS NULL)"""
"""A claimed proposal, and those of its cohort that are bred with it."""

SAMPLED = 32
"""Proposals that the mean times are taken over: two lookups each."""

_CLAIM = f"""
    WITH claimed AS (
        UPDATE proposals SET leased_until = now() + %(lease)s * interval '1 second',
            attempts = attempts + 1, begun_at = coalesce(begun_at, now())
        FROM runs
        WHERE proposals.id = ANY(%(proposals)s) AND proposals.id IN (
            SELECT id FROM proposals WHERE id = ANY(%(proposals)s) ORDER BY id FOR NO KEY UPDATE
        ) AND proposals.state = 'planned'
            AND proposals.visible_at IS NOT NULL
            AND runs.id = proposals.run AND runs.state = 'running'
            AND (proposals.leased_until IS NULL OR proposals.leased_until < now())
        RETURNING proposals.run, proposals.id AS proposal, proposals.cohort, proposals.attempts,
            proposals.fleet
    ), described AS (
        SELECT claimed.run, claimed.proposal, claimed.attempts, claimed.fleet, cohorts.id,
            cohorts.island, cohorts.operator, cohorts.size,
            {MEMBERS.format(cohort=_CLAIMED)} AS members
        FROM claimed JOIN cohorts ON cohorts.id = claimed.cohort
    )
    SELECT mine.claimed, {RUN_COLUMNS}
    FROM (
        SELECT run, json_agg(described ORDER BY proposal) AS claimed FROM described GROUP BY run
    ) AS mine
    JOIN runs ON runs.id = mine.run
"""
_DRAW = """
    UPDATE proposals SET epoch = %(epoch)s, generation = %(generation)s, parents = %(parents)s,
        inspirations = %(inspirations)s, role = %(role)s
    WHERE id = %(proposal)s
"""
_RETURN = """
    UPDATE proposals SET reserved = 0 WHERE id = %(proposal)s AND reserved > 0 RETURNING run
"""
_DIRECT = """
    UPDATE proposals SET direction = given.direction
    FROM json_populate_recordset(NULL::proposals, CAST(%(given)s AS json)) AS given
    WHERE proposals.id = given.id AND proposals.id = ANY(%(ids)s) AND proposals.direction IS NULL
    RETURNING proposals.id
"""
_BACKLOG = """
    SELECT island, state, seed, fleet, count(*) AS n, sum(reserved) AS reserved FROM proposals
    WHERE run = %(run)s AND state IN ('planned', 'testing') GROUP BY 1, 2, 3, 4
"""
_WAITING = """
    SELECT operator, count(*) AS n FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
    WHERE proposals.run = %(run)s AND proposals.state = 'planned' GROUP BY 1
"""
_MEAN_SECONDS = """
    SELECT coalesce(avg(extract(epoch FROM settled_at - planned_at)), 0)::float8 FROM (
        SELECT settled_at, planned_at FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
        WHERE proposals.run = %(run)s AND settled_at IS NOT NULL AND NOT proposals.seed
        ORDER BY settled_at DESC, proposals.id DESC LIMIT %(over)s
    ) AS newest
"""
_IN_FLIGHT = """
    SELECT runs.id AS run, runs.weight, count(*) FILTER (WHERE proposals.state = 'planned')
            AS generating, count(*) FILTER (WHERE proposals.state = 'testing') AS evaluating,
        coalesce(proposals.fleet, '') AS fleet, runs.project,
        coalesce((SELECT weight FROM projects WHERE name = runs.project), 1) AS project_weight,
        runs.priority
    FROM runs LEFT JOIN proposals
        ON proposals.run = runs.id AND proposals.state IN ('planned', 'testing')
    WHERE runs.state = 'running' AND NOT runs.in_process
    GROUP BY runs.id, proposals.fleet ORDER BY runs.id, fleet
"""
_LONGEST_WAIT = """
    SELECT coalesce(extract(epoch FROM now() - min(cohorts.planned_at)), 0)::float8
    FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
    WHERE proposals.run = %(run)s AND proposals.state = 'planned'
"""
_LONGEST_TEST = """
    SELECT coalesce(extract(epoch FROM now() - min(coalesce(begun_at, planned_at))), 0)::float8
    FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
    WHERE proposals.run = %(run)s AND proposals.state = 'testing'
"""
_FLOW = """
    WITH first AS (
        SELECT settled_at FROM (
            SELECT settled_at, id FROM proposals
            WHERE run = %(run)s AND settled_at IS NOT NULL
            ORDER BY settled_at DESC, id DESC LIMIT %(settled)s
        ) AS newest ORDER BY settled_at, id LIMIT 1
    ), sampled AS (
        SELECT cohort, ordinal, program FROM proposals
        WHERE run = %(run)s AND settled_at IS NOT NULL
        ORDER BY settled_at DESC, id DESC LIMIT least(%(settled)s, %(sampled)s)
    )
    SELECT extract(epoch FROM clock_timestamp() - (SELECT settled_at FROM first))::float8 AS span,
        avg(asked.seconds) AS generating, avg(tested.seconds) AS evaluating,
        (SELECT count(*) FROM trials WHERE run = %(run)s AND evaluation IS NULL
            AND NOT withdrawn AND leased_until > now()) AS testing
    FROM sampled CROSS JOIN LATERAL (
        SELECT coalesce(sum(turn.seconds), 0) AS seconds FROM (
            SELECT max(latency_seconds) AS seconds FROM completions
            WHERE completions.cohort = sampled.cohort AND sample = sampled.ordinal AND NOT reused
            GROUP BY asker, turn
        ) AS turn
    ) AS asked CROSS JOIN LATERAL (
        SELECT coalesce(sum(wall_seconds), 0) AS seconds FROM trials
        WHERE trials.cohort = sampled.cohort AND sampled.program = ANY(trials.players)
    ) AS tested
"""
"""The prompts of one turn are asked side by side: a turn takes as long as its slowest."""


_TRACED = """
    SELECT proposals.id, proposals.ordinal, proposals.island, cohorts.operator,
        (extract(epoch FROM cohorts.planned_at) * 1000000)::bigint AS planned_us, proposals.state,
        proposals.program, coalesce(proposals.cut_reason, proposals.failure_kind, '') AS outcome
    FROM proposals JOIN cohorts ON cohorts.id = proposals.cohort
    WHERE proposals.id = ANY(ARRAY(
        SELECT unnest(CAST(%(proposals)s AS bigint[]))
        UNION SELECT tried.id FROM trials JOIN proposals AS tried ON tried.cohort = trials.cohort
            AND tried.program = ANY(trials.players)
        WHERE trials.id = ANY(%(trials)s)
    )) ORDER BY proposals.id
"""


class SqlProposals:
    """See `app.ports.proposals.Proposals`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def claim(
        self, proposals: Sequence[ProposalId], lease_seconds: float, *, attempts: int
    ) -> list[tuple[Run, LeasedProposals]]:
        claimed = []
        params = {"proposals": sorted(proposals), "lease": lease_seconds}
        for result in self._c.rows(_CLAIM, params):
            run = run_of(self._c, result)
            for record in result.claimed:
                if record["attempts"] > attempts:
                    raise Exhausted(run.id, record["proposal"], attempts)
                cohort = cohort_of(record, record["members"], ())
                of_fleet = replace(run, fleet=record["fleet"]) if record["fleet"] else run
                claimed.append((of_fleet, LeasedProposals(cohort, record["size"])))
        return claimed

    def draw(self, proposal: ProposalId, draft: Draft) -> None:
        self._c.write(_DRAW, {"proposal": proposal, **draft_columns(draft)})

    def unreserve(self, proposal: ProposalId) -> bool:
        return self._c.row(_RETURN, {"proposal": proposal}) is not None

    def direct(self, directions: Mapping[ProposalId, Direction]) -> set[ProposalId]:
        given = [
            {"id": proposal, "direction": asdict(direction)}
            for proposal, direction in directions.items()
        ]
        return set(self._c.values(_DIRECT, {"ids": list(directions), "given": as_json(given)}))

    def backlog(self, run: int) -> Backlog:
        states = {"planned": 0, "testing": 0}
        islands: dict[int, int] = {}
        waiting, testing = Counter[tuple[int, str]](), Counter[int]()
        seeding = reserved = 0
        for record in self._c.rows(_BACKLOG, {"run": run}):
            states[record.state] += record.n
            reserved += int(record.reserved)
            if record.state == "planned":
                waiting[record.island, record.fleet] += record.n
            else:
                testing[record.island] += record.n
            if record.seed:
                seeding += record.n
            else:
                islands[record.island] = islands.get(record.island, 0) + record.n
        planned, tested = states["planned"], states["testing"]
        return Backlog(planned, tested, islands, seeding, reserved, waiting, testing)

    def waiting(self, run: int) -> dict[str, int]:
        return {record.operator: record.n for record in self._c.rows(_WAITING, {"run": run})}

    def in_flight(self) -> list[InFlight]:
        return [InFlight(**found._asdict()) for found in self._c.rows(_IN_FLIGHT, {})]

    def flow(self, run: int, settled: int) -> Flow | None:
        if settled < 2:
            return None
        result = self._c.row(_FLOW, {"run": run, "settled": settled, "sampled": SAMPLED})
        if result is None or result.span is None:
            return None
        return Flow(
            settled, result.span, float(result.generating), float(result.evaluating), result.testing
        )

    def longest_wait(self, run: int) -> float:
        return float(self._c.value(_LONGEST_WAIT, {"run": run}))

    def longest_test(self, run: int) -> float:
        return float(self._c.value(_LONGEST_TEST, {"run": run}))

    def mean_seconds(self, run: int, over: int = 32) -> float:
        return float(self._c.value(_MEAN_SECONDS, {"run": run, "over": over}))

    def traced(
        self, proposals: Sequence[ProposalId], trials: Sequence[TrialId] = ()
    ) -> list[TracedProposal]:
        found = self._c.rows(_TRACED, {"proposals": list(proposals), "trials": list(trials)})
        return [
            TracedProposal(**{**record._asdict(), "state": State(record.state)}) for record in found
        ]
