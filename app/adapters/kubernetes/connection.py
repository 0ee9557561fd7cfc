"""The API server of a cluster: the few requests that Jobs need, as JSON, with errors translated."""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

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
_LOG_BYTES = 64 << 20
_RULES = (
    "It needs a Role in the namespace {namespace} with the verbs create, get, list, watch and "
    "delete for `jobs` (batch) and `configmaps`, get, list and watch for `pods`, get for "
    "`pods/log`, and list for `events`; docs/sandbox.md has the manifest"
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
    """The objects of a kind, and the version from which a watch of them goes on."""

    items: list[Document]
    version: str


class Cluster:
    """A namespace of a cluster.  Requests that fail on the way are repeated for ten seconds.

    Attributes:
      namespace: Where all Jobs are.
      server: The address of the API server.
    """

    def __init__(self, client: Any, namespace: str) -> None:
        """Wraps a `kubernetes.client.ApiClient`; see `connect`."""
        from kubernetes.client import BatchV1Api, CoreV1Api

        self.namespace = namespace
        self.server = str(client.configuration.host)
        self._batch: Any = BatchV1Api(client)
        self._core: Any = CoreV1Api(client)

    def create_job(self, document: Document) -> Document:
        """Raises Exists if there is one of the name, and QuotaExceeded."""
        return self._ask(self._batch.create_namespaced_job, body=document)

    def create_config_map(self, document: Document) -> Document:
        """Raises Exists if there is one of the name, and QuotaExceeded."""
        return self._ask(self._core.create_namespaced_config_map, body=document)

    def read_job(self, name: str) -> Document:
        """Raises NotThere."""
        return self._ask(self._batch.read_namespaced_job, name)

    def delete_job(self, name: str) -> None:
        """Deletes a Job with its pods and files, which it does not wait for; raises NotThere."""
        self._ask(self._batch.delete_namespaced_job, name, propagation_policy="Background")

    def listed(self, kind: Kind, selector: str) -> Listed:
        """Returns the objects whose labels a selector matches."""
        found = self._ask(self._lister(kind), label_selector=selector)
        return Listed(found["items"], found["metadata"]["resourceVersion"])

    def watch(self, kind: Kind, selector: str, version: str) -> Iterator[Document]:
        """Yields events until the server ends the watch, a minute later at most.

        Raises:
          Expired: The version is too old.
          Unavailable: The connection broke; it is not repeated.
        """
        response = self._once(
            self._lister(kind),
            label_selector=selector,
            resource_version=version,
            watch=True,
            allow_watch_bookmarks=True,
            timeout_seconds=_WATCH_SECONDS,
            _request_timeout=(_CONNECT_SECONDS, _WATCH_SECONDS + _ANSWER_SECONDS),
        )
        try:
            for line in _lines(response):
                event: Document = json.loads(line)
                if event["type"] == "ERROR":
                    self._refuse(event["object"].get("code", 500), event["object"])
                yield event
        finally:
            response.close()

    def log(self, pod: str, lines: int) -> bytes:
        """Returns the last lines of a pod's output; raises NotThere."""
        response = self._patiently(
            lambda: self._once(
                self._core.read_namespaced_pod_log,
                pod,
                tail_lines=lines,
                _request_timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS),
            )
        )
        try:
            read: bytes = response.read(_LOG_BYTES)
        except _broken() as error:
            raise Unavailable(f"the log of the pod {pod} broke off: {error}") from error
        finally:
            response.close()
        return read

    def events(self, uid: str) -> list[Document]:
        """Returns the events about an object."""
        selector = f"involvedObject.uid={uid}"
        found: list[Document] = self._ask(
            self._core.list_namespaced_event, field_selector=selector
        )["items"]
        return found

    def _lister(self, kind: Kind) -> Callable[..., Any]:
        if kind == "jobs":
            return self._batch.list_namespaced_job  # type: ignore[no-any-return]  # generated code
        return self._core.list_namespaced_pod  # type: ignore[no-any-return]  # generated code

    def _ask(self, method: Callable[..., Any], *arguments: str, **options: object) -> Document:
        """Returns the answer to a request."""

        def attempt() -> Document:
            response = self._once(
                method, *arguments, _request_timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS), **options
            )
            try:
                answer: Document = json.loads(response.read())
            except _broken() as error:
                raise Unavailable(f"the API server {self.server} broke off: {error}") from error
            except ValueError as error:
                raise Unavailable(f"the API server {self.server} sent no JSON: {error}") from error
            finally:
                response.close()
            return answer

        answered: Document = self._patiently(attempt)
        return answered

    def _patiently(self, attempt: Callable[[], Any]) -> Any:
        """Repeats a request that may be sent twice: names make each of them idempotent."""
        deadline, pause = time.monotonic() + _RETRYING_SECONDS, _PAUSE_SECONDS
        while True:
            try:
                return attempt()
            except (Misconfigured, QuotaExceeded):
                raise
            except Unavailable:
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause *= 2

    def _once(self, method: Callable[..., Any], *arguments: str, **options: object) -> Any:
        from kubernetes.client.exceptions import ApiException

        names = (*arguments, self.namespace)
        try:
            return method(*names, _preload_content=False, **options)
        except ApiException as error:
            try:
                status = json.loads(error.body or "{}")
            except ValueError:
                status = {"message": str(error.body)}
            self._refuse(error.status or 0, status, error)
        except _broken() as error:
            raise Unavailable(f"the API server {self.server} does not answer: {error}") from error

    def _refuse(self, code: int, status: Document, error: Exception | None = None) -> None:
        """Raises what a status of the API server means."""
        message = str(status.get("message") or status.get("reason") or f"status {code}")
        if code == 404:
            raise NotThere(message) from error
        if code == 409:
            raise Exists(message) from error
        if code == 410:
            raise Expired(message) from error
        if code == 403 and "exceeded quota" in message:
            raise QuotaExceeded(message) from error
        if code == 401:
            raise Misconfigured(
                f"the API server {self.server} does not know who asks: {message}. Renew the "
                f"credentials of the kubeconfig, or mount the service account's token"
            ) from error
        if code == 403:
            rules = _RULES.format(namespace=self.namespace)
            raise Misconfigured(
                f"the API server {self.server} refuses: {message}. {rules}"
            ) from error
        if code in (400, 422):
            raise Misconfigured(f"the API server {self.server} refuses: {message}") from error
        raise Unavailable(f"the API server {self.server}: {message}") from error


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
    inside = not kubeconfig and not context and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
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
        raise Misconfigured(
            f"no Kubernetes cluster: {place} cannot be used: {error}. Name a file with "
            f"KUBECONFIG, or run in a pod with a service account"
        ) from error
    settings.connection_pool_maxsize = 64
    settings.retries = False
    return Cluster(client.ApiClient(settings), namespace or found or "default")


def _broken() -> tuple[type[Exception], ...]:
    from urllib3.exceptions import HTTPError

    return (HTTPError, OSError)


def _lines(response: Any) -> Iterator[bytes]:
    """Yields the lines of a response as they come.

    Raises:
      Unavailable: The connection broke.
    """
    rest = b""
    try:
        for piece in response.stream(amt=None, decode_content=False):
            *lines, rest = (rest + piece).split(b"\n")
            yield from filter(None, lines)
    except _broken() as error:
        raise Unavailable(f"a watch broke off: {error}") from error
