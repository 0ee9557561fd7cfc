"""One watch for many Jobs, and what becomes of it when the API server fails."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.kubernetes import watch
from app.adapters.kubernetes.connection import Cluster
from app.adapters.kubernetes.endings import EndKind
from app.adapters.kubernetes.jobs import JobEnd, Jobs
from app.adapters.kubernetes.manifests import JobSpec
from app.ports.protocols import Unavailable
from tests.kubernetes.fake_server import FakeApiServer

PATIENCE_SECONDS = 30.0
SPEC = JobSpec(image="any", command=("any",), files={"task": b"x"})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    monkeypatch.setattr(watch, "_LONGEST_PAUSE_SECONDS", 0.2)
    server = FakeApiServer()
    yield server
    server.close()


@pytest.fixture
def cluster(server: FakeApiServer, tmp_path: Path) -> Cluster:
    return server.cluster(tmp_path)


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[Jobs]:
    jobs = Jobs(cluster, outage_seconds=1.0)
    yield jobs
    jobs.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(100) as pool:
        yield pool


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def started(
    server: FakeApiServer, jobs: Jobs, pool: ThreadPoolExecutor, count: int
) -> list[Future[JobEnd]]:
    futures = [pool.submit(jobs.run, SPEC) for _ in range(count)]
    eventually(lambda: len(server.names("configmaps")) == count and server.watching() == 2)
    return futures


def results(futures: list[Future[JobEnd]]) -> list[str]:
    return sorted(end.results[0].decode() for end in (f.result(PATIENCE_SECONDS) for f in futures))


def test_a_hundred_jobs_take_one_watch_and_no_polling(
    server: FakeApiServer, jobs: Jobs, pool: ThreadPoolExecutor
) -> None:
    futures = started(server, jobs, pool, 100)
    names = sorted(server.names())

    for name in names:
        server.finish(name)

    assert results(futures) == names
    assert server.names() == []
    assert server.requests == {
        "list jobs": 1, "list pods": 1, "watch jobs": 1, "watch pods": 1,
        "create jobs": 100, "create configmaps": 100, "get log": 100, "delete jobs": 100,
    }  # fmt: skip


def test_a_watch_that_is_lost_goes_on_from_where_it_was(
    server: FakeApiServer, jobs: Jobs, pool: ThreadPoolExecutor
) -> None:
    futures = started(server, jobs, pool, 2)
    server.down = True
    server.drop_watches()
    first, second = names = sorted(server.names())
    server.finish(first)
    server.down = False
    eventually(lambda: server.watching() == 2)
    server.finish(second)

    assert results(futures) == names
    assert (server.requests["list jobs"], server.requests["list pods"]) == (1, 1)


def test_a_version_that_is_too_old_is_answered_by_a_list(
    server: FakeApiServer, jobs: Jobs, pool: ThreadPoolExecutor
) -> None:
    futures = started(server, jobs, pool, 3)
    deleted, ended, goes_on = server.names()
    server.down = True
    server.drop_watches()
    server.finish(ended)
    server.delete(deleted)
    server.compact()
    server.down = False
    eventually(lambda: server.watching() == 2)
    server.finish(goes_on)

    ends = [future.result(PATIENCE_SECONDS) for future in futures]

    assert sorted(end.ending.kind for end in ends) == [
        EndKind.DELETED, EndKind.DONE, EndKind.DONE,
    ]  # fmt: skip
    assert server.requests["list jobs"] == 2


def test_an_outage_leaves_the_job_to_be_adopted(
    server: FakeApiServer, cluster: Cluster, jobs: Jobs, pool: ThreadPoolExecutor
) -> None:
    ticketed = JobSpec(image="any", command=("any",), files={"task": b"x"}, ticket="7 1")
    future = pool.submit(jobs.run, ticketed)
    eventually(lambda: server.watching() == 2 and len(server.names("configmaps")) == 1)
    server.down = True
    server.drop_watches()

    with pytest.raises(Unavailable, match="has not answered for 1 s"):
        future.result(PATIENCE_SECONDS)

    server.down = False
    [name] = server.names()
    server.finish(name)
    later = Jobs(cluster)
    assert later.run(ticketed).results == (name.encode(),)
    assert server.names() == []
    later.close()


def test_a_process_that_ends_leaves_no_job_that_nobody_takes_over(
    server: FakeApiServer, jobs: Jobs
) -> None:
    jobs.start(SPEC)
    kept = jobs.start(replace(SPEC, ticket="7 1"))

    jobs.close()

    assert server.names() == [kept.name]
