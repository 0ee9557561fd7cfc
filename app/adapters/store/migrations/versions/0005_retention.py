"""Runs that are deleted or kept, and the indexes that a deletion needs.

Three rules about references were checked by reading a whole table for each row that was deleted.
One is checked by an index now; the other two follow from those that stay.
"""

from alembic import op

revision = "0005_retention"
down_revision = "0004_fleets"

_UP = (
    """
    ALTER TABLE runs ADD COLUMN kept BOOLEAN DEFAULT false NOT NULL,
        ADD COLUMN deleted BOOLEAN DEFAULT false NOT NULL,
        ADD COLUMN prompts_removed BOOLEAN DEFAULT false NOT NULL
    """,
    """
    CREATE TABLE deletions (
        run BIGINT NOT NULL,
        name TEXT NOT NULL,
        reason TEXT NOT NULL,
        proposals INTEGER NOT NULL,
        deleted_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        swept_at TIMESTAMP WITH TIME ZONE,
        database_bytes BIGINT,
        CONSTRAINT deletions_key PRIMARY KEY (run),
        CONSTRAINT deletions_reason_is_known CHECK (reason IN ('asked', 'age', 'size'))
    )
    """,
    "CREATE INDEX deletions_unswept ON deletions (run) WHERE swept_at IS NULL",
    "CREATE INDEX runs_of_problem ON runs (problem)",
    "CREATE INDEX cohorts_of_run ON cohorts (run, id)",
    "CREATE INDEX cohorts_branched ON cohorts (run) WHERE operator = 'branch'",
    "CREATE INDEX proposals_with_program ON proposals (program) WHERE program IS NOT NULL",
    "ALTER TABLE completions DROP CONSTRAINT completions_proposal_exists",
    "ALTER TABLE proposals ADD CONSTRAINT proposals_cohort_once UNIQUE (cohort, id)",
    "DROP INDEX proposals_of_cohort",
    """
    ALTER TABLE completions ADD CONSTRAINT completions_proposal_exists
        FOREIGN KEY(cohort, proposal) REFERENCES proposals (cohort, id)
    """,
    "ALTER TABLE trials DROP CONSTRAINT trials_run_exists",
    "ALTER TABLE elites DROP CONSTRAINT elites_program_exists",
    "CREATE INDEX programs_with_texts ON programs USING gin (digests) WHERE digests IS NOT NULL",
)
_DOWN = (
    "DROP INDEX programs_with_texts",
    """
    ALTER TABLE elites ADD CONSTRAINT elites_program_exists
        FOREIGN KEY(program) REFERENCES programs (id)
    """,
    "ALTER TABLE trials ADD CONSTRAINT trials_run_exists FOREIGN KEY(run) REFERENCES runs (id)",
    "ALTER TABLE completions DROP CONSTRAINT completions_proposal_exists",
    "ALTER TABLE proposals DROP CONSTRAINT proposals_cohort_once",
    "CREATE INDEX proposals_of_cohort ON proposals (cohort)",
    """
    ALTER TABLE completions ADD CONSTRAINT completions_proposal_exists
        FOREIGN KEY(proposal) REFERENCES proposals (id)
    """,
    "DROP INDEX proposals_with_program",
    "DROP INDEX cohorts_branched",
    "DROP INDEX cohorts_of_run",
    "DROP INDEX runs_of_problem",
    "DROP TABLE deletions",
    """
    ALTER TABLE runs DROP COLUMN kept, DROP COLUMN deleted, DROP COLUMN prompts_removed
    """,
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in _DOWN:
        op.execute(statement)
