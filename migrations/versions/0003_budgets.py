"""Budgets: money beside tokens, and what planning needs to know to keep within them.

Revision: 0003; follows: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"

_UP = (
    """
    ALTER TABLE runs ADD COLUMN budget_cost_usd FLOAT(53),
        ADD COLUMN cost_usd FLOAT(53) DEFAULT '0' NOT NULL,
        ADD COLUMN longest_prompt_tokens INTEGER DEFAULT '0' NOT NULL
    """,
    "ALTER TABLE cohorts ADD COLUMN planned_at TIMESTAMP WITH TIME ZONE",
    "ALTER TABLE cohorts ALTER COLUMN planned_at SET DEFAULT now()",
)
"""Two steps for `planned_at`: nobody knows when the cohorts that are there were planned."""

_DOWN = (
    "ALTER TABLE cohorts DROP COLUMN planned_at",
    """
    ALTER TABLE runs DROP COLUMN longest_prompt_tokens, DROP COLUMN cost_usd,
        DROP COLUMN budget_cost_usd
    """,
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in _DOWN:
        op.execute(statement)
