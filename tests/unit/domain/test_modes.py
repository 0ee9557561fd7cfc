"""What differs between the two modes of the sandbox, in words."""

import pytest

from app.domain.evaluation import Evaluation, Failure, FailureKind
from app.domain.modes import differences, explained, reasons
from app.domain.problem import Mode

P = "p" * 64


def measured(**metrics: float) -> Evaluation:
    return Evaluation(scores={P: {"score": metrics["score"]}}, metrics={P: metrics})


def test_a_metric_that_is_stable_in_one_mode_and_other_in_the_other_differs() -> None:
    there = measured(score=2.0, seconds=0.5)
    found = differences(P, measured(score=1.0, seconds=0.1), there, measured(score=2.0, seconds=7))
    assert [(one.case, one.here, one.there) for one in found] == [
        ("fitness", "1", "2"), ("score", "1", "2")
    ]  # fmt: skip


def test_a_metric_that_is_missing_in_one_mode_differs() -> None:
    there = measured(score=1.0, size=3.0)
    assert [one.here for one in differences(P, measured(score=1.0), there, there)] == ["nothing"]


TIMED_OUT = Evaluation(failure=Failure(FailureKind.TIMEOUT))
CRASHED = Evaluation(failure=Failure(FailureKind.RUNTIME))


def test_two_failures_of_one_kind_do_not_differ() -> None:
    assert differences(P, CRASHED, CRASHED, CRASHED) == []


def test_two_failures_of_different_kinds_differ() -> None:
    assert len(differences(P, CRASHED, TIMED_OUT, TIMED_OUT)) == 1


def test_a_difference_quotes_the_failure() -> None:
    failed = Evaluation(failure=Failure(FailureKind.RUNTIME, "KeyError: 'x'\nevaluator line 7"))
    here = measured(score=1.0)

    [found] = differences(P, here, failed, failed)

    assert (found.here, found.there) == ("no failure", "runtime (KeyError: 'x' evaluator line 7)")
    text = explained("a", "evaluate", Mode.GUARDED, [found], [])
    assert "failure is no failure in guarded and runtime (KeyError: 'x' evaluator line 7)" in text


def test_a_failure_that_does_not_repeat_is_noise() -> None:
    assert differences(P, CRASHED, TIMED_OUT, CRASHED) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("text = open(program_path).read()", "EVOQ_PROGRAM_SOURCE"),
        ("exec(text)", "executes"),
        ("runpy.run_path(program_path)", "runpy"),
        ("inspect.getsource(program.solve)", "inspect"),
        ("class Mine(program.Theirs): pass", "derives"),
        ("start = time.perf_counter()", "time"),
        ("np.random.seed(3)", "generator"),
        ("program.LIMIT = 3", "sets names"),
        ("subprocess.run([sys.executable, path])", "processes"),
        ("isinstance(x, program.Answer)", "proxies"),
    ],
)
def test_a_construct_of_the_evaluator_is_a_likely_reason(line: str, word: str) -> None:
    assert word in reasons([line])[0]


def test_an_evaluator_that_does_not_parse_gets_the_general_reasons() -> None:
    assert reasons(["def"]) == reasons([""]) != []


def test_many_differences_are_counted_not_listed() -> None:
    here, there = measured(score=1.0), measured(score=2.0, **{f"m{n}": 1.0 for n in range(30)})
    text = explained("a", "evaluate", Mode.GUARDED, differences(P, here, there, there), [])
    assert "and 27 more" in text
