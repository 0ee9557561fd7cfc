"""The demand for workers: a view by run, queue and tag, and the number that an autoscaler reads."""

from alembic import op

revision = "0003_demand"
down_revision = "0002_files"

_UP = (
    "ALTER TABLE runs ADD COLUMN unplaced INTEGER DEFAULT '0' NOT NULL",
    # A proposal that waits for a run inside it needs no worker: that run has steps of its own.  A
    # run in one process asks for no worker, nor does one whose time is over.
    """
    CREATE VIEW demand AS
    WITH going AS (
        SELECT id, unplaced, generate_batch, evaluate_batch, trials_at_once,
            proposals < budget AND tokens < coalesce(budget_tokens, 'infinity'::float8)
                AND cost_usd < coalesce(budget_cost_usd, 'infinity') AS plans,
            NOT in_process AND extract(epoch FROM now() - created_at)
                < coalesce(budget_wall_seconds, 'infinity') AS staffed
        FROM runs WHERE state = 'running'
    ), steps AS (
        SELECT run, 'gpu' AS queue, '' AS tag, leased_until > now() AS leased FROM proposals
        WHERE state = 'planned' AND visible_at IS NOT NULL AND NOT (reserved > 0 AND EXISTS (
            SELECT FROM runs AS inside
            WHERE inside.parent = proposals.id AND inside.state IN ('running', 'paused')
        ))
        UNION ALL
        SELECT run, CASE stage WHEN 'judged' THEN 'gpu' ELSE 'cpu' END, '', leased_until > now()
        FROM trials WHERE evaluation IS NULL AND NOT withdrawn
    )
    SELECT going.id AS run, fleets.queue, fleets.tag,
        counted.steps - counted.leased AS waiting, counted.leased,
        going.staffed::int * greatest(going.plans::int, going.plans::int * fleets.unplaced + CASE
            WHEN fleets.most IS NULL THEN ceil(counted.steps::float8 / fleets.batch)
            ELSE least(counted.steps, fleets.most) END)::bigint AS places
    FROM going CROSS JOIN LATERAL (VALUES
        ('gpu', '', generate_batch, NULL, unplaced), ('cpu', '', evaluate_batch, trials_at_once, 0)
    ) AS fleets(queue, tag, batch, most, unplaced)
    CROSS JOIN LATERAL (
        SELECT count(*) AS steps, count(*) FILTER (WHERE leased) AS leased FROM steps
        WHERE steps.run = going.id AND steps.queue = fleets.queue AND steps.tag = fleets.tag
    ) AS counted
    """,
    # An autoscaler's role needs no right on any table.
    """
    CREATE FUNCTION evoq_demand(queue text, tag text DEFAULT '') RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        IF coalesce(evoq_demand.queue, '') NOT IN ('gpu', 'cpu') THEN
            RAISE 'evoq_demand: no queue %; the queues are gpu and cpu', quote_nullable(queue)
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        RETURN (
            SELECT coalesce(sum(places), 0) FROM demand
            WHERE demand.queue = evoq_demand.queue AND demand.tag = evoq_demand.tag
        );
    END $$
    """,
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP FUNCTION evoq_demand")
    op.execute("DROP VIEW demand")
    op.execute("ALTER TABLE runs DROP COLUMN unplaced")
