"""Programs of several files, whose texts are stored once each."""

from alembic import op

revision = "0002_files"
down_revision = "0001_ce209121"

_UP = (
    """
    CREATE TABLE texts (
        digest TEXT NOT NULL,
        text TEXT NOT NULL,
        CONSTRAINT texts_key PRIMARY KEY (digest)
    )
    """,
    """
    ALTER TABLE programs ADD COLUMN paths TEXT[], ADD COLUMN digests TEXT[],
        ADD CONSTRAINT programs_one_digest_a_path
            CHECK (cardinality(paths) IS NOT DISTINCT FROM cardinality(digests))
    """,
)


def upgrade() -> None:
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    op.execute("ALTER TABLE programs DROP COLUMN paths, DROP COLUMN digests")
    op.execute("DROP TABLE texts")
