import csv
import io
import json
from contextlib import contextmanager

from app.config.rules import rules_of
from app.domain.evaluation import Failure, FailureKind
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.cohort import CutReason, State
from app.ports.history import Settled
from app.reports.metrics import COLUMNS, GrowingMetrics, rows, write_csv, write_jsonl


def proposal(ordinal: int, fitness: float | None = None, **changed: object) -> Settled:
    values = {
        "ordinal": ordinal,
        "state": State.ADMITTED if fitness is not None else State.CUT,
        "island": 0,
        "operator": "tune",
        "generation": 1,
        "program": "a" * 64,
        "parents": ("b" * 64, "c" * 64),
        "fitness": fitness,
        "verified": True,
        "failure": None,
        "seconds": float(ordinal),
        "wall_seconds": 0.5,
        "cpu_seconds": 0.25,
        "changes": "",
    }
    return Settled(**{**values, **changed})  # type: ignore[arg-type]


FAILED = proposal(
    2,
    state=State.FAILED,
    program=None,
    parents=(),
    failure=Failure(FailureKind.SYNTAX, 'line 1, "x"\nexpected :'),
)


def test_the_best_so_far_never_falls_and_seeds_count():
    settled = [proposal(-1, 1.0), proposal(0, 0.5), proposal(1), proposal(2, 2.0), proposal(3, 1.5)]

    assert [row.best_so_far for row in rows(settled)] == [1.0, 1.0, 1.0, 2.0, 2.0]


def test_nothing_is_best_before_the_first_measurement():
    assert [row.best_so_far for row in rows([proposal(0), FAILED])] == [None, None]


def test_a_failure_has_its_kind_and_its_detail():
    [row] = rows([FAILED])

    assert (row.state, row.failure) == ("failed", "syntax")
    assert row.detail.startswith("line 1")
    assert (row.program, row.parent) == (None, None)


def test_a_proposal_that_was_cut_has_its_reason():
    [row] = rows([proposal(0, cut=CutReason.DUPLICATE)])

    assert (row.state, row.cut, row.failure) == ("cut", "duplicate", None)


def test_jsonl_has_one_object_in_each_line():
    out = io.StringIO()

    write_jsonl(rows([proposal(0, 1.0), FAILED]), out)

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["ordinal"] for line in lines] == [0, 2]
    assert tuple(lines[0]) == COLUMNS
    assert lines[0]["parent"] == "b" * 64


def test_csv_keeps_quotes_and_line_breaks():
    out = io.StringIO()

    write_csv(rows([FAILED]), out)

    [line] = csv.DictReader(io.StringIO(out.getvalue()))
    assert line["detail"] == 'line 1, "x"\nexpected :'
    assert line["fitness"] == ""


def test_csv_of_nothing_is_its_header():
    out = io.StringIO()

    write_csv(rows([]), out)

    assert out.getvalue().strip() == ",".join(name for name in COLUMNS if name != "metrics")


def test_metrics_of_the_evaluator_keep_apart_from_other_columns():
    """A name of ours, with separators, in other letters, late, and on some programs alone."""
    names = ["fitness", "ordinal", "metrics", 'a, "b"\nc', "größe 大小", "x.y", ""]
    early = {name: number / 3 for number, name in enumerate(names)}
    late = {"late": 1.7976931348623157e308, "fitness": -5.0}
    settled = [proposal(0, 1.0, metrics=early), FAILED, proposal(3, 2.0, metrics=late)]
    table, lines = io.StringIO(newline=""), io.StringIO()

    write_csv(rows(settled), table)
    write_jsonl(rows(settled), lines)

    first, failed, last = csv.DictReader(io.StringIO(table.getvalue(), newline=""))
    assert [first["fitness"], failed["fitness"], last["fitness"]] == ["1.0", "", "2.0"]
    assert {name: float(first[f"metrics.{name}"]) for name in names} == early
    assert {name: float(last[f"metrics.{name}"]) for name in late} == late
    assert first["metrics.late"] == failed["metrics.fitness"] == last["metrics."] == ""
    read = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["metrics"] for line in read] == [early, {}, late]
    assert read[0]["fitness"] == 1.0


def test_several_hundred_metrics_have_a_column_each():
    metrics = {f"case {n}": float(n) for n in range(700)}
    out = io.StringIO()

    write_csv(rows([proposal(0, 1.0, metrics=metrics)]), out)

    [row] = csv.DictReader(io.StringIO(out.getvalue()))
    assert {name: float(row[f"metrics.{name}"]) for name in metrics} == metrics


RUN = Run(
    id=1,
    name="packing-1",
    problem="d" * 64,
    problem_name="packing",
    strategy="map_elites",
    settings={},
    rules=rules_of("map_elites", {}),
    operators={"tune": 1.0},
    axes=(),
    seed=1,
    islands=1,
    budget=Budget(400),
    limits=InFlightLimits(8, 8),
    state=RunState.RUNNING,
)


class Ledger:
    """A ledger of which only the settled proposals are read; it is its own transaction."""

    def __init__(self, *settled: Settled) -> None:
        self.stored = list(settled)

    @contextmanager
    def begin(self):
        yield self

    @property
    def history(self) -> "Ledger":
        return self

    def settled(self, run: int, after: int, limit: int) -> list[Settled]:
        in_order = sorted(self.stored, key=lambda one: one.seconds)
        return in_order[after : after + limit]


def test_each_proposal_is_appended_once_though_one_appears_before_the_last(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("of an earlier command\n")
    ledger = Ledger(proposal(0, 1.0), proposal(2, 3.0))
    metrics = GrowingMetrics(ledger, RUN, path)

    metrics.append()
    before = path.read_text()
    ledger.stored += [proposal(1, 2.0), proposal(3, 2.5)]
    metrics.append()

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert path.read_text().startswith(before)
    assert [line["ordinal"] for line in lines] == [0, 2, 1, 3]
    assert [line["best_so_far"] for line in lines] == [1.0, 3.0, 3.0, 3.0]


def test_lines_are_appended_beyond_what_is_read_again(tmp_path):
    ledger, path = Ledger(), tmp_path / "metrics.jsonl"
    metrics = GrowingMetrics(ledger, RUN, path)
    for ordinal in range(0, 1200, 400):
        ledger.stored += [proposal(n, float(n)) for n in range(ordinal, ordinal + 400)]
        metrics.append()

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["ordinal"] for line in lines] == list(range(1200))
