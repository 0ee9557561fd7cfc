"""The attack corpus in the pool that a worker of the deployment opens; run in its container.

`test_attacks` copies it there, with pytest.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.adapters.sandbox.choose import choose
from app.adapters.sandbox.process import ProcessSandbox
from app.config.settings import SandboxSettings, Settings
from app.domain.problem import Evaluator, Limits, Mode, Outcome
from app.ports.protocols import Sandbox
from tests.contracts.attack_outcomes import IN_THE_ZYGOTE, Outcomes
from tests.contracts.attacks import Attack
from tests.contracts.sandbox_attacks import AttackContract

LATE_SECONDS = 2.0
"""After its deadline, or after it was asked for, within which a trial's outcome is known."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Sandbox]:
    given: SandboxSettings = Settings().sandbox
    sandbox = choose(replace(given, owner=f"{given.owner}-attacks", places=2))
    yield sandbox
    sandbox.close()


class TestDeploymentUnderAttack(AttackContract):
    """Each attack ends in time and as it may, and so does the honest program after it."""

    @pytest.fixture
    def sandbox(self, pool: Sandbox) -> Sandbox:
        self.in_processes = isinstance(pool, ProcessSandbox)
        return pool

    def outcomes(self, attack: Attack) -> Outcomes:
        elsewhere = super().outcomes(attack)
        return IN_THE_ZYGOTE.get(attack.name, elsewhere) if self.in_processes else elsewhere

    @staticmethod
    def attack(sandbox: Sandbox, mode: Mode, source: str, limits: Limits) -> Outcome:
        began = time.monotonic()
        outcome = AttackContract.attack(sandbox, mode, source, limits)
        late = time.monotonic() - began - outcome.boot_seconds - limits.wall_seconds
        assert late < LATE_SECONDS, f"known {late:.1f} s after its deadline: {outcome}"
        return outcome

    @staticmethod
    def honest(sandbox: Sandbox, mode: Mode, limits: Limits, problem: Evaluator) -> Outcome:
        began = time.monotonic()
        outcome = AttackContract.honest(sandbox, mode, limits, problem)
        took = time.monotonic() - began - outcome.boot_seconds
        assert took < LATE_SECONDS, f"an honest program took {took:.1f} s"
        return outcome
