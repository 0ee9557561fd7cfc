"""Runs say how many cohorts, and how many trials, one message may name.

Revision: 0009; follows: 0008
"""

from alembic import op

revision = "0009"
down_revision = "0008"

COLUMNS = ("generate_batch", "evaluate_batch")


def upgrade() -> None:
    for column in COLUMNS:
        op.execute(f"ALTER TABLE runs ADD COLUMN {column} INTEGER DEFAULT 1 NOT NULL")


def downgrade() -> None:
    for column in COLUMNS:
        op.execute(f"ALTER TABLE runs DROP COLUMN {column}")
