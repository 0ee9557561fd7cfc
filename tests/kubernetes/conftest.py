"""What the tests of Jobs share: the cluster, and Jobs in a namespace of their own."""

from collections.abc import Iterator

import pytest

from app.adapters.kubernetes.connection import Cluster, connect
from app.adapters.kubernetes.jobs import Jobs
from tests.cluster import kubeconfig, namespace

__all__ = ["namespace"]


@pytest.fixture(scope="session")
def cluster(namespace: str) -> Cluster:
    """The cluster, as a process outside of it reaches it."""
    return connect(str(kubeconfig()), "", namespace)


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> Iterator[Jobs]:
    """Jobs with one watch for the tests of a module."""
    jobs = Jobs(cluster)
    yield jobs
    jobs.close()
