"""Failures of a parent: prompts show what failed lately of a lineage.

Revision: 0006; follows: 0005
"""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute(
        "CREATE INDEX proposals_failed_of_parent ON proposals ((parents[1]), id)"
        " WHERE state = 'failed'"
    )


def downgrade() -> None:
    op.execute("DROP INDEX proposals_failed_of_parent")
