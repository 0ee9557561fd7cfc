"""PgBouncer for tests: a pooler that gives each transaction any of two sessions."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

SESSIONS = 2


@contextmanager
def pooler(database_url: str) -> Iterator[str]:
    """Yields the address of a pooler in front of a database; skips where PgBouncer is absent."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("PgBouncer is not installed here: `apt-get install pgbouncer`")
    url, port = make_url(database_url), _free_port()
    server = {
        "host": url.query["host"],
        "dbname": url.database,
        "user": url.username,
        "password": url.password,
    }
    line = " ".join(f"{name}='{value}'" for name, value in server.items() if value)
    with tempfile.TemporaryDirectory(prefix="evoq-pooler-") as name:
        folder = Path(name)
        config, log = folder / "pgbouncer.ini", folder / "log"
        config.write_text(
            f"[databases]\npooled = {line}\n[pgbouncer]\npool_mode = transaction\n"
            f"auth_type = any\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"unix_socket_dir =\ndefault_pool_size = {SESSIONS}\nmax_client_conn = 200\n"
        )
        # It refuses to run as root; the user of Postgres may enter the folder of its socket.
        owner = os.stat(str(server["host"])).st_uid
        user = ("setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups")
        folder.chmod(0o755)
        command = [*(user if os.geteuid() == 0 else ()), program, str(config)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            address = f"postgresql://evoqueue@127.0.0.1:{port}/pooled"
            _await(address, log)
            yield address.replace("postgresql:", "postgresql+psycopg:")
        finally:
            process.terminate()
            process.wait(20)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await(address: str, log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(address, autocommit=True).close()
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"{error}\n{log.read_text()}") from error
            time.sleep(0.1)
        else:
            return
