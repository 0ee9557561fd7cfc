"""The settings of a process that uses a Kubernetes cluster."""

from dataclasses import field
from typing import Literal

from pydantic.dataclasses import dataclass

from app.config.section import Section
from app.domain.setting import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings(Section):
    """Where Jobs run, and as what; each process reads its own."""

    namespace: str = ""
    """Namespace of the Jobs. Without a value, that of the worker's pod, or of the context."""
    kubeconfig: str = ""
    """Path of a kubeconfig. Without a value, the cluster around the worker's pod, else the file
    that `KUBECONFIG` names, else `~/.kube/config`."""
    context: str = ""
    """Context of the kubeconfig. Without a value, its current one."""
    node_selector: dict[str, str] = field(default_factory=dict)
    """Labels of the nodes that may run Jobs, as JSON."""
    tolerations: list[dict[str, str | int]] = field(default_factory=list)
    """Tolerations of the pods, as JSON."""
    runtime_class: str = ""
    """RuntimeClass of the pods, such as `gvisor`. Without a value, the cluster's default."""
    service_account: str = ""
    """Service account of the pods, whose token they are not given."""
    pull_secrets: list[str] = field(default_factory=list)
    """Secrets with which nodes pull images, as JSON."""
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node pulls an image."""
    gpus: int = bounded(0, ge=0)
    """Devices of one trial."""
    gpu_resource: str = "nvidia.com/gpu"
    """Name of a device in the resources of a node."""
    claims: dict[str, str] = field(default_factory=dict)
    """PersistentVolumeClaim to the folder that workers have it at, as JSON: where trials find the
    data of a problem."""
    start_minutes: float = bounded(10.0, gt=0)
    """Longest time in minutes that a Job waits for a node, its image and its volumes."""
