"""docker-compose.yml passes each documented variable on to the services that read it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.adapters.model.providers.presets import PRESETS
from app.config.layers import TEMPLATE_FOLDER as FOLDER
from app.config.layers import owner_of
from app.config.settings import Owner

WORKERS = frozenset({"worker-control", "worker-gpu", "worker-cpu"})
ELSEWHERE = {
    "EVOQ_HOME": "no embedded stack runs in a deployment",
    "EVOQ_VLLM_MODEL": "the image has no vLLM; the service `vllm` has one",
    "EVOQ_VLLM_NAME": "see EVOQ_VLLM_MODEL",
    "EVOQ_VLLM_ARGS": "see EVOQ_VLLM_MODEL; VLLM_ARGS is that of the service",
    "EVOQ_VLLM_METRICS_PORT": "see EVOQ_VLLM_MODEL",
}
"""Documented variables that no service reads, each with the reason."""


@pytest.fixture(scope="module")
def services(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((repository / "docker-compose.yml").read_text())
    return found["services"]


PAGES = ("settings.md", "problems.md", "recipes.md")
"""The pages with tables of settings."""


def documented(repository: Path) -> list[str]:
    """Returns the settings that have a row on one of the pages, and the folder of templates."""
    texts = [(repository / "docs" / page).read_text() for page in PAGES]
    rows = [name for text in texts for name in re.findall(r"^\| `([A-Za-z_.]+)` \|", text, re.M)]
    return sorted({name for name in rows if "." in name or name.startswith("EVOQ_")} | {FOLDER})


def readers(name: str) -> frozenset[str]:
    """Returns the services that read a setting, given by its dotted key or its variable."""
    if name in ELSEWHERE or owner_of(name) is Owner.COMMAND:
        return frozenset()
    if name.startswith("EVOQ_DASHBOARD_"):
        return frozenset({"dashboard"})
    if name.startswith("EVOQ_"):
        return WORKERS
    if owner_of(name) is Owner.RUN:
        return frozenset({"worker-control"})
    return frozenset({"worker-cpu"}) if name.startswith("sandbox.") else WORKERS


def test_every_documented_setting_reaches_the_services_that_read_it(
    services: dict[str, Any], repository: Path
):
    rows = documented(repository)
    variables = {
        name: name if name.startswith("EVOQ_") else "EVOQ_" + name.upper().replace(".", "__")
        for name in rows
    }
    absent = [
        (service, variable)
        for name, variable in variables.items()
        for service in sorted(readers(name))
        if variable not in services[service]["environment"]
    ]

    assert len(rows) > 100
    assert absent == []


@pytest.mark.parametrize(
    ("services_that_read", "variables"),
    [
        (("worker-cpu",), ["EVOQ_EVALUATE_CONCURRENCY"]),
        (("worker-gpu",), ["EVOQ_GENERATE_CONCURRENCY"]),
        (("worker-control", "worker-gpu"), ["OPENAI_MODEL", "OPENAI_BASE_URL", "VLLM_MODEL"]),
        ((*sorted(WORKERS), "beat"), ["EVOQ_LOG_FORMAT", "EVOQ_TASK_EVENTS"]),
        ((*sorted(WORKERS), "beat"), ["EVOQ_HEARTBEAT_FILE"]),
    ],
)
def test_what_is_no_setting_of_a_table_reaches_the_services_that_read_it(
    services: dict[str, Any], services_that_read: tuple[str, ...], variables: list[str]
):
    for service in services_that_read:
        assert set(variables) <= set(services[service]["environment"])


def test_every_variable_of_opentelemetry_reaches_the_workers(
    services: dict[str, Any], repository: Path
):
    code = (repository / "workers" / "tracing.py").read_text()
    page = (repository / "docs" / "deployment.md").read_text()
    named = set(re.findall(r"\bOTEL_[A-Z_]+\b", code + page))
    own = {f"OTEL_{name}" for name in ("SERVICE_NAME", "RESOURCE_ATTRIBUTES")}
    exporters = {f"OTEL_EXPORTER_OTLP_{name}" for name in ("HEADERS", "TIMEOUT")}

    for service in sorted(WORKERS):
        assert named | own | exporters <= set(services[service]["environment"])


def test_every_key_of_a_provider_reaches_the_workers_that_ask_models(services: dict[str, Any]):
    keys = {preset.key_variable for preset in PRESETS.values()} - {""}

    assert keys <= set(services["worker-gpu"]["environment"])


def test_a_list_of_variables_holds_none_that_is_not_documented(
    services: dict[str, Any], repository: Path
):
    known = {
        name.replace(".", "__").upper().removeprefix("EVOQ_") for name in documented(repository)
    }
    passed = {name for service in WORKERS for name in services[service]["environment"]}
    nested = {name.removeprefix("EVOQ_") for name in passed if "__" in name}

    assert nested <= known


def test_every_variable_of_the_compose_file_is_explained(
    services: dict[str, Any], repository: Path
):
    texts = "".join(
        (repository / name).read_text() for name in (".env.example", "docs/settings.md")
    )
    compose = (repository / "docker-compose.yml").read_text()
    used = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", compose)) - {"COMPOSE_PROJECT_NAME"}
    own = {name for name in used if not name.startswith("EVOQ_") or "__" not in name}

    assert {name for name in own if name not in texts} == set()


def test_every_variable_of_the_example_has_a_reader_in_the_compose_file(
    services: dict[str, Any], repository: Path
):
    example = re.findall(r"^#?([A-Z_]+)=", (repository / ".env.example").read_text(), re.M)
    compose = (repository / "docker-compose.yml").read_text()
    passed = {name for one in services.values() for name in one.get("environment", ())}

    assert {"VLLM_ARGS", "VLLM_API_KEY", "CUDA_VISIBLE_DEVICES"} <= set(example)
    assert [n for n in example if f"${{{n}" not in compose and n not in passed] == []


def test_vllm_reads_the_arguments_of_the_example_and_its_key(services: dict[str, Any]):
    vllm = services["vllm"]

    assert {"${VLLM_MODEL:", "${VLLM_CONTEXT:", "${VLLM_ARGS:"} <= {
        f"{part.partition(':')[0]}:" for part in vllm["command"].split()
    }
    assert set(vllm["environment"]) == {"HF_TOKEN", "VLLM_API_KEY", "CUDA_VISIBLE_DEVICES"}


@pytest.mark.parametrize("limit", ["memory", "cpus", "pids"])
def test_every_service_is_bounded(services: dict[str, Any], limit: str):
    unbounded = {
        name
        for name, service in services.items()
        if limit not in service["deploy"]["resources"]["limits"]
    }

    assert unbounded <= ({"vllm"} if limit != "pids" else set())


def test_programs_give_way_to_every_other_service(services: dict[str, Any]):
    weights = {
        name: service["cpu_shares"] for name, service in services.items() if "cpu_shares" in service
    }

    assert weights == {"worker-cpu": 256}


def test_every_root_but_that_of_vllm_is_read_only(services: dict[str, Any]):
    writable = {name for name, service in services.items() if not service.get("read_only")}

    assert writable == {"vllm"}


def test_health_is_checked_every_five_or_ten_seconds(services: dict[str, Any]):
    intervals = {
        name: service["healthcheck"]["interval"]
        for name, service in services.items()
        if "healthcheck" in service
    }

    assert {name for name, interval in intervals.items() if interval == "5s"} == {
        "postgres",
        "redis",
    }
    assert set(intervals.values()) == {"5s", "10s"}


def test_one_service_builds_the_image_that_the_others_run(services: dict[str, Any]):
    builders = [name for name, service in services.items() if "build" in service]

    assert sorted(builders) == ["migrate", "sandbox-image"]
