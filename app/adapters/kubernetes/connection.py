"""The API server of a cluster: the few requests that Jobs need, as JSON, with errors translated."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias
from urllib.parse import urlencode

from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError

from app.adapters.kubernetes.manifests import Document
from app.ports.protocols import Misconfigured, Unavailable

Kind: TypeAlias = Literal["jobs", "pods"]

INSTALL = "pip install 'evoqueue[kubernetes]'"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 20.0
_WATCH_SECONDS = 60
"""After which the server ends a watch, which goes on from where it was: a connection that broke
without a word is noticed then."""
_RETRYING_SECONDS, _PAUSE_SECONDS = 10.0, 0.25
_ANSWER_BYTES = 64 << 20
_CONNECTIONS = 64
_NOTHING: Mapping[str, str] = {}
_PATHS = {
    "jobs": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "pods": "/api/v1/namespaces/{namespace}/pods",
    "configmaps": "/api/v1/namespaces/{namespace}/configmaps",
    "events": "/api/v1/namespaces/{namespace}/events",
}
_NEEDED = (
    *((verb, "batch", "jobs") for verb in ("create", "get", "list", "watch", "delete")),
    ("create", "", "configmaps"),
    ("list", "", "pods"),
    ("watch", "", "pods"),
    ("get", "", "pods/log"),
    ("list", "", "events"),
)
_RULES = (
    "It needs a Role in the namespace {namespace}: create, get, list, watch and delete for `jobs` "
    "of the group `batch`, create for `configmaps`, list and watch for `pods`, get for `pods/log`, "
    "list for `events`; docs/sandbox.md has the manifest"
)


class NotThere(Exception):
    """The object does not exist."""


class Exists(Exception):
    """An object of that name exists."""


class Expired(Exception):
    """The version from which a watch was to go on is too old: the objects must be listed again."""


class QuotaExceeded(Unavailable):
    """A quota of the namespace admits no further object."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects of a kind.

    Attributes:
      version: From which a watch of them goes on.
      at: When they were listed, by the API server's clock; None where a proxy took that out.
    """

    items: list[Document]
    version: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the API server answered, and when, as its header `Date` has it."""

    body: bytes
    date: str | None


class Cluster:
    """A namespace of a cluster.  Requests that fail on the way are repeated for ten seconds.

    Requests are made here, and not by the package's classes for each kind: their import takes five
    seconds of a processor and 100 MiB.

    Attributes:
      namespace: Where all Jobs are.
      server: The address of the API server.
    """

    def __init__(self, settings: Any, namespace: str) -> None:
        """Wraps a `kubernetes.client.Configuration`; see `connect`."""
        from kubernetes.client.rest import RESTClientObject

        self.namespace = namespace
        self.server = str(settings.host)
        self._settings = settings
        self._pool: PoolManager = RESTClientObject(settings).pool_manager

    def create_job(self, document: Document) -> Document:
        """Raises Exists if there is one of the name, and QuotaExceeded."""
        return self._create("jobs", document)

    def create_config_map(self, document: Document) -> Document:
        """Raises Exists if there is one of the name, and QuotaExceeded."""
        return self._create("configmaps", document)

    def _create(self, kind: str, document: Document) -> Document:
        try:
            return self._ask("POST", _PATHS[kind], body=document)
        except NotThere as error:
            raise Misconfigured(
                f"the API server {self.server} cannot create {kind}: {error}. Create the namespace "
                f"(`kubectl create namespace {self.namespace}`), or name another with "
                f"EVOQ_KUBERNETES__NAMESPACE"
            ) from error

    def read_job(self, name: str) -> Document:
        """Raises NotThere."""
        return self._ask("GET", f"{_PATHS['jobs']}/{name}")

    def delete_job(self, name: str) -> None:
        """Deletes a Job with its pods and files, which it does not wait for; raises NotThere."""
        self._ask("DELETE", f"{_PATHS['jobs']}/{name}", {"propagationPolicy": "Background"})

    def listed(self, kind: Kind, selector: str) -> Listed:
        """Returns the objects whose labels a selector matches."""
        answer = self._patiently("GET", _PATHS[kind], {"labelSelector": selector})
        found: Document = json.loads(answer.body)
        at = parsedate_to_datetime(answer.date) if answer.date else None
        return Listed(found["items"], found["metadata"]["resourceVersion"], at)

    def watch(self, kind: Kind, selector: str, version: str) -> Iterator[Document]:
        """Yields events until the server ends the watch, a minute later at most.

        Raises:
          Expired: The version is too old.
          Unavailable: The connection broke; it is not repeated.
        """
        query = {
            "labelSelector": selector,
            "resourceVersion": version,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        silence_seconds = _WATCH_SECONDS + _ANSWER_SECONDS
        response = self._send("GET", _PATHS[kind], query, seconds=silence_seconds)
        with closing(response):
            for line in _lines(response):
                event: Document = json.loads(line)
                if event["type"] == "ERROR":
                    self._refuse(event["object"].get("code", 500), event["object"])
                yield event

    def log(self, pod: str, lines: int) -> bytes:
        """Returns the last lines of a pod's output; raises NotThere."""
        path = f"{_PATHS['pods']}/{pod}/log"
        return self._patiently("GET", path, {"tailLines": str(lines)}).body

    def forbidden(self) -> list[str]:
        """Returns what this process may not do here of all that Jobs need, such as "watch pods"."""
        return [
            f"{verb} {resource}"
            for verb, group, resource in _NEEDED
            if not self._may(verb, group, resource)
        ]

    def _may(self, verb: str, group: str, resource: str) -> bool:
        kind, _, sub = resource.partition("/")
        wanted = {"namespace": self.namespace, "verb": verb, "group": group, "resource": kind}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**wanted, "subresource": sub}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self._ask("POST", path, body=review)["status"]["allowed"])

    def events(self, uid: str) -> list[Document]:
        """Returns the events about an object."""
        selector = {"fieldSelector": f"involvedObject.uid={uid}"}
        found: list[Document] = self._ask("GET", _PATHS["events"], selector)["items"]
        return found

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = _NOTHING,
        body: Document | None = None,
    ) -> Document:
        """Returns the document that answers a request."""
        document: Document = json.loads(self._patiently(method, path, query, body).body)
        return document

    def _patiently(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = _NOTHING,
        body: Document | None = None,
    ) -> _Answer:
        """Repeats a request that may be sent twice: names make each of them idempotent."""
        deadline, pause = time.monotonic() + _RETRYING_SECONDS, _PAUSE_SECONDS
        while True:
            try:
                with closing(self._send(method, path, query, body)) as response:
                    return _Answer(response.read(_ANSWER_BYTES), response.headers.get("Date"))
            except (Misconfigured, QuotaExceeded):
                raise
            except (Unavailable, HTTPError, OSError) as error:
                if time.monotonic() + pause > deadline:
                    if isinstance(error, Unavailable):
                        raise
                    raise Unavailable(f"the API server {self.server} broke off: {error}") from error
            time.sleep(pause)
            pause *= 2

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Document | None = None,
        seconds: float = _ANSWER_SECONDS,
    ) -> BaseHTTPResponse:
        """Returns the answer to a request, not yet read.

        Args:
          method: GET, POST or DELETE.
          path: With `{namespace}` for the namespace.
          query: What follows the path.
          body: The document that is sent.
          seconds: Longest silence of the server.
        """
        # A token is renewed here when it has expired.
        known = self._settings.auth_settings().values()
        headers = {each["key"]: each["value"] for each in known if each["in"] == "header"}
        address = f"{self.server}{path.format(namespace=self.namespace)}?{urlencode(query)}"
        text = None if body is None else json.dumps(body)
        try:
            response = self._pool.request(
                method, address, body=text, preload_content=False, retries=False,
                headers={**headers, "Content-Type": "application/json"},
                timeout=Timeout(connect=_CONNECT_SECONDS, read=seconds),
            )  # fmt: skip
            if response.status >= 300:
                with closing(response):
                    self._refuse(response.status, _status(response.read(_ANSWER_BYTES)))
        except (HTTPError, OSError) as error:
            raise Unavailable(f"the API server {self.server} does not answer: {error}") from error
        return response

    def _refuse(self, code: int, status: Document) -> NoReturn:
        """Raises what a status of the API server means."""
        message = str(status.get("message") or status.get("reason") or f"status {code}")
        if code == 404:
            raise NotThere(message)
        # Others are collisions, as of two requests that one quota counts at the same moment.
        if code == 409 and status.get("reason") == "AlreadyExists":
            raise Exists(message)
        if code == 410:
            raise Expired(message)
        if code == 403 and "exceeded quota" in message:
            raise QuotaExceeded(message)
        if code == 401:
            raise Misconfigured(
                f"the API server {self.server} does not know who asks: {message}. Renew the "
                f"credentials of the kubeconfig, or mount the service account's token"
            )
        if code == 403:
            rules = _RULES.format(namespace=self.namespace)
            raise Misconfigured(f"the API server {self.server} refuses: {message}. {rules}")
        if code in (400, 422):
            raise Misconfigured(f"the API server {self.server} refuses: {message}")
        raise Unavailable(f"the API server {self.server}: {message}")


def connect(kubeconfig: str = "", context: str = "", namespace: str = "") -> Cluster:
    """Returns the cluster of a kubeconfig, or the one that this process runs in.

    Args:
      kubeconfig: Path of the file; "" for the cluster around this process, else the file that
        KUBECONFIG names, else `~/.kube/config`.
      context: Name of a context in the file; "" for its current one.
      namespace: Where Jobs are; "" for that of the pod or of the context, else "default".

    Raises:
      Misconfigured: The package is missing, or there is no such file, context or account.
    """
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise Misconfigured(
            f"Kubernetes needs the package kubernetes, which is not installed: {INSTALL}"
        ) from error
    settings = client.Configuration()
    # A pod without a token may have a kubeconfig.
    inside = not kubeconfig and not context and (_ACCOUNT / "token").exists()
    try:
        if inside:
            config.load_incluster_config(client_configuration=settings)
            found = (_ACCOUNT / "namespace").read_text().strip()
        else:
            file, chosen = kubeconfig or None, context or None
            config.load_kube_config(
                config_file=file, context=chosen, client_configuration=settings,
                persist_config=False,
            )  # fmt: skip
            contexts, current = config.list_kube_config_contexts(config_file=file)
            named = next((c for c in contexts if c["name"] == context), current)
            found = named["context"].get("namespace", "")
    except (config.ConfigException, OSError, ValueError) as error:
        place = "the service account of this pod" if inside else kubeconfig or "the kubeconfig"
        said = str(error).rstrip(".")
        raise Misconfigured(
            f"no Kubernetes cluster: {place} cannot be used: {said}. Name a file with "
            f"KUBECONFIG, or run in a pod with a service account"
        ) from error
    settings.connection_pool_maxsize = _CONNECTIONS
    return Cluster(settings, namespace or found or "default")


def _status(body: bytes) -> Document:
    """Returns the status that a refusal brings, or what it says in another form."""
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    return status if isinstance(status, dict) else {"message": body.decode("utf-8", "replace")}


def _lines(response: BaseHTTPResponse) -> Iterator[bytes]:
    """Yields the lines of a response as they come.

    Raises:
      Unavailable: The connection broke.
    """
    rest = b""
    try:
        for piece in response.stream(amt=None, decode_content=False):
            *lines, rest = (rest + piece).split(b"\n")
            yield from filter(None, lines)
    except (HTTPError, OSError) as error:
        raise Unavailable(f"a watch broke off: {error}") from error
