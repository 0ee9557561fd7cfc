"""Completions say what they were asked with, so that a later run can read instead of ask.

Revision: 0004; follows: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"

_UP = (
    "ALTER TABLE completions RENAME COLUMN wall_seconds TO latency_seconds",
    """
    ALTER TABLE completions ALTER COLUMN cost_usd DROP NOT NULL,
        ADD COLUMN role TEXT DEFAULT 'generator' NOT NULL,
        ADD COLUMN revision TEXT DEFAULT '' NOT NULL,
        ADD COLUMN cached_tokens INTEGER DEFAULT '0' NOT NULL,
        ADD COLUMN reused BOOLEAN DEFAULT false NOT NULL,
        ADD COLUMN prompt TEXT,
        ADD COLUMN sample INTEGER,
        ADD COLUMN parameters JSONB
    """,
    "CREATE INDEX completions_of_prompt ON completions (prompt, sample) WHERE NOT reused",
)
"""`prompt`, `sample` and `parameters` of the completions that are there are not known."""

_DOWN = (
    "DROP INDEX completions_of_prompt",
    "UPDATE completions SET cost_usd = 0 WHERE cost_usd IS NULL",
    """
    ALTER TABLE completions ALTER COLUMN cost_usd SET NOT NULL,
        DROP COLUMN role, DROP COLUMN revision, DROP COLUMN cached_tokens, DROP COLUMN reused,
        DROP COLUMN prompt, DROP COLUMN sample, DROP COLUMN parameters
    """,
    "ALTER TABLE completions RENAME COLUMN latency_seconds TO wall_seconds",
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in _DOWN:
        op.execute(statement)
