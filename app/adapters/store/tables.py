"""The schema as SQLAlchemy sees it.  Rules are named constraints; `migrations/` creates it."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_key",
        "fk": "%(table_name)s_%(column_0_name)s_exists",
        "uq": "%(table_name)s_%(column_0_name)s_once",
        "ck": "%(table_name)s_%(constraint_name)s",
        "ix": "%(table_name)s_%(column_0_name)s_index",
    }
)


def _moment(name: str) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now())


problems = Table(
    "problems",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("options", JSONB, nullable=False),
    _moment("created_at"),
)
problem_files = Table(
    "problem_files",
    metadata,
    Column("problem", Text, ForeignKey("problems.digest"), nullable=False),
    Column("path", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("problem", "path"),
)
runs = Table(
    "runs",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("problem", Text, ForeignKey("problems.digest"), nullable=False),
    Column("strategy", Text, nullable=False),
    Column("settings", JSONB, nullable=False),
    Column("operators", JSONB, nullable=False),
    Column("axes", JSONB, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("islands", Integer, nullable=False),
    Column("budget", Integer, nullable=False),
    Column("budget_wall_seconds", Float(53)),
    Column("budget_tokens", BigInteger),
    Column("budget_cost_usd", Float(53)),
    Column("generating", Integer, nullable=False),
    Column("evaluating", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column("cohorts", Integer, nullable=False, server_default="0"),
    Column("proposals", Integer, nullable=False, server_default="0"),
    Column("events", BigInteger, nullable=False, server_default="0"),
    Column("tokens", BigInteger, nullable=False, server_default="0"),
    Column("cost_usd", Float(53), nullable=False, server_default="0"),
    Column("longest_prompt_tokens", Integer, nullable=False, server_default="0"),
    _moment("created_at"),
    UniqueConstraint("name"),
    CheckConstraint("proposals <= budget", name="budget_is_a_cap"),
    CheckConstraint("islands >= 1", name="has_an_island"),
    CheckConstraint(
        "state IN ('running', 'paused', 'finished', 'cancelled', 'failed')", name="state_is_known"
    ),
)
programs = Table(
    "programs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("language", Text, nullable=False),
    Column("length", Integer, nullable=False),
    CheckConstraint("id ~ '^[0-9a-f]{64}$'", name="id_is_a_digest"),
)
fingerprints = Table(
    "fingerprints",
    metadata,
    Column("run", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("island", Integer, nullable=False),
    Column("fingerprint", Text, nullable=False),
    PrimaryKeyConstraint("run", "island", "fingerprint"),
)
cohorts = Table(
    "cohorts",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("run", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("island", Integer, nullable=False),
    Column("operator", Text, nullable=False),
    Column("founding", Boolean, nullable=False),
    Column("bred", Boolean, nullable=False, server_default=text("false")),
    Column("leased_until", DateTime(timezone=True)),
    Column("ring_at", DateTime(timezone=True), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("planned_at", DateTime(timezone=True), server_default=func.now()),
    Index("cohorts_waiting", "run", "ring_at", postgresql_where=text("NOT bred")),
)
proposals = Table(
    "proposals",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("run", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("cohort", BigInteger, ForeignKey("cohorts.id"), nullable=False),
    Column("island", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("epoch", Integer),
    Column("generation", Integer),
    Column("parents", ARRAY(Text)),
    Column("inspirations", ARRAY(Text)),
    Column("program", Text, ForeignKey("programs.id")),
    Column("changes", Text, nullable=False, server_default=""),
    Column("fitness", Float(53)),
    Column("verified", Boolean, nullable=False, server_default=text("false")),
    Column("failure_kind", Text),
    Column("failure_detail", Text),
    Column("settled_at", DateTime(timezone=True)),
    UniqueConstraint("run", "ordinal"),
    CheckConstraint(
        "state IN ('planned', 'testing', 'admitted', 'cut', 'failed')", name="state_is_known"
    ),
    CheckConstraint(
        "(state = 'failed') = (failure_kind IS NOT NULL)", name="failed_with_a_failure"
    ),
    CheckConstraint(
        "(state IN ('planned', 'testing')) = (settled_at IS NULL)", name="settled_when_final"
    ),
    CheckConstraint("state <> 'admitted' OR fitness IS NOT NULL", name="admitted_with_a_fitness"),
    CheckConstraint("fitness NOT IN ('NaN', 'Infinity', '-Infinity')", name="fitness_is_finite"),
    Index("proposals_of_cohort", "cohort"),
    Index("proposals_unsettled", "run", postgresql_where=text("state IN ('planned', 'testing')")),
    Index(
        "proposals_fittest",
        "run",
        text("fitness DESC"),
        "ordinal",
        postgresql_where=text("state = 'admitted'"),
    ),
    Index("proposals_failed", "run", "failure_kind", postgresql_where=text("state = 'failed'")),
    Index(
        "proposals_settled",
        "run",
        "settled_at",
        "id",
        postgresql_where=text("settled_at IS NOT NULL"),
    ),
    Index(
        "proposals_of_parent",
        "run",
        text("(parents[1])"),
        "id",
        postgresql_where=text("state = 'admitted'"),
    ),
    Index("proposals_of_program", "run", "program", "id"),
)
trials = Table(
    "trials",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("run", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("cohort", BigInteger, ForeignKey("cohorts.id"), nullable=False),
    Column("stage", Text, nullable=False),
    Column("players", ARRAY(Text), nullable=False),
    Column("cases", ARRAY(Text), nullable=False),
    Column("leased_until", DateTime(timezone=True)),
    Column("ring_at", DateTime(timezone=True), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("evaluation", JSONB(none_as_null=True)),
    Column("wall_seconds", Float(53), nullable=False, server_default="0"),
    Column("cpu_seconds", Float(53), nullable=False, server_default="0"),
    UniqueConstraint("cohort", "stage", "players", "cases"),
    Index("trials_waiting", "run", "ring_at", postgresql_where=text("evaluation IS NULL")),
)
islands = Table(
    "islands",
    metadata,
    Column("run", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("index", Integer, nullable=False),
    Column("epoch", Integer, nullable=False, server_default="0"),
    Column("admitted", Integer, nullable=False, server_default="0"),
    Column("cells", Integer, nullable=False, server_default="0"),
    PrimaryKeyConstraint("run", "index"),
)
elites = Table(
    "elites",
    metadata,
    Column("run", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("island", Integer, nullable=False),
    Column("cell", JSONB, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("program", Text, ForeignKey("programs.id"), nullable=False),
    Column("fitness", Float(53), nullable=False),
    Column("length", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    PrimaryKeyConstraint("run", "island", "cell", "rank"),
    UniqueConstraint("run", "island", "number", "rank", name="elites_number_once"),
    CheckConstraint("fitness NOT IN ('NaN', 'Infinity', '-Infinity')", name="fitness_is_finite"),
    Index("elites_fittest", "run", "island", text("fitness DESC"), "number"),
)
completions = Table(
    "completions",
    metadata,
    Column("cohort", BigInteger, ForeignKey("cohorts.id"), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("place", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("finish", Text, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("wall_seconds", Float(53), nullable=False),
    Column("cost_usd", Float(53), nullable=False),
    PrimaryKeyConstraint("cohort", "turn", "place"),
)
events = Table(
    "events",
    metadata,
    Column("run", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("seq", BigInteger, nullable=False),
    _moment("at"),
    Column("kind", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    PrimaryKeyConstraint("run", "seq"),
    CheckConstraint("seq >= 1", name="seq_counts_from_one"),
    Index("events_of_kind", "run", "kind", "seq"),
)
