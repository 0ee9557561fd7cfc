"""Lookups: a program's proposals and a parent's children are found by what is rarest.

Plans are made while the tables are empty and kept: an index that begins with the run was taken for
lookups it does not suit, and every proposal read the whole run.

Revision: 0005; follows: 0004
"""

from alembic import op

revision = "0005"
down_revision = "0004"

_UP = (
    "DROP INDEX proposals_of_program",
    "CREATE INDEX proposals_of_program ON proposals (program, id) WHERE state = 'admitted'",
    "DROP INDEX proposals_of_parent",
    """
    CREATE INDEX proposals_of_parent ON proposals ((parents[1]), id) WHERE state = 'admitted'
    """,
)
_DOWN = (
    "DROP INDEX proposals_of_parent",
    """
    CREATE INDEX proposals_of_parent ON proposals (run, (parents[1]), id) WHERE state = 'admitted'
    """,
    "DROP INDEX proposals_of_program",
    "CREATE INDEX proposals_of_program ON proposals (run, program, id)",
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in _DOWN:
        op.execute(statement)
