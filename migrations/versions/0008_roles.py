"""Proposals say who wrote their child.

Revision: 0008; follows: 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute("ALTER TABLE proposals ADD COLUMN role TEXT")


def downgrade() -> None:
    op.execute("ALTER TABLE proposals DROP COLUMN role")
