"""The Helm chart, rendered without a cluster."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from app.config.layers import misspelt
from infra.manifests import CHART, main, render, write

EVERYTHING = """
keda: {enabled: true, prometheus: "http://prometheus.monitoring:9090"}
flower: {enabled: true}
model: {name: qwen, baseUrl: "https://models.example/v1", existingSecret: keys}
networkPolicy: {metricsPeers: [{namespaceSelector: {}}]}
settings: {workers: {EVOQ_SANDBOX__SPARES: 2}, runs: {EVOQ_SEARCH__ISLANDS: 3}}
control: {persistence: {enabled: true}}
vllm: {enabled: true, existingSecret: vllm, autoscaling: {maxReplicas: 4, waitingRequests: 5}}
fleets:
  - {name: gpu, kind: gpu, autoscaling: {maxReplicas: 3}}
  - name: llama
    kind: gpu
    tags: [llama70b]
    image: evoqueue-vllm:1
    vllm: {model: meta/llama, args: "--seed 1", claim: models}
  - {name: cpu, kind: cpu, replicas: 0}
  - name: big
    kind: cpu
    tags: [highmem, slow]
    sandbox: kubernetes
    autoscaling: {maxReplicas: 9, stepsPerReplica: 2}
"""
Manifest = Mapping[str, Any]


@pytest.fixture(scope="module")
def everything() -> list[Manifest]:
    return documents(render(yaml.safe_load(EVERYTHING), "evoq", "search"))


def documents(rendered: Mapping[str, str]) -> list[Manifest]:
    return [one for text in rendered.values() for one in yaml.safe_load_all(text) if one]


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yields the names of Deployments, StatefulSets and Jobs, with their pods."""
    for one in manifests:
        if one["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield one["metadata"]["name"].removeprefix("evoq-evoqueue-"), one["spec"]["template"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def environment(container: Manifest) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container.get("env", [])}


def test_the_chart_has_no_finding_of_the_linter() -> None:
    report = helm_python.lint(CHART, yaml.safe_load(EVERYTHING), strict=True)

    assert report["errors"] == []
    assert [one["error"] for one in report["messages"] if one["severity"] > 1] == []


def test_every_pod_but_that_of_vllm_is_restricted(everything: list[Manifest]) -> None:
    """See https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    unrestricted = set()
    for name, pod in pods(everything):
        whole = pod["spec"]["securityContext"]
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(pod):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            if not (whole.get("runAsNonRoot") and own.get("readOnlyRootFilesystem")):
                unrestricted.add(name)

    assert unrestricted == {"vllm"}


def test_only_the_fleet_that_makes_jobs_has_a_token_and_a_role(everything: list[Manifest]) -> None:
    with_token = {
        name for name, pod in pods(everything) if pod["spec"]["automountServiceAccountToken"]
    }
    roles = {one["metadata"]["name"]: one["rules"] for one in everything if one["kind"] == "Role"}

    assert with_token == {"big"}
    assert {rule["resources"][0]: {*rule["verbs"]} for rule in roles["evoq-evoqueue-jobs"]} == {
        "jobs": {"create", "get", "list", "watch", "delete"},
        "configmaps": {"create", "get", "list", "watch", "delete"},
        "pods": {"get", "list", "watch"},
        "pods/log": {"get"},
        "events": {"list"},
    }


def test_every_variable_of_ours_is_a_setting(everything: list[Manifest]) -> None:
    given = {
        name for _, pod in pods(everything) for one in containers(pod) for name in environment(one)
    }

    assert "EVOQ_SEARCH__ISLANDS" in given
    assert misspelt(sorted(given)) == {}


def test_keys_of_models_reach_fleets_of_the_kind_gpu_alone(everything: list[Manifest]) -> None:
    read = {
        name
        for name, pod in pods(everything)
        for one in containers(pod)
        if {"secretRef": {"name": "keys"}} in one.get("envFrom", [])
    }

    assert read == {"gpu", "llama"}


def test_a_pod_has_more_time_to_end_than_its_steps(everything: list[Manifest]) -> None:
    for name, pod in pods(everything):
        for container in containers(pod):
            drain = environment(container).get("EVOQ_DRAIN_SECONDS")
            if drain is not None:
                assert pod["spec"]["terminationGracePeriodSeconds"] >= int(drain) + 10, name


def test_a_fleet_serves_the_queues_of_its_tags(everything: list[Manifest]) -> None:
    fleets = [{"name": "both", "kind": "gpu", "tags": ["", "llama70b"]}]
    both = documents(render({"fleets": fleets}, "evoq", "search"))
    served = {
        name: command[command.index("-Q") + 1]
        for name, pod in (*pods(everything), *pods(both))
        if "-Q" in (command := pod["spec"]["containers"][0].get("command", []))
    }

    assert served == {
        "control": "control",
        "gpu": "gpu",
        "llama": "gpu:llama70b",
        "cpu": "cpu",
        "big": "cpu:highmem,cpu:slow",
        "both": "gpu,gpu:llama70b",
    }


def test_a_fleet_may_give_its_leases_back_at_once() -> None:
    fleets = [
        {"name": "now", "kind": "cpu", "drainSeconds": 0},
        {"name": "gpu", "kind": "gpu"},
    ]

    drained = {
        name: environment(pod["spec"]["containers"][0]).get("EVOQ_DRAIN_SECONDS")
        for name, pod in pods(documents(render({"fleets": fleets}, "evoq", "search")))
    }

    assert (drained["now"], drained["gpu"], drained["control"]) == ("0", "50", "20")


def policies(manifests: list[Manifest], labels: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the names of the policies by which a pod may open and take connections."""
    found: dict[str, set[str]] = {"egress": set(), "ingress": set()}
    for one in manifests:
        if one["kind"] == "NetworkPolicy" and _selects(one["spec"]["podSelector"], labels):
            for direction, names in found.items():
                if one["spec"].get(direction):
                    names.add(one["metadata"]["name"].removeprefix("evoq-evoqueue-"))
    return found


def _selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    exact = selector.get("matchLabels", {})
    ones = selector.get("matchExpressions", [])
    return all(labels.get(name) == value for name, value in exact.items()) and all(
        one["key"] in labels and labels[one["key"]] in one.get("values", labels.values())
        for one in ones
    )


def test_trials_reach_nothing_and_each_pod_what_it_needs(everything: list[Manifest]) -> None:
    reached = {
        name: policies(everything, pod["metadata"]["labels"]) for name, pod in pods(everything)
    }
    denied = {
        one["metadata"]["name"]: one["spec"]["policyTypes"]
        for one in everything
        if one["kind"] == "NetworkPolicy" and not {"egress", "ingress"} & one["spec"].keys()
    }

    assert denied == {
        "evoq-evoqueue-deny": ["Ingress", "Egress"],
        "evoq-evoqueue-trials": ["Ingress", "Egress"],
    }
    assert policies(everything, {"evoqueue.network": "none"}) == {
        "egress": set(),
        "ingress": set(),
    }
    assert {name: policies["egress"] for name, policies in reached.items()} == {
        next(name for name in reached if name.startswith("migrate")): {"ledger"},
        "control": {"ledger"},
        "cpu": {"ledger"},
        "big": {"ledger", "jobs"},
        "gpu": {"ledger", "models"},
        "llama": {"ledger", "models"},
        "dashboard": {"ledger"},
        "flower": {"ledger"},
        "vllm": {"vllm"},
        "postgres": set(),
        "redis": set(),
    }
    assert {name: policies["ingress"] for name, policies in reached.items()} == {
        **{name: {name} for name in ("postgres", "redis", "dashboard", "flower", "vllm")},
        **{name: {"metrics"} for name in ("control", "cpu", "big", "gpu", "llama")},
        next(name for name in reached if name.startswith("migrate")): set(),
    }


def test_keda_scales_fleets_on_the_demand_of_their_tags(everything: list[Manifest]) -> None:
    scaled = {
        one["metadata"]["name"].removeprefix("evoq-evoqueue-"): one["spec"]
        for one in everything
        if one["kind"] == "ScaledObject"
    }
    triggers = {
        name: [(each["type"], each["metadata"]["query"]) for each in spec["triggers"]]
        for name, spec in scaled.items()
    }
    fixed = {
        one["metadata"]["name"].removeprefix("evoq-evoqueue-"): one["spec"].get("replicas")
        for one in everything
        if one["kind"] == "Deployment"
    }

    assert triggers == {
        "gpu": [("postgresql", "SELECT evoq_demand('gpu', '')")],
        "big": [
            ("postgresql", "SELECT evoq_demand('cpu', 'highmem') + evoq_demand('cpu', 'slow')")
        ],
        "vllm": [
            ("postgresql", "SELECT least(evoq_demand('gpu', ''), 1)"),
            (
                "prometheus",
                'sum(vllm:num_requests_waiting{namespace="search",service="evoq-evoqueue-vllm"})',
            ),
        ],
    }
    assert {spec["minReplicaCount"] for spec in scaled.values()} == {0}
    assert {name: spec["maxReplicaCount"] for name, spec in scaled.items()} == {
        "gpu": 3,
        "big": 9,
        "vllm": 4,
    }
    assert [name for name, replicas in fixed.items() if replicas is None] == ["gpu", "big", "vllm"]
    assert fixed["cpu"] == 0


def test_without_keda_there_is_no_object_of_it_and_no_vllm() -> None:
    plain = documents(render({}, "evoq", "search"))

    assert {one["kind"] for one in plain if one["apiVersion"].startswith("keda")} == set()
    assert not [name for name, _ in pods(plain) if name == "vllm"]


def test_with_an_external_ledger_the_migration_is_a_hook_of_the_installation_too() -> None:
    external = {
        "postgresql": {"bundled": False, "host": "ledger.example", "sslmode": "verify-full"},
        "redis": {"bundled": False, "host": "queue.example", "tls": True, "user": "evoq"},
        "secrets": {"existingSecret": "passwords"},
        "caSecret": "ca",
    }

    found = documents(render(external, "evoq", "search"))
    bundled = documents(render({}, "evoq", "search"))

    (migrate,) = (one for one in found if one["kind"] == "Job")
    (plain,) = (one for one in bundled if one["kind"] == "Job")
    given = environment(migrate["spec"]["template"]["spec"]["containers"][0])
    assert migrate["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert "annotations" not in plain["metadata"]
    assert given["EVOQ_DATABASE_URL"].endswith(
        "@ledger.example:5432/evoqueue?sslmode=verify-full&sslrootcert=/etc/evoqueue/ca.crt"
    )
    assert given["EVOQ_REDIS_URL"] == (
        "rediss://evoq:$(REDIS_PASSWORD)@queue.example:6379/0?ssl_ca_certs=/etc/evoqueue/ca.crt"
    )
    for name, pod in pods(found):
        for container in containers(pod):
            mounted = {mount["name"] for mount in container.get("volumeMounts") or ()}
            assert "ca" in mounted, name
    assert not [one for one in found if one["kind"] in ("Secret", "StatefulSet")]


def names(release: str, override: str = "") -> set[str]:
    """Returns the names of a chart's objects."""
    rendered = render({"fullnameOverride": override}, release, "search")
    return {one["metadata"]["name"] for one in documents(rendered)}


def test_installations_of_one_namespace_share_no_name() -> None:
    """Also those whose names begin alike, as with a long prefix of a team."""
    team, dots = "team-of-the-search-for-better-heuristics-", "team.search"
    releases = [f"{team}test", f"{team}prod", dots, dots.replace(".", "-")]

    each = [names(release) for release in releases]
    each += [names("evoq", f"{team}of-{stage}") for stage in ("test", "prod")]

    assert sum(map(len, each)) == len(set().union(*each))
    for name in set().union(*each):
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name), name
    assert names(releases[0]) == each[0]
    assert "evoq-evoqueue-control" in names("evoq")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("fullnameOverride: Evoq", "/fullnameOverride"),
        ("fleet: []", "'fleet'"),
        ("fleets: [{name: a, kind: tpu}]", "/fleets/0/kind"),
        ("fleets: [{name: a, kind: cpu, replica: 2}]", "'replica'"),
        ("fleets: [{name: a, kind: cpu}, {name: a, kind: gpu}]", 'two have the name "a"'),
        ("fleets: [{name: a, kind: cpu, autoscaling: {maxReplicas: 2}}]", "keda.enabled=true"),
        ("fleets: [{name: a, kind: cpu, vllm: {model: m}}]", "a is of the kind cpu"),
        ("fleets: [{name: a, kind: gpu, vllm: {model: m}}]", "infra/app/vllm.Dockerfile"),
        ("fleets: [{name: a, kind: gpu, sandbox: kubernetes}]", "a is of the kind gpu"),
        ("postgresql: {bundled: false}", "postgresql.host"),
        ("postgresql: {bundled: false, host: there}", "secrets.existingSecret"),
        ("vllm: {enabled: true, autoscaling: {maxReplicas: 2}}", "vllm.replicas"),
        ("model: {baseUrl: models.example}", "/model/baseUrl"),
        ("settings: {workers: {EVOQ-X: 1}}", "EVOQ-X"),
    ],
)
def test_a_wrong_value_is_named(
    values: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "values.yaml").write_text(values)

    status = main(["--values", str(tmp_path / "values.yaml"), "--out", str(tmp_path / "out")])

    assert status == 1
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_manifests_that_are_written_again_keep_the_passwords(tmp_path: Path) -> None:
    write(render(yaml.safe_load(EVERYTHING), "evoq", "search"), tmp_path)
    before = (tmp_path / "secret.yaml").read_text()

    write(render({}, "evoq", "search"), tmp_path)

    assert (tmp_path / "secret.yaml").read_text() == before
    assert (tmp_path / "secret.yaml").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "vllm.yaml").exists()
    assert len(yaml.safe_load(before)["data"]) == 4
