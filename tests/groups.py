"""Distributes the tests over the processes of pytest-xdist, in groups that share something.

`tests/conftest.py` loads this module as a plug-in of pytest.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

DEPLOYMENT = "deployment"
"""The group of the tests that share the Compose project."""
ATTACKS = "tests/integration/test_sandbox_attacks.py"
"""The module whose classes are long, and share nothing."""
LONG = (DEPLOYMENT, "_on_queues", ATTACKS, "test_sandbox_", "test_embedded_", "test_cli_")
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


class GroupScheduling(LoadScopeScheduling):
    """Has one process run all tests of a group.

    `--dist loadgroup` of pytest-xdist 3.8 has no effect with pytest 9.2:
    https://github.com/pytest-dev/pytest-xdist/issues/1386
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the groups that take longest, so that no process idles at the end."""
    items.sort(key=lambda item: _weight(group(item.nodeid)))


def _weight(group: str) -> int:
    """Returns the rank of a group; the lowest begins first."""
    return next((rank for rank, part in enumerate(LONG) if part in group), len(LONG))
