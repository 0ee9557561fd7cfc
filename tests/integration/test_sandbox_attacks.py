"""The attack corpus: whole behind child processes of root, a sample behind the others.

`make attacks` tries the whole corpus behind every kind.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.adapters.sandbox import cgroup
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.problem import Limits
from app.ports.protocols import Sandbox
from tests.contracts.attack_outcomes import IN_THE_ZYGOTE, Outcomes
from tests.contracts.attacks import Attack
from tests.contracts.attacks_on_limits import FILES, ON_LIMITS
from tests.contracts.sandbox import POOL
from tests.contracts.sandbox_attacks import (
    ATTACKS,
    LIMITS,
    SAMPLED,
    WHOLE_CORPUS,
    AttackContract,
    SampledAttackContract,
)
from tests.contracts.sandbox_neighbours import NeighbourContract
from tests.integration.test_sandbox_docker import docker_sandbox
from tests.integration.test_sandbox_process import sandbox_behind


@pytest.fixture(scope="module")
def processes() -> Iterator[Sandbox]:
    sandbox = ProcessSandbox(POOL)
    missing = [p.name for p in sandbox.protections() if not p.on and "cgroup" not in p.name]
    if missing:
        sandbox.close()
        pytest.skip(f"this machine's process sandbox does not claim: {'; '.join(missing)}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def unprivileged() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("unprivileged")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def bare() -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cgroup, "parent", lambda: None)
        sandbox = sandbox_behind("bare")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def containers() -> Iterator[Sandbox]:
    sandbox = docker_sandbox()
    yield sandbox
    sandbox.close()


class TestProcessesUnderAttack(AttackContract, NeighbourContract):
    @pytest.fixture
    def sandbox(self, processes: Sandbox) -> Sandbox:
        return processes


@pytest.mark.slow
class TestUnprivilegedProcessesUnderAttack(SampledAttackContract, NeighbourContract):
    @pytest.fixture
    def sandbox(self, unprivileged: Sandbox) -> Sandbox:
        return unprivileged


FEW_MAPPINGS = replace(LIMITS, memory_mib=32)
"""Of the mappings that the zygote counts: it looks at each of them, which are 1 in 256 bytes."""


class TestBareProcessesUnderAttack(SampledAttackContract):
    """Without namespaces and without a cgroup: the sample, and what the zygote bounds itself."""

    attacks = (
        *(a for a in ATTACKS if (WHOLE_CORPUS or a.name in SAMPLED) and a not in ON_LIMITS),
        *ON_LIMITS,
    )
    only_guarded = tuple(
        name
        for name in SampledAttackContract.only_guarded
        if name not in {attack.name for attack in ON_LIMITS}
    )

    @pytest.fixture
    def sandbox(self, bare: Sandbox) -> Sandbox:
        return bare

    def outcomes(self, attack: Attack) -> Outcomes:
        return IN_THE_ZYGOTE.get(attack.name) or super().outcomes(attack)

    def limits(self, attack: Attack) -> Limits:
        if attack.name == "mappings of many processes":
            return FEW_MAPPINGS
        return LIMITS if attack in FILES else super().limits(attack)


@pytest.mark.slow
@pytest.mark.docker
class TestContainersUnderAttack(SampledAttackContract, NeighbourContract):
    @pytest.fixture
    def sandbox(self, containers: Sandbox) -> Sandbox:
        return containers
