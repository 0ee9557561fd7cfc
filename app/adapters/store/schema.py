"""The schema's version: what the database has, what the code needs, and the way there.

Every command and every worker asks for the version; `migrating` changes it.
"""

from dataclasses import dataclass

from sqlalchemy import create_engine, pool, text
from sqlalchemy.exc import InterfaceError, OperationalError

from app.adapters.store.outage import CONNECT_SECONDS
from app.ports.protocols import Unavailable

NEEDED = "0006_bounds"
"""The revision that this code was written for: the head of `migrations`."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """Where a database stands.

    Attributes:
      found: The database's revision; None when it was never migrated.
      needed: The revision this code was written for.
    """

    found: str | None
    needed: str = NEEDED

    @property
    def current(self) -> bool:
        return self.found == self.needed

    @property
    def remedy(self) -> str:
        """What is wrong with a schema that is not current, and what to do."""
        if self.found is not None and not _known(self.found):
            return (
                f"the ledger in this database was made by another version of evoq (its schema is "
                f"{self.found}, and this version needs {self.needed}): use that version, or "
                f"another database; an embedded stack has one for each EVOQ_HOME"
            )
        return (
            f"the database's schema is at {self.found or 'nothing'}, and this version needs "
            f"{self.needed}. Run `alembic upgrade head` with EVOQ_DATABASE_URL set"
        )


def upgrade(url: str, revision: str = "head") -> None:
    """Brings a database to a revision.  Two processes at once do no harm: one waits.

    Raises:
      Unavailable: The database cannot be reached.
      Misconfigured: The database has a revision that this version does not know.
    """
    if revision == "head" and version(url).current:
        return
    # Alembic takes longer to import than the version takes to read.
    from app.adapters.store import migrating

    migrating.upgrade(url, revision)


def version(url: str) -> SchemaVersion:
    """Reads a database's revision.

    Raises:
      Unavailable: The database cannot be reached.
    """
    engine = create_engine(
        url, poolclass=pool.NullPool, connect_args={"connect_timeout": CONNECT_SECONDS}
    )
    try:
        with engine.connect() as connection:
            migrated = connection.scalar(text("SELECT to_regclass('alembic_version')")) is not None
            found = (
                connection.scalar(text("SELECT version_num FROM alembic_version"))
                if migrated
                else None
            )
    except (OperationalError, InterfaceError) as error:
        raise Unavailable(f"the database: {error.orig}") from error
    return SchemaVersion(found)


def _known(revision: str) -> bool:
    """Returns whether `alembic upgrade head` leads from a revision to the present one."""
    from app.adapters.store import migrating

    return migrating.is_known(revision)
