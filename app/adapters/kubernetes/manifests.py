"""The documents of a Job: pure functions from its specification to what the API server takes."""

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

Document: TypeAlias = dict[str, Any]
"""An object of the API server, as JSON."""

JOB, OWNER, NETWORK = "evoqueue.job", "evoqueue.owner", "evoqueue.network"
"""Labels: the Job's name, the deployment that it belongs to, and which policy its network has."""
NONCE, PROCESS = "evoqueue.nonce", "evoqueue.process"
"""Annotations of a Job: the word that begins its result, and the process that waits for it, where
no other may."""
NONCE_VARIABLE = "EVOQ_NONCE"
"""Variable of the container with the same word."""
FILES_BYTES = 700 * 1024
"""Most bytes of the files of a Job: an object of the API server may hold 1 MiB in base64."""
NO_NETWORK = "none"
"""Value of the label `NETWORK` that network policies close."""

_MARGIN_SECONDS = 60.0
_LOST_NODE_SECONDS = 30
"""How long a pod stays on a node that does not answer, in place of five minutes."""
_LOST_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_NO_TEXTS: Mapping[str, str] = {}
_NO_FILES: Mapping[str, bytes] = {}


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim, mounted into the container.

    Attributes:
      path: Where the container finds it.
      sub_path: The folder of the volume that it finds there; "" for the whole volume.
    """

    name: str
    path: str
    sub_path: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class SecretVariable:
    """A variable of the environment whose value the cluster takes from a Secret."""

    variable: str
    secret: str
    key: str


@dataclass(frozen=True, slots=True)
class Scratch:
    """An empty folder of the container, in memory, which counts as the container's."""

    path: str
    mib: int


@dataclass(frozen=True, slots=True)
class Resources:
    """What a container may use; it is scheduled where all of it but `cpus` beyond 1 is free.

    Attributes:
      gpus: How many devices of `gpu_resource`.
    """

    cpus: float = 1.0
    memory_mib: int = 1024
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and as what pods run, as the cluster has it.

    Attributes:
      tolerations: Tolerations as a pod's manifest has them.
      service_account: Whose token is never mounted; "" for the namespace's default.
      runtime_class: Such as "gvisor"; "" for the cluster's default.
      pull_policy: "IfNotPresent", "Always" or "Never".
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str | int], ...] = ()
    service_account: str = ""
    pull_secrets: tuple[str, ...] = ()
    runtime_class: str = ""
    pull_policy: str = "IfNotPresent"


@dataclass(frozen=True, slots=True)
class Security:
    """What the processes of a container may do; none may gain privileges.

    Attributes:
      user: Numeric id of the user; also that of the group, and the group of its volumes.
      capabilities: Those of the first process; without any but "restricted" pods are admitted.
    """

    user: int = 65_534
    capabilities: tuple[str, ...] = ()
    read_only_root: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A container to be run once.

    Attributes:
      command: The program and its arguments, in place of the image's.
      ticket: Names the work, so that who takes it over finds the Job of the one that died; "" for
        work that nobody takes over.
      files: Name to contents, at most `FILES_BYTES`; the container finds them in `files_path`.
      network: Value of the label `NETWORK`.
      labels: Further labels of the Job and its pod.
      start_seconds: Longest time until the container runs: of places, volumes and its image.
      run_seconds: Longest time that it runs.
      log_lines: How many of the last lines of its output are read, the result among them.
      keep_seconds: How long the cluster keeps a Job that has ended and that nobody deletes.
    """

    image: str
    command: tuple[str, ...]
    ticket: str = ""
    files: Mapping[str, bytes] = field(default_factory=lambda: _NO_FILES)
    files_path: str = "/etc/evoqueue"
    environment: Mapping[str, str] = field(default_factory=lambda: _NO_TEXTS)
    secrets: tuple[SecretVariable, ...] = ()
    claims: tuple[Claim, ...] = ()
    scratch: tuple[Scratch, ...] = (Scratch("/tmp", 128),)
    resources: Resources = Resources()
    placement: Placement = Placement()
    security: Security = Security()
    network: str = NO_NETWORK
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_TEXTS)
    working_directory: str = "/"
    start_seconds: float = 600.0
    run_seconds: float = 3600.0
    keep_seconds: int = 300
    log_lines: int = 1000


def job_name(spec: JobSpec, owner: str) -> str:
    """Returns the name of a Job with a ticket: equal work of one ticket has one name.

    What a Job does is part of its name, so that no ledger beside another, and no later version,
    takes the result of other work for its own.
    """
    files = {name: hashlib.sha256(contents).hexdigest() for name, contents in spec.files.items()}
    described = json.dumps({**asdict(spec), "files": files, "owner": owner}, sort_keys=True)
    return f"evoq-{hashlib.sha256(described.encode()).hexdigest()[:24]}"


def job(spec: JobSpec, name: str, nonce: str, owner: str) -> Document:
    """Returns the Job of a specification.

    Raises:
      ValueError: The files are too large for a ConfigMap.
    """
    size = sum(len(contents) for contents in spec.files.values())
    if size > FILES_BYTES:
        raise ValueError(f"{size} bytes of files of a Job; a ConfigMap holds {FILES_BYTES}")
    labels = {**spec.labels, JOB: name, OWNER: owner, NETWORK: spec.network}
    labels["app.kubernetes.io/managed-by"] = "evoqueue"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {NONCE: nonce},
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": math.ceil(
                spec.start_seconds + spec.run_seconds + _MARGIN_SECONDS
            ),
            "ttlSecondsAfterFinished": spec.keep_seconds,
            "template": {"metadata": {"labels": labels}, "spec": _pod(spec, name, nonce)},
        },
    }


def _files_name(name: str, nonce: str) -> str:
    """Returns the name of a Job's ConfigMap, which no earlier Job of the same name had.

    The cluster deletes the files of a Job some time after it.
    """
    return f"{name}-{nonce[:8]}"


def config_map(spec: JobSpec, created: Document) -> Document:
    """Returns the ConfigMap with a Job's files, which the cluster deletes with the Job."""
    metadata = created["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _files_name(metadata["name"], metadata["annotations"][NONCE]),
            "labels": metadata["labels"],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "immutable": True,
        "binaryData": {
            name: base64.b64encode(contents).decode() for name, contents in spec.files.items()
        },
    }


def _pod(spec: JobSpec, name: str, nonce: str) -> Document:
    volumes, mounts = _volumes(spec, _files_name(name, nonce))
    security, placement = spec.security, spec.placement
    root = security.user == 0
    pod: Document = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsUser": security.user,
            "runAsGroup": security.user,
            "fsGroup": security.user,
            "runAsNonRoot": not root,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [*map(dict, placement.tolerations), *_short_patience()],
        "containers": [
            {
                "name": "main",
                "image": spec.image,
                "imagePullPolicy": placement.pull_policy,
                "command": list(spec.command),
                "workingDir": spec.working_directory,
                "env": _environment(spec, nonce),
                "resources": _resources(spec.resources),
                "volumeMounts": mounts,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": security.read_only_root,
                    "capabilities": {"drop": ["ALL"], "add": list(security.capabilities)},
                },
            }
        ],
        "volumes": volumes,
    }
    if placement.node_selector:
        pod["nodeSelector"] = dict(placement.node_selector)
    if placement.service_account:
        pod["serviceAccountName"] = placement.service_account
    if placement.pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in placement.pull_secrets]
    if placement.runtime_class:
        pod["runtimeClassName"] = placement.runtime_class
    return pod


def _short_patience() -> list[Document]:
    return [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _LOST_NODE_SECONDS,
        }
        for key in _LOST_NODE
    ]


def _environment(spec: JobSpec, nonce: str) -> list[Document]:
    texts = {**spec.environment, NONCE_VARIABLE: nonce}
    return [{"name": name, "value": value} for name, value in texts.items()] + [
        {
            "name": each.variable,
            "valueFrom": {"secretKeyRef": {"name": each.secret, "key": each.key}},
        }
        for each in spec.secrets
    ]


def _resources(resources: Resources) -> Document:
    limits: Document = {
        "cpu": f"{math.ceil(resources.cpus * 1000)}m",
        "memory": f"{resources.memory_mib}Mi",
    }
    requests = {**limits, "cpu": f"{math.ceil(min(resources.cpus, 1.0) * 1000)}m"}
    if resources.gpus:
        for each in (limits, requests):
            each[resources.gpu_resource] = str(resources.gpus)
    return {"limits": limits, "requests": requests}


def _volumes(spec: JobSpec, files: str) -> tuple[list[Document], list[Document]]:
    """Returns the volumes of a pod, its files' ConfigMap among them, and where they are mounted."""
    volumes: list[Document] = []
    mounts: list[Document] = []
    if spec.files:
        # Readable by the container's first user alone.
        volumes.append({"name": "files", "configMap": {"name": files, "defaultMode": 0o440}})
        mounts.append({"name": "files", "mountPath": spec.files_path, "readOnly": True})
    for number, scratch in enumerate(spec.scratch):
        volume = {"medium": "Memory", "sizeLimit": f"{scratch.mib}Mi"}
        volumes.append({"name": f"scratch-{number}", "emptyDir": volume})
        mounts.append({"name": f"scratch-{number}", "mountPath": scratch.path})
    names = list(dict.fromkeys(claim.name for claim in spec.claims))
    for number, claimed in enumerate(names):
        claim_source = {"claimName": claimed}
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": claim_source})
    for claim in spec.claims:
        mount: Document = {
            "name": f"claim-{names.index(claim.name)}",
            "mountPath": claim.path,
            "readOnly": claim.read_only,
        }
        if claim.sub_path:
            mount["subPath"] = claim.sub_path
        mounts.append(mount)
    return volumes, mounts
