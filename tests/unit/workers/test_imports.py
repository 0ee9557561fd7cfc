"""What a worker imports before its first step: a run's first proposal waits for each library."""

import subprocess
import sys


def test_a_worker_imports_no_library_that_only_some_of_its_steps_use() -> None:
    asked = "import sys, workers.tasks; print(*(m for m in sys.argv[1:] if m in sys.modules))"
    seldom = ["aiohttp", "cmaes", "matplotlib", "numpy"]

    imported = subprocess.run(
        [sys.executable, "-c", asked, *seldom], capture_output=True, text=True, check=True
    )

    assert imported.stdout.split() == []
