"""Runs candidates as Kubernetes Jobs that work on the branches through a shared volume.

This process makes, commits and aborts branches; a pod has the folder of its branch at the same
path, its task from a ConfigMap, and prints its answer on its log.
"""

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from app.adapters.kubernetes.connection import Cluster, NotThere, QuotaExceeded, connect
from app.adapters.kubernetes.endings import EndKind
from app.adapters.kubernetes.jobs import JobEnd, Jobs, StartedJob
from app.adapters.kubernetes.manifests import (
    Claim,
    Document,
    JobSpec,
    Placement,
    Resources,
    Scratch,
    SecretVariable,
    Security,
)
from app.adapters.store.leases import Withdrawal
from app.patterns import shipping, worker
from app.patterns.errors import MountError, ProcessBranchError
from app.patterns.outcomes import Answer
from app.patterns.storage import lower_layers
from app.patterns.work import Work, read_answer
from app.patterns.workspace import Workspace
from app.ports.protocols import Stopped, Unavailable

NETWORK = "branches"
"""Value of the label `evoqueue.network` of candidates, which network policies may choose by."""
_ARCHIVE = "worker.pyz"
_MARK = "job"
"""File beside the tree of a branch that names the Job which works on it."""
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_ENDING_SECONDS, _QUOTA_SECONDS = 30.0, 0.5
_DELETING = 16
_OUTPUT_CHARS = 2000
_UNWANTED = "the candidate is not wanted any more"


class JobsRunner:
    """Runs candidates as Jobs; see `app.patterns.running.Runner`.

    Give a group to a pattern that shall outlive its process: one that is started again with the
    same group, folder and candidates adopts the Jobs that run and those that have ended.

    Args:
      claim: Name of a PersistentVolumeClaim with the access mode ReadWriteMany.
      image: Has Python, of the version of this one where candidates are callables.
      mount: Where this machine has the volume of the claim; the folder of a pattern lies below.
      group: Names the Jobs, as a label; "" makes a name.
      namespace: Where Jobs run; "" for that of this pod, or of the kubeconfig's context.
      cluster: The same with its API server; None for the one around this process, or of KUBECONFIG.
      resources, environment, secrets, placement: Of each container.
      user: Numeric id of its user; None for that of this process, who owns the branches.
      seconds: Longest time of a candidate whose pattern has no timeout.
      start_seconds: Longest time until its container runs.
      scratch_mib: Of the folder /tmp, in memory.
    """

    def __init__(
        self,
        *,
        claim: str,
        image: str,
        mount: str | Path = "/mnt/branchfs",
        group: str = "",
        namespace: str = "",
        cluster: Cluster | None = None,
        resources: Resources = Resources(),  # noqa: B008  frozen
        environment: Mapping[str, str] | None = None,
        secrets: tuple[SecretVariable, ...] = (),
        placement: Placement = Placement(),  # noqa: B008  frozen
        user: int | None = None,
        seconds: float = 3600.0,
        start_seconds: float = 600.0,
        scratch_mib: int = 128,
    ) -> None:
        """Asks the cluster nothing yet.

        Raises:
          ValueError: The group is no label.
          Misconfigured: No cluster is known here, or the package `kubernetes` is missing.
        """
        if group and not _LABEL.fullmatch(group):
            raise ValueError(
                f"the group {group!r} is no label of Kubernetes: at most 63 letters, digits, "
                f"`.`, `_` and `-`, the first and last a letter or digit"
            )
        self.group, self._named = group or f"branches-{token_hex(4)}", bool(group)
        self._claim, self._mount = claim, Path(mount).resolve()
        self._cluster = cluster or connect(namespace=namespace)
        self._jobs = Jobs(self._cluster, owner=self.group, group="branches")
        home = {"HOME": "/tmp", "TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
        self._spec = JobSpec(
            image=image,
            command=("python", f"{os.path.dirname(worker.TASK)}/{_ARCHIVE}", worker.TASK),
            files_path=os.path.dirname(worker.TASK),
            environment={**home, **(environment or {})},
            secrets=secrets,
            scratch=(Scratch("/tmp", scratch_mib),),
            resources=resources,
            placement=placement,
            security=Security(user=os.getuid() if user is None else user),
            network=NETWORK,
            start_seconds=start_seconds,
            run_seconds=seconds,
            keep_seconds=86_400 if group else 300,
        )
        self._archive = shipping.archive()
        self._asking_again = threading.Lock()
        self._started = 0
        self._kept: list[StartedJob] | None = None

    @contextmanager
    def open(self, folder: str | Path) -> Iterator[Workspace]:
        """Opens a folder of the volume for branches that pods see.

        At the end, the Jobs are deleted; those of a named group are kept until then.

        Raises:
          MountError: The folder is not on the volume, or the group is at work elsewhere.
        """
        self._sub_path(Path(folder).resolve())
        group = self.group if self._named else ""
        with Workspace(folder, shared=True, group=group) as workspace:
            self._kept = [] if self._named else None
            self._started = 0
            try:
                yield workspace
            finally:
                kept, self._kept = self._kept or [], None
                with ThreadPoolExecutor(_DELETING) as pool:
                    list(pool.map(self._jobs.delete, kept))

    def start(self, work: Work) -> "_OfJob":
        """Starts a Job, or adopts it.

        Raises:
          ProcessBranchError: The work cannot be sent, or its folder is not on the volume.
        """
        try:
            claims = tuple(
                Claim(self._claim, str(folder.parent), self._sub_path(folder.parent))
                for folder in work.folders
            )
        except MountError as error:
            raise ProcessBranchError(str(error)) from error
        for folder in work.folders:
            if lower_layers(folder):
                raise ProcessBranchError(
                    f"{folder} is an overlay, which pods do not see: give the pattern the path of "
                    f"the folder, or open Workspace(folder, shared=True)"
                )
        document = shipping.write(work) | {"folders": list(map(str, work.folders))}
        task = json.dumps(document, sort_keys=True).encode()
        ticket, self._started = f"{self.group}/{self._started}", self._started + 1
        spec = replace(
            self._spec,
            ticket=ticket,
            claims=claims,
            files={os.path.basename(worker.TASK): task, _ARCHIVE: self._archive},
            run_seconds=self._spec.run_seconds if work.seconds is None else work.seconds,
        )
        return _OfJob(self, spec, work)

    def begin(self, spec: JobSpec, folder: Path, stop: Withdrawal) -> StartedJob:
        """Creates the Job of a branch, or adopts the one that works on it.

        Where a quota of Jobs is exceeded, it waits for as long as a container may take to start.
        """
        mark = folder.parent / _MARK
        while True:
            if stop.asked:
                raise Stopped(_UNWANTED)
            started = self._start_within_quota(spec, stop)
            if not started.adopted or _read(mark) == started.uid:
                mark.write_text(started.uid)
                return started
            # It worked on files that are not there any more.
            self._jobs.delete(started)

    def _start_within_quota(self, spec: JobSpec, stop: Withdrawal) -> StartedJob:
        """Starts a Job, or adopts it, as soon as the quota has room.

        Of all candidates that wait for room only one asks at a time, twice a second: what it is
        refused, the others would be refused too.
        """
        deadline = time.monotonic() + spec.start_seconds
        try:
            return self._jobs.start(spec)
        except QuotaExceeded as error:
            refusal = error
        while not stop.asked and time.monotonic() < deadline:
            if self._asking_again.acquire(timeout=_QUOTA_SECONDS):
                try:
                    return self._jobs.start(spec)
                except QuotaExceeded as error:
                    refusal = error
                    time.sleep(_QUOTA_SECONDS)
                finally:
                    self._asking_again.release()
        if stop.asked:
            raise Stopped(_UNWANTED)
        raise refusal

    def wait(self, started: StartedJob, stop: Withdrawal) -> JobEnd:
        """Returns how a Job ended, which is deleted unless its group may be gone on with.

        One whose end cannot be awaited is deleted: its candidate has failed, and goes on nowhere.
        """
        try:
            end = self._jobs.wait(started, stop)
        except Unavailable:
            self._end(started)
            raise
        if self._kept is None:
            self._jobs.delete(started)
        else:
            self._kept.append(started)
        return end

    def close(self) -> None:
        """Ends the watch."""
        self._jobs.close()

    def _end(self, started: StartedJob) -> None:
        """Deletes a Job and waits until no process of its pod can write into the branch."""
        with suppress(NotThere, Unavailable):
            self._cluster.delete_job(started.name)
        for _ in range(round(_ENDING_SECONDS)):
            seen = started.followed.seen
            if seen.gone and all(_has_ended(pod, seen.lost) for pod in seen.pods):
                break
            started.followed.wait(1.0)
        self._jobs.delete(started)

    def _sub_path(self, folder: Path) -> str:
        try:
            below = folder.relative_to(self._mount)
        except ValueError:
            raise MountError(
                f"{folder} is not below {self._mount}, where the claim {self._claim!r} is said to "
                f"be mounted here: use a folder of the volume, or name its mount point"
            ) from None
        return "" if below == Path() else str(below)


class _OfJob:
    """A candidate that a Job works on."""

    pid = None

    def __init__(self, runner: JobsRunner, spec: JobSpec, work: Work) -> None:
        self._runner, self._spec, self._work = runner, spec, work
        self._shipped = shipping.Shipped(work.budget)
        self._handle = os.eventfd(0)
        self._stop = Withdrawal()
        self._ended: JobEnd | Exception | None = None
        self._thread = threading.Thread(target=self._follow, name=spec.ticket, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._handle

    def result(self) -> Answer:
        self._thread.join()
        match self._ended:
            case JobEnd(results=(*_, document)):
                return read_answer(self._shipped.finish(document.decode("utf-8", "replace")))
            case JobEnd(ending=ending) if ending.kind is EndKind.DEADLINE:
                raise TimeoutError(f"no end within {self._spec.run_seconds:g} s")
            case JobEnd(ending=ending, output=output):
                what = f": {ending.detail}" if ending.detail else ""
                code = "" if ending.exit_code is None else f", exit status {ending.exit_code}"
                error = ProcessBranchError(
                    f"its Job ended without a result: {ending.kind}{code}{what}"
                )
                error.add_note(output.decode("utf-8", "replace")[-_OUTPUT_CHARS:])
                raise error
            case ended:
                raise ProcessBranchError(f"its Job: {ended}") from ended

    def request_end(self) -> None:
        self._stop.ask()

    def close(self) -> None:
        self._thread.join()
        os.close(self._handle)

    def _follow(self) -> None:
        try:
            started = self._runner.begin(self._spec, self._work.folders[0], self._stop)
            self._ended = self._runner.wait(started, self._stop)
        except (Unavailable, ValueError, OSError) as error:
            self._ended = error
        finally:
            os.eventfd_write(self._handle, 1)


def _has_ended(pod: Document, lost: frozenset[str]) -> bool:
    phase = pod["status"].get("phase")
    return phase in ("Succeeded", "Failed") or pod["metadata"]["name"] in lost


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
