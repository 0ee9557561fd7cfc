"""The log of a run.  Events are collected, and numbered as the transaction's last write."""

from collections.abc import Sequence

from app.adapters.store.codec import as_json
from app.adapters.store.driver import DriverConnection
from app.domain.events import Event, EventKind, Fact, document, read_fact

_WRITE = """
    WITH numbered AS (
        UPDATE runs SET events = events + %(n)s WHERE id = %(run)s RETURNING events - %(n)s
            AS before
    )
    INSERT INTO events (run, seq, at, kind, data)
    SELECT %(run)s, before + place, clock_timestamp(), kind, CAST(data AS jsonb)
    FROM numbered, unnest(CAST(%(kinds)s AS text[]), CAST(%(data)s AS text[]))
        WITH ORDINALITY AS event(kind, data, place)
"""
_EVENTS = """
    SELECT seq, kind, data, extract(epoch FROM at - created_at)::float8 AS seconds
    FROM events JOIN runs ON runs.id = events.run
    WHERE events.run = %(run)s AND seq > %(after)s {of_kind} ORDER BY seq LIMIT %(limit)s
"""
_EVERY_EVENT = _EVENTS.format(of_kind="")
_EVENTS_OF_KIND = _EVENTS.format(of_kind="AND kind = ANY(%(kinds)s)")


class SqlEvents:
    """See `app.ports.events.Events`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection
        self._buffer: dict[int, list[Fact]] = {}

    def emit(self, run: int, fact: Fact) -> None:
        self._buffer.setdefault(run, []).append(fact)

    def write(self) -> None:
        """Numbers and stores the collected events; the run's row lock lasts until the commit."""
        for run, batch in sorted(self._buffer.items()):
            self._c.write(
                _WRITE,
                {
                    "run": run,
                    "n": len(batch),
                    "kinds": [fact.kind.value for fact in batch],
                    "data": [as_json(document(fact)) for fact in batch],
                },
            )
        self._buffer.clear()

    def read(
        self, run: int, after: int = 0, limit: int = 1000, kinds: Sequence[EventKind] = ()
    ) -> list[Event]:
        values = {"run": run, "after": after, "limit": limit}
        if kinds:
            stored = self._c.rows(
                _EVENTS_OF_KIND, {**values, "kinds": [kind.value for kind in kinds]}
            )
        else:
            stored = self._c.rows(_EVERY_EVENT, values)
        return [
            Event(event.seq, event.seconds, read_fact(EventKind(event.kind), event.data))
            for event in stored
        ]
