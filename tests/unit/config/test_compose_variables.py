"""docker-compose.yml hands each setting to the services that read it, and each secret to few."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from app.adapters.model.providers.presets import PRESETS

WORKERS = frozenset({"worker-control", "worker-gpu", "worker-cpu"})
INSIDE = "worker-gpu-vllm"
"""The worker with the model inside."""
PASSWORDS = {
    name: f"secret-{name.lower()}"
    for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "FLOWER_PASSWORD", "DASHBOARD_PASSWORD")
}
KEYS = {
    preset.key_variable: f"secret-{preset.key_variable.lower()}"
    for preset in PRESETS.values()
    if preset.key_variable
}
Environments: TypeAlias = Mapping[str, Mapping[str, str]]
"""Service to the variables that are set in its container."""


@pytest.fixture(scope="module")
def services(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((repository / "docker-compose.yml").read_text())
    return found["services"]


@pytest.fixture
def configured(repository: Path, tmp_path: Path) -> Callable[..., Environments]:
    """Returns a function from files of variables, by name, to what Compose makes of them."""

    def environments(**files: str) -> Environments:
        passwords = "".join(f"{name}={value}\n" for name, value in PASSWORDS.items())
        given = {"workers": "", "runs": "", **files}
        given["env"] = f"{passwords}SETTINGS_FOLDER={tmp_path}\n{files.get('env', '')}"
        for name, text in given.items():
            if text:
                (tmp_path / f"{name.removesuffix('env')}.env").write_text(text)
        command = ["docker", "compose", "-f", str(repository / "docker-compose.yml")]
        options = ["--env-file", str(tmp_path / ".env"), "--profile", "*"]
        handed_on = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        try:
            done = subprocess.run(
                [*command, *options, "config", "--format", "json"],
                env=handed_on,
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            pytest.skip("no `docker`, whose command `compose config` needs no engine")
        if "is not a docker command" in done.stderr or "unknown shorthand" in done.stderr:
            pytest.skip("`docker` has no command `compose`")
        assert done.returncode == 0, done.stderr
        return {
            name: {
                key: text
                for key, text in service.get("environment", {}).items()
                if text is not None
            }
            for name, service in json.loads(done.stdout)["services"].items()
        }

    return environments


def readers(environments: Environments, variable: str) -> set[str]:
    return {name for name, variables in environments.items() if variable in variables}


def test_a_setting_of_workers_reaches_the_workers_and_beat(
    configured: Callable[..., Environments],
) -> None:
    line = "EVOQ_SANDBOX__SPARES=3\n"

    found = configured(workers=line)

    assert readers(found, "EVOQ_SANDBOX__SPARES") == {*WORKERS, INSIDE, "beat"}
    assert {found[name]["EVOQ_SANDBOX__SPARES"] for name in WORKERS} == {"3"}


def test_a_setting_of_runs_reaches_the_worker_where_runs_are_submitted(
    configured: Callable[..., Environments],
) -> None:
    weights = '{"diff": 1, "rewrite": 0.5}'

    found = configured(runs=f"EVOQ_SEARCH__OPERATORS={weights}\n")

    assert readers(found, "EVOQ_SEARCH__OPERATORS") == {"worker-control"}
    assert found["worker-control"]["EVOQ_SEARCH__OPERATORS"] == weights


def test_an_unset_variable_differs_from_an_empty_one(
    configured: Callable[..., Environments],
) -> None:
    found = configured(workers="EVOQ_SANDBOX__RUNTIME=\n", runs="EVOQ_LLM__MODEL=\n")

    assert found["worker-cpu"]["EVOQ_SANDBOX__RUNTIME"] == ""
    assert found["worker-control"]["EVOQ_LLM__MODEL"] == ""
    assert readers(found, "EVOQ_SANDBOX__SECCOMP") == set()
    assert readers(found, "EVOQ_LLM__PROVIDER") == set()


def test_without_files_of_settings_each_service_has_the_variables_of_the_deployment(
    configured: Callable[..., Environments],
) -> None:
    connection = {"EVOQ_DATABASE_URL", "EVOQ_REDIS_URL", "EVOQ_TASK_EVENTS", "EVOQ_LOG_FORMAT"}
    process = connection | {"EVOQ_HEARTBEAT_FILE"}
    model = {"OPENAI_MODEL", "VLLM_MODEL"}
    places = {"EVOQ_EVALUATE_CONCURRENCY", "EVOQ_SANDBOX__IMAGE", "EVOQ_SANDBOX__OWNER"}

    found = configured()

    assert {name: {*variables} for name, variables in found.items()} == {
        "postgres": {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"},
        "redis": {"REDIS_PASSWORD", "REDISCLI_AUTH"},
        "migrate": connection,
        "beat": process,
        "worker-control": process | model,
        "worker-gpu": process | model | {"EVOQ_GENERATE_CONCURRENCY"},
        INSIDE: process | {"EVOQ_GENERATE_CONCURRENCY", "EVOQ_VLLM_MODEL", "EVOQ_VLLM_ARGS"},
        "worker-cpu": process | places,
        "sandbox-image": set(),
        "flower": connection | {"FLOWER_BASIC_AUTH"},
        "dashboard": connection | {"EVOQ_DASHBOARD_TOKEN", "EVOQ_DASHBOARD_HOSTS"},
        "vllm": set(),
    }
    assert found["worker-cpu"]["EVOQ_EVALUATE_CONCURRENCY"] == "4"
    assert found["worker-gpu"]["EVOQ_GENERATE_CONCURRENCY"] == "128"
    assert {found[name]["EVOQ_TASK_EVENTS"] for name in WORKERS} == {"true"}


@pytest.mark.parametrize("files", [{}, {"workers": "EVOQ_NICE=3\n", "runs": "EVOQ_LLM__TOP_P=1\n"}])
def test_each_secret_reaches_the_services_that_need_it_and_no_other(
    configured: Callable[..., Environments], files: Mapping[str, str]
) -> None:
    secrets = {**PASSWORDS, **KEYS, "HF_TOKEN": "secret-hf", "MY_OWN_KEY": "secret-mine"}
    ours = {"migrate", "beat", *WORKERS, INSIDE, "flower", "dashboard"}
    seen_by = {
        "POSTGRES_PASSWORD": {"postgres", *ours},
        "REDIS_PASSWORD": {"redis", *ours},
        "FLOWER_PASSWORD": {"flower"},
        "DASHBOARD_PASSWORD": {"dashboard"},
        "OPENAI_API_KEY": {"worker-control", "worker-gpu", INSIDE},
        "VLLM_API_KEY": {"worker-gpu", INSIDE, "vllm"},
        "HF_TOKEN": {INSIDE, "vllm"},
        "MY_OWN_KEY": set[str](),
    }

    found = configured(env="".join(f"{name}={value}\n" for name, value in secrets.items()), **files)

    assert len(KEYS) == 8
    for name, secret in secrets.items():
        # An address or a pair of user and password has it among other text.
        having = {
            service
            for service, variables in found.items()
            if any(re.search(rf"{secret}(?![\w-])", text) for text in variables.values())
        }
        assert having == seen_by.get(name, {"worker-gpu", INSIDE}), name


@pytest.mark.parametrize(
    ("variable", "services_that_read"),
    [
        ("EVOQ_EVALUATE_CONCURRENCY", {"worker-cpu"}),
        ("EVOQ_GENERATE_CONCURRENCY", {"worker-gpu", INSIDE}),
        ("EVOQ_SANDBOX__IMAGE", {"worker-cpu"}),
        ("OPENAI_MODEL", {"worker-control", "worker-gpu"}),
        ("OPENAI_BASE_URL", {"worker-control", "worker-gpu"}),
        ("VLLM_MODEL", {"worker-control", "worker-gpu"}),
        ("EVOQ_DASHBOARD_HOSTS", {"dashboard"}),
        ("EVOQ_LOG_FORMAT", {*WORKERS, INSIDE, "beat", "flower", "dashboard", "migrate"}),
        ("EVOQ_TASK_EVENTS", {*WORKERS, INSIDE, "beat", "flower", "dashboard", "migrate"}),
    ],
)
def test_a_variable_of_the_project_reaches_the_services_that_read_it(
    configured: Callable[..., Environments], variable: str, services_that_read: set[str]
) -> None:
    found = configured(env=f"{variable}=mine\n")

    assert {name for name in found if found[name].get(variable) == "mine"} == services_that_read


def test_the_file_of_secrets_is_no_file_of_variables_of_a_service(services: dict[str, Any]) -> None:
    files = {
        name: {file["path"] for file in service.get("env_file", ())}
        for name, service in services.items()
    }
    of_workers, of_runs = (f"${{SETTINGS_FOLDER:-.}}/{name}.env" for name in ("workers", "runs"))

    assert {name: paths for name, paths in files.items() if paths} == {
        "beat": {of_workers},
        "worker-control": {of_workers, of_runs},
        "worker-gpu": {of_workers},
        INSIDE: {of_workers},
        "worker-cpu": {of_workers},
    }
    required = [file["required"] for one in services.values() for file in one.get("env_file", ())]
    assert required == [False] * 6


def compose_files(repository: Path) -> str:
    """Returns the text of docker-compose.yml and of the files that go with it."""
    return "".join(path.read_text() for path in sorted(repository.glob("*compose*.yml")))


def test_every_variable_of_the_compose_files_is_explained(repository: Path):
    pages = (".env.example", "docs/settings.md", "docs/deployment.md", "docs/fleets.md")
    texts = "".join((repository / name).read_text() for name in pages)
    compose = compose_files(repository)
    used = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", compose)) - {"COMPOSE_PROJECT_NAME"}

    assert {name for name in used if name not in texts} == set()


def test_a_worker_of_another_machine_is_one_of_the_deployment(
    services: dict[str, Any], repository: Path
):
    elsewhere = yaml.safe_load((repository / "compose.worker.yml").read_text())["services"]

    assert elsewhere.keys() == {"control", "gpu", "cpu"}
    for kind, worker in elsewhere.items():
        here = services[f"worker-{kind}"]
        assert (worker["command"], worker["deploy"]) == (here["command"], here["deploy"])
        assert worker["profiles"] == [kind]
    keys = set(services["worker-gpu"]["environment"]) - {"OPENAI_MODEL", "VLLM_MODEL"}
    assert set(elsewhere["gpu"]["environment"]) == keys


def test_every_variable_of_the_example_has_a_reader_in_the_compose_files(
    services: dict[str, Any], repository: Path
):
    example = re.findall(r"^#?([A-Z_]+)=", (repository / ".env.example").read_text(), re.M)
    # Compose reads that one itself.
    compose = compose_files(repository) + "${COMPOSE_FILE"
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

    assert unbounded <= ({"vllm", INSIDE} if limit != "pids" else set())


def test_programs_give_way_to_every_other_service(services: dict[str, Any]):
    weights = {
        name: service["cpu_shares"] for name, service in services.items() if "cpu_shares" in service
    }

    assert weights == {"worker-cpu": 256}


def test_every_root_but_that_of_vllm_is_read_only(services: dict[str, Any]):
    writable = {name for name, service in services.items() if not service.get("read_only")}

    assert writable == {"vllm", INSIDE}


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

    assert sorted(builders) == ["migrate", "sandbox-image", INSIDE]
