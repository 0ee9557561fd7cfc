"""A run's row stays small and has room beside it: every settled proposal writes it anew.

Its settings go out of line, where a new version of the row leaves them.

Revision: 0010; follows: 0009
"""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute("ALTER TABLE runs SET (fillfactor = 10, toast_tuple_target = 128)")


def downgrade() -> None:
    op.execute("ALTER TABLE runs RESET (fillfactor, toast_tuple_target)")
