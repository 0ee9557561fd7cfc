"""How a Job ended, or why it does not begin: pure functions of what the API server says of it."""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.adapters.kubernetes.manifests import Document


class EndKind(enum.StrEnum):
    """Ways in which a Job ends."""

    DONE = "done"
    FAILED = "failed"
    """Its process ended with an exit status, or by a signal."""
    OUT_OF_MEMORY = "out of memory"
    DEADLINE = "deadline exceeded"
    EVICTED = "evicted"
    OVERFULL = "disk full"
    """It wrote more than its volumes or its node's disk hold for it."""
    NODE_LOST = "node lost"
    IMAGE = "image missing"
    QUOTA = "quota exceeded"
    UNSCHEDULABLE = "unschedulable"
    REFUSED = "refused"
    """The cluster cannot make its pod or its container as they are described."""
    DELETED = "deleted"
    """Somebody deleted it, or its pod."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a Job ended.

    Attributes:
      detail: What the cluster said of it.
      pod: Name of its last pod; "" where there was none.
      exit_code: That of its process; None where it did not end.
    """

    kind: EndKind
    detail: str = ""
    pod: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a Job.

    Attributes:
      job: None as long as nothing is known.
      gone: Whether it does not exist any more.
      pods: Those that exist, and the last state of those that do no more.
      lost: Names of pods that do not exist any more.
    """

    job: Document | None = None
    gone: bool = False
    pods: tuple[Document, ...] = ()
    lost: frozenset[str] = frozenset()

    def of(self, uid: str) -> "Seen":
        """Returns what is known of the Job with this uid: another may have had its name."""
        ours = self.job is None or self.job["metadata"]["uid"] == uid
        owners = [pod["metadata"].get("ownerReferences") or () for pod in self.pods]
        return Seen(
            self.job if ours else None,
            self.gone and ours,
            tuple(
                pod
                for pod, owned in zip(self.pods, owners, strict=True)
                if any(owner["uid"] == uid for owner in owned)
            ),
            self.lost,
        )


_IMAGE = {
    "ErrImagePull",
    "ImagePullBackOff",
    "ImageInspectError",
    "RegistryUnavailable",
    "InvalidImageName",
    "ErrImageNeverPull",
}
_REFUSED = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_NOT_STARTED = {"ContainerCannotRun", "StartError"}
_LASTING = {"InvalidImageName", "ErrImageNeverPull"}
"""Reasons that no waiting changes."""
_PATIENCE = {EndKind.IMAGE: 60.0, EndKind.REFUSED: 30.0}
"""How long a reason may last, in seconds, in which a registry or a Secret may come back."""
_OVERFULL = "Usage of EmptyDir volume", "exceeds its local ephemeral storage", "exceeds the total"
"""Words about an eviction that the pod itself caused."""
_OF_NODE = {"NodeLost", "DeletionByPodGC", "DeletionByTaintManager"}
_EVICTED = {
    "Evicted", "EvictionByEvictionAPI", "PreemptionByScheduler", "PreemptionByKubeScheduler",
    "TerminationByKubelet", "Preempting", "NodeShutdown", "Shutdown", "Terminated",
}  # fmt: skip


def ending(seen: Seen) -> Ending | None:
    """Returns how a Job ended, by its pods or by its deletion; None as long as it has not."""
    for pod in seen.pods:
        if (found := _ended_by_itself(pod)) is not None:
            return found
    pod_name = seen.pods[-1]["metadata"]["name"] if seen.pods else ""
    for condition in _conditions(seen.job):
        if condition["type"] == "Failed" and condition.get("reason") == "DeadlineExceeded":
            return Ending(EndKind.DEADLINE, condition.get("message", ""), pod_name)
    if seen.gone:
        return Ending(EndKind.DELETED, "the Job was deleted", pod_name)
    for pod in seen.pods:
        if (found := _taken_away(pod, seen.lost)) is not None:
            return found
    return None


def failed_without_pod(seen: Seen) -> Ending | None:
    """Returns the end of a Job that has failed, for one of whose pods no end is known.

    The pod's own end says more, and may be on its way: the pods are to be read again before this
    is believed.
    """
    for condition in _conditions(seen.job):
        if condition["type"] == "Failed":
            detail = f"{condition.get('reason', '')}: {condition.get('message', '')}"
            pod_name = seen.pods[-1]["metadata"]["name"] if seen.pods else ""
            return Ending(EndKind.DELETED, f"{detail}; its pod is gone", pod_name)
    return None


def waiting(seen: Seen, events: Iterable[Document] = ()) -> Ending | None:
    """Returns why a Job's container does not run; None where it does, or nothing is known.

    Args:
      seen: What is known of the Job.
      events: Those about the Job where it has no pod, else those about its pod.
    """
    messages = [str(event.get("message", "")) for event in events if event.get("type") == "Warning"]
    if not seen.pods:
        if not messages:
            return None
        exceeded = "exceeded quota" in messages[-1]
        return Ending(EndKind.QUOTA if exceeded else EndKind.REFUSED, messages[-1])
    pod = seen.pods[-1]
    name = pod["metadata"]["name"]
    for container in pod["status"].get("containerStatuses", ()):
        state = container["state"].get("waiting")
        if state is None:
            return None
        detail = ": ".join(filter(None, (state.get("reason"), state.get("message"))))
        if state.get("reason") in _IMAGE:
            return Ending(EndKind.IMAGE, detail, name)
        if state.get("reason") in _REFUSED:
            return Ending(EndKind.REFUSED, detail, name)
    for condition in _conditions(pod):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return Ending(EndKind.UNSCHEDULABLE, condition.get("message", ""), name)
    # Such as a volume that cannot be mounted.
    return Ending(EndKind.UNSCHEDULABLE, messages[-1], name) if messages else None


def patience_seconds(why: Ending, start_seconds: float) -> float:
    """Returns how long a Job may wait for a reason before it is given up."""
    if why.detail.partition(":")[0] in _LASTING:
        return 0.0
    return min(start_seconds, _PATIENCE.get(why.kind, start_seconds))


def runs(seen: Seen) -> bool:
    """Returns whether the container of a Job runs, or has run."""
    return any(
        "waiting" not in container["state"]
        for pod in seen.pods
        for container in pod["status"].get("containerStatuses", ())
    )


def _conditions(thing: Document | None) -> Sequence[Document]:
    if thing is None:
        return ()
    found: Sequence[Document] = thing.get("status", {}).get("conditions") or ()
    return found


def _ended_by_itself(pod: Document) -> Ending | None:
    """Returns the end of a pod, unless somebody is about to delete it."""
    name, status = pod["metadata"]["name"], pod["status"]
    reason, message = status.get("reason", ""), status.get("message", "")
    detail = ": ".join(filter(None, (reason, message)))
    if reason == "DeadlineExceeded":
        return Ending(EndKind.DEADLINE, detail, name)
    for container in status.get("containerStatuses", ()):
        end = container["state"].get("terminated")
        if end is None:
            continue
        code = int(end.get("exitCode", 0))
        if end.get("reason") == "OOMKilled":
            return Ending(EndKind.OUT_OF_MEMORY, "OOMKilled", name, code)
        if end.get("reason") in _NOT_STARTED:
            return Ending(EndKind.REFUSED, end.get("message", end["reason"]), name, code)
        if code == 0:
            return Ending(EndKind.DONE, "", name, code)
        if "deletionTimestamp" in pod["metadata"] or _disruption(pod):
            return None
        if not reason:
            return Ending(EndKind.FAILED, f"exit status {code}", name, code)
    return None


def _taken_away(pod: Document, lost: frozenset[str]) -> Ending | None:
    """Returns why a pod was ended by others; None where it was not."""
    name, status = pod["metadata"]["name"], pod["status"]
    deleted = "deletionTimestamp" in pod["metadata"] or name in lost
    reason = status.get("reason") or _disruption(pod)
    if status.get("phase") != "Failed" and not deleted:
        return None
    detail = ": ".join(filter(None, (reason, status.get("message"))))
    if reason == "Evicted" and any(words in detail for words in _OVERFULL):
        return Ending(EndKind.OVERFULL, detail, name)
    if reason in _OF_NODE:
        return Ending(EndKind.NODE_LOST, detail, name)
    if reason in _EVICTED:
        return Ending(EndKind.EVICTED, detail, name)
    for condition in _conditions(pod):
        # The node's controller says so of pods on a node that does not answer.
        if condition["type"] == "Ready" and condition["status"] == "False" and deleted:
            node = pod["spec"].get("nodeName", "")
            if status.get("phase") == "Running" and not _terminated(pod):
                return Ending(EndKind.NODE_LOST, f"the node {node} does not answer", name)
    if deleted:
        return Ending(EndKind.DELETED, detail or "its pod was deleted", name)
    # The node refused it: for want of room, say.
    return Ending(EndKind.EVICTED, detail or "the pod failed", name)


def _terminated(pod: Document) -> bool:
    return any("terminated" in each["state"] for each in pod["status"]["containerStatuses"])


def _disruption(pod: Document) -> str:
    for condition in _conditions(pod):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return str(condition.get("reason", ""))
    return ""
