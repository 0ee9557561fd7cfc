"""An API server in this process, for what no real one does when it is asked to.

It has Jobs, pods, ConfigMaps, logs and watches with versions, and a kubelet that runs nothing: a
pod ends by `finish`.
"""

import base64
import json
import queue
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from app.adapters.kubernetes.connection import Cluster, connect
from app.adapters.kubernetes.manifests import JOB

NAMESPACE = "fake"


class FakeApiServer:
    """Serves on the loopback interface until `close`.

    Attributes:
      requests: How often each verb was used on each kind.
      down: Whether every request is answered with 503.
      collects: Whether the files of a Job that is deleted are deleted at once, or never.
      full: Whether a quota admits no further Job.
      ahead_seconds: By how much its clock is ahead of that of this machine.
      pends: Whether pods wait for their container, whose log is refused.
      refusals: Kinds whose next creation is refused, with the status and its reason.
    """

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.down, self.collects, self.pends = False, True, False
        self.full, self.ahead_seconds = False, 0.0
        self.refusals: dict[str, tuple[int, str]] = {}
        self._lock = threading.Lock()
        self._version, self._oldest = 1, 0
        self._things: dict[str, dict[str, Any]] = {"jobs": {}, "pods": {}, "configmaps": {}}
        self._history: list[tuple[int, str, dict[str, Any]]] = []
        self._watches: list[tuple[str, queue.Queue[dict[str, Any] | None]]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string(fake._now() if timestamp is None else timestamp)

            def do_GET(self) -> None:
                fake._get(self)

            def do_POST(self) -> None:
                fake._post(self)

            def do_DELETE(self) -> None:
                fake._delete(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.request_queue_size = 128
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def cluster(self, folder: Path) -> Cluster:
        """Returns a connection to it."""
        file = folder / "kubeconfig"
        address = f"http://127.0.0.1:{self._server.server_address[1]}"
        context = {"cluster": "c", "user": "u", "namespace": NAMESPACE}
        file.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": address}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                    "contexts": [{"name": "x", "context": context}],
                    "current-context": "x",
                }
            )
        )
        return connect(str(file))

    def close(self) -> None:
        self.drop_watches()
        self._server.shutdown()
        self._server.server_close()

    def names(self, kind: str = "jobs") -> list[str]:
        """Returns the names of all Jobs, or of all objects of another kind."""
        with self._lock:
            return list(self._things[kind])

    def finish(self, name: str) -> None:
        """Ends the pod of a Job well."""
        with self._lock:
            pod = self._things["pods"][f"{name}-p"]
            state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
            status = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": state}]}
            self._put("MODIFIED", "pods", {**pod, "status": status})

    def job(self, name: str) -> dict[str, Any]:
        """Returns a Job."""
        with self._lock:
            found: dict[str, Any] = self._things["jobs"][name]
            return found

    def expire(self, name: str) -> None:
        """Ends a Job at its deadline, and leaves its pod as it is for a moment."""
        with self._lock:
            self._fail(name, "DeadlineExceeded")

    def exhaust_memory(self, name: str) -> None:
        """Ends the pod of a Job for want of memory, and the Job; watches see the Job alone."""
        with self._lock:
            pod = self._things["pods"][f"{name}-p"]
            state = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
            status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": state}]}
            self._things["pods"][f"{name}-p"] = {**pod, "status": status}
            self._fail(name, "BackoffLimitExceeded")

    def lose_pod(self, name: str) -> None:
        """Deletes the pod of a Job, and ends the Job; watches see the Job alone."""
        with self._lock:
            del self._things["pods"][f"{name}-p"]
            self._fail(name, "BackoffLimitExceeded")

    def _fail(self, name: str, reason: str) -> None:
        job = self._things["jobs"][name]
        condition = {"type": "Failed", "status": "True", "reason": reason}
        condition["lastTransitionTime"] = datetime.fromtimestamp(self._now(), UTC).isoformat()
        self._put("MODIFIED", "jobs", {**job, "status": {"conditions": [condition]}})

    def delete(self, name: str) -> None:
        """Deletes a Job, and at once what it owns."""
        with self._lock:
            files = [one for one in self._things["configmaps"] if one.startswith(f"{name}-")]
            owned = [("configmaps", one) for one in files if self.collects]
            for kind, thing in (("pods", f"{name}-p"), *owned, ("jobs", name)):
                if found := self._things[kind].pop(thing, None):
                    self._put("DELETED", kind, found)

    def drop_watches(self) -> None:
        """Ends every watch without a word."""
        with self._lock:
            watches, self._watches = self._watches, []
        for _, events in watches:
            events.put(None)

    def watching(self) -> int:
        """Returns how many watches are open."""
        with self._lock:
            return len(self._watches)

    def compact(self) -> None:
        """Forgets what happened until now, so that no watch can go on from there."""
        with self._lock:
            self._version += 1
            self._oldest, self._history = self._version, []

    def _now(self) -> float:
        return time.time() + self.ahead_seconds

    def _put(self, event: str, kind: str, thing: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        metadata = {**thing["metadata"], "resourceVersion": str(self._version)}
        thing = {**thing, "metadata": metadata}
        if event != "DELETED":
            self._things[kind][metadata["name"]] = thing
        told = {"type": event, "object": thing}
        self._history.append((self._version, kind, told))
        for watched, events in self._watches:
            if watched == kind:
                events.put(told)
        return thing

    def _post(self, request: BaseHTTPRequestHandler) -> None:
        kind = urlsplit(request.path).path.split("/")[-1]
        thing = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        if self._refused(request, "create", kind):
            return
        name = thing["metadata"]["name"]
        with self._lock:
            if refusal := self.refusals.pop(kind, None):
                _answer(request, refusal[0], {"message": "not now", "reason": refusal[1]})
                return
            if self.full and kind == "jobs":
                _answer(request, 403, {"message": "exceeded quota: one", "reason": "Forbidden"})
                return
            if name in self._things[kind]:
                _answer(request, 409, {"message": f"{name} exists", "reason": "AlreadyExists"})
                return
            uid = f"uid-{name}-{self._version}"
            thing = {**thing, "metadata": {**thing["metadata"], "uid": uid}, "status": {}}
            thing = self._put("ADDED", kind, thing)
            if kind == "jobs":
                owner = [{"uid": uid}]
                metadata = {"name": f"{name}-p", "uid": f"p-{uid}", "ownerReferences": owner}
                metadata["labels"] = thing["metadata"]["labels"]
                now, phase = ("waiting", "Pending") if self.pends else ("running", "Running")
                state = {"name": "main", "state": {now: {}}}
                status = {"phase": phase, "containerStatuses": [state]}
                self._put("ADDED", "pods", {"metadata": metadata, "spec": {}, "status": status})
        _answer(request, 201, thing)

    def _delete(self, request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(int(request.headers.get("Content-Length", 0)))
        name = urlsplit(request.path).path.split("/")[-1]
        if not self._refused(request, "delete", "jobs"):
            found = name in self.names()
            self.delete(name)
            _answer(request, 200 if found else 404, {})

    def _get(self, request: BaseHTTPRequestHandler) -> None:
        address = urlsplit(request.path)
        asked = {name: values[0] for name, values in parse_qs(address.query).items()}
        *_, kind, name = address.path.split("/")
        if name == "log":
            pod = address.path.split("/")[-2]
            if not self._refused(request, "get", "log"):
                self._log(request, pod.removesuffix("-p"))
        elif name in self._things and "watch" in asked:
            if not self._refused(request, "watch", name):
                self._watch(request, name, int(asked["resourceVersion"]))
        elif name in self._things or name == "events":
            if not self._refused(request, "list", name):
                wanted = asked.get("labelSelector", "").partition(f"{JOB}=")[2]
                with self._lock:
                    items = [
                        thing
                        for thing in self._things.get(name, {}).values()
                        if wanted in ("", thing["metadata"]["labels"][JOB])
                    ]
                    version = {"resourceVersion": str(self._version)}
                _answer(request, 200, {"metadata": version, "items": items})
        elif not self._refused(request, "get", kind):
            with self._lock:
                found = self._things[kind].get(name)
            _answer(request, 200 if found else 404, found or {})

    def _log(self, request: BaseHTTPRequestHandler, name: str) -> None:
        with self._lock:
            job = self._things["jobs"][name]
            pod = self._things["pods"][f"{name}-p"]
        if pod["status"]["phase"] == "Pending":
            _answer(request, 400, {"message": "the container is waiting to start"})
            return
        nonce = job["metadata"]["annotations"]["evoqueue.nonce"]
        result = base64.b64encode(name.encode()).decode()
        _answer(request, 200, f"@@EVOQ {nonce} {result}\n")

    def _watch(self, request: BaseHTTPRequestHandler, kind: str, since: int) -> None:
        events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        with self._lock:
            if since < self._oldest:
                _answer(request, 410, {"message": "too old", "code": 410})
                return
            for version, each, event in self._history:
                if each == kind and version > since:
                    events.put(event)
            self._watches.append((kind, events))
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.flush()
        while (event := events.get()) is not None:
            line = json.dumps(event).encode() + b"\n"
            request.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            request.wfile.flush()
        request.close_connection = True

    def _refused(self, request: BaseHTTPRequestHandler, verb: str, kind: str) -> bool:
        with self._lock:
            self.requests[f"{verb} {kind}"] += 1
        if self.down:
            _answer(request, 503, {"message": "down"})
        return self.down


def _answer(request: BaseHTTPRequestHandler, code: int, body: object) -> None:
    text = (body if isinstance(body, str) else json.dumps(body)).encode()
    request.send_response(code)
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)
