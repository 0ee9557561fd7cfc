"""Labels of the fleets that serve steps, and projects with their quotas."""

import importlib

from alembic import op

revision = "0004_fleets"
down_revision = "0003_demand"

_UP = (
    "ALTER TABLE proposals ADD COLUMN fleet TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE trials ADD COLUMN fleet TEXT DEFAULT '' NOT NULL",
    "ALTER TABLE workers ADD COLUMN queues TEXT[] DEFAULT '{gpu,cpu,control}' NOT NULL",
    """
    ALTER TABLE runs ADD COLUMN project TEXT DEFAULT '' NOT NULL,
        ADD COLUMN priority INTEGER DEFAULT '0' NOT NULL,
        ADD COLUMN held BOOLEAN DEFAULT false NOT NULL,
        ADD COLUMN queues TEXT[] DEFAULT '{gpu,cpu}' NOT NULL
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
    "DROP VIEW demand",
    # As in 0003, with a row for each queue of a run, and the tag of a step.  What a run could plan
    # beyond its places is divided among its queues of models.  A run that a quota holds, and one
    # without operators, plan nothing.
    """
    CREATE VIEW demand AS
    WITH going AS (
        SELECT id, unplaced, generate_batch, evaluate_batch, trials_at_once, queues,
            NOT held AND operators <> '{}' AND proposals < budget
                AND tokens < coalesce(budget_tokens, 'infinity'::float8)
                AND cost_usd < coalesce(budget_cost_usd, 'infinity') AS plans,
            NOT in_process AND extract(epoch FROM now() - created_at)
                < coalesce(budget_wall_seconds, 'infinity') AS staffed
        FROM runs WHERE state = 'running'
    ), steps AS (
        SELECT run, 'gpu' AS queue, fleet AS tag, leased_until > now() AS leased FROM proposals
        WHERE state = 'planned' AND visible_at IS NOT NULL AND NOT (reserved > 0 AND EXISTS (
            SELECT FROM runs AS inside
            WHERE inside.parent = proposals.id AND inside.state IN ('running', 'paused')
        ))
        UNION ALL
        SELECT run, CASE stage WHEN 'judged' THEN 'gpu' ELSE 'cpu' END, fleet,
            leased_until > now()
        FROM trials WHERE evaluation IS NULL AND NOT withdrawn
    )
    SELECT going.id AS run, fleets.queue, fleets.tag,
        counted.steps - counted.leased AS waiting, counted.leased,
        going.staffed::int * greatest(going.plans::int, going.plans::int * fleets.unplaced + CASE
            WHEN fleets.most IS NULL THEN ceil(counted.steps::float8 / fleets.batch)
            ELSE least(counted.steps, fleets.most) END)::bigint AS places
    FROM going CROSS JOIN LATERAL (
        SELECT split_part(name, ':', 1) AS queue, split_part(name, ':', 2) AS tag,
            CASE WHEN name LIKE 'gpu%' THEN generate_batch ELSE evaluate_batch END AS batch,
            CASE WHEN name LIKE 'cpu%' THEN trials_at_once END AS most,
            CASE WHEN name LIKE 'gpu%' THEN ceil(unplaced::float8 / count(*) FILTER (
                WHERE name LIKE 'gpu%') OVER ()) ELSE 0 END AS unplaced
        FROM unnest(queues) AS name
    ) AS fleets
    CROSS JOIN LATERAL (
        SELECT count(*) AS steps, count(*) FILTER (WHERE leased) AS leased FROM steps
        WHERE steps.run = going.id AND steps.queue = fleets.queue AND steps.tag = fleets.tag
    ) AS counted
    """,
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP VIEW demand")
    op.execute("DROP TABLE project_days")
    op.execute("DROP TABLE projects")
    op.execute(
        "ALTER TABLE runs DROP COLUMN project, DROP COLUMN priority, DROP COLUMN held, "
        "DROP COLUMN queues"
    )
    op.execute("ALTER TABLE workers DROP COLUMN queues")
    op.execute("ALTER TABLE trials DROP COLUMN fleet")
    op.execute("ALTER TABLE proposals DROP COLUMN fleet")
    demand = importlib.import_module("app.adapters.store.migrations.versions.0003_demand")
    op.execute(demand._UP[1])
