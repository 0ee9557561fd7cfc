"""The process sandbox against the contract, behind each kind of isolation."""

from collections.abc import Iterator

import pytest

from app.adapters.sandbox.process import ProcessSandbox
from app.domain.problem import Mode
from app.ports.protocols import Sandbox, Unavailable
from tests.contracts.sandbox import (
    POOL,
    SampledSandboxContract,
    SandboxContract,
    require_a_name,
)


def sandbox_behind(level: str) -> ProcessSandbox:
    """Returns a sandbox behind exactly this kind of isolation, or skips."""
    sandbox = ProcessSandbox(POOL, levels=(level, "bare"), engine=())
    try:
        protections = {protection.name: protection.on for protection in sandbox.protections()}
    except Unavailable as error:
        pytest.skip(f"no sandbox boots here: {error}")
    if level != "bare" and not protections["the machine's files out of sight"]:
        sandbox.close()
        pytest.skip(f"this kernel or user does not permit {level} isolation")
    return sandbox


@pytest.fixture(scope="module")
def privileged() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("privileged")
    yield sandbox
    sandbox.close()


class TestPrivilegedProcesses(SandboxContract):
    @pytest.fixture
    def sandbox(self, privileged: Sandbox) -> Sandbox:
        return privileged

    def test_tools_know_the_name_of_the_user(self, sandbox: Sandbox, mode: Mode) -> None:
        require_a_name(sandbox, mode)


@pytest.fixture(scope="module")
def unprivileged() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("unprivileged")
    yield sandbox
    sandbox.close()


class TestUnprivilegedProcesses(SampledSandboxContract):
    @pytest.fixture
    def sandbox(self, unprivileged: Sandbox) -> Sandbox:
        return unprivileged

    def test_tools_know_the_name_of_the_user(self, sandbox: Sandbox, mode: Mode) -> None:
        require_a_name(sandbox, mode)


@pytest.fixture(scope="module")
def bare() -> Iterator[Sandbox]:
    sandbox = sandbox_behind("bare")
    yield sandbox
    sandbox.close()


class TestBareProcesses(SampledSandboxContract):
    @pytest.fixture
    def sandbox(self, bare: Sandbox) -> Sandbox:
        return bare
