"""The Kubernetes sandbox: each trial is a Job, for problems that need an image, a device or a node.

The pod boots the same harness as a container does, from a file of its ConfigMap, runs one trial,
and writes its report to the log.  A Job takes seconds where a trial in a warm sandbox takes
milliseconds.
"""

import random
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from app.adapters.kubernetes.connection import Cluster, connect
from app.adapters.kubernetes.endings import EndKind
from app.adapters.kubernetes.jobs import JobEnd, Jobs
from app.adapters.kubernetes.manifests import (
    FILES_BYTES,
    Claim,
    JobSpec,
    Placement,
    Resources,
    Scratch,
    Security,
)
from app.adapters.sandbox.bundle import (
    ENVIRONMENT,
    LOGGED_BOOTSTRAP,
    UNCOMPILED,
    beyond_the_library,
)
from app.adapters.sandbox.connection import Loss, SandboxLost
from app.adapters.sandbox.data_mounts import located, refuse
from app.adapters.sandbox.dependencies import from_dockerfile, from_requirements
from app.adapters.sandbox.frames import BootSettings, boot_input, sandbox_memory_mib, trial_input
from app.adapters.sandbox.protection import Isolation, protections_of, summary
from app.adapters.sandbox.verdict import more_than, outcome, starved
from app.adapters.sandbox.warm_sandbox import BACKSTOP_SECONDS, WarmSandbox
from app.config.cluster import KubernetesSettings
from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import Evaluator, Job, Outcome
from app.ports.protocols import (
    NEVER,
    Misconfigured,
    Protection,
    Starved,
    Stop,
    Stopped,
    Unavailable,
)

_ATTEMPTS = 2
"""Most attempts at a trial whose pod ended without a report and without a reason."""
_BOOT_SECONDS = 60.0
_LOOKING_SECONDS = 0.5
_OFFSETS = 200_000
_WORDS = 400
_INPUT, _FOLDER = "input", "/etc/evoqueue"
_HARNESS_CPUS = 0.5
_CAPABILITIES = ("SETUID", "SETGID", "KILL")
_PLACES = (
    (Scratch("/tmp", 128), "1777"),
    (Scratch("/sandbox/work", 128), "0711"),
    (Scratch("/sandbox/rpc", 1), "0711"),
    (Scratch("/sandbox/eval", 512), "0755"),
    (Scratch("/etc/evoq", 1), "0755"),
)
"""Empty folders of a pod, and the access rights that they are to have."""
_DATA = Scratch("/sandbox/data", 1), "0700"
_PROBE = Evaluator("probe", {"evaluator.py": b"def evaluate(path):\n    return {}\n"})
_PROBE_JOB = Job(_PROBE, "evaluate", ((".py", b""),))
_REMEDIES = {
    EndKind.IMAGE: "Push the image, or name another with sandbox.image; a private registry needs "
    "EVOQ_KUBERNETES__PULL_SECRETS",
    EndKind.QUOTA: "Raise the quota of the namespace, or lower EVOQ_SANDBOX__PLACES",
    EndKind.UNSCHEDULABLE: "Add nodes, or correct EVOQ_KUBERNETES__NODE_SELECTOR, __TOLERATIONS, "
    "__GPUS or the memory of the problem; EVOQ_KUBERNETES__START_MINUTES says how long to wait",
    EndKind.REFUSED: "Correct the problem's settings or the namespace's rules: pods need the level "
    "`baseline` of pod security",
}


@dataclass(frozen=True, slots=True)
class PodSettings:
    """How the pods of trials are made.

    Attributes:
      image: What they run where the problem names none; it has Python 3.11 or later as `python3`.
      cpus: How many CPUs' time a pod's programs may take; the harness has half of one more.
      places: Most Jobs of this process at once; a trial beyond that waits.
      cluster: Where they run, and as what.
    """

    image: str
    cpus: float
    places: int
    cluster: KubernetesSettings


def open_cluster(settings: KubernetesSettings) -> Cluster:
    """Returns the cluster of the settings; raises Misconfigured."""
    return connect(settings.kubeconfig, settings.context, settings.namespace)


def open_jobs(settings: KubernetesSettings, owner: str) -> Jobs:
    """Returns the Jobs of trials of a deployment; raises Misconfigured."""
    return Jobs(open_cluster(settings), owner=owner)


def placement(settings: KubernetesSettings) -> Placement:
    """Returns where pods run, and as what."""
    return Placement(
        settings.node_selector,
        tuple(settings.tolerations),
        settings.service_account,
        tuple(settings.pull_secrets),
        settings.runtime_class,
        settings.pull_policy,
    )


class JobSandbox:
    """Runs each job as a Job of a cluster.

    Args:
      jobs: The Jobs.
      settings: How their pods are made.
    """

    def __init__(self, jobs: Jobs, settings: PodSettings) -> None:
        self._jobs = jobs
        self._settings, self._cluster = settings, settings.cluster
        self._places = threading.Semaphore(settings.places)
        self._isolation: Isolation | None = None

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        """Returns how a job ended.

        Raises:
          Stopped: It was asked to stop; its Job is deleted.
          Unavailable: The cluster has no place for it, took its place away, or does not answer.
          Misconfigured: Its files are too large, or need an image that nobody has built.
          Starved: The node had no time for the trial.
          EvaluatorBroken: The evaluator cannot be imported or lacks the function.
        """
        while not self._places.acquire(timeout=_LOOKING_SECONDS):
            if stop.asked:
                raise Stopped("the trial was withdrawn before it had a place")
        try:
            reason = ""
            for _ in range(_ATTEMPTS):
                end = self._jobs.run(self._spec(job), stop)
                try:
                    return self._outcome(job, end)
                except SandboxLost as error:
                    words = end.output.decode("utf-8", "replace").strip()[-_WORDS:]
                    reason = f"{error}; {end.ending.detail} {words}".strip()
            violation = f"every pod was lost: {reason}"
            return Outcome(None, Failure(FailureKind.SANDBOX_VIOLATION, violation))
        finally:
            self._places.release()

    def prepare(self, evaluator: Evaluator) -> None:
        """Checks that a problem's dependencies are in an image.

        Raises:
          Misconfigured: They are not.
        """
        self._image(evaluator)

    def surroundings(self, evaluator: Evaluator) -> str:
        """Returns the name of a problem's image."""
        return f"pod {self._image(evaluator)}"

    def protections(self) -> list[Protection]:
        """Returns which protections are in force, as a pod reported them.

        Raises:
          Unavailable: No pod could be run.
        """
        return protections_of(self._reported())

    def summary(self) -> str:
        """Returns one line on the isolation in force; see `protections`."""
        return summary("pods", self._reported())

    def close(self) -> None:
        self._jobs.close()

    def _reported(self) -> Isolation:
        if self._isolation is None:
            self.run(_PROBE_JOB)
        if self._isolation is None:
            raise Unavailable("a pod that was to try its protections did not boot")
        return self._isolation

    def _outcome(self, job: Job, end: JobEnd) -> Outcome:
        """Returns the outcome of a trial by the end of its Job; raises SandboxLost without one."""
        kind, detail = end.ending.kind, end.ending.detail
        boot, numpy = self._boot(job)
        if end.results:
            replay = _Replay(end)
            # It raises what the sandbox refused.
            warm = WarmSandbox(replay, boot, job.evaluator, job.mode, job.limits, numpy)
            self._isolation = warm.isolation
            if kind is EndKind.DONE:
                report = warm.run(job)
                if report.header["evaluator_lost"] and not report.result:
                    raise SandboxLost("the evaluator's zygote ended")
                seconds = end.waited_seconds + end.ran_seconds
                boot_seconds = max(0.0, seconds - report.header["wall_seconds"])
                ended = outcome(job, report, boot_seconds)
                if starved(job, report):
                    raise Starved(ended)
                return ended
        failure = None
        if kind is EndKind.OUT_OF_MEMORY:
            failure = Failure(FailureKind.MEMORY, more_than(job.limits))
        elif kind is EndKind.OVERFULL:
            failure = Failure(FailureKind.OUTPUT_LIMIT, detail)
        elif kind is EndKind.DEADLINE and (end.results or not end.output):
            failure = Failure(FailureKind.TIMEOUT, f"its Job was ended: {detail}")
        if failure is not None:
            return Outcome(
                None, failure, wall_seconds=end.ran_seconds, boot_seconds=end.waited_seconds
            )
        if kind in (EndKind.DONE, EndKind.FAILED):
            raise SandboxLost(f"its pod ended without a report ({kind})")
        remedy = f". {_REMEDIES[kind]}" if kind in _REMEDIES else ""
        raise Unavailable(f"the Job of a trial ended: {kind}: {detail}{remedy}")

    def _spec(self, job: Job) -> JobSpec:
        boot, numpy = self._boot(job)
        parts = [*boot_input(boot, job.evaluator, job.mode, job.limits, numpy), *trial_input(job)]
        packed = zlib.compress(b"".join(parts), 9)
        if len(packed) > FILES_BYTES:
            raise Misconfigured(
                f"the problem's files, the harness and the program are {len(packed)} bytes "
                f"compressed, and a ConfigMap holds {FILES_BYTES}. Name the large ones as data "
                f"(problem.mounts) on a volume that EVOQ_KUBERNETES__CLAIMS lists, or put them "
                f"into the image (sandbox.image)"
            )
        limits = job.limits
        claims = self._claims(job.evaluator)
        places = (*_PLACES, *([_DATA] if claims else []))
        modes = [word for scratch, mode in places for word in (scratch.path, mode)]
        return JobSpec(
            image=self._image(job.evaluator),
            command=(
                *("python3", "-B", "-s", "-c", LOGGED_BOOTSTRAP),
                *(f"{_FOLDER}/{_INPUT}", *modes),
            ),
            ticket=job.ticket,
            files={_INPUT: packed},
            files_path=_FOLDER,
            environment=ENVIRONMENT,
            claims=claims,
            scratch=tuple(scratch for scratch, _ in places),
            resources=Resources(
                self._settings.cpus + _HARNESS_CPUS,
                sandbox_memory_mib(limits),
                self._cluster.gpus,
                self._cluster.gpu_resource,
            ),
            placement=placement(self._cluster),
            # The harness takes a throw-away identity for each program.
            security=Security(0, _CAPABILITIES),
            start_seconds=60.0 * self._cluster.start_minutes,
            run_seconds=_BOOT_SECONDS + limits.wall_seconds + 2 * BACKSTOP_SECONDS,
        )

    def _boot(self, job: Job) -> tuple[BootSettings, bool]:
        """Returns how a pod boots, and whether with NumPy: the same for all who take a trial over.

        Identities that two pods of a node share would count their processes together.
        """
        texts = [source for suffix, source in job.programs if suffix == ".py"]
        offset = random.Random(job.ticket or None).randrange(_OFFSETS)
        settings = BootSettings(
            "pod",
            offset=offset,
            boot_seconds=_BOOT_SECONDS,
            trials_per_evaluator=1,
            compiled=UNCOMPILED,
        )
        return settings, beyond_the_library(texts)

    def _image(self, evaluator: Evaluator) -> str:
        if evaluator.image:
            return evaluator.image
        found = from_dockerfile(evaluator.files) or from_requirements(evaluator.files)
        if found is not None:
            raise Misconfigured(
                f"the problem brings {found.entry}, and nothing builds images in a cluster. Build "
                f"one with it (`docker build`), push it, and name it with sandbox.image"
            )
        return self._settings.image

    def _claims(self, evaluator: Evaluator) -> tuple[Claim, ...]:
        """Returns the volumes with the data of a problem, at the places where it is looked for."""
        claims = []
        for name, path in located(evaluator).items():
            for claim, top in self._cluster.claims.items():
                if PurePosixPath(path).is_relative_to(top):
                    below = str(PurePosixPath(path).relative_to(top))
                    sub_path = "" if below == "." else below
                    claims.append(Claim(claim, f"/sandbox/data/{name}", sub_path, read_only=True))
                    break
            else:
                refuse(
                    path,
                    "no volume of the cluster has it",
                    "Have it on a PersistentVolumeClaim that workers have at a folder above it, "
                    'and name both with EVOQ_KUBERNETES__CLAIMS={"CLAIM": "FOLDER"}',
                )
        return tuple(claims)


class _Replay:
    """The connection to a sandbox that has ended: what it wrote is read from its log."""

    def __init__(self, end: JobEnd) -> None:
        self._frames = b"".join(map(zlib.decompress, end.results))
        self._words = end.output.decode("utf-8", "replace")

    def send(self, parts: Sequence[bytes], deadline: float) -> None:
        """Nothing reads any more."""

    def receive(self, size: int, deadline: float) -> bytes:  # noqa: ARG002
        if len(self._frames) < size:
            raise SandboxLost("its report is not whole")
        received, self._frames = self._frames[:size], self._frames[size:]
        return received

    def silent(self, seconds: float = 0.0) -> bool:  # noqa: ARG002
        return False

    def outrun(self) -> bool:
        return False

    def interrupt(self) -> None:
        """It has ended."""

    def check(self) -> None:
        """Nothing lies between here and the log."""

    def loss(self) -> Loss:
        return Loss.UNKNOWN

    def error_output(self) -> str:
        return self._words

    def close(self) -> None:
        """It has ended."""
