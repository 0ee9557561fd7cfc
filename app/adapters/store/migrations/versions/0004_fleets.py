"""Labels of the fleets that serve steps, and projects with their quotas."""

from alembic import op

revision = "0004_fleets"
down_revision = "0002_files"

_UP = (
    "ALTER TABLE proposals ADD COLUMN fleet TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE trials ADD COLUMN fleet TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE workers ADD COLUMN queues TEXT[] DEFAULT '{gpu,cpu,control}' NOT NULL",
    """
    ALTER TABLE runs ADD COLUMN project TEXT DEFAULT '' NOT NULL,
        ADD COLUMN priority INTEGER DEFAULT '0' NOT NULL
    """,
    """
    CREATE TABLE projects (
        name TEXT NOT NULL,
        weight FLOAT DEFAULT '1' NOT NULL,
        runs INTEGER,
        proposals INTEGER,
        tokens_per_day BIGINT,
        usd_per_day FLOAT,
        CONSTRAINT projects_key PRIMARY KEY (name),
        CONSTRAINT projects_weight_is_positive CHECK (weight > 0)
    )
    """,
    """
    CREATE TABLE project_days (
        run BIGINT NOT NULL,
        day DATE NOT NULL,
        tokens BIGINT NOT NULL,
        cost_usd FLOAT NOT NULL,
        CONSTRAINT project_days_key PRIMARY KEY (day, run),
        CONSTRAINT project_days_run_exists FOREIGN KEY(run) REFERENCES runs (id)
    )
    """,
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE project_days")
    op.execute("DROP TABLE projects")
    op.execute("ALTER TABLE runs DROP COLUMN project, DROP COLUMN priority")
    op.execute("ALTER TABLE workers DROP COLUMN queues")
    op.execute("ALTER TABLE trials DROP COLUMN fleet")
    op.execute("ALTER TABLE proposals DROP COLUMN fleet")
