"""Alembic's entry: one connection, one advisory lock, so that two upgrades never interleave."""

import os

from alembic import context
from sqlalchemy import create_engine, pool, text

from app.adapters.store.tables import metadata

_LOCK = 0x65766F72
"""Advisory lock key, distinct from the planning lock's space."""


def _url() -> str:
    given = (
        context.config.attributes.get("url")
        or os.environ.get("EVOQ_DATABASE_SESSION_URL")
        or os.environ.get("EVOQ_DATABASE_URL")
    )
    if not given:
        raise SystemExit("migrations: set EVOQ_DATABASE_URL to the database's address")
    return str(given)


def _migrate() -> None:
    engine = create_engine(_url(), poolclass=pool.NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=metadata)
        with context.begin_transaction():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            context.run_migrations()
        connection.commit()


if context.is_offline_mode():
    raise SystemExit("migrations: offline mode is not supported; connect to the database")
_migrate()
