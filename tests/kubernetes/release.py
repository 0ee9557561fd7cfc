"""The deployment of the chart on a cluster, from plain manifests, as a person would apply them."""

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.manifests import render, write
from tests.cluster import kubectl

IMAGE = "evoqueue-cluster"
"""The tests of the compose project have built most of its layers."""
NAME = "evoq-evoqueue"
SELECTOR = "app.kubernetes.io/instance=evoq"
LEDGER = ("accounts.yaml", "secret.yaml", "postgresql.yaml", "redis.yaml")
SMALL = {"requests": {"cpu": "10m", "memory": "32Mi"}}
VALUES: dict[str, Any] = {
    "kubeVersion": "1.20",
    "image": {"repository": IMAGE, "tag": "latest", "pullPolicy": "Never"},
    "settings": {"workers": {"EVOQ_QUEUE__LEASE_SECONDS": 6}},
    "postgresql": {"persistence": {"enabled": False}, "resources": SMALL},
    "redis": {"persistence": {"enabled": False}, "resources": SMALL},
    "control": {"resources": SMALL},
    "dashboard": {"resources": SMALL},
    "fleets": [
        {"name": "gpu", "kind": "gpu", "concurrency": 4, "resources": SMALL},
        {"name": "cpu", "kind": "cpu", "replicas": 2, "concurrency": 2, "resources": SMALL},
    ],
}
"""What a node of two processors has room for; it has no volumes."""


class Release:
    """A release in a namespace of the cluster."""

    def __init__(self, namespace: str, folder: Path) -> None:
        """Applies nothing yet; the manifests are written to the folder."""
        self.namespace = namespace
        self._folder = folder

    def install(self) -> None:
        """Applies the manifests, and waits until every pod is ready.

        This cluster has no DNS: the pods get the addresses of Postgres and Redis as lines of their
        hosts file, once these have one.
        """
        self.write(VALUES)
        self._apply(*LEDGER)
        servers = {server: f"{NAME}-{server}-0" for server in ("postgres", "redis")}
        for pod in servers.values():
            self.wait(f"pod/{pod}")
        aliases = [
            {"ip": self.address(pod), "hostnames": [f"{NAME}-{server}"]}
            for server, pod in servers.items()
        ]
        self.write({**VALUES, "hostAliases": aliases})
        # Control waits for the migration; the others would take its processors meanwhile.
        self._apply("migrate.yaml", "control.yaml")
        job = self.kubectl("get", "jobs", "--output=name").strip()
        self.wait(job, "complete")
        done = (*LEDGER, "migrate.yaml", "control.yaml")
        self._apply(*(file.name for file in self._folder.iterdir() if file.name not in done))
        for deployment in ("control", "gpu", "cpu", "dashboard"):
            self.kubectl("rollout", "status", f"deployment/{NAME}-{deployment}", "--timeout=600s")

    def _apply(self, *files: str) -> None:
        self.kubectl("apply", *(f"--filename={self._folder / file}" for file in files))

    def write(self, values: dict[str, Any]) -> Path:
        """Writes the manifests of these values, and returns their folder."""
        write(render(values, "evoq", self.namespace), self._folder)
        return self._folder

    def wait(self, what: str, condition: str = "Ready") -> None:
        """Waits for a condition of an object, which exists or will soon."""
        until(lambda: bool(self._found(what)), f"{what} exists", seconds=120)
        self.kubectl("wait", f"--for=condition={condition}", what, "--timeout=600s")

    def _found(self, what: str) -> str:
        return self.kubectl("get", what, "--ignore-not-found", "--output=name")

    def kubectl(self, *arguments: str) -> str:
        """Returns what kubectl prints, in the namespace of the release."""
        return kubectl("--namespace", self.namespace, *arguments)

    def address(self, pod: str) -> str:
        """Returns the address of a pod."""
        return self.kubectl("get", "pod", pod, "--output=jsonpath={.status.podIP}")

    def pods(self, fleet: str) -> list[str]:
        """Returns the names of a fleet's pods that are not ending."""
        found = json.loads(
            self.kubectl("get", "pods", f"--selector=evoqueue/fleet={fleet}", "--output=json")
        )
        return [
            pod["metadata"]["name"]
            for pod in found["items"]
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def run(self, what: str, *command: str, container: str = "worker") -> str:
        """Returns what a command prints in a pod."""
        return self.kubectl("exec", what, f"--container={container}", "--", *command)

    def evoq(self, command: str) -> str:
        """Returns what a command of `evoq` prints in the pod of control, and `status N`."""
        shown = f"evoq {command} 2>&1; echo status $?"
        return self.run(f"deployment/{NAME}-control", "sh", "-c", shown, container="control")

    def sql(self, statement: str) -> list[list[str]]:
        """Returns the rows of a statement, as texts."""
        command = ("psql", "-U", "evoqueue", "-At", "-F", "|", "-c", statement)
        printed = self.run(f"pod/{NAME}-postgres-0", *command, container="postgres")
        return [line.split("|") for line in printed.splitlines()]

    def password(self, of: str) -> str:
        """Returns a password of the release's Secret."""
        path = f"--output=jsonpath={{.data.{of}}}"
        return base64.b64decode(self.kubectl("get", "secret", NAME, path)).decode()


def until(true: Callable[[], bool], what: str, *, seconds: float) -> None:
    """Waits for something to become true; fails the test, naming it, when it does not."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        # Each question starts a process in a container.
        time.sleep(2.0)
