"""Distributes the tests over the processes of pytest-xdist, in groups that share something.

`tests/conftest.py` loads this module as a plug-in of pytest.
"""

import os

import pytest

PROCESSES = 4
"""Two for each of two cores, because many tests wait."""
DEPLOYMENT = "deployment"
"""The group of the tests that share the Compose project."""
ATTACKS = "tests/integration/test_sandbox_attacks.py"
"""The module whose classes are long, and share nothing."""
LONG = (DEPLOYMENT, ATTACKS, "test_sandbox_", "test_embedded_", "test_cli_")
"""Parts of the names of groups that take longest, the longest first."""


def group(nodeid: str) -> str:
    """Returns the group of a test: its module, so that the fixtures of a module are built once.

    A class of `ATTACKS` is a group of its own; the tests of the deployment share one.
    """
    path, _, rest = nodeid.partition("::")
    if path.startswith("tests/e2e"):
        return DEPLOYMENT
    name = rest.partition("::")[0]
    return f"{path}::{name}" if path == ATTACKS else path


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Returns how many processes `-n auto` means; 0 is this one.

    The names that `--last-failed` reads are those of tests in one process.
    """
    return 0 if config.option.lf else PROCESSES


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the groups that take longest, so that no process idles at the end."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item.nodeid)))
    items.sort(key=lambda item: _weight(group(item.nodeid)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Removes the group from the name of a test, where pytest prints the name and remembers it.

    The processes that run the tests need the name as pytest-xdist has made it.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        report.nodeid = report.nodeid.removesuffix(f"@{group(report.nodeid)}")


def _weight(group: str) -> int:
    """Returns the rank of a group; the lowest begins first."""
    return next((rank for rank, part in enumerate(LONG) if part in group), len(LONG))
