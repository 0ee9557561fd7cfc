"""Clones of the settled proposals of a run, made in SQL: a ledger as large as a long run leaves it.

A clone has rows, numbers, a program and a fingerprint of its own in every table that grows with
proposals.  Its parents are those of the proposal that it was cloned from, so the best programs have
as many children as in the worst run: nothing but bounded reads may depend on their number.
"""

import psycopg

_BASE = """
    CREATE TEMPORARY TABLE base AS
    SELECT id, cohort, ordinal, program FROM proposals
    WHERE run = %(run)s AND NOT seed AND settled_at IS NOT NULL
"""
_FRAME = """
    SELECT (SELECT count(*) FROM base), runs.ordinals, runs.proposals, runs.events,
        (SELECT max(id) FROM proposals), (SELECT max(id) FROM cohorts), (SELECT max(id) FROM trials)
    FROM runs WHERE id = %(run)s
"""
_OWN = "encode(sha256(convert_to({} || ':' || %(salt)s, 'UTF8')), 'hex')"
"""The digest that a clone has in place of another."""
_PROGRAM = _OWN.format("base.program")
_CHANGED = {
    "cohorts": {"id": "t.id + CAST(%(copy)s AS bigint) * %(cohorts)s"},
    "programs": {"id": _OWN.format("t.id"), "source": "t.source || '# ' || %(salt)s"},
    "fingerprints": {"fingerprint": _OWN.format("t.fingerprint")},
    "proposals": {
        "id": "t.id + CAST(%(copy)s AS bigint) * %(proposals)s",
        "cohort": "t.cohort + CAST(%(copy)s AS bigint) * %(cohorts)s",
        "ordinal": "t.ordinal + CAST(%(copy)s AS bigint) * %(ordinals)s",
        "program": _PROGRAM,
    },
    "trials": {
        "id": "t.id + CAST(%(copy)s AS bigint) * %(trials)s",
        "cohort": "t.cohort + CAST(%(copy)s AS bigint) * %(cohorts)s",
        "players": f"ARRAY[{_PROGRAM}]",
        "evaluation": f"replace(t.evaluation::text, base.program, {_PROGRAM})::jsonb",
    },
    "completions": {
        "cohort": "t.cohort + CAST(%(copy)s AS bigint) * %(cohorts)s",
        "proposal": "t.proposal + CAST(%(copy)s AS bigint) * %(proposals)s",
        "sample": "t.sample + CAST(%(copy)s AS bigint) * %(ordinals)s",
        "prompt": _OWN.format("t.prompt"),
    },
    "events": {"seq": "t.seq + CAST(%(copy)s AS bigint) * %(events)s"},
}
"""What differs in the rows of a clone, by table and column."""
_FROM = {
    "cohorts": "cohorts t JOIN base ON base.cohort = t.id",
    "programs": "programs t JOIN (SELECT DISTINCT program FROM base) AS base ON t.id = program",
    "fingerprints": "fingerprints t WHERE t.run = %(run)s AND t.fingerprint IN (SELECT * FROM was)",
    "proposals": "proposals t JOIN base ON base.id = t.id",
    "trials": "trials t JOIN base ON base.cohort = t.cohort AND base.program = t.players[1]",
    "completions": "completions t JOIN base ON base.id = t.proposal AND base.cohort = t.cohort",
    "events": "events t WHERE t.run = %(run)s AND t.seq <= %(events)s",
}
_COUNTED = """
    UPDATE runs SET ordinals = ordinals + CAST(%(copies)s AS bigint) * %(ordinals)s,
        proposals = proposals + CAST(%(copies)s AS bigint) * %(n)s,
        cohorts = cohorts + CAST(%(copies)s AS bigint) * %(n)s,
        events = events + CAST(%(copies)s AS bigint) * %(events)s
    WHERE id = %(run)s
"""


def fill(address: str, run: int, proposals: int) -> None:
    """Clones the settled proposals of a run, which no step works on, up to so many of them.

    Args:
      address: Of the database, for psycopg, as one who may switch triggers off.
      run: The run; its proposals have one trial each.
      proposals: How many it is to have, about.
    """
    with psycopg.connect(address, autocommit=True) as c:
        c.execute("SET session_replication_role = replica")
        c.execute("DROP TABLE IF EXISTS base, was")
        c.execute(_BASE, {"run": run})
        was = "CREATE TEMPORARY TABLE was AS SELECT fingerprint FROM fingerprints WHERE run = %s"
        c.execute(was, (run,))
        c.execute("CREATE INDEX ON base (id); CREATE INDEX ON base (cohort); ANALYZE base")
        found = c.execute(_FRAME, {"run": run}).fetchone()
        assert found is not None
        names = ("n", "ordinals", "spent", "events", "proposals", "cohorts", "trials")
        frame = {"run": run, **dict(zip(names, found, strict=True))}
        copies = max(0, (proposals - frame["spent"]) // frame["n"])
        for copy in range(1, copies + 1):
            salted = {**frame, "copy": copy, "salt": f"{proposals}/{copy}"}
            for table, changed in _CHANGED.items():
                c.execute(_insert(c, table, changed), salted)
        c.execute(_COUNTED, {**frame, "copies": copies})
        for table in ("cohorts", "proposals", "trials"):
            c.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
            )
        c.execute("VACUUM (ANALYZE)")


def _insert(c: psycopg.Connection, table: str, changed: dict[str, str]) -> bytes:
    described = c.execute(f'SELECT * FROM "{table}" LIMIT 0').description or ()
    columns = [column.name for column in described]
    values = ", ".join(changed.get(name, f't."{name}"') for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    return (
        f"INSERT INTO {table} ({names}) SELECT {values} FROM {_FROM[table]} ON CONFLICT DO NOTHING"
    ).encode()
