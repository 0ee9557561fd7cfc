"""Runs containers as Jobs: creates or adopts one, waits for its end, reads its result, deletes it.

A Job is created before the ConfigMap of its files, which it owns: its pod waits for the mount, and
the cluster deletes all three together.  Whoever starts work of the same ticket finds the Job that
runs, and waits for that one.  The cluster itself ends what everybody has forgotten.
"""

import contextlib
import logging
import os
import secrets
import socket
import time
from dataclasses import dataclass, replace
from datetime import datetime

import psutil

from app.adapters.kubernetes.connection import Cluster, Exists, NotThere, QuotaExceeded
from app.adapters.kubernetes.endings import (
    Ending,
    EndKind,
    Seen,
    ending,
    failed_without_pod,
    patience_seconds,
    runs,
    waiting,
)
from app.adapters.kubernetes.manifests import (
    JOB,
    NONCE,
    OWNER,
    PROCESS,
    Document,
    JobSpec,
    config_map,
    job,
    job_name,
)
from app.adapters.kubernetes.result_line import split_results
from app.adapters.kubernetes.watch import Followed, Watch
from app.ports.protocols import NEVER, Misconfigured, Stop, Stopped, Unavailable

_OUTAGE_SECONDS = 120.0
_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 3.0, 30.0
"""When a Job that does not begin is asked for its events, first and at most."""
_LATE_SECONDS = 2.0
_LEAVING_SECONDS = 30.0
"""How long a Job that is being deleted may take to make room for one of the same name."""
_FLUSHING_SECONDS = 0.5
_UNREAD_SECONDS = 60.0
_GROUP = "evoqueue.group"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartedJob:
    """A Job that exists.

    Attributes:
      uid: Which of the Jobs that had the name in turn.
      adopted: Whether it was there already.
      began: When it was started or adopted, in `time.monotonic` seconds.
    """

    spec: JobSpec
    name: str
    uid: str
    nonce: str
    adopted: bool
    began: float
    followed: Followed


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a Job ended, and what it left.

    Attributes:
      results: The contents of its lines of results, in order.
      output: What else it printed, standard output and error mixed, without what was rotated away.
      waited_seconds: Until its container ran.
      ran_seconds: From then to its end.
    """

    ending: Ending
    results: tuple[bytes, ...] = ()
    output: bytes = b""
    waited_seconds: float = 0.0
    ran_seconds: float = 0.0


class Jobs:
    """The Jobs of one kind of work of one deployment.

    Args:
      cluster: Where they run.
      owner: The deployment, as in `sandbox.owner`: at most 63 letters, digits, ".", "_" and "-".
      group: The kind of work, in the same letters.
      outage_seconds: How long the API server may be silent before waiters give up.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        owner: str = "",
        group: str = "trials",
        outage_seconds: float = _OUTAGE_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._owner = owner
        self._group = group
        self._outage_seconds = outage_seconds
        self._selector = f"{OWNER}={owner},{_GROUP}={group}"
        self._watch = Watch(cluster, self._selector)
        self._unadoptable: set[str] = set()

    def run(self, spec: JobSpec, stop: Stop = NEVER) -> JobEnd:
        """Runs a Job to its end, or adopts it, and deletes it.

        Raises:
          Stopped: It was asked to stop, and the Job is deleted.
          Unavailable: The cluster did not answer; a Job with a ticket goes on, to be adopted.
          Misconfigured: This process may not do that, or the cluster takes no such Job.
        """
        started = self.start(spec)
        adoptable = bool(spec.ticket)
        try:
            end = self.wait(started, stop)
            adoptable = False
        except Stopped:
            adoptable = False
            raise
        finally:
            if adoptable:
                self._watch.forget(started.followed)
            else:
                self.delete(started)
        return end

    def start(self, spec: JobSpec) -> StartedJob:
        """Creates a Job with its files, or adopts the one of the same ticket and work.

        The caller owes a `wait` or a `delete`.

        Raises:
          Unavailable: The cluster does not answer, or a quota of Jobs is exceeded.
          Misconfigured: This process may not create Jobs, or the cluster takes no such one.
          ValueError: The files are too large.
        """
        name = job_name(spec, self._owner) if spec.ticket else f"evoq-{secrets.token_hex(12)}"
        if not spec.ticket:
            self._unadoptable.add(name)
        began = time.monotonic()
        followed = self._watch.follow(name)
        try:
            document, adopted = self._create(spec, name)
            nonce = document["metadata"]["annotations"][NONCE]
            self._give_files(spec, document, adopted=adopted)
            pods = self._cluster.listed("pods", f"{JOB}={name}").items if adopted else ()
        except BaseException:
            self._watch.forget(followed)
            raise
        self._watch.begin_with(followed, document, pods)
        uid = document["metadata"]["uid"]
        return StartedJob(spec, name, uid, nonce, adopted, began, followed)

    def wait(self, started: StartedJob, stop: Stop = NEVER) -> JobEnd:
        """Waits for the end of a Job, without asking for it again and again, and reads its result.

        Raises:
          Stopped: It was asked to stop; the Job is there still.
          Unavailable: The cluster does not answer.
        """
        with stop.then(started.followed.wake):
            end, ran_since = self._await(started, stop)
        now = time.monotonic()
        waited = (ran_since or now) - started.began
        ran = now - ran_since if ran_since else 0.0
        kinds = (EndKind.DONE, EndKind.FAILED, EndKind.DEADLINE)
        # A container that has not run has no log, and asking for it is refused.
        if end.kind not in kinds or not end.pod or ran_since is None:
            return JobEnd(end, waited_seconds=waited, ran_seconds=ran)
        try:
            output, results = self._read(end, started)
        except NotThere:
            if end.kind is not EndKind.DEADLINE:
                gone = "its pod was deleted before its log was read"
                end = Ending(EndKind.DELETED, gone, end.pod)
            return JobEnd(end, waited_seconds=waited, ran_seconds=ran)
        return JobEnd(end, results, output, waited, ran)

    def delete(self, started: StartedJob) -> None:
        """Deletes a Job with its pod and files.  Idempotent.

        Where the cluster does not answer, it deletes what has ended by itself.
        """
        self._watch.forget(started.followed)
        self._delete(started.name)

    def sweep(self) -> int:
        """Deletes Jobs that ended a minute ago or more, and that nobody has read or will; counts.

        One with a ticket that runs is left for whoever takes its work over, and to its deadline.
        """
        swept = 0
        listed = self._cluster.listed("jobs", self._selector)
        for found in listed.items:
            if _abandoned(found, listed.at):
                with contextlib.suppress(NotThere):
                    self._cluster.delete_job(found["metadata"]["name"])
                    swept += 1
        return swept

    def close(self) -> None:
        """Ends the watch, and deletes the Jobs of this process that nobody takes over."""
        self._watch.close()
        for name in list(self._unadoptable):
            self._delete(name)

    def _delete(self, name: str) -> None:
        self._unadoptable.discard(name)
        try:
            self._cluster.delete_job(name)
        except NotThere:
            pass
        except Unavailable as error:
            log.warning("the Job %s is left to the cluster: %s", name, error)

    def _create(self, spec: JobSpec, name: str) -> tuple[Document, bool]:
        """Returns the Job of a name, and whether it was there."""
        document = job(spec, name, secrets.token_hex(16), self._owner)
        for labels in (document["metadata"], document["spec"]["template"]["metadata"]):
            labels["labels"] = {**labels["labels"], _GROUP: self._group}
        if not spec.ticket:
            document["metadata"]["annotations"][PROCESS] = _this_process()
        deadline = time.monotonic() + _LEAVING_SECONDS
        while True:
            try:
                return self._cluster.create_job(document), False
            except Exists:
                with contextlib.suppress(NotThere):
                    found = self._cluster.read_job(name)
                    if "deletionTimestamp" not in found["metadata"]:
                        return found, True
            if time.monotonic() > deadline:
                raise Unavailable(f"the Job {name} is being deleted, and does not end")
            time.sleep(_FLUSHING_SECONDS)

    def _give_files(self, spec: JobSpec, document: Document, *, adopted: bool) -> None:
        try:
            if spec.files:
                with contextlib.suppress(Exists):
                    self._cluster.create_config_map(config_map(spec, document))
        except Unavailable as error:
            # A Job that was there may have its files; a new one would wait for them in vain.
            if not adopted or isinstance(error, (Misconfigured, QuotaExceeded)):
                with contextlib.suppress(NotThere, Unavailable):
                    self._cluster.delete_job(document["metadata"]["name"])
            raise

    def _await(self, started: StartedJob, stop: Stop) -> tuple[Ending, float | None]:
        """Returns how a Job ended or why it was given up, and since when its container ran."""
        spec, ran_since = started.spec, None
        reasons = _Reasons(self._cluster, started)
        while True:
            seen = started.followed.seen.of(started.uid)
            if runs(seen) and ran_since is None:
                ran_since = time.monotonic()
            if (end := ending(seen) or self._failed(seen, started)) is not None:
                return end, ran_since
            if stop.asked:
                raise Stopped(f"the Job {started.name} was stopped")
            self._watch.check(self._outage_seconds)
            if ran_since is None:
                left, why = reasons.patience(seen)
            else:
                left = ran_since + spec.run_seconds + _LATE_SECONDS - time.monotonic()
                pod = seen.pods[-1]["metadata"]["name"] if seen.pods else ""
                why = Ending(EndKind.DEADLINE, f"it ran for {spec.run_seconds:g} s", pod)
            if left <= 0:
                return why, ran_since
            started.followed.wait(min(left, _LONGEST_LOOK_SECONDS if ran_since else reasons.look))

    def _failed(self, seen: Seen, started: StartedJob) -> Ending | None:
        """Returns how a Job ended that is seen to have failed before any end of its pods is seen.

        Two connections watch Jobs and pods, so that either can be behind the other.
        """
        failure = failed_without_pod(seen)
        if failure is None:
            return None
        pods = self._cluster.listed("pods", f"{JOB}={started.name}").items
        return ending(replace(seen, pods=tuple(pods)).of(started.uid)) or failure

    def _read(self, end: Ending, started: StartedJob) -> tuple[bytes, tuple[bytes, ...]]:
        """Returns a pod's output and its results; raises NotThere."""
        read = self._cluster.log(end.pod, started.spec.log_lines)
        output, results = split_results(read, started.nonce)
        if end.kind is EndKind.DONE and not results:
            # The node may yet be writing the last line.
            time.sleep(_FLUSHING_SECONDS)
            read = self._cluster.log(end.pod, started.spec.log_lines)
            output, results = split_results(read, started.nonce)
        return output, results


class _Reasons:
    """Why a Job does not begin, and for how long already.

    Attributes:
      look: Seconds until the cluster's events are to be asked for again.
    """

    def __init__(self, cluster: Cluster, started: StartedJob) -> None:
        self._cluster = cluster
        self._started = started
        self._since: dict[EndKind, float] = {}
        self._events: list[Document] = []
        self._about = started.uid
        self._look_at = started.began + _LOOK_SECONDS
        self.look = _LOOK_SECONDS

    def patience(self, seen: Seen) -> tuple[float, Ending]:
        """Returns how long the Job may still wait, and why it does."""
        now, start_seconds = time.monotonic(), self._started.spec.start_seconds
        about = seen.pods[-1]["metadata"]["uid"] if seen.pods else self._started.uid
        if about != self._about:
            self._about, self._events = about, []
        if now >= self._look_at:
            with contextlib.suppress(Unavailable):
                self._events = self._cluster.events(about)
            self.look = min(2 * self.look, _LONGEST_LOOK_SECONDS)
            self._look_at = now + self.look
        left = self._started.began + start_seconds - now
        why = waiting(seen, self._events)
        if why is None:
            nothing = f"its container did not start within {start_seconds:g} s"
            return left, Ending(EndKind.UNSCHEDULABLE, nothing)
        since = self._since.setdefault(why.kind, now)
        return min(left, since + patience_seconds(why, start_seconds) - now), why


def _abandoned(found: Document, now: datetime | None) -> bool:
    """Returns whether nobody will read a Job.

    It ended long ago, and readers come at once; or it has no ticket, and its process, of this host,
    is dead.

    Args:
      found: The Job.
      now: The time by the cluster's clock, which also says when the Job ended; None where that is
        not known.
    """
    for condition in found.get("status", {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            ended = datetime.fromisoformat(condition["lastTransitionTime"])
            return now is not None and (now - ended).total_seconds() >= _UNREAD_SECONDS
    waiter = found["metadata"].get("annotations", {}).get(PROCESS, "")
    host, _, process = waiter.partition(" ")
    return bool(host == socket.gethostname() and _identity(int(process.split()[0])) != process)


def _this_process() -> str:
    return f"{socket.gethostname()} {_identity(os.getpid())}"


def _identity(pid: int) -> str:
    """Returns a process's number and when it began; "" where there is none."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return f"{pid} {psutil.Process(pid).create_time():.2f}"
    return ""
