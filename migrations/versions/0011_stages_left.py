"""Stages left: programs below a cascade threshold rank below whole measurements.

Revision: 0011; follows: 0010
"""

from alembic import op

revision = "0011"
down_revision = "0010"

_UP = (
    "ALTER TABLE proposals ADD COLUMN stages_left INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE elites ADD COLUMN stages_left INTEGER DEFAULT 0 NOT NULL",
    "DROP INDEX proposals_fittest",
    """
    CREATE INDEX proposals_fittest ON proposals (run, stages_left, fitness DESC, ordinal)
    WHERE state = 'admitted'
    """,
    "DROP INDEX elites_fittest",
    "CREATE INDEX elites_fittest ON elites (run, island, stages_left, fitness DESC, number)",
)
_DOWN = (
    "DROP INDEX elites_fittest",
    "CREATE INDEX elites_fittest ON elites (run, island, fitness DESC, number)",
    "DROP INDEX proposals_fittest",
    """
    CREATE INDEX proposals_fittest ON proposals (run, fitness DESC, ordinal)
    WHERE state = 'admitted'
    """,
    "ALTER TABLE elites DROP COLUMN stages_left",
    "ALTER TABLE proposals DROP COLUMN stages_left",
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in _DOWN:
        op.execute(statement)
