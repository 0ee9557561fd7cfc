"""Shifts: what workers spent, by run.

Revision: 0007; follows: 0006
"""

from alembic import op

revision = "0007"
down_revision = "0006"

_UP = (
    """
    CREATE TABLE shifts (
        worker TEXT NOT NULL,
        kind TEXT NOT NULL,
        usd_per_hour FLOAT(53),
        run BIGINT,
        seconds FLOAT(53) NOT NULL,
        seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        CONSTRAINT shifts_worker_once UNIQUE NULLS NOT DISTINCT (worker, run),
        CONSTRAINT shifts_kind_is_known CHECK (kind IN ('gpu', 'cpu', 'control')),
        CONSTRAINT shifts_run_exists FOREIGN KEY(run) REFERENCES runs (id)
    )
    """,
    "CREATE INDEX shifts_of_run ON shifts (run)",
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE shifts")
