"""Completions: what a model answered is kept before it is parsed, and never paid for twice.

Revision: 0002; follows: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"

_UP = (
    """
    CREATE TABLE completions (
        cohort BIGINT NOT NULL,
        turn INTEGER NOT NULL,
        place INTEGER NOT NULL,
        text TEXT NOT NULL,
        model TEXT NOT NULL,
        finish TEXT NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL,
        wall_seconds FLOAT(53) NOT NULL,
        cost_usd FLOAT(53) NOT NULL,
        CONSTRAINT completions_key PRIMARY KEY (cohort, turn, place),
        CONSTRAINT completions_cohort_exists FOREIGN KEY(cohort) REFERENCES cohorts (id)
    )
    """,
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE completions")
