"""What deleted runs spent on their last day, and an index by which kept outcomes leave."""

from alembic import op

revision = "0006_bounds"
down_revision = "0005_retention"

_UP = (
    """
    ALTER TABLE deletions ADD COLUMN project TEXT DEFAULT '' NOT NULL,
        ADD COLUMN tokens BIGINT DEFAULT '0' NOT NULL,
        ADD COLUMN cost_usd FLOAT DEFAULT '0' NOT NULL
    """,
    "CREATE INDEX deletions_spent ON deletions (project, swept_at)",
    "CREATE INDEX outcomes_kept_at_index ON outcomes (kept_at)",
)
_DOWN = (
    "DROP INDEX outcomes_kept_at_index",
    "DROP INDEX deletions_spent",
    """
    ALTER TABLE deletions DROP COLUMN project, DROP COLUMN tokens, DROP COLUMN cost_usd
    """,
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in _DOWN:
        op.execute(statement)
