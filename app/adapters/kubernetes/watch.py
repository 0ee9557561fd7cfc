"""One watch of a process over all its Jobs and their pods, from which each waiter takes its own."""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from app.adapters.kubernetes.connection import Cluster, Expired, Kind
from app.adapters.kubernetes.endings import Seen
from app.adapters.kubernetes.manifests import JOB, Document
from app.ports.protocols import Misconfigured, Unavailable

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0

log = logging.getLogger(__name__)


class Followed:
    """What is known of one Job, for one waiter.

    Attributes:
      seen: The newest state.
      exists: Whether the API server has said that the Job exists.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = Seen()
        self.exists = False
        self._changed = threading.Event()

    def wake(self) -> None:
        """Ends a `wait`, now or the next one."""
        self._changed.set()

    def wait(self, seconds: float) -> None:
        """Returns when something has changed since the last call, or after the time."""
        self._changed.wait(max(0.0, seconds))
        self._changed.clear()


class Watch:
    """Follows the Jobs of a selector, and their pods, with one connection for each of the two.

    A connection that ends goes on from the last version; where that is too old, the objects are
    listed again, and what is not among them any more is gone.

    Args:
      cluster: Where they are.
      selector: Labels of the Jobs and of their pods.
    """

    def __init__(self, cluster: Cluster, selector: str) -> None:
        self._cluster = cluster
        self._selector = selector
        self._lock = threading.Lock()
        self._followed: dict[str, list[Followed]] = {}
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._broken_since: dict[Kind, float] = {}
        self._refusals: dict[Kind, Misconfigured] = {}
        self._again = threading.Event()

    def follow(self, name: str) -> Followed:
        """Returns what becomes known of a Job, which may be yet to be created."""
        followed = Followed(name)
        with self._lock:
            self._followed.setdefault(name, []).append(followed)
            if not self._threads:
                self._begin()
            # Somebody may have given the permission meanwhile.
            if self._refusals:
                self._refusals.clear()
                self._again.set()
        return followed

    def forget(self, followed: Followed) -> None:
        """Ends a `follow`.  Idempotent."""
        with self._lock:
            left = [f for f in self._followed.pop(followed.name, ()) if f is not followed]
            if left:
                self._followed[followed.name] = left

    def begin_with(self, followed: Followed, job: Document, pods: Sequence[Document]) -> None:
        """Takes over the state of a Job that exists, where no event has said more."""
        with self._lock:
            seen = followed.seen
            known = {pod["metadata"]["name"] for pod in seen.pods}
            news = tuple(pod for pod in pods if pod["metadata"]["name"] not in known)
            followed.seen = replace(seen, job=seen.job or job, pods=(*news, *seen.pods))
            followed.exists = True

    def check(self, outage_seconds: float) -> None:
        """Raises what keeps the watch from working.

        Raises:
          Misconfigured: This process may not watch.
          Unavailable: The API server has not answered for `outage_seconds`.
        """
        for refusal in list(self._refusals.values()):
            raise Misconfigured(*refusal.args)
        for since in list(self._broken_since.values()):
            if time.monotonic() - since > outage_seconds:
                server = self._cluster.server
                raise Unavailable(
                    f"the API server {server} has not answered for {outage_seconds:g} s"
                )

    def close(self) -> None:
        """Ends the watch; connections end with their next event, or within a minute."""
        self._closed.set()

    def _begin(self) -> None:
        kinds: tuple[Kind, ...] = ("jobs", "pods")
        for kind in kinds:
            thread = threading.Thread(
                target=self._keep_watching, args=(kind,), name=f"watch of {kind}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _keep_watching(self, kind: Kind) -> None:
        version, pause = "", _FIRST_PAUSE_SECONDS
        while not self._closed.is_set():
            try:
                if not version:
                    version = self._list(kind)
                for event in self._cluster.watch(kind, self._selector, version):
                    pause = _FIRST_PAUSE_SECONDS
                    self._answered(kind)
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._pass_on(kind, event["object"], event["type"] == "DELETED")
                    if self._closed.is_set():
                        return
                self._answered(kind)
            except Expired:
                version = ""
            except Misconfigured as error:
                self._again.clear()
                self._refusals[kind] = error
                self._wake_all()
                self._again.wait(_LONGEST_PAUSE_SECONDS)
            except Unavailable as error:
                log.warning("the watch of %s is repeated: %s", kind, error)
                self._broken_since.setdefault(kind, time.monotonic())
                self._wake_all()
                self._closed.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _answered(self, kind: Kind) -> None:
        self._broken_since.pop(kind, None)
        self._refusals.pop(kind, None)

    def _list(self, kind: Kind) -> str:
        """Takes over all objects of a kind; returns their version."""
        with self._lock:
            # What existed before the list was asked for, and is not in it, is gone.
            before = [(n, f) for n, many in self._followed.items() for f in many if f.exists]
        listed = self._cluster.listed(kind, self._selector)
        self._answered(kind)
        there = {item["metadata"]["name"] for item in listed.items}
        for item in listed.items:
            self._pass_on(kind, item, False)
        for name, followed in before:
            with self._lock:
                seen = followed.seen
                if kind == "jobs" and name not in there:
                    followed.seen = replace(seen, gone=True)
                elif kind == "pods":
                    lost = {pod["metadata"]["name"] for pod in seen.pods} - there
                    followed.seen = replace(seen, lost=seen.lost | lost)
            followed.wake()
        return listed.version

    def _pass_on(self, kind: Kind, item: Document, deleted: bool) -> None:
        name = item["metadata"].get("labels", {}).get(JOB, "")
        with self._lock:
            for followed in self._followed.get(name, ()):
                seen = followed.seen
                if kind == "jobs":
                    followed.seen = replace(seen, job=item, gone=deleted)
                else:
                    pod = item["metadata"]["name"]
                    others = [each for each in seen.pods if each["metadata"]["name"] != pod]
                    lost = seen.lost | {pod} if deleted else seen.lost
                    followed.seen = replace(seen, pods=(*others, item), lost=lost)
                followed.wake()

    def _wake_all(self) -> None:
        with self._lock:
            for many in self._followed.values():
                for followed in many:
                    followed.wake()
