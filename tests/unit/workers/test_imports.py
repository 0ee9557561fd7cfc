"""What a worker imports before its first step: a run's first proposal waits for each library."""

import subprocess
import sys

import pytest

_SELDOM = ("aiohttp", "cmaes", "docker", "matplotlib", "numpy", "requests")
_TRACES = ("workers.spans", "opentelemetry.sdk.trace", "opentelemetry.exporter")
_OTHER_COMMANDS = ("flower", "tornado", "prompt_toolkit", "click_repl")
_WORKER = """
import os, sys
import workers.tasks
from pathlib import Path
from app.adapters.sandbox.choose import choose, clear_orphans
from app.config.settings import SandboxSettings
from workers.tracing import tracing

settings = SandboxSettings(backend="process")
clear_orphans(settings)
choose(settings).close()
tracing({}, None, print)
print(*sys.modules)
"""
_FORKED = """
from app.embedded.forks import Imports

imports = Imports()
assert imports.can_fork(os.environ) or sys.platform != "linux"
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def imported() -> list[list[str]]:
    """The modules of a worker that is ready, and those there are once one can be forked."""
    code = _WORKER + _FORKED
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_a_worker_imports_no_library_that_only_some_of_its_steps_use(
    imported: list[list[str]],
) -> None:
    [ready, _] = imported

    assert "workers.tasks" in ready
    assert {*ready} & {*_SELDOM} == set()


def test_nothing_of_traces_is_imported_where_no_exporter_is_set(imported: list[list[str]]) -> None:
    [ready, _] = imported

    assert [name for name in ready if name.startswith(_TRACES)] == []


def test_a_worker_that_is_forked_imports_no_other_command_of_celery(
    imported: list[list[str]],
) -> None:
    [_, forked] = imported

    assert "celery.bin.worker" in forked
    assert {*forked} & {*_OTHER_COMMANDS, *_SELDOM} == set()
