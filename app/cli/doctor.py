"""`evoq doctor`: what is installed, reachable and missing, and what to do about it."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata

from app.adapters.sandbox.choose import checks, without_an_engine
from app.cli.doctor_models import check_local_servers, check_model
from app.cli.doctor_services import check_deployment, check_embedded, evaluating_workers
from app.cli.findings import Finding
from app.cli.options import Debug, Json
from app.cli.output import DONE, FAILED, Screen
from app.client.measuring import open_sandbox
from app.client.target import Target, find_target
from app.config.layers import UsageError, wrong_variables
from app.config.places import available_cores, places
from app.config.settings import SandboxSettings, Settings
from app.ports.protocols import Misconfigured, Unavailable
from app.ports.workers import Worker

PYTHONS = ((3, 11), (3, 13))
PACKAGES = (
    *("alembic", "celery", "cmaes", "docker", "fastapi", "flower", "matplotlib", "nicegui"),
    *("numpy", "prometheus-client", "psutil", "psycopg", "psycopg-pool", "pydantic"),
    *("pydantic-settings", "pyyaml", "redis", "rich", "sqlalchemy", "typer", "uvicorn"),
)
PLENTY_MIB, ENOUGH_MIB = 2048, 256


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
    found = [_python(), _packages(PACKAGES), check_model(target), _disk(target), _gpu()]
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
    yield from (check_deployment(target) if target.deployed else check_embedded(target))
    evaluating = evaluating_workers(target)
    if any(worker.id.startswith(f"{socket.gethostname()}-") for worker in evaluating):
        evaluating = []
    if evaluating:
        yield from _sandboxes_elsewhere(evaluating)
    else:
        yield from (Finding(**asdict(check)) for check in checks(target.deployed))
        yield from _sandbox(target, screen)
    yield check_model(target)
    yield check_local_servers()
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


def _sandbox(target: Target, screen: Screen) -> Iterator[Finding]:
    try:
        settings = Settings().sandbox
        with open_sandbox(settings, screen) as sandbox:
            protections = sandbox.protections()
    except Unavailable as error:
        # A wrong setting says itself what to write.
        remedy = "" if isinstance(error, Misconfigured) else without_an_engine(target.deployed)
        yield Finding("sandbox", False, str(error), remedy, required=not target.deployed)
        return
    yield Finding("sandbox places", True, _warm_sandboxes(settings))
    for protection in protections:
        yield Finding("sandbox", protection.on, protection.name, protection.remedy)


def _warm_sandboxes(settings: SandboxSettings) -> str:
    """Returns how many warm sandboxes a worker keeps, and for how long."""
    at_work = places(os.environ, available_cores())
    if settings.backend == "kubernetes":
        return f"up to {at_work} Jobs at once, each with a pod of its own"
    trials = 1 if settings.one_container_per_trial else settings.trials_per_sandbox
    replaced = f"after {trials} trials or {settings.minutes_per_sandbox:g} min"
    return f"up to {at_work} at work and {settings.spares} booted ahead; each replaced {replaced}"


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
