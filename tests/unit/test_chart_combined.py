"""The chart with everything that changes its other parts, rendered at once without a cluster."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import helm_python
import pytest
import yaml

from infra.manifests import render
from tests.unit.test_chart import Manifest, containers, documents, environment, pods, policies

VALUES = """
image: {pullSecrets: [{name: registry}]}
caSecret: ca
secrets: {existingSecret: passwords}
postgresql: {bundled: false, host: ledger.example, sslmode: verify-full, user: evoq}
redis: {bundled: false, host: queue.example, tls: true, user: evoq}
model: {name: qwen, baseUrl: "https://models.example/v1", existingSecret: keys}
keda: {enabled: true, prometheus: "http://prometheus.monitoring:9090"}
jobs: {namespace: trials}
networkPolicy: {metricsPeers: [{namespaceSelector: {}}]}
settings: {workers: {EVOQ_METRICS_ADDRESS: "0.0.0.0:9464"}}
vllm: {enabled: true, existingSecret: vllm, autoscaling: {maxReplicas: 2}}
fleets:
  - {name: gpu, kind: gpu, tags: ["", remote], autoscaling: {maxReplicas: 3}}
  - name: llama
    kind: gpu
    tags: [llama70b]
    image: evoqueue-vllm:1
    vllm: {model: meta/llama, name: llama, args: "--seed 1", claim: weights}
    autoscaling: {maxReplicas: 2, stepsPerReplica: 64}
  - {name: cpu, kind: cpu, autoscaling: {maxReplicas: 9}}
  - name: highmem
    kind: cpu
    tags: [highmem, slow]
    sandbox: kubernetes
    environment: {EVOQ_SANDBOX__IMAGE: "registry/evoqueue-sandbox:1"}
    autoscaling: {minReplicas: 1, maxReplicas: 9}
  - {name: many, kind: cpu, tags: [many], sandbox: kubernetes, autoscaling: {maxReplicas: 5}}
"""
QUERIES = {
    "gpu": "SELECT evoq_demand('gpu', '') + evoq_demand('gpu', 'remote')",
    "llama": "SELECT evoq_demand('gpu', 'llama70b')",
    "cpu": "SELECT evoq_demand('cpu', '')",
    "highmem": "SELECT evoq_demand('cpu', 'highmem') + evoq_demand('cpu', 'slow')",
    "many": "SELECT evoq_demand('cpu', 'many')",
}
EXTERNAL = {
    "Secret": {"passwords", "keys", "vllm", "ca", "registry"},
    "PersistentVolumeClaim": {"weights"},
}
"""What the values name, and the chart does not make."""


@pytest.fixture(scope="module")
def combined() -> list[Manifest]:
    return documents(render(yaml.safe_load(VALUES), "evoq", "search"))


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {
        one["metadata"]["name"].removeprefix("evoq-evoqueue-"): one
        for one in manifests
        if one["kind"] == kind
    }


def named(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yields the kind and name of each object that a part of a manifest refers to."""
    kinds = {
        "secretRef": "Secret",
        "secretKeyRef": "Secret",
        "secretTargetRef": "Secret",
        "imagePullSecrets": "Secret",
        "configMapRef": "ConfigMap",
        "configMapKeyRef": "ConfigMap",
        "authenticationRef": "TriggerAuthentication",
        "scaleTargetRef": "Deployment",
    }
    names = {
        "secretName": "Secret",
        "claimName": "PersistentVolumeClaim",
        "serviceAccountName": "ServiceAccount",
    }
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in names:
                yield names[key], inner
            yield from named(inner, (*path, key))
        if path and path[-1] in kinds:
            yield kinds[path[-1]], value["name"]
    elif isinstance(value, list):
        for inner in value:
            yield from named(inner, path)


def test_each_fleet_has_a_deployment_that_its_demand_scales(combined: list[Manifest]) -> None:
    deployments, scaled = of_kind(combined, "Deployment"), of_kind(combined, "ScaledObject")
    served = {
        name: pod["spec"]["containers"][0]["command"][5]
        for name, pod in pods(combined)
        if name in QUERIES
    }

    assert served == {
        "gpu": "gpu,gpu:remote",
        "llama": "gpu:llama70b",
        "cpu": "cpu",
        "highmem": "cpu:highmem,cpu:slow",
        "many": "cpu:many",
    }
    for name, query in QUERIES.items():
        [trigger] = scaled[name]["spec"]["triggers"]
        assert trigger["metadata"]["query"] == query
        assert trigger["metadata"]["host"] == "ledger.example"
        assert trigger["metadata"]["userName"] == "evoq"
        assert "replicas" not in deployments[name]["spec"]
    assert {name: one["spec"]["minReplicaCount"] for name, one in scaled.items()} == {
        **dict.fromkeys((*QUERIES, "vllm"), 0),
        "highmem": 1,
    }


def test_the_model_server_starts_for_every_fleet_that_asks_it(combined: list[Manifest]) -> None:
    """A fleet with vLLM inside does not ask it; one with a label may be the only one that does."""
    trigger, _ = of_kind(combined, "ScaledObject")["vllm"]["spec"]["triggers"]

    assert trigger["metadata"]["query"] == (
        "SELECT least(evoq_demand('gpu', '') + evoq_demand('gpu', 'remote'), 1)"
    )


def test_no_two_objects_and_no_two_variables_have_one_name(combined: list[Manifest]) -> None:
    objects = Counter(
        (one["kind"], one["metadata"].get("namespace", "search"), one["metadata"]["name"])
        for one in combined
    )
    variables = Counter(
        (name, container["name"], variable["name"])
        for name, pod in pods(combined)
        for container in containers(pod)
        for variable in container.get("env", [])
    )

    assert [name for name, n in (objects + variables).items() if n > 1] == []


def test_every_object_that_another_names_is_there_or_is_the_users(combined: list[Manifest]) -> None:
    there = {
        (one["kind"], one["metadata"]["name"])
        for one in combined
        if one["metadata"].get("namespace", "search") == "search"
    }
    external = {(kind, name) for kind, names in EXTERNAL.items() for name in names}
    found = set(named(combined))

    assert found - there == external
    bindings = of_kind(combined, "RoleBinding").values()
    for binding in bindings:
        assert ("ServiceAccount", binding["subjects"][0]["name"]) in there
        assert binding["subjects"][0]["namespace"] == "search"
        assert binding["metadata"]["namespace"] == "trials"
        assert ("Role", "trials", binding["roleRef"]["name"]) in {
            (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
            for one in combined
        }
    for name, pod in pods(combined):
        volumes = Counter(volume["name"] for volume in pod["spec"].get("volumes") or ())
        assert set(volumes.values()) <= {1}, name
        for container in containers(pod):
            mounts = container.get("volumeMounts") or ()
            assert {mount["name"] for mount in mounts} <= volumes.keys(), name
            assert set(Counter(m["mountPath"] for m in mounts).values()) <= {1}


def test_only_the_fleets_that_make_jobs_may_make_them(combined: list[Manifest]) -> None:
    accounts = {
        name: (pod["spec"].get("serviceAccountName"), pod["spec"]["automountServiceAccountToken"])
        for name, pod in pods(combined)
        if not name.startswith("migrate")
    }
    jobs = {name for name, account in accounts.items() if account == ("evoq-evoqueue-jobs", True)}

    assert jobs == {"highmem", "many"}
    assert {account for name, account in accounts.items() if name not in jobs} == {
        ("evoq-evoqueue", False)
    }
    for name, pod in pods(combined):
        given = environment(pod["spec"]["containers"][0])
        assert (given.get("EVOQ_SANDBOX__BACKEND") == "kubernetes") is (name in jobs)
        if name in jobs:
            assert given["EVOQ_KUBERNETES__NAMESPACE"] == "trials"
            assert given["EVOQ_KUBERNETES__PULL_SECRETS"] == '["registry"]'


def test_each_pod_reaches_what_it_needs_and_nothing_else(combined: list[Manifest]) -> None:
    reached = {
        name: policies(combined, pod["metadata"]["labels"])["egress"]
        for name, pod in pods(combined)
        if not name.startswith("migrate")
    }
    trials = {
        one["metadata"]["namespace"]
        for one in combined
        if one["kind"] == "NetworkPolicy" and one["metadata"]["name"].endswith("-trials")
    }
    ledger = of_kind(combined, "NetworkPolicy")["ledger"]["spec"]["egress"]

    assert reached == {
        **{key: {"ledger"} for key in ("control", "cpu", "dashboard")},
        **{key: {"ledger", "models"} for key in ("gpu", "llama")},
        **{key: {"ledger", "jobs"} for key in ("highmem", "many")},
        "vllm": {"vllm"},
    }
    assert trials == {"trials"}
    assert [rule["ports"][0]["port"] for rule in ledger] == [53, 5432, 6379]
    assert all(rule["to"][0].keys() == {"ipBlock"} for rule in ledger[1:])


@pytest.mark.parametrize("name", ["control", "dashboard", "flower", "vllm"])
def test_a_fleet_is_not_named_as_another_part(name: str) -> None:
    """Two Deployments would have one name."""
    with pytest.raises(helm_python.HelmError, match=f"{name} is the name of another part"):
        render({"fleets": [{"name": name, "kind": "gpu"}]}, "evoq", "search")
