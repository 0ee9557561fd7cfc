"""A real Postgres from a wheel, for one folder, on a Unix socket.

As root the server runs under an unprivileged user (`os_user`), in a data folder that may lie inside
a private home: the folder is entered before the privileges are dropped, and Postgres is given
`/proc/self/cwd` as the path of its data, so it never walks through the folders above.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from app.embedded.binaries import postgres_binaries
from app.embedded.children import (
    OWN_SERVERS,
    EmbeddedError,
    Ending,
    explain_failure,
    remedy,
    write_record,
)
from app.embedded.os_user import free_uid, give, named_uid, running_as_root
from app.embedded.server import ServerProcess

DATABASE = "evoqueue"
OWNER = "evoqueue"
START_SECONDS = 60.0
"""Long, because a start after a crash replays the write-ahead log first."""
READY_LINE = 7
"""The line of `postmaster.pid`, from 0, that says `ready`."""
SCRAM_ITERATIONS = 1
"""Postgres' own 4,096 make a password that a person chose costly to guess, and cost each connection
3.5 ms of a processor.  This one has 192 random bits."""
IN_ORDER = Ending(orphaned=signal.SIGINT, requested=signal.SIGINT, grace_seconds=20.0)
"""SIGINT is Postgres' fast shutdown: it disconnects its clients and writes a checkpoint."""

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    "synchronous_commit": "off",
    "wal_writer_delay": "100ms",
    "checkpoint_timeout": "15min",
    "autovacuum_naptime": "20s",
    "io_method": "sync",
    "max_parallel_workers_per_gather": "0",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
}
"""For one machine, many small transactions and no replicas; what is off costs processes or memory.

Commits do not wait for the disk, because the commits of a run follow one another under its row
lock. A power cut loses the last tenths of a second, whole transactions in commit order, and the
run repeats their steps.  See `docs/decisions/embedded-postgres.md`.
"""
VOLATILE = {"fsync": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """One server for one folder; a second start of the same folder ends the first server.

    Attributes:
      home: Holds `data`, the password, and the log unless another is given.
    """

    def __init__(self, home: Path, *, durable: bool = True, log: Path | None = None):
        """Starts nothing.

        Args:
          home: Made if absent; holds the data and the password.
          durable: False for tests: a power cut loses everything, a crash of Postgres nothing.
          log: None keeps it in `home`.
        """
        self._process = ServerProcess("Postgres", home, IN_ORDER, log)
        self.home = self._process.home
        self._durable = durable

    def start(self) -> str:
        """Starts the server, and creates the database the first time.

        When it is called again after the server died, the address stays the same.

        Returns:
          `postgresql+psycopg://…`, for SQLAlchemy.

        Raises:
          EmbeddedError: The server cannot be started here; says why and what to do.
        """
        binaries = postgres_binaries()
        self._check_platform()
        with explain_failure(f"keep a database in {self.home}"):
            self.home.mkdir(parents=True, exist_ok=True)
            self._end_left_over()
            password = self._keep_password()
        uid = self._uid()
        sockets = self._process.open_sockets(uid)
        if not (self.home / "data").exists():
            self._create(binaries, password, sockets)
        self._launch(binaries, sockets, uid)
        self._ensure_database(sockets, password)
        return (
            f"postgresql+psycopg://{OWNER}:{quote(password, safe='')}@/{DATABASE}"
            f"?host={quote(str(sockets))}"
        )

    def stop(self) -> None:
        """Ends the server in order.  Idempotent; the data stays."""
        self._process.stop()

    @property
    def running(self) -> bool:
        return self._process.running

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _check_platform(self) -> None:
        if running_as_root() and sys.platform != "linux":
            raise EmbeddedError(
                f"Postgres does not run as root: run this as an ordinary user, or {OWN_SERVERS}"
            )

    def _end_left_over(self) -> None:
        """Ends a server that an earlier start left on this data, and removes its lock file."""
        self._process.end_recorded()
        lock = self.home / "data" / "postmaster.pid"
        if lock.exists():
            pid = int(lock.read_text().splitlines()[0])
            if psutil.pid_exists(pid) and psutil.Process(pid).name() == "postgres":
                write_record(self._process.record, "postgres", pid)
                self._process.end_recorded()
            lock.unlink(missing_ok=True)

    def _keep_password(self) -> str:
        """Makes a password before the database, so that no database lacks one, and returns it."""
        path = self.home / "password"
        if not path.exists():
            part = path.with_suffix(".part")
            part.touch(mode=0o600)
            part.write_text(secrets.token_urlsafe(24))
            part.rename(path)
        return path.read_text()

    def _uid(self) -> int | None:
        """Returns the user of Postgres where we are root: the owner of the data, once it exists."""
        if not running_as_root():
            return None
        owner = (self.home / "data").stat().st_uid if (self.home / "data").exists() else 0
        return owner or free_uid()

    def _create(self, binaries: Path, password: str, sockets: Path) -> None:
        """Creates the data under another name and renames it, so that it is whole or absent."""
        creator = named_uid() if running_as_root() else None
        uid = self._uid()
        fresh = self.home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        secret = sockets / "password"
        with explain_failure(f"create a database in {self.home}"):
            fresh.mkdir(mode=0o700)
            secret.touch(mode=0o600)
            secret.write_text(password)
            if creator is not None:
                for path in (fresh, secret, sockets):
                    os.chown(path, creator, -1)
            self._run_initdb(binaries, fresh, secret, creator)
            secret.unlink()
            if uid is not None:
                give(fresh, uid)
                os.chown(sockets, uid, -1)
            fresh.rename(self.home / "data")

    def _run_initdb(self, binaries: Path, fresh: Path, secret: Path, uid: int | None) -> None:
        command = [
            str(binaries / "initdb"),
            *("-D", self._data_path(fresh), "-U", OWNER, "--pwfile", str(secret)),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"),
            *("-c", f"scram_iterations={SCRAM_ITERATIONS}"),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            *(() if self._durable else ("--no-sync",)),
        ]
        identity = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        done = subprocess.run(  # type: ignore[call-overload]  # one of two keyword sets
            command,
            cwd=fresh,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            start_new_session=True,
            **identity,
        )
        if done.returncode != 0:
            raise EmbeddedError(
                f"Postgres could not create a database in {self.home} "
                f"(initdb: {done.stderr.strip() or done.stdout.strip()}): {remedy(done.stderr)}"
            )

    def _launch(self, binaries: Path, sockets: Path, uid: int | None) -> None:
        settings = {**SETTINGS, **({} if self._durable else VOLATILE)}
        folder = self.home / "data"
        self._process.launch(
            [
                str(binaries / "postgres"),
                *("-D", self._data_path(folder), "-k", str(sockets)),
                *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
            ],
            folder=folder,
            uid=uid,
            ready=self._ready,
            start_seconds=START_SECONDS,
        )

    def _ready(self, pid: int) -> bool:
        try:
            lines = (self.home / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > READY_LINE and lines[0] == str(pid) and "ready" in lines[READY_LINE]

    def _data_path(self, folder: Path) -> str:
        """Returns the path of `folder` for a Postgres program that is started in it."""
        return "/proc/self/cwd" if running_as_root() else str(folder)

    def _ensure_database(self, sockets: Path, password: str) -> None:
        with psycopg.connect(
            host=str(sockets), user=OWNER, password=password, dbname="postgres", autocommit=True
        ) as connection:
            exists = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(exists, (DATABASE,)).fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")
