"""What a worker imports before its first step: a run's first proposal waits for each library."""

import subprocess
import sys

_SELDOM = ["aiohttp", "cmaes", "docker", "matplotlib", "numpy", "requests"]
_SANDBOX = """
from pathlib import Path
from app.adapters.sandbox.choose import choose, clear_orphans
from app.config.settings import SandboxSettings
settings = SandboxSettings(backend="process")
clear_orphans(settings)
choose(settings, infra=Path("infra")).close()
"""


def test_a_worker_imports_no_library_that_only_some_of_its_steps_use() -> None:
    code = (
        f"import sys, workers.tasks\n{_SANDBOX}\n"
        "print(*(m for m in sys.argv[1:] if m in sys.modules))"
    )

    imported = subprocess.run(
        [sys.executable, "-c", code, *_SELDOM], capture_output=True, text=True, check=True
    )

    assert imported.stdout.split() == []


def test_a_worker_that_is_forked_imports_no_other_command_of_celery() -> None:
    code = """
import os, sys
from app.embedded.forks import Imports
imports = Imports()
assert imports.fork(os.environ) or sys.platform != "linux"
import pygments
print(*(m for m in sys.argv[1:] if m in sys.modules))
"""
    others = ["flower", "tornado", "prompt_toolkit", "click_repl", "pygments.lexers", *_SELDOM]

    imported = subprocess.run(
        [sys.executable, "-c", code, *others], capture_output=True, text=True, check=True
    )

    assert imported.stdout.split() == []
