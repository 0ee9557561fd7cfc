"""Candidates of patterns as trials: in the ledger, by leases, in real sandboxes."""

import os
import re
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from app.adapters.problems.catalogue import ProblemCatalogue
from app.adapters.sandbox.choose import choose
from app.adapters.store.leases import CHANNEL, LeaseRenewer
from app.adapters.store.sql import SqlStore
from app.config.settings import SandboxSettings
from app.domain.problem import Limits
from app.domain.run import RunState
from app.engine import branches, lifecycle, steps
from app.engine.context import Context, Pace
from app.patterns import patch
from app.patterns.budget import CandidateBudget
from app.patterns.commands import Command
from app.patterns.errors import ProcessBranchError
from app.patterns.levels import BeamSearch, Tournament
from app.patterns.queue import LedgerRunner, _Queued
from app.patterns.racing import BestOfN, Speculate
from app.patterns.work import Work
from app.ports.protocols import Sandbox, Step, Unavailable
from tests.engine.conftest import with_process

LIMITS = Limits(wall_seconds=60.0, cpu_seconds=60.0, memory_mib=512, processes=32)


class Workers:
    """Runs trials in threads as soon as they are submitted.

    Attributes:
      lost: How many of the next messages are lost with their worker.
    """

    def __init__(self, places: int) -> None:
        self._pool = ThreadPoolExecutor(places)
        self.context: Context | None = None
        self.lost = 0

    def submit(
        self, step: Step, subjects: Sequence[int], *, together: int = 1, fleet: str = ""
    ) -> None:
        assert not fleet
        assert step == "evaluate" or not subjects
        for trial in subjects:
            if self.lost:
                self.lost -= 1
            else:
                self._pool.submit(self._evaluate, trial)

    def queued(self, step: Step, fleet: str = "") -> int:
        """Returns 0: this queue's length is not known, and `reap` enqueues again."""
        assert step or fleet
        return 0

    def close(self) -> None:
        self._pool.shutdown()

    def _evaluate(self, trial: int) -> None:
        assert self.context is not None
        steps.evaluate(self.context, trial)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    sandbox = choose(SandboxSettings(backend="process", places=4, spares=0))
    yield sandbox
    sandbox.close()


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers(4)
    yield workers
    workers.close()


@pytest.fixture
def ctx(ctx: Context, store: SqlStore, sandbox: Sandbox, workers: Workers) -> Iterator[Context]:
    """The context of a coordinator; `workers` evaluate what it submits."""
    problems = ProblemCatalogue(store)
    renewer = LeaseRenewer(store, 30.0, partial(store.listen, CHANNEL, 0.2))
    ctx = replace(
        ctx, problem=problems, limited=problems.limited, sandbox=sandbox, executor=workers
    )
    workers.context = with_process(ctx, keep_lease=renewer.keep)
    yield ctx
    workers.close()
    renewer.close()


@pytest.fixture
def runners(ctx: Context, store: SqlStore) -> Callable[..., LedgerRunner]:
    return lambda group="", limits=LIMITS: LedgerRunner(ctx, store, group, limits)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "gone.txt").write_text("x")
    (folder / "kept.txt").write_text("kept")
    (folder / "run.sh").write_text("#!/bin/sh\necho run\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("kept.txt")
    return folder


def shell(text: str) -> Command:
    return Command(["/bin/sh", "-c", text])


@contextmanager
def reaping(ctx: Context) -> Iterator[None]:
    """Enqueues work that was lost or given back again while the block lasts, as beat does."""
    done = threading.Event()

    def reap() -> None:
        while not done.wait(0.3):
            steps.reap_all(ctx)

    beat = threading.Thread(target=reap)
    beat.start()
    try:
        yield
    finally:
        done.set()
        beat.join()


def rows(database: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        return list(connection.execute(query.encode()))


def test_changes_come_back_as_a_patch_and_the_folder_is_stored_once(
    runners: Callable[..., LedgerRunner], base: Path, database: str, ctx: Context
) -> None:
    text = (
        "./run.sh > said.txt; rm -r sub; ln -sf run.sh link; chmod 600 kept.txt; mkdir -p a/b;"
        "printf 'x\\377' > a/b/binary; echo $BRANCHING_ATTEMPT; echo 0.5 >&3"
    )
    candidates = [shell(text).given(BRANCHING_ATTEMPT=str(n)) for n in range(3)]
    outcome = BestOfN(candidates, runner=runners("kept"))(base)
    assert outcome.committed, outcome.all_results
    assert [result.score for result in outcome.all_results] == [0.5] * 3
    assert [result.return_value["output"] for result in outcome.all_results] == [
        "0\n",
        "1\n",
        "2\n",
    ]
    assert (base / "said.txt").read_text() == "run\n"
    assert (base / "a" / "b" / "binary").read_bytes() == b"x\xff"
    assert os.readlink(base / "link") == "run.sh"
    assert stat.S_IMODE((base / "kept.txt").stat().st_mode) == 0o600
    assert os.access(base / "run.sh", os.X_OK)
    assert not (base / "sub").exists()
    files = "SELECT count(*) FROM problem_files WHERE path = 'base.tar'"
    trials = "SELECT count(*), count(evaluation) FROM trials"
    assert rows(database, files) + rows(database, trials) == [(1,), (3, 3)]
    # Nothing is left of it but results: whoever plans next ends the run.
    steps.produce_all(ctx)
    with ctx.store.begin() as tx:
        run = tx.runs.named("kept")
        assert run is not None
        assert (run.state, run.reason) == (RunState.FINISHED, "no candidate is left")


def test_the_first_success_withdraws_the_others(
    runners: Callable[..., LedgerRunner], base: Path, database: str
) -> None:
    endless = shell("exec sleep 3141")
    waiting = [endless] * 2 + [shell("sleep 1")] + [endless] * 3
    started = time.monotonic()
    outcome = Speculate(waiting, runner=runners())(base)
    assert outcome.winner is not None
    assert outcome.winner.branch_index == 2
    assert time.monotonic() - started < 60
    assert rows(database, "SELECT count(*) FROM trials WHERE withdrawn") == [(5,)]
    until = time.monotonic() + 30
    while _sleeping("3141"):
        assert time.monotonic() < until, "a withdrawn candidate goes on"
        time.sleep(0.1)
    # Those that had not begun never begin.
    assert rows(database, "SELECT sum(attempts) FROM trials WHERE withdrawn") <= [(5,)]


def _sleeping(seconds: str) -> bool:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return f"sleep {seconds}" in listed.stdout


def test_a_candidate_whose_worker_died_is_run_by_another(
    runners: Callable[..., LedgerRunner], base: Path, workers: Workers, ctx: Context
) -> None:
    pace = Pace(lease_seconds=0.5, redeliver_seconds=0.5)
    workers.lost = 2
    runner = runners("died")
    runner._ctx = replace(ctx, pace=pace)
    with reaping(runner._ctx):
        outcome = BestOfN([shell(f"echo {n} >&3") for n in range(3)], runner=runner)(base)
    assert [result.score for result in outcome.all_results] == [0.0, 1.0, 2.0]


def test_a_pattern_that_is_started_again_takes_over_its_candidates(
    runners: Callable[..., LedgerRunner], base: Path, database: str, workers: Workers
) -> None:
    candidates = [shell(f"echo {n} >&3; echo {n} > result") for n in range(4)]
    workers.lost = 2
    killed = runners("again")
    with ThreadPoolExecutor(1) as pool:
        # Two of its messages are lost.  It commits nothing, as the process of a dead pattern.
        lost = pool.submit(BestOfN(candidates, runner=killed, commit=False), str(base))
        until = time.monotonic() + 60
        while rows(database, "SELECT count(evaluation) FROM trials") != [(2,)]:
            assert time.monotonic() < until
            time.sleep(0.1)
        again = runners("again")
        for [trial] in rows(database, "SELECT id FROM trials WHERE evaluation IS NULL"):
            workers.submit("evaluate", [trial])
        outcome = BestOfN(candidates, runner=again, commit=False)(base)
        lost.result(60)
    assert [result.score for result in outcome.all_results] == [0.0, 1.0, 2.0, 3.0]
    assert rows(database, "SELECT count(*), count(evaluation) FROM trials") == [(4, 4)]
    (base / "more.txt").write_text("x")
    [refused] = Speculate([shell("true")], runner=runners("again"))(base).all_results
    assert "began on other files" in refused.error


HARM = {
    "bomb() { bomb | bomb & }; bomb; sleep 2; exit 3": "3|processes|fork",
    "head -c 300M /dev/zero > big": "output_limit|file|patch of more than",
    "for n in $(seq 40); do head -c 8M /dev/urandom > $n; done": "output_limit|more than",
    "head -c 3M /dev/urandom > large": "patch of more than .* the most is",
    "ln -s /etc/passwd out; ln -s ../../.. up": "leads out of the folder",
    "mkfifo pipe": "is no file, folder or link",
}
"""What a candidate does, and what is said of it."""


def test_candidates_that_do_harm_fail_alone(
    runners: Callable[..., LedgerRunner], base: Path
) -> None:
    candidates = [shell(text) for text in (*HARM, "echo 2 >&3; touch good")]
    outcome = BestOfN(candidates, runner=runners())(base)
    *harmful, harmless = outcome.all_results
    for result, why in zip(harmful, HARM.values(), strict=True):
        assert not result.success
        assert re.search(why, result.error), result.error
    assert harmless.success
    assert sorted(os.listdir(base)) == ["good", "kept.txt", "link", "run.sh", "sub"]


def test_a_candidate_that_hangs_ends_at_the_timeout_which_begins_with_its_work(
    runners: Callable[..., LedgerRunner], base: Path, workers: Workers, ctx: Context
) -> None:
    candidates = [shell("exec sleep 2718")] + [shell("sleep 0.7; echo 1 >&3")] * 8
    # A candidate that a machine without time has ended is given back, and run again.
    with reaping(ctx):
        outcome = BestOfN(candidates, runner=runners(), timeout=4.0)(base)
    late, *others = outcome.all_results
    assert isinstance(late.exception, TimeoutError)
    # With four places, the last ones wait for longer than their time-out's share.
    assert all(result.success for result in others)


def test_levels_judges_and_patterns_inside_go_through_the_ledger(
    runners: Callable[..., LedgerRunner], base: Path
) -> None:
    def expand(path: Path, depth: int) -> list[Command]:
        return [shell(f"echo {depth}{k} >> steps; wc -l < steps >&3") for k in range(2)]

    beam = BeamSearch(expand(base, 0), expand=expand, beam_width=2, max_depth=2, runner=runners())
    assert beam(base).committed
    assert (base / "steps").read_text() == "00\n10\n"
    judge = shell('cat "$BRANCHING_FIRST"/champion "$BRANCHING_SECOND"/champion >&2; echo 1')
    champions = [shell(f"echo {k} > champion") for k in range(2)]
    assert Tournament(champions, judge, runner=runners())(base).committed
    assert (base / "champion").read_text() == "1\n"
    inner = BestOfN([shell("touch a; echo 1 >&3"), shell("touch b; echo 2 >&3")])
    budget = CandidateBudget(6)
    outcome = Speculate([inner], runner=runners(), budget=budget, reserved=3)(base)
    assert outcome.committed, outcome.all_results
    assert ((base / "b").exists(), budget.left) == (True, 3)


def test_callables_cross_and_those_that_cannot_are_named(
    runners: Callable[..., LedgerRunner], base: Path
) -> None:
    lock = threading.Lock()

    def locked(path: Path) -> bool:
        return lock.locked()

    def write(path: Path) -> tuple[bool, float]:
        (path / "by_value.txt").write_text("written")
        return True, 0.25

    def raising(path: Path) -> bool:
        raise RuntimeError("of the candidate")

    outcome = BestOfN([locked, write, raising], runner=runners())(base)
    held, written, raised = outcome.all_results
    assert "cannot be pickled" in held.error
    assert written.score == 0.25
    assert "RuntimeError: of the candidate" in raised.error
    assert (base / "by_value.txt").read_text() == "written"


def test_a_group_that_is_stopped_ends_its_pattern(
    runners: Callable[..., LedgerRunner], base: Path, ctx: Context
) -> None:
    def cancel() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with ctx.store.begin() as tx:
                run = tx.runs.named("stopped")
            if run is not None and not _sleeping("1618"):
                time.sleep(0.1)
            elif run is not None:
                lifecycle.cancel(ctx, run.id)
                return

    helper = threading.Thread(target=cancel)
    helper.start()
    [result] = Speculate([shell("exec sleep 1618")], runner=runners("stopped"))(base).all_results
    helper.join()
    assert isinstance(result.exception, ProcessBranchError)
    assert "the group 'stopped' is cancelled" in result.error
    [refused] = Speculate([shell("true")], runner=runners("stopped"))(base).all_results
    assert "is cancelled" in refused.error


def test_an_outage_of_the_ledger_fails_no_candidate_that_is_there(
    runners: Callable[..., LedgerRunner], base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = [shell(f"echo {n} >&3") for n in range(2)]
    BestOfN(candidates, runner=runners("outage"), commit=False)(base)
    standing, outages = branches.standing, [True, True]

    def flaky(*arguments: Any) -> branches.Standing:
        if outages:
            outages.pop()
            raise Unavailable("the ledger is away")
        return standing(*arguments)

    monkeypatch.setattr(branches, "standing", flaky)
    outcome = BestOfN(candidates, runner=runners("outage"), commit=False)(base)
    assert [result.score for result in outcome.all_results] == [0.0, 1.0]
    assert not outages


def test_a_loser_that_cannot_be_withdrawn_takes_nothing_from_the_winner(
    runners: Callable[..., LedgerRunner], base: Path, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise Unavailable("the ledger is away")

    monkeypatch.setattr(branches, "withdraw", refuse)
    racers = [shell("exec sleep 1414"), shell("touch won")]
    outcome = Speculate(racers, runner=runners("refused"))(base)
    assert outcome.committed
    assert (base / "won").exists()
    with ctx.store.begin() as tx:
        run = tx.runs.named("refused")
    assert run is not None
    # The loser would go on for as long as it may.
    lifecycle.cancel(ctx, run.id)


def test_a_folder_that_cannot_be_read_fails_its_candidate(
    runners: Callable[..., LedgerRunner], base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: str) -> bytes:
        raise PermissionError(13, "Permission denied", f"{folder}/kept.txt")

    monkeypatch.setattr(patch, "pack", refuse)
    [result] = Speculate([shell("true")], runner=runners())(base).all_results
    assert "Permission denied" in result.error


def test_a_ledger_that_is_gone_is_not_listened_to_when_no_candidate_waits(
    ctx: Context, base: Path
) -> None:
    gone = threading.Event()

    class Gone:
        def listen(self, channel: str, seconds: float) -> Iterator[bool]:
            gone.wait(30)
            raise Unavailable("the ledger is gone")

    runner = LedgerRunner(ctx, Gone(), "", LIMITS)
    work = Work(folders=(base,), home=base.parent / "home", candidate=shell("true"))
    runner.start(work).close()
    gone.set()
    until = time.monotonic() + 30
    while runner._watching:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_result_that_comes_too_late_is_written_into_no_other_descriptor() -> None:
    runner: Any = SimpleNamespace(forget=lambda trial: None)
    late = _Queued(runner, 1, cast(Work, SimpleNamespace(budget=None)))
    number = late.fileno()
    late.close()
    next_one = os.eventfd(0, os.EFD_NONBLOCK)
    assert next_one == number
    late.end("a result")
    with pytest.raises(BlockingIOError):
        os.eventfd_read(next_one)
    os.close(next_one)
