"""Programs and what a run knows of them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from app.adapters.store.codec import evaluation_of, program_of
from app.adapters.store.driver import DriverConnection, Json, Record
from app.domain.evaluation import Evaluation, Failure, FailureKind, merged_metrics
from app.domain.operator import (
    Aim,
    Ancestry,
    Direction,
    FailedChild,
    MeasuredPoint,
    ProgramRecord,
    TriedDirection,
)
from app.domain.program import Program, ProgramId
from app.domain.search.cohort import ProposalId

OF_RUN = "run + 0 = %(run)s"
"""Restricts proposals to those of a run, in statements that find them by program or by parent.

A plan that was made while the tables were small takes any index that begins with `run`, and would
read the whole run.  The indexes by parent hold the same expression, so that the children of a seed
in other runs are not read.
"""


def admission(columns: str, program: str, order: str = "id DESC") -> str:
    """Returns a statement that finds one admission of a program in a run.

    Args:
      columns: What it returns of the proposal.
      program: SQL of the program's id.
      order: Which admission comes first; by default the newest.
    """
    return f"""
        SELECT {columns} FROM proposals
        WHERE {OF_RUN} AND program = {program} AND state = 'admitted'
        ORDER BY {order} LIMIT 1
    """


PROGRAM = """
    programs.source, programs.language, CASE WHEN programs.paths IS NOT NULL THEN (
        SELECT json_object_agg(file.path, texts.text)
        FROM unnest(programs.paths, programs.digests) AS file (path, digest)
        JOIN texts ON texts.digest = file.digest
    ) END AS files
"""
"""The columns of which `program_of` makes a program."""
_PUT = (
    "INSERT INTO programs (id, source, language, length)"
    " SELECT * FROM unnest(CAST(%(ids)s AS text[]), CAST(%(sources)s AS text[]),"
    " CAST(%(languages)s AS text[]), CAST(%(lengths)s AS int[])) ON CONFLICT DO NOTHING"
)
_PUT_TEXTS = """
    INSERT INTO texts (digest, text)
    SELECT * FROM unnest(CAST(%(digests)s AS text[]), CAST(%(texts)s AS text[]))
    ORDER BY 1 ON CONFLICT DO NOTHING
"""
_PUT_FILES = """
    INSERT INTO programs (id, source, language, length, paths, digests)
    SELECT id, '', '', length, paths, digests FROM json_to_recordset(CAST(%(programs)s AS json))
        AS given (id text, length int, paths text[], digests text[])
    ORDER BY id ON CONFLICT DO NOTHING
"""
"""A program of several files has no text of its own: the texts of its files are in `texts`."""
_PROGRAMS = f"SELECT programs.id, {PROGRAM} FROM programs WHERE programs.id = ANY(%(ids)s)"
_LENGTHS = "SELECT id, length FROM programs WHERE id = ANY(%(ids)s)"
_CLAIM = """
    INSERT INTO fingerprints (run, epoch, fingerprint)
    SELECT %(run)s, claimed.*
    FROM unnest(CAST(%(epochs)s AS int[]), CAST(%(fingerprints)s AS text[])) AS claimed
    ON CONFLICT DO NOTHING RETURNING epoch, fingerprint
"""
"""Inserted in order: who waits for another's claim holds none that the other will want."""
_TAKEN = """
    SELECT EXISTS (
        SELECT FROM fingerprints WHERE fingerprints.run = %(run)s
            AND fingerprints.epoch = claimed.epoch
            AND fingerprints.fingerprint = claimed.fingerprint
    ) AND NOT EXISTS (
        SELECT FROM proposals WHERE id = claimed.proposal AND program IS NOT NULL
    ) AS taken
    FROM unnest(
        CAST(%(proposals)s AS bigint[]), CAST(%(epochs)s AS int[]), CAST(%(fingerprints)s AS text[])
    ) WITH ORDINALITY AS claimed (proposal, epoch, fingerprint, place)
    ORDER BY place
"""
_RECORD = f"""
    programs.id, {PROGRAM}, latest.fitness, latest.changes,
        CASE WHEN {{measured}} THEN (
            SELECT json_agg(evaluation ORDER BY trials.id) FROM trials
            WHERE trials.cohort = latest.cohort AND evaluation IS NOT NULL
        ) END AS evaluations
"""
_LATEST = f"LATERAL ({admission('fitness, changes, cohort', 'programs.id')}) AS latest"
_KNOWN = f"""
    SELECT {_RECORD.format(measured="%(measured)s")}
    FROM programs LEFT JOIN {_LATEST} ON true WHERE programs.id = ANY(%(ids)s)
"""
_CHILDREN = f"""
    SELECT {PROGRAM}, proposals.fitness, proposals.changes
    FROM proposals JOIN programs ON programs.id = proposals.program
    WHERE {OF_RUN} AND proposals.parents[1] = %(parent)s
        AND (proposals.state = 'admitted' OR proposals.state = 'cut'
            AND proposals.fitness IS NOT NULL AND proposals.stages_left = 0)
    ORDER BY proposals.id DESC LIMIT %(limit)s
"""


_FAILED = """
    SELECT program, parents[1] AS parent, generation FROM proposals
    WHERE run = %(run)s AND island = %(island)s AND epoch = %(epoch)s AND state = 'failed'
        AND program IS NOT NULL AND failure_kind = ANY(%(kinds)s) AND NOT seed
    ORDER BY id DESC LIMIT %(limit)s
"""
_FAILED_CHILDREN = f"""
    SELECT failed.id, failed.failure_kind, failed.failure_detail, failed.changes, {PROGRAM},
        trial.cases, trial.evaluation
    FROM ({{failed}}) AS failed LEFT JOIN programs ON programs.id = failed.program
    LEFT JOIN LATERAL (
        SELECT cases, evaluation FROM trials
        WHERE trials.cohort = failed.cohort AND failed.program = ANY(trials.players)
            AND evaluation ? 'failure'
        ORDER BY trials.id LIMIT 1
    ) AS trial ON true
"""
"""How proposals failed, with the first trial that shows it."""
_FAILED_CHILD = _FAILED_CHILDREN.format(
    failed=f"""
        SELECT * FROM proposals
        WHERE {OF_RUN} AND program = %(program)s AND state = 'failed' ORDER BY id DESC LIMIT 1
    """
)
_BORN_SINCE = f"""
    SELECT count(*) FROM (
        SELECT FROM proposals WHERE run = %(run)s AND family = %(family)s
            AND id > ({admission("id", "%(program)s")})
        LIMIT %(most)s
    ) AS newer
"""
_POINTS = """
    SELECT numbers, fitness FROM proposals
    WHERE run = %(run)s AND family = %(family)s
        AND (state = 'admitted' OR state = 'failed' AND program IS NOT NULL)
    ORDER BY id DESC LIMIT %(limit)s
"""
_DIRECTIONS = f"""
    SELECT tried.direction, tried.fitness, tried.failure_kind, parent.fitness AS parent_fitness
    FROM (
        SELECT id, direction, fitness, failure_kind, parents FROM proposals
        WHERE run = %(run)s AND direction IS NOT NULL ORDER BY id DESC LIMIT %(limit)s
    ) AS tried LEFT JOIN LATERAL ({admission("fitness", "tried.parents[1]")}) AS parent ON true
    ORDER BY tried.id DESC
"""
_FAILED_OF_LINE = _FAILED_CHILDREN.format(
    failed=f"""
        SELECT child.* FROM (SELECT DISTINCT program FROM line) AS line CROSS JOIN LATERAL (
            SELECT * FROM proposals
            WHERE {OF_RUN} AND parents[1] = line.program AND state = 'failed'
            ORDER BY id DESC LIMIT %(failures)s
        ) AS child ORDER BY child.id DESC LIMIT %(failures)s
    """
)
_NAMED = """
    SELECT DISTINCT program FROM proposals
    WHERE run = %(run)s AND program LIKE %(prefix)s ORDER BY program LIMIT 2
"""
_ANCESTRY = f"""
    WITH RECURSIVE line AS (
        SELECT CAST(%(program)s AS text) AS program, 0 AS depth
        UNION ALL
        SELECT born.parent, line.depth + 1
        FROM line CROSS JOIN LATERAL (
            {admission("parents[1] AS parent", "line.program")}
        ) AS born
        WHERE line.depth < %(ancestors)s AND born.parent <> line.program
    ), ancestor AS (
        SELECT line.depth, {_RECORD.format(measured="true")}
        FROM line JOIN programs ON programs.id = line.program LEFT JOIN {_LATEST} ON true
        WHERE line.depth > 0
    ), failed AS ({_FAILED_OF_LINE})
    SELECT (SELECT json_agg(ancestor ORDER BY depth) FROM ancestor) AS ancestors,
        (SELECT json_agg(failed ORDER BY id DESC) FROM failed) AS failures
"""


class SqlPrograms:
    """See `app.ports.programs.Programs`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def put(self, programs: Sequence[Program]) -> None:
        several = {program.id: program for program in programs if program.path}
        ordered = sorted({program.id: program for program in programs if not program.path}.items())
        if several:
            self._put_files(several)
        if not ordered:
            return
        self._c.write(
            _PUT,
            {
                "ids": [program for program, _ in ordered],
                "sources": [program.source for _, program in ordered],
                "languages": [program.language for _, program in ordered],
                "lengths": [len(program.source) for _, program in ordered],
            },
        )

    def _put_files(self, programs: Mapping[ProgramId, Program]) -> None:
        texts = {file.digest: file.source for each in programs.values() for file in each.files}
        given = [
            {
                "id": program.id,
                "length": program.length,
                "paths": [file.path for file in program.files],
                "digests": [file.digest for file in program.files],
            }
            for program in programs.values()
        ]
        self._c.write(_PUT_TEXTS, {"digests": list(texts), "texts": list(texts.values())})
        self._c.write(_PUT_FILES, {"programs": json.dumps(given)})

    def get(self, ids: Sequence[ProgramId]) -> dict[ProgramId, Program]:
        found = self._c.rows(_PROGRAMS, {"ids": list(ids)})
        return {record.id: program_of(*_columns(record)) for record in found}

    def lengths(self, ids: Sequence[ProgramId]) -> dict[ProgramId, int]:
        return {record.id: record.length for record in self._c.rows(_LENGTHS, {"ids": list(ids)})}

    def named(self, run: int, prefix: str) -> list[ProgramId]:
        return self._c.values(_NAMED, {"run": run, "prefix": f"{prefix}%"})

    def records(
        self, run: int, ids: Sequence[ProgramId], *, measured: bool
    ) -> dict[ProgramId, ProgramRecord]:
        params = {"run": run, "ids": list(ids), "measured": measured}
        return {row.id: _known(row._asdict()) for row in self._c.rows(_KNOWN, params)}

    def children(self, run: int, parent: ProgramId, limit: int) -> tuple[ProgramRecord, ...]:
        params = {"run": run, "parent": parent, "limit": limit}
        return tuple(
            ProgramRecord(program_of(*_columns(row)), row.fitness, changes=row.changes)
            for row in self._c.rows(_CHILDREN, params)
        )

    def failed(
        self,
        run: int,
        island: int,
        *,
        epoch: int,
        kinds: Collection[FailureKind],
        limit: int,
    ) -> list[Aim]:
        params = {"run": run, "island": island, "epoch": epoch, "kinds": sorted(kinds)}
        return [
            Aim(record.parent, record.generation, (record.program,))
            for record in self._c.rows(_FAILED, {**params, "limit": limit})
        ]

    def failed_child(self, run: int, program: ProgramId) -> FailedChild | None:
        result = self._c.row(_FAILED_CHILD, {"run": run, "program": program})
        return _failed(result._asdict()) if result else None

    def born_since(self, run: int, family: str, program: ProgramId, most: int) -> int:
        params = {"run": run, "family": family, "program": program, "most": most}
        return int(self._c.value(_BORN_SINCE, params))

    def points(self, run: int, family: str, limit: int) -> tuple[MeasuredPoint, ...]:
        result = self._c.rows(_POINTS, {"run": run, "family": family, "limit": limit})
        return tuple(MeasuredPoint(tuple(record.numbers), record.fitness) for record in result)

    def directions(self, run: int, limit: int) -> tuple[TriedDirection, ...]:
        return tuple(
            TriedDirection(
                Direction(**record.direction),
                record.fitness,
                record.parent_fitness,
                FailureKind(record.failure_kind) if record.failure_kind else None,
            )
            for record in self._c.rows(_DIRECTIONS, {"run": run, "limit": limit})
        )

    def are_taken(self, run: int, claims: Sequence[tuple[ProposalId, int, str]]) -> list[bool]:
        if not claims:
            return []
        proposals, epochs, fingerprints = map(list, zip(*claims, strict=True))
        values = {"proposals": proposals, "epochs": epochs, "fingerprints": fingerprints}
        return [bool(record.taken) for record in self._c.rows(_TAKEN, {"run": run, **values})]

    def claim_fingerprints(
        self, run: int, claims: Sequence[tuple[int, str]]
    ) -> set[tuple[int, str]]:
        if not claims:
            return set()
        found = self._c.rows(_CLAIM, _claim_values(run, claims))
        return {(record.epoch, record.fingerprint) for record in found}

    def ancestry(self, run: int, program: ProgramId, *, ancestors: int, failures: int) -> Ancestry:
        params = {"run": run, "program": program, "ancestors": ancestors, "failures": failures}
        return _ancestry(self._c.row(_ANCESTRY, params))


def _columns(record: Record) -> tuple[str, str, Mapping[str, str] | None]:
    return record.source, record.language, record.files


def _claim_values(run: int, claims: Sequence[tuple[int, str]]) -> dict[str, object]:
    ordered = sorted(set(claims))
    return {
        "run": run,
        "epochs": [epoch for epoch, _ in ordered],
        "fingerprints": [fingerprint for _, fingerprint in ordered],
    }


def _tested(record: Json) -> list[Evaluation]:
    return [e for stored in record["evaluations"] or () if (e := evaluation_of(stored))]


def _program_record(record: Json, tested: Sequence[Evaluation]) -> ProgramRecord:
    return ProgramRecord(
        program_of(record["source"], record["language"], record["files"]),
        record["fitness"],
        merged_metrics(record["id"], tested),
        changes=record["changes"] or "",
    )


def _known(record: Json) -> ProgramRecord:
    program = record["id"]
    own = [e for e in _tested(record) if program in e.scores or program in e.metrics]
    return replace(
        _program_record(record, own),
        features={k: v for e in own for k, v in e.features.get(program, {}).items()},
        artifacts={k: v for e in own for k, v in e.artifacts.items()},
    )


def _ancestry(result: Record) -> Ancestry:
    return Ancestry(
        tuple(_program_record(record, _tested(record)) for record in result.ancestors or ()),
        tuple(_failed(record) for record in result.failures or ()),
    )


def _failed(record: Json) -> FailedChild:
    evaluation = evaluation_of(record["evaluation"])
    program = (
        program_of(record["source"], record["language"], record["files"])
        if record["source"] is not None
        else None
    )
    return FailedChild(
        Failure(FailureKind(record["failure_kind"]), record["failure_detail"] or ""),
        program,
        record["changes"],
        tuple(case for case in record["cases"] or () if case),
        evaluation.artifacts if evaluation else {},
    )
