"""What models answered: written once, before it is read, and found again by what was asked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from operator import attrgetter

from app.adapters.store.codec import as_json, clean
from app.adapters.store.cohorts import DRAFTED, drafted
from app.adapters.store.driver import DriverConnection, Record
from app.adapters.store.programs import admission
from app.domain.operator import Completion, Role
from app.domain.program import ProgramId
from app.domain.search.cohort import ProposalId
from app.domain.search.model_mix import Written
from app.ports.completions import Account, Asker, CompletionKey, StoredReply, Turn

_FIELDS = tuple(one.name for one in fields(Completion) if one.name != "unanswered")
_values = attrgetter(*_FIELDS)
_COLUMNS = ", ".join(f"completions.{name}" for name in _FIELDS)
"""A completion has a column for each of its fields but one, which is for its request."""
_OF_CONVERSATION = f"""
    SELECT turn, place, {_COLUMNS}
    FROM proposals JOIN completions ON completions.cohort = proposals.cohort
        AND completions.proposal = proposals.id AND asker = %(asker)s
    WHERE proposals.id = %(proposal)s ORDER BY turn, place
"""
_SAVE = f"""
    WITH drafted AS ({DRAFTED}), given AS (
        SELECT nth, draws, saved, (saved).*
        FROM json_to_recordset(CAST(%(saved)s AS json))
            AS given(nth int, draws boolean, saved completions)
    ), repeated AS (
        SELECT nth FROM given JOIN completions USING (cohort, proposal, asker, turn, place)
        WHERE given.text = completions.text AND given.latency_seconds = completions.latency_seconds
    ), stored AS (
        INSERT INTO completions SELECT (saved).* FROM given
        WHERE (SELECT count(*) FROM drafted) >= 0 AND nth NOT IN (SELECT nth FROM repeated)
            AND (NOT draws OR proposal IN (SELECT id FROM drafted))
        ORDER BY cohort, proposal, asker, turn, place
        ON CONFLICT (cohort, proposal, asker, turn, place) DO NOTHING
        RETURNING proposal, asker, turn, place
    ), account AS (
        SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost_usd), 0) AS cost_usd,
            coalesce(max(longest), 0) AS longest
        FROM json_to_recordset(CAST(%(booked)s AS json)) AS booked(
            nth int, tokens bigint, cost_usd float8, longest int
        )
        WHERE nth NOT IN (SELECT nth FROM repeated)
    ), counted AS (
        UPDATE runs SET tokens = runs.tokens + account.tokens,
            cost_usd = runs.cost_usd + account.cost_usd,
            longest_prompt_tokens = greatest(longest_prompt_tokens, account.longest)
        FROM account
        WHERE id = %(run)s AND (SELECT count(*) FROM stored) >= 0
            AND (account.tokens > 0 OR account.cost_usd > 0
                OR account.longest > longest_prompt_tokens)
        RETURNING parent
    ), counted_around AS (
        UPDATE runs SET tokens = runs.tokens + account.tokens,
            cost_usd = runs.cost_usd + account.cost_usd,
            longest_prompt_tokens = greatest(longest_prompt_tokens, account.longest)
        FROM account
        WHERE id = (SELECT run FROM proposals WHERE id = (SELECT parent FROM counted))
    )
    SELECT DISTINCT nth FROM given
    WHERE nth NOT IN (SELECT nth FROM repeated)
        AND (proposal, asker, turn, place)
            NOT IN (SELECT proposal, asker, turn, place FROM stored)
"""
"""Proposals are written first, then completions, both in order, then the run is counted on, and
after it the run around it, if there is one: locks are taken in one order.

A turn whose very answers are there was saved before, by a commit whose confirmation was lost.  One
whose parents differ from those that were stored meanwhile answers a prompt of no proposal.
"""
_REPLIES = """
    SELECT completions.* FROM proposals JOIN completions ON completions.cohort = proposals.cohort
        AND completions.sample = proposals.ordinal
    WHERE proposals.run = %(run)s AND proposals.{column} = %(of)s
    ORDER BY proposals.id, asker DESC, turn, place LIMIT %(limit)s
"""
_RECALL = f"""
    SELECT asked.place, found.*
    FROM json_to_recordset(CAST(%(asked)s AS json)) AS asked(
        place int, prompt text, sample int, parameters jsonb
    ) CROSS JOIN LATERAL (
        SELECT {_COLUMNS} FROM completions
        WHERE completions.prompt = asked.prompt AND completions.sample = asked.sample
            AND completions.parameters = asked.parameters AND NOT completions.reused
        ORDER BY completions.cohort, completions.proposal, completions.asker, completions.turn,
            completions.place
        LIMIT 1
    ) AS found
"""

_ACCOUNTS = """
    SELECT role, model, count(*) AS completions, count(*) FILTER (WHERE reused) AS reused,
        count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced,
        coalesce(sum(prompt_tokens) FILTER (WHERE NOT reused), 0) AS prompt_tokens,
        coalesce(sum(cached_tokens) FILTER (WHERE NOT reused), 0) AS cached_tokens,
        coalesce(sum(completion_tokens) FILTER (WHERE NOT reused), 0) AS completion_tokens,
        coalesce(sum(prompt_tokens + completion_tokens) FILTER (WHERE reused), 0) AS reused_tokens,
        sum(latency_seconds) AS latency_seconds, sum(cost_usd) AS cost_usd
    FROM completions WHERE cohort IN (
        SELECT cohort FROM proposals WHERE run = %(run)s
        UNION ALL SELECT inner_ones.cohort FROM proposals JOIN runs ON runs.parent = proposals.id
            JOIN proposals AS inner_ones ON inner_ones.run = runs.id WHERE proposals.run = %(run)s
    )
    GROUP BY role, model ORDER BY role, model
"""


_WRITERS = """
    SELECT completions.role, model, count(DISTINCT program) AS n FROM proposals JOIN completions
        ON completions.cohort = proposals.cohort AND completions.proposal = proposals.id
    WHERE run = %(run)s AND state = 'admitted' AND program = ANY(%(programs)s)
        AND asker = 'operator'
    GROUP BY completions.role, model
"""
_WRITTEN = f"""
    WITH newest AS (
        SELECT cohort, ordinal, state, stages_left, fitness, parents FROM proposals
        WHERE run = %(run)s AND settled_at IS NOT NULL
        ORDER BY settled_at DESC, id DESC LIMIT %(limit)s
    )
    SELECT wrote.model, count(*) AS children,
        count(*) FILTER (WHERE newest.state = 'admitted'
            AND (-newest.stages_left, newest.fitness) > (-parent.stages_left, parent.fitness)
        ) AS gains,
        sum(wrote.prompt_tokens)::bigint AS prompt_tokens,
        sum(wrote.cached_tokens)::bigint AS cached_tokens,
        sum(wrote.completion_tokens)::bigint AS completion_tokens
    FROM newest CROSS JOIN LATERAL (
        SELECT model, sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
            sum(completion_tokens) AS completion_tokens
        FROM completions
        WHERE completions.cohort = newest.cohort AND sample = newest.ordinal
            AND asker = 'operator' AND role = %(role)s
        GROUP BY model
    ) AS wrote LEFT JOIN LATERAL (
        {admission("stages_left, fitness", "newest.parents[1]")}
    ) AS parent ON true
    GROUP BY wrote.model
"""
_OF_OPERATORS = """
    SELECT cohorts.operator, count(*) AS children, count(newest.fitness) AS gains,
        sum(wrote.prompt_tokens)::bigint AS prompt_tokens,
        sum(wrote.cached_tokens)::bigint AS cached_tokens,
        sum(wrote.completion_tokens)::bigint AS completion_tokens
    FROM newest JOIN cohorts ON cohorts.id = newest.cohort CROSS JOIN LATERAL (
        SELECT sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
            sum(completion_tokens) AS completion_tokens
        FROM completions
        WHERE completions.cohort = newest.cohort AND sample = newest.ordinal
            AND asker = 'operator' {which}
        HAVING count(*) > 0
    ) AS wrote
    GROUP BY cohorts.operator
"""
_WRITTEN_BY_OPERATOR = """
    WITH newest AS (
        SELECT cohort, ordinal, fitness FROM proposals
        WHERE run = %(run)s AND settled_at IS NOT NULL AND NOT seed
        ORDER BY settled_at DESC, id DESC LIMIT %(limit)s
    )
""" + _OF_OPERATORS.format(which="")
_WRITTEN_BEFORE = """
    WITH newest AS (
        SELECT settled.cohort, settled.ordinal, settled.fitness
        FROM (SELECT id FROM runs ORDER BY id DESC LIMIT %(runs)s) AS earlier CROSS JOIN LATERAL (
            SELECT cohort, ordinal, fitness, parents FROM proposals
            WHERE run = earlier.id AND settled_at IS NOT NULL AND NOT seed
            ORDER BY settled_at DESC, id DESC LIMIT %(limit)s
        ) AS settled JOIN programs ON programs.id = settled.parents[1]
        WHERE programs.length BETWEEN %(least)s AND %(most)s
    )
""" + _OF_OPERATORS.format(which="AND model = ANY(%(models)s)")
_REPLAY = f"""
    SELECT asked.place, found.*
    FROM json_to_recordset(CAST(%(asked)s AS json)) AS asked(place int, prompt text, sample int)
    CROSS JOIN LATERAL (
        SELECT {_COLUMNS} FROM completions JOIN cohorts ON cohorts.id = completions.cohort
        WHERE cohorts.run = %(run)s AND completions.prompt = asked.prompt
            AND completions.sample = asked.sample
        ORDER BY completions.cohort, completions.proposal, completions.asker, completions.turn,
            completions.place
        LIMIT 1
    ) AS found
"""


def _first_answered(turns: Sequence[Turn]) -> list[int]:
    """Returns the places of the turns with answers that are stored.

    Of two with answers to the same, as threads that share a transaction may bring them, the first.
    """
    first: dict[tuple[ProposalId, Asker, int], int] = {}
    for nth, turn in enumerate(turns):
        if any(turn.completions):
            first.setdefault((turn.proposal, turn.asker, turn.number), nth)
    return sorted(first.values())


def _stored(nth: int, turn: Turn) -> list[dict[str, object]]:
    """Returns the rows of a turn; `draws`: its drafts are stored with them, or nothing is."""
    draws = bool(turn.drafts) and any(member.draft is None for member in turn.cohort.members)
    rows = [
        {
            **dict(zip(_FIELDS, _values(completion), strict=True)),
            "text": clean(completion.text),
            "cohort": turn.cohort.id,
            "proposal": turn.proposal,
            "asker": turn.asker,
            "turn": turn.number,
            "place": place,
            "prompt": prompt.digest,
            "sample": prompt.sample,
            "system_text": _kept(prompt.system, turn.logged_chars),
            "user_text": _kept(prompt.user, turn.logged_chars),
        }
        for place, (prompt, completion) in enumerate(
            zip(turn.prompts, turn.completions, strict=True)
        )
        if completion is not None
    ]
    return [{"nth": nth, "draws": draws, "saved": row} for row in rows]


def _booked(nth: int, turn: Turn) -> dict[str, object]:
    booked = turn.booked
    return {
        "nth": nth,
        "tokens": booked.tokens,
        "cost_usd": booked.cost_usd,
        "longest": booked.longest_prompt_tokens,
    }


def _kept(text: str, chars: int) -> str | None:
    """Returns the beginning of a text, with a note of what was cut off; None to keep nothing."""
    if not chars:
        return None
    cut = len(text) - chars
    return clean(f"{text[:chars]}\n… {cut} more characters" if cut > 0 else text)


def _completion(row: Record) -> Completion:
    """Builds a completion from a row with its columns, and maybe more."""
    stored = row._asdict()
    return Completion(**{name: stored[name] for name in _FIELDS} | {"role": Role(row.role)})


def _written(record: Record) -> Written:
    return Written(
        record.children,
        record.gains,
        record.prompt_tokens,
        record.cached_tokens,
        record.completion_tokens,
    )


class SqlCompletions:
    """See `app.ports.completions.Completions`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def of_conversation(
        self, proposal: ProposalId, asker: Asker
    ) -> dict[int, dict[int, Completion]]:
        params = {"proposal": proposal, "asker": asker.value}
        turns: dict[int, dict[int, Completion]] = {}
        for record in self._c.rows(_OF_CONVERSATION, params):
            turns.setdefault(record.turn, {})[record.place] = _completion(record)
        return turns

    def save(self, turns: Sequence[Turn]) -> list[Turn]:
        stored = _first_answered(turns)
        found = self._c.values(
            _SAVE,
            {
                "run": turns[0].cohort.run,
                "saved": as_json([row for nth in stored for row in _stored(nth, turns[nth])]),
                "booked": as_json([_booked(nth, turn) for nth, turn in enumerate(turns)]),
                **drafted([turns[nth] for nth in stored]),
            },
        )
        late = {nth for nth, turn in enumerate(turns) if any(turn.completions)} - set(stored)
        return [turns[nth] for nth in sorted(late.union(found))]

    def recall(self, keys: Sequence[CompletionKey]) -> list[Completion | None]:
        return self._found(_RECALL, [asdict(key) for key in keys], {})

    def replay(self, run: int, keys: Sequence[tuple[str, int]]) -> list[Completion | None]:
        asked = [{"prompt": prompt, "sample": sample} for prompt, sample in keys]
        return self._found(_REPLAY, asked, {"run": run})

    def _found(
        self, query: str, asked: Sequence[Mapping[str, object]], params: Mapping[str, object]
    ) -> list[Completion | None]:
        """Returns what a statement finds for each of what is asked; None where it finds nothing."""
        places = [{"place": place, **key} for place, key in enumerate(asked)]
        found = {
            record.place: _completion(record)
            for record in self._c.rows(query, {"asked": as_json(places), **params})
        }
        return [found.get(place) for place in range(len(asked))]

    def of_program(self, run: int, program: ProgramId, limit: int) -> list[StoredReply]:
        return self._replies("program", {"run": run, "of": program, "limit": limit})

    def of_proposal(self, run: int, ordinal: int, limit: int) -> list[StoredReply]:
        return self._replies("ordinal", {"run": run, "of": ordinal, "limit": limit})

    def _replies(self, column: str, params: Mapping[str, object]) -> list[StoredReply]:
        return [
            StoredReply(
                asker=Asker(record.asker),
                turn=record.turn,
                prompt=record.prompt,
                system=record.system_text,
                user=record.user_text,
                completion=_completion(record),
            )
            for record in self._c.rows(_REPLIES.format(column=column), params)
        ]

    def accounts(self, run: int) -> list[Account]:
        return [Account(**record._asdict()) for record in self._c.rows(_ACCOUNTS, {"run": run})]

    def writers(self, run: int, programs: Sequence[ProgramId]) -> dict[tuple[str, str], int]:
        found = self._c.rows(_WRITERS, {"run": run, "programs": list(programs)})
        return {(record.role, record.model): record.n for record in found}

    def written(self, run: int, role: Role, limit: int) -> dict[str, Written]:
        found = self._c.rows(_WRITTEN, {"run": run, "role": role.value, "limit": limit})
        return {record.model: _written(record) for record in found}

    def written_by_operator(self, run: int, limit: int) -> dict[str, Written]:
        found = self._c.rows(_WRITTEN_BY_OPERATOR, {"run": run, "limit": limit})
        return {record.operator: _written(record) for record in found}

    def written_before(
        self, models: Collection[str], chars: tuple[int, int], runs: int, limit: int
    ) -> dict[str, Written]:
        params = {"models": sorted(models), "runs": runs, "limit": limit}
        found = self._c.rows(_WRITTEN_BEFORE, params | {"least": chars[0], "most": chars[1]})
        return {record.operator: _written(record) for record in found}
