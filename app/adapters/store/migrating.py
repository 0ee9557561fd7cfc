"""Alembic: brings a database from one revision to another."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.exc import InterfaceError, OperationalError

from app.adapters.store import migrations
from app.ports.protocols import Misconfigured, Unavailable


def upgrade(url: str, revision: str) -> None:
    """Brings a database to a revision; see `schema.upgrade`."""
    try:
        command.upgrade(_config(url), revision)
    except (OperationalError, InterfaceError) as error:
        raise Unavailable(f"the database: {error.orig}") from error
    except CommandError as error:
        raise Misconfigured(
            f"the ledger in this database was made by another version of evoq ({error}): use that "
            f"version, or another database; an embedded stack has one for each EVOQ_HOME"
        ) from error


def downgrade(url: str, revision: str) -> None:
    """Takes a database back to a revision; `base` drops everything."""
    command.downgrade(_config(url), revision)


def is_known(revision: str) -> bool:
    """Returns whether there is a migration of this name."""
    try:
        return ScriptDirectory.from_config(_config("")).get_revision(revision) is not None
    except CommandError:
        return False


def _config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__path__[0])))
    config.attributes["url"] = url
    return config
