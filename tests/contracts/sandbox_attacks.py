"""Hostile programs, and the contract of a sandbox against them."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest

from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job, Limits, Mode, Outcome
from app.ports.protocols import Sandbox, Starved
from tests.contracts.attack_outcomes import OUTCOMES, AttackResult, Outcomes
from tests.contracts.attack_times import AttackTimes
from tests.contracts.attacks import ATTACKS as PROGRAMS
from tests.contracts.attacks import HONEST, Attack
from tests.contracts.attacks_on_limits import ON_LIMITS
from tests.contracts.attacks_on_machine import MACHINE
from tests.contracts.attacks_on_protocol import HARNESS
from tests.contracts.sandbox import WHOLE_CORPUS, last_outcome

SAMPLE = {
    "a score by protocol": ("forged answers on the socket", "an answer to the next request"),
    "a score by output": ("frames on every descriptor",),
    "a score by value": ("always equal",),
    "a score by exception": ("exception that cannot be printed",),
    "hidden files": ("read hidden files",),
    "other processes": ("roots in proc",),
    "memory of the parent": ("own memory scan",),
    "number of processes": ("fork bomb that leaves its session", "thread bomb"),
    "sessions": ("daemons",),
    "signals": ("kill everything",),
    "memory": ("memory block by block",),
    "memory of all processes": (
        "shared memory of many processes",
        "pages in pipes",
        "data that nobody accepts",
        "mappings of many processes",
    ),
    "files": ("disk fill", "inode fill", "links and pipes left behind"),
    "sum of files": ("files without a name",),
    "surroundings": (
        "modes of what is around it",
        "attributes and owners of what is around it",
        "messages beside it",
    ),
    "output": ("no newline flood",),
    "CPU time": ("CPU time of children",),
    "identity": ("become root",),
    "system calls": ("ptrace", "mount", "unshare", "keyring"),
    "network": ("raw socket", "connect out"),
}
"""One attack or more on each mechanism: what is tried on every push behind the kinds of isolation
that the whole corpus is not tried behind."""
SAMPLED = {name for names in SAMPLE.values() for name in names}
ATTACKS = (
    *PROGRAMS, *HARNESS, *MACHINE,
    *(attack for attack in ON_LIMITS if WHOLE_CORPUS or attack.name in SAMPLED),
)  # fmt: skip
"""The whole corpus where it is asked for; else without the most of what "bare" alone needs."""

ONE_OF_EACH = tuple(
    attack for attack in ATTACKS if attack.name in {names[0] for names in SAMPLE.values()}
)
"""The first attack of each row of the sample."""

ATTEMPTS = 16
"""Of an honest program, each of which may find the machine too busy, for half a second at least."""
SECRET = b"marmot-7431-hidden"
LIMITS = Limits(
    wall_seconds=60.0, cpu_seconds=30.0, memory_mib=256, output_bytes=400_000,
    result_bytes=100_000, processes=32,
)  # fmt: skip
"""Of attacks that end by themselves: far beyond what they need, for machines that are crowded."""
BUSY = replace(LIMITS, cpu_seconds=1.0)
"""Of attacks that need much time to do harm, and of one on the limit of CPU time itself."""
BRIEF = replace(LIMITS, wall_seconds=4.0)
"""Of attacks that wait until they are stopped."""
WAITING = (
    "stop itself", "a callback nobody passed", "a callback that is no number",
    "a frame that never comes whole", "files of many processes", "a process that cannot be read",
    "a traceback that reads a pipe",
)  # fmt: skip
NARROW = replace(LIMITS, wall_seconds=20.0, memory_mib=96)
"""Of attacks that fill the memory: to fill it is what they take processors for."""
FILLING = (
    "memory block by block", "memory shared without a name", "memory in files of memory",
    "memory of sockets", "hundreds of thousands of names", "hundreds of thousands of objects",
    "shared memory of many processes", "shared memory of processes that have ended",
    "shared memory unmapped but for a page", "one large block of shared memory",
    "tables of pages", "buffers of many processes", "pages in pipes", "data that nobody accepts",
)  # fmt: skip
CROWDED = replace(LIMITS, wall_seconds=0.6)
"""Of attacks that compute until they are stopped, and take processors from all other tests: with
many processes, or where nothing but their end could interrupt them.  A bomb reaches its bound in a
fraction of that."""
COMPUTING = ("catastrophic regex", "another interpreter")
CROWDING = (
    "fork bomb", "fork bomb that leaves its session", "fork bomb of another program",
    "CPU time of children", "writers beyond the deadline", "mappings of many processes",
)  # fmt: skip
LENGTHY = {"mappings of many processes": replace(LIMITS, wall_seconds=1.2)} if WHOLE_CORPUS else {}
"""Of what needs longer than the others of its kind to do harm: by `make attacks`, since a cgroup
ends this one for want of memory after seconds only.  Where the zygote counts mappings, it has a
bound that it reaches."""

EVALUATOR = b"""
import importlib.util, os
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "hidden.txt")) as file:
    HIDDEN = file.read()
CASES = ((3, 9), (4, len(HIDDEN) + 1000))

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    right = [case for case in CASES if module.solve(case[0]) == case[1]]
    return {"combined_score": len(right) / len(CASES)}
"""

_FILES = {"evaluator.py": EVALUATOR, "hidden.txt": SECRET}
PROBLEM = Evaluator("attacks", _FILES)
WITH_NUMPY = Evaluator("attacks with NumPy", _FILES)
"""Of the attacks that import NumPy: once one has, each sandbox of its problem imports it at its
boot, which takes as long as the rest of it."""


class AttackContract:
    """Subclass it and provide the fixture `sandbox`, of any scope."""

    attacks: ClassVar[tuple[Attack, ...]] = ATTACKS
    only_guarded: ClassVar[tuple[str, ...]] = ()
    """Attacks that are not tried in compatible mode."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Gives each test the attacks of its class."""
        if "attack" in metafunc.fixturenames:
            in_guarded = "guarded" in metafunc.function.__name__
            chosen = [
                a
                for a in self.attacks
                if in_guarded or not (a.guarded_only or a.name in self.only_guarded)
            ]
            metafunc.parametrize("attack", chosen, ids=lambda attack: str(attack.name))

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        raise NotImplementedError

    def outcomes(self, attack: Attack) -> Outcomes:
        """Returns the permitted results of an attack here."""
        return OUTCOMES[attack.name]

    def limits(self, attack: Attack) -> Limits:
        """Returns the limits of an attack here, and of the honest program that follows it."""
        return limits_of(attack.name)

    @staticmethod
    def attack(sandbox: Sandbox, mode: Mode, source: str, limits: Limits) -> Outcome:
        return last_outcome(sandbox, job(mode, source, limits, problem_of(source)))

    @staticmethod
    def honest(sandbox: Sandbox, mode: Mode, limits: Limits, problem: Evaluator) -> Outcome:
        """Runs an honest program, as its step does: again, while the machine has no time for it.

        Args:
          sandbox: Where the attack ran.
          mode: As the attack's.
          limits: As the attack's.
          problem: As the attack's, by `problem_of`: its sandbox, if it is left, is used again.
        """
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(Starved):
                return sandbox.run(job(mode, HONEST, limits, problem))
        return last_outcome(sandbox, job(mode, HONEST, limits, problem))

    @pytest.fixture
    def measured(
        self, sandbox: Sandbox, attack: Attack, record_property: Callable[[str, object], None]
    ) -> Callable[[Mode], Outcome]:
        """Runs the attack, and puts how long it took into the listing of `make attacks`."""

        def run(mode: Mode) -> Outcome:
            limits = self.limits(attack)
            isolation = type(self).__name__.removeprefix("Test").removesuffix("UnderAttack")
            with AttackTimes(record_property).of(isolation, attack.name, mode, limits) as ended:
                ended.append(self.attack(sandbox, mode, attack.source, limits))
            return ended[0]

        return run

    def test_an_attack_gains_nothing_in_guarded_mode(
        self, sandbox: Sandbox, attack: Attack, measured: Callable[[Mode], Outcome]
    ) -> None:
        limits = self.limits(attack)
        outcome = measured(Mode.GUARDED)
        assert attack_result(outcome) in self.outcomes(attack).guarded, outcome
        seen = repr(replace(outcome, boot_seconds=0.0)).encode()
        assert SECRET not in seen
        assert b"leaked!" not in outcome.stdout
        after = self.honest(sandbox, Mode.GUARDED, limits, problem_of(attack.source))
        assert (after.failure, score(after)) == (None, 0.5)

    def test_an_attack_is_contained_in_compatible_mode(
        self, sandbox: Sandbox, attack: Attack, measured: Callable[[Mode], Outcome]
    ) -> None:
        limits = self.limits(attack)
        outcome = measured(Mode.COMPATIBLE)
        assert attack_result(outcome) in self.outcomes(attack).compatible, outcome
        after = self.honest(sandbox, Mode.COMPATIBLE, limits, problem_of(attack.source))
        assert (after.failure, score(after)) == (None, 0.5)


class SampledAttackContract(AttackContract):
    """The attacks of `SAMPLE`, or the whole corpus in both modes where that is asked for.

    What takes every processor, or all of the memory, is sampled in guarded mode alone: it ends
    alike in both, as the whole corpus shows elsewhere, and bombs of both modes have a test of their
    own.
    """

    attacks = tuple(attack for attack in ATTACKS if WHOLE_CORPUS or attack.name in SAMPLED)
    only_guarded = () if WHOLE_CORPUS else (*CROWDING, *FILLING)


def problem_of(source: str) -> Evaluator:
    """Returns the problem that an attack is a program of."""
    return WITH_NUMPY if "numpy" in source else PROBLEM


def job(mode: Mode, source: str, limits: Limits, problem: Evaluator) -> Job:
    program = source.encode("utf-8", "surrogatepass")
    return Job(problem, "evaluate", ((".py", program),), limits, mode)


def limits_of(name: str) -> Limits:
    """Returns the limits that end an attack behind any isolation."""
    if name in LENGTHY:
        return LENGTHY[name]
    if name in (*CROWDING, *COMPUTING):
        return CROWDED
    if name in WAITING:
        return BRIEF
    if name in FILLING:
        return NARROW
    expected = OUTCOMES[name]
    computes = FailureKind.TIMEOUT in {*expected.guarded, *expected.compatible}
    return BUSY if computes else LIMITS


def score(outcome: Outcome) -> float:
    assert outcome.result is not None, outcome
    value: float = json.loads(outcome.result)["metrics"]["combined_score"]
    return value


def attack_result(outcome: Outcome) -> AttackResult:
    """Returns the result of an attack.

    Raises:
      AssertionError: It has a score it did not earn.
    """
    if outcome.failure is not None:
        assert "it worked" not in outcome.failure.detail
        return outcome.failure.kind
    earned = score(outcome)
    assert earned in (0.0, 0.5), f"forged: {outcome}"
    return "honest" if earned else "wrong"
