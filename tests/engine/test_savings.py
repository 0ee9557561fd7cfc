"""Nothing is evaluated twice, by texts, by similar texts, by outcomes of earlier runs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import cos, sin
from pathlib import Path
from typing import Any

import pytest

from app.adapters.sandbox.cached import CachedSandbox, digest
from app.adapters.store.sql import SqlStore
from app.domain.evaluation import Failure, FailureKind
from app.domain.events import Cut, EventKind
from app.domain.operator import Brief, Conversation, Offspring, Operator
from app.domain.operators.seed import SEED
from app.domain.problem import Evaluator, Job, Limits, Mode, Outcome
from app.domain.program import Program
from app.domain.run import RunState
from app.domain.search.cohort import CutReason
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.protocols import NEVER, Stop, Unavailable
from app.reports.documents import RunDocument, to_json
from app.reports.summary import Savings, summarise
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.toy import ToySandbox, problem


class CountingSandbox(ToySandbox):
    """Counts what it runs, and takes half a second by its own account."""

    def __init__(self) -> None:
        super().__init__()
        self.image = "one"
        self.stages: Counter[str] = Counter()

    def surroundings(self, evaluator: Evaluator) -> str:
        return self.image

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        self.stages[job.function] += 1
        return replace(super().run(job), wall_seconds=0.5)


def making(*sources: str) -> Operator:
    """Returns an operator that makes these programs, one after the other."""

    def converse(brief: Brief) -> Conversation:
        yield from ()
        return [Offspring(Program(sources[draft.ordinal])) for draft in brief.drafts]

    return Operator("nudge", converse, asks_model=False)


def searched(
    ctx: Context, sources: Sequence[str], name: str, *, probe: str = "", **search: Any
) -> Savings:
    """Returns what a run saved whose children are these programs, one after the other."""
    operators = {"seed": SEED, "nudge": making(*sources)}
    toy = problem(probe=probe)
    order = replace(new_run(toy, budget=len(sources), **search), name=name)
    run = run_to_the_end(replace(ctx, operators=operators), toy, order)
    summary = summarise(ctx.store, run, toy)
    saved = to_json(RunDocument(summary))["savings"]
    assert saved == {
        **summary.savings.programs,
        "reused": {
            "trials": summary.savings.reused.trials,
            "wall_seconds": summary.savings.reused.wall_seconds,
        },
    }
    return summary.savings


FUNCTION = "x = 2.0  #\ndef f(k):\n    y = k\n    return y\n"


def test_a_program_by_three_routes_is_evaluated_once(ctx: Context, store: SqlStore):
    inner = CountingSandbox()
    ctx = replace(ctx, sandbox=CachedSandbox(inner, store))
    renamed = FUNCTION.replace("y", "z")

    first = searched(ctx, [FUNCTION, FUNCTION, renamed], "first", reuse=True)
    again = searched(ctx, [FUNCTION], "again", reuse=True)

    assert inner.runs == 2, "the seed, and the program"
    assert first.programs == {"duplicate": 2, "similar": 0, "same_behaviour": 0}
    assert (first.reused.trials, again.reused.trials) == (0, 2)
    assert again.reused.wall_seconds == 1.0
    assert "2 duplicate, 0 similar, 0 same behaviour" in first.text
    assert "2 trials reused (1.0 s)" in again.text


def test_nothing_is_reused_unless_a_run_asks_for_it(ctx: Context, store: SqlStore):
    inner = CountingSandbox()
    ctx = replace(ctx, sandbox=CachedSandbox(inner, store))

    searched(ctx, [FUNCTION], "first", reuse=True)
    again = searched(ctx, [FUNCTION], "again")

    assert inner.runs == 4
    assert again.reused.trials == 0


LINES = "".join(f"    y{n} = k * {n}\n" for n in range(30))
BASE = f"x = 3.0  #\ndef f(k):\n{LINES}    return y29\n"


def test_a_program_like_one_of_the_fittest_is_cut_before_its_evaluation(ctx: Context):
    sandbox = CountingSandbox()
    near, far = BASE.replace("k * 7", "k * 8"), "x = 1.0\n"

    saved = searched(
        replace(ctx, sandbox=sandbox), [BASE, near, far, BASE], "s", similarity=0.9, islands=1
    )

    assert sandbox.runs == 3, "the seed, the program and the one that is far from it"
    assert saved.programs == {"duplicate": 1, "similar": 1, "same_behaviour": 0}
    with ctx.store.begin() as tx:
        run = tx.runs.named("s")
        assert run is not None
        facts = [event.fact for event in tx.events.read(run.id, kinds=[EventKind.CUT])]
    [cut] = [fact for fact in facts if isinstance(fact, Cut) and fact.why is CutReason.SIMILAR]
    assert cut.proposal == 1
    assert cut.reason.startswith("similarity 0.9")
    assert cut.reason.endswith(f"to {Program(BASE).id[:12]}")


class Angles:
    """An embedder for which texts are alike by their first number; down for some calls."""

    def __init__(self, down: int = 0) -> None:
        self.down = down

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        if self.down:
            self.down -= 1
            raise Unavailable("the embedding model is down")
        angles = [float(text.split()[2]) / 100 for text in texts]
        return [(cos(angle), sin(angle)) for angle in angles]


def test_with_a_model_for_embeddings_their_cosine_says_what_is_similar(ctx: Context):
    sandbox, angles = CountingSandbox(), Angles()
    ctx = replace(ctx, sandbox=sandbox, embedder=lambda _: angles)

    saved = searched(ctx, ["x = 3.0\n", "x = 40.0\n", "x = 0.9\n"], "s", similarity=0.99, islands=1)

    assert sandbox.runs == 2, "the seed, and the only child that is far from it"
    assert saved.programs == {"duplicate": 0, "similar": 2, "same_behaviour": 0}


def test_while_no_embeddings_are_made_a_child_waits_and_no_attempt_of_it_counts(ctx: Context):
    angles, pace = Angles(down=7), Pace(attempts=2, retry_seconds=0.0)
    made = {"seed": SEED, "nudge": making("x = 40.0\n")}
    toy = problem()
    ctx = replace(ctx, embedder=lambda _: angles, operators=made, pace=pace)
    ctx = replace(ctx, problem=lambda _: toy)
    run = lifecycle.start(ctx, toy, new_run(toy, budget=1, similarity=0.99))

    for _ in range(angles.down):
        with pytest.raises(Unavailable, match="embedding model is down"):
            ctx.executor.drain(table(ctx), lambda: False)
        steps.reap(ctx, run.id)
    ctx.executor.drain(table(ctx), lambda: False)

    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).state is RunState.FINISHED
        assert tx.runs.get(run.id).reason == "budget of 1 proposals spent"


def test_of_programs_that_behave_alike_the_first_is_measured(ctx: Context):
    sandbox = CountingSandbox()
    ctx = replace(ctx, sandbox=sandbox)
    children = ["x = 2.1\n", "x = 1.9\n", "x = 0.2\n", "x = crash\n", "x = 5.0\n"]

    saved = searched(ctx, children, "probed", probe="probe", in_flight=4)

    assert saved.programs == {"duplicate": 0, "similar": 0, "same_behaviour": 2}
    assert sandbox.stages == {"probe": 6, "evaluate": 3}, "the seed, and what is near 2 and near 5"
    with ctx.store.begin() as tx:
        run = tx.runs.named("probed")
        assert run is not None
        settled = {one.ordinal: one for one in tx.history.settled(run.id)}
    assert settled[2].cut is CutReason.SAME_BEHAVIOUR, "it behaves like the seed"
    assert settled[3].failure is not None
    assert settled[4].fitness is not None


def test_a_program_by_every_route_is_evaluated_once_and_the_counts_add_up(
    ctx: Context, store: SqlStore
):
    inner = CountingSandbox()
    ctx = replace(ctx, sandbox=CachedSandbox(inner, store))
    text, behaviour = FUNCTION.replace("y", "z"), "x = 2.2\n"

    first = searched(ctx, [FUNCTION, text, behaviour], "one", probe="probe", reuse=True)
    again = searched(ctx, [FUNCTION], "two", probe="probe", reuse=True)

    assert inner.stages == {"probe": 3, "evaluate": 2}, "the seed, and the program once"
    assert first.programs == {"duplicate": 1, "similar": 0, "same_behaviour": 1}
    assert again.reused.trials == 4, "a probe and an evaluation, of the seed and of the program"


JOB = Job(Evaluator("e", {}), "evaluate", ((".py", b"x = 1.0\n"),), reuse=True)


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, evaluator=Evaluator("f", {})),
        replace(JOB, function="evaluate_stage1"),
        replace(JOB, programs=((".py", b"x = 2.0\n"),)),
        replace(JOB, programs=((".txt", b"x = 1.0\n"),)),
        replace(JOB, limits=Limits(memory_mib=77)),
        replace(JOB, mode=Mode.COMPATIBLE),
        replace(JOB, seed=1),
        replace(JOB, cases=("a",)),
    ],
)
def test_whatever_shapes_a_result_is_part_of_the_key(other: Job, store: SqlStore):
    inner = CountingSandbox()
    cached = CachedSandbox(inner, store)

    cached.run(JOB)
    cached.run(other)

    assert inner.runs == 2
    assert cached.run(JOB).reused
    assert digest(JOB, "one") != digest(JOB, "another image")


def test_data_that_has_changed_is_measured_anew(tmp_path: Path, store: SqlStore):
    data = tmp_path / "train.csv"
    data.write_text("1\n")
    job = replace(JOB, evaluator=Evaluator("e", {}, mounts={"train": str(data)}))
    inner = CountingSandbox()
    CachedSandbox(inner, store).run(job)
    assert CachedSandbox(inner, store).run(job).reused

    data.write_text("22\n")

    assert not CachedSandbox(inner, store).run(job).reused
    assert inner.runs == 2


class Failing(CountingSandbox):
    """Fails the first time, with a failure or with an exception."""

    def __init__(self, failure: Exception | FailureKind) -> None:
        super().__init__()
        self.failure: Exception | FailureKind | None = failure

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        failure, self.failure = self.failure, None
        if isinstance(failure, Exception):
            raise failure
        outcome = super().run(job)
        return outcome if failure is None else Outcome(None, Failure(failure))


@pytest.mark.parametrize(
    "kind", [FailureKind.TIMEOUT, FailureKind.MEMORY, FailureKind.SANDBOX_VIOLATION]
)
def test_no_failure_is_kept(kind: FailureKind, store: SqlStore):
    cached = CachedSandbox(Failing(kind), store)

    assert cached.run(JOB).failure == Failure(kind)
    second = cached.run(JOB)

    assert (second.failure, second.reused) == (None, False)


def test_no_fault_of_the_machinery_is_kept(store: SqlStore):
    cached = CachedSandbox(Failing(Unavailable("gone")), store)

    with pytest.raises(Unavailable):
        cached.run(JOB)

    assert not cached.run(JOB).reused
