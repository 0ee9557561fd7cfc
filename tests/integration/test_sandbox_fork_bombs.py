"""Fork bombs behind every kind of isolation of a child process, each in a box of its own."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from app.adapters.sandbox import cgroup, frames
from app.adapters.sandbox.bundle import frame_of, harness_texts
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.evaluation import FailureKind
from app.domain.problem import Job, Limits, Mode, Outcome
from app.ports.protocols import Misconfigured
from tests.contracts.attacks import CONTAINMENT, HONEST
from tests.contracts.sandbox import WHOLE_CORPUS, last_outcome
from tests.contracts.sandbox_attacks import PROBLEM, AttackContract, score
from tests.integration.pids_box import Box, pids_box

pytestmark = pytest.mark.timing

POOL = PoolSettings(max_sandboxes=1, spares=0)
LIMITS = Limits(wall_seconds=0.6, cpu_seconds=60.0, memory_mib=1024, processes=24)
"""Memory beyond what this many processes take, so that nothing but the deadline ends a bomb, which
reaches its bound in a fraction of that."""
ENDING_SECONDS = 6.0
"""It takes some hundredths where nothing else runs; beside other tests it took over 2 s, and a bomb
that is not ended goes on for ever."""
FORKING = tuple(attack for attack in CONTAINMENT if attack.name.startswith("fork bomb"))
SMALL_THREADS = """
import threading, time
threading.stack_size(65536)
def solve(x):
    while True:
        try: threading.Thread(target=time.sleep, args=(99,)).start()
        except RuntimeError: pass
"""
SYSTEM_PYTHON = "/usr/bin/python3"
"""Throw-away identities can read it; that of a test environment they often cannot."""


@dataclass(frozen=True)
class Isolation:
    """Attributes:
    level: Of the process sandbox.
    identities: The identities of a sandbox there, or the test is skipped.
    interpreter: "" for that of the tests.
    """

    level: str
    identities: str
    interpreter: str = ""


KINDS = {
    "privileged": Isolation("privileged", "uids"),
    "unprivileged": Isolation("unprivileged", "nested"),
    "bare, root": Isolation("bare", "uids", SYSTEM_PYTHON),
    "bare": Isolation("bare", "one"),
}


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with pids_box() as made:
        yield made


def patient_harness() -> bytes:
    """Returns a harness that waits for killed processes as long as a bomb's end may take here.

    After one second it gives a sandbox up in which some are left; on a busy machine some are.
    """
    texts = dict(harness_texts())
    texts["trial.py"] += f"\n_DYING_SECONDS = {ENDING_SECONDS - 2.0}\n"
    return frame_of(texts)


@pytest.fixture(scope="module", params=KINDS)
def behind(request: pytest.FixtureRequest, box: Box) -> Iterator[ProcessSandbox]:
    isolation = KINDS[request.param]
    if isolation.interpreter and not Path(isolation.interpreter).exists():
        pytest.skip(f"there is no {isolation.interpreter}")
    environments = Environments(isolation.interpreter) if isolation.interpreter else None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cgroup, "parent", lambda: None)  # the memory of a bomb is not the subject
        levels = (isolation.level, "bare")
        sandbox = ProcessSandbox(POOL, environments=environments, levels=levels, engine=())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(frames, "harness_frame", patient_harness)
        booted = booted_isolation(sandbox)
        has = booted["identities"]
        if has != isolation.identities:
            sandbox.close()
            pytest.skip(f"here a sandbox has {has} identities: {booted['reasons']}")
        yield sandbox
        sandbox.close()


def booted_isolation(sandbox: ProcessSandbox) -> dict[str, Any]:
    sandbox.protections()
    assert sandbox._pool._isolation is not None
    return sandbox._pool._isolation


def run(sandbox: ProcessSandbox, source: str, mode: Mode, limits: Limits = LIMITS) -> Outcome:
    job = Job(PROBLEM, "evaluate", ((".py", source.encode()),), limits, mode)
    return last_outcome(sandbox, job)


def honest(sandbox: ProcessSandbox, mode: Mode) -> Outcome:
    """Runs an honest program: again, while the machine has no time for it."""
    return AttackContract.honest(sandbox, mode, LIMITS, PROBLEM)


BOMBS = {**{attack.name: attack.source for attack in FORKING}, "small threads": SMALL_THREADS}


MADE = [(bomb, Mode.GUARDED) for bomb in BOMBS] + [(FORKING[1].name, Mode.COMPATIBLE)]
HARDEST = (FORKING[1].name, "small threads")
"""Bombs of processes that leave their session, and of threads.  Where the kernel counts what an
identity has, no other gets further: `make attacks` tries them there."""
TRIED = [
    (kind, bomb, mode)
    for kind, isolation in KINDS.items()
    for bomb, mode in MADE
    if WHOLE_CORPUS or isolation.identities == "one" or bomb in HARDEST
]


@pytest.mark.parametrize(("behind", "bomb", "mode"), TRIED, indirect=["behind"])
def test_a_bomb_is_bounded_and_ends_at_the_deadline(
    behind: ProcessSandbox, box: Box, bomb: str, mode: Mode
) -> None:
    assert score(honest(behind, mode)) == 0.5
    before = box.tasks()

    with box.peak() as most:
        began = time.monotonic()
        outcome = run(behind, BOMBS[bomb], mode)
        took = time.monotonic() - began
    while box.tasks() > before and time.monotonic() < began + LIMITS.wall_seconds + ENDING_SECONDS:
        time.sleep(0.01)
    after = box.tasks()

    assert outcome.failure is not None
    assert outcome.failure.kind is FailureKind.TIMEOUT
    assert took < LIMITS.wall_seconds + ENDING_SECONDS
    assert after <= before
    # Beside the program: the evaluator, ended processes that wait for their parent, our own thread.
    assert most[0] - before < 2 * LIMITS.processes + 8
    following = honest(behind, mode)
    assert (score(following), following.boot_seconds) == (0.5, 0.0)


COUNTING = """
import os, subprocess, time
def solve(x):
    for _ in range(40):
        subprocess.run(["true"], check=True)
    children = []
    try:
        while len(children) < 100:
            children.append(os.fork())
            if children[-1] == 0:
                time.sleep(60)
    except BlockingIOError:
        pass
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert 4 <= len(children) < 8, len(children)
    return x * x
"""


@pytest.mark.parametrize("mode", Mode)
def test_the_bound_counts_processes_at_once_not_in_sequence(
    behind: ProcessSandbox, mode: Mode
) -> None:
    limits = replace(LIMITS, wall_seconds=60.0, processes=8)
    assert score(run(behind, COUNTING, mode, limits)) == 0.5


CROWD = """
import os, time
at_first = os.nice(0)
for _ in range(6):
    if os.fork() == 0:
        time.sleep(60)
crowded = os.nice(0)
def solve(x):
    assert at_first < crowded == 19, (at_first, crowded)
    return x * x
"""


@pytest.mark.parametrize("behind", ["bare"], indirect=True)
def test_a_crowd_gives_way_to_what_has_to_end_it(behind: ProcessSandbox) -> None:
    assert score(run(behind, CROWD, Mode.GUARDED, replace(LIMITS, wall_seconds=60.0))) == 0.5


SLEEPING_CROWD = """
import os, time
for _ in range(18):
    if os.fork() == 0:
        time.sleep(60)
def solve(x):
    while os.nice(0) != 19: time.sleep(0.01)
    return x * x
"""


FEW = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        time.sleep(60)
def solve(x):
    time.sleep(0.2)
    assert os.nice(0) != 19
    return x * x
"""


@pytest.mark.parametrize("behind", ["privileged"], indirect=True)
def test_a_crowd_whose_forks_nobody_answers_gives_way_soon(behind: ProcessSandbox) -> None:
    limits = replace(LIMITS, wall_seconds=60.0)
    assert score(run(behind, SLEEPING_CROWD, Mode.GUARDED, limits)) == 0.5
    assert score(run(behind, FEW, Mode.GUARDED, limits)) == 0.5


def test_a_sandbox_reports_what_bounds_its_processes(behind: ProcessSandbox) -> None:
    isolation = booted_isolation(behind)
    assert isolation["limits"]
    assert isolation["bounded_by"] in ("limit", "fork_filter")
    if isolation["identities"] == "one":
        assert isolation["bounded_by"] == "fork_filter"


# Where nothing bounds the processes of a program.


def without_a_bound() -> bytes:
    """Returns the harness as it is where neither the kernel's limit nor seccomp listeners work."""
    texts = dict(harness_texts())
    texts["probes.py"] += "\ndef bound_of_processes(layout, fork_filter):\n    return ''\n"
    return frame_of(texts)


def test_a_sandbox_in_which_nothing_bounds_processes_does_not_boot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "harness_frame", without_a_bound)
    sandbox = ProcessSandbox(POOL, levels=("bare",), engine=())
    with pytest.raises(Misconfigured) as caught:
        run(sandbox, HONEST, Mode.GUARDED)
    sandbox.close()
    assert "seccomp listeners" in str(caught.value)
    assert "sandbox.unbounded_processes=true" in str(caught.value)


def without_landlock() -> bytes:
    """Returns the harness as it is on a kernel without Landlock."""
    texts = dict(harness_texts())
    texts["landlock.py"] += "\ndef version():\n    return 0\n"
    return frame_of(texts)


def test_a_sandbox_in_which_nothing_bounds_files_does_not_boot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "harness_frame", without_landlock)
    sandbox = ProcessSandbox(POOL, levels=("bare",), engine=())
    with pytest.raises(Misconfigured) as caught:
        run(sandbox, HONEST, Mode.GUARDED)
    sandbox.close()
    assert "Landlock" in str(caught.value)
    assert "sandbox.unbounded_processes=true" in str(caught.value)


def test_unbounded_processes_are_permitted_by_a_setting_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "harness_frame", without_a_bound)
    sandbox = ProcessSandbox(POOL, levels=("bare",), engine=(), unbounded_processes=True)
    assert score(run(sandbox, HONEST, Mode.GUARDED)) == 0.5
    missing = {row.name: row.remedy for row in sandbox.protections() if not row.on}
    sandbox.close()
    assert "docker" in missing["a bound on the processes of a trial"]
