"""One watch for many Jobs, and what becomes of it when the API server fails."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.kubernetes import connection, watch
from app.adapters.kubernetes.connection import Cluster
from app.adapters.kubernetes.endings import EndKind
from app.adapters.kubernetes.jobs import JobEnd, Jobs
from app.adapters.kubernetes.manifests import JobSpec
from app.adapters.store.leases import Withdrawal
from app.patterns.commands import Command
from app.patterns.jobs import JobsRunner
from app.patterns.racing import Speculate
from app.ports.protocols import Stopped, Unavailable
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
    jobs = Jobs(cluster)
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
    server: FakeApiServer,
    jobs: Jobs,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The events of a Job are asked for where it is not seen to run in three seconds.
    monkeypatch.setattr("app.adapters.kubernetes.jobs._LOOK_SECONDS", PATIENCE_SECONDS)
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


def test_a_failed_job_ends_as_its_pod_did_though_the_job_is_reported_first(
    server: FakeApiServer, jobs: Jobs, pool: ThreadPoolExecutor
) -> None:
    futures = started(server, jobs, pool, 2)
    greedy, gone = server.names()
    server.exhaust_memory(greedy)
    server.lose_pod(gone)

    ends = {end.ending.kind: end for end in (f.result(PATIENCE_SECONDS) for f in futures)}

    assert set(ends) == {EndKind.OUT_OF_MEMORY, EndKind.DELETED}
    assert ends[EndKind.DELETED].ending.detail.endswith("its pod is gone")


def test_an_outage_leaves_the_job_to_be_adopted(
    server: FakeApiServer, cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    ticketed = JobSpec(image="any", command=("any",), files={"task": b"x"}, ticket="7 1")
    hasty = Jobs(cluster, outage_seconds=1.0)
    future = pool.submit(hasty.run, ticketed)
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
    for each in (hasty, later):
        each.close()


def test_a_process_that_ends_leaves_no_job_that_nobody_takes_over(
    server: FakeApiServer, jobs: Jobs
) -> None:
    jobs.start(SPEC)
    kept = jobs.start(replace(SPEC, ticket="7 1"))

    jobs.close()

    assert server.names() == [kept.name]


def test_a_job_of_the_same_name_has_files_of_its_own(
    server: FakeApiServer, jobs: Jobs, pool: ThreadPoolExecutor
) -> None:
    """Given files of an earlier Job of the name, which the cluster has not deleted yet, I expect
    the next Job to mount its own, which stay."""
    ticketed = replace(SPEC, ticket="7 1")
    server.collects = False
    for attempt in (1, 2):
        future = pool.submit(jobs.run, ticketed)
        eventually(lambda n=attempt: len(server.names("configmaps")) == n)  # type: ignore[misc]
        [name] = server.names()
        [mounted] = [
            volume["configMap"]["name"]
            for volume in server.job(name)["spec"]["template"]["spec"]["volumes"]
            if "configMap" in volume
        ]
        assert mounted == server.names("configmaps")[-1]
        server.finish(name)
        assert future.result(PATIENCE_SECONDS).results == (name.encode(),)


def test_a_collision_of_requests_is_no_object_that_is_there(
    server: FakeApiServer, jobs: Jobs, pool: ThreadPoolExecutor
) -> None:
    """Two requests that one quota counts at the same moment collide: 409, as an object that is
    there; one of them is to be repeated."""
    server.refusals = {"jobs": (409, "Conflict"), "configmaps": (409, "Conflict")}
    [future] = started(server, jobs, pool, 1)
    [name] = server.names()
    server.finish(name)
    assert future.result(PATIENCE_SECONDS).results == (name.encode(),)
    assert server.requests["create configmaps"] == 2


def test_a_job_whose_files_cannot_be_given_is_not_left(
    server: FakeApiServer, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_RETRYING_SECONDS", 0.0)
    server.refusals = {"configmaps": (503, "ServiceUnavailable")}
    with pytest.raises(Unavailable):
        jobs.start(replace(SPEC, ticket="7 1"))
    assert server.names() == []


def test_the_log_of_a_container_that_never_ran_is_not_asked_for(
    server: FakeApiServer, cluster: Cluster, jobs: Jobs
) -> None:
    """Whoever takes a Job over may see it end at its deadline while its pod still waits."""
    ticketed, died = replace(SPEC, ticket="7 1"), Jobs(cluster)
    server.pends = True
    died.start(ticketed)
    adopted = jobs.start(ticketed)
    server.expire(adopted.name)
    end = jobs.wait(adopted)
    assert (end.ending.kind, end.results) == (EndKind.DEADLINE, ())
    assert server.requests["get log"] == 0
    died.close()


@pytest.mark.parametrize("ahead_seconds", [-3600.0, 3600.0])
def test_a_job_is_left_to_its_readers_for_a_minute_of_the_clusters_clock(
    server: FakeApiServer, jobs: Jobs, ahead_seconds: float
) -> None:
    server.ahead_seconds = ahead_seconds
    ended = jobs.start(replace(SPEC, ticket="7 1"))
    server.expire(ended.name)
    assert jobs.sweep() == 0
    assert server.names() == [ended.name]

    server.ahead_seconds += 70.0
    assert jobs.sweep() == 1
    assert server.names() == []


def test_a_candidate_whose_job_cannot_be_followed_leaves_no_job(
    server: FakeApiServer, cluster: Cluster, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    base = tmp_path / "volume" / "base"
    base.mkdir(parents=True)
    runner = JobsRunner(claim="c", image="any", mount=base.parent, cluster=cluster)
    runner._jobs._outage_seconds = 0.2
    future = pool.submit(Speculate([Command(["true"])], runner=runner), str(base))
    eventually(lambda: server.watching() == 2 and len(server.names("configmaps")) == 1)
    server.down = True
    server.drop_watches()
    eventually(lambda: server.requests["delete jobs"] > 0)
    server.down = False

    [failed] = future.result(PATIENCE_SECONDS).all_results
    assert "has not answered" in failed.error
    assert server.names() == []
    runner.close()


def test_candidates_that_wait_for_a_quota_ask_together_as_often_as_one(
    server: FakeApiServer, cluster: Cluster, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    runner = JobsRunner(claim="c", image="any", mount=tmp_path, cluster=cluster)
    stops = [Withdrawal() for _ in range(20)]
    for number in range(20):
        (tmp_path / f"{number}").mkdir()
    server.full = True
    began = time.monotonic()
    futures = [
        pool.submit(
            runner.begin, replace(SPEC, ticket=f"7 {number}"), tmp_path / f"{number}" / "tree", stop
        )
        for number, stop in enumerate(stops)
    ]
    try:
        eventually(lambda: server.requests["create jobs"] >= 26)
        # Each asks once, and six times one of them asks again, half a second after the last.
        assert time.monotonic() - began > 2.4
        stops[0].ask()
        with pytest.raises(Stopped):
            futures[0].result(PATIENCE_SECONDS)
    finally:
        server.full = False
    names = [future.result(PATIENCE_SECONDS).name for future in futures[1:]]
    assert sorted(server.names()) == sorted(names)
    runner.close()
