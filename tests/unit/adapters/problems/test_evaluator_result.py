import json
import time
from pathlib import Path
from typing import Any

import pytest

from app.adapters.problems import load
from app.adapters.problems.evaluator_result import (
    MAX_TOTAL_CHARS,
    OUTPUT_CHARS,
    bounded_artifacts,
)
from app.domain.evaluation import Evaluation, Failure, FailureKind, Trial, fitness
from app.domain.problem import Outcome
from app.domain.program import Program

CHILD = Program("x = 2\ny = 3\n")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    (tmp_path / "evaluator.py").write_text("def evaluate(path):\n    return {}\n")
    return tmp_path


def reading(
    base: Path,
    metrics: Any = None,
    *,
    config: str = "",
    stage: str = "evaluate",
    raw: bytes | None = None,
    **outcome: Any,
) -> Evaluation:
    (base / "config.yaml").write_text(config)
    problem = load([base], options=outcome.pop("options", {}))
    result = raw if raw is not None else json.dumps({"metrics": metrics, "artifacts": {}}).encode()
    given = {"result": result, "failure": None, "wall_seconds": 0.5} | outcome
    return problem.interpret(Trial(stage, (CHILD.id,)), {CHILD.id: CHILD}, Outcome(**given))


def kind(evaluation: Evaluation) -> FailureKind | None:
    return evaluation.failure.kind if evaluation.failure else None


def test_a_combined_score_is_the_fitness_and_all_numbers_are_metrics(base):
    evaluation = reading(base, {"combined_score": -3, "speed": 9.5, "error": 0.0})

    assert fitness(CHILD.id, [evaluation]) == -3.0
    assert evaluation.metrics[CHILD.id] == {"combined_score": -3.0, "speed": 9.5, "error": 0.0}
    assert evaluation.wall_seconds == 0.5
    assert evaluation.verified


def test_without_a_combined_score_the_fitness_is_the_mean_of_numbers_that_are_no_axes(base):
    config = "database: {feature_dimensions: [size]}\n"

    evaluation = reading(base, {"a": 1, "b": 2, "size": 90, "error": 5}, config=config)

    assert fitness(CHILD.id, [evaluation]) == 1.5
    assert evaluation.features[CHILD.id] == {"size": 90.0}


def test_with_nothing_but_axes_they_are_the_fitness(base):
    config = "database: {feature_dimensions: [size]}\n"

    assert fitness(CHILD.id, [reading(base, {"size": 90}, config=config)]) == 90.0


def test_what_is_no_number_becomes_an_artifact(base):
    metrics = {"score": 1.0, "note": "fine", "ok": True, "table": {"a": [1]}}

    evaluation = reading(base, metrics)

    assert evaluation.metrics[CHILD.id] == {"score": 1.0}
    assert evaluation.artifacts == {
        "note": "fine",
        "ok": "true",
        "table": '{"a": [1]}',
    }


def _object(text, type_name):
    """Returns a value as the harness writes an object that is no number."""
    return {"__object__": text, "type": type_name}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "NoneType: null"),
        ("n/a", "str: n/a"),
        ("0.93", "str: 0.93"),
        ("nan", "str: nan"),
        (_object("(1+2j)", "complex"), "complex: (1+2j)"),
    ],
)
def test_a_score_that_is_not_understood_is_never_left_out_of_the_mean(base, value, words):
    evaluation = reading(base, {"accuracy": value, "seconds": 0.5})

    assert kind(evaluation) is FailureKind.INVALID_RESULT
    assert f"`accuracy` is not a number but of type {words}" in evaluation.failure.detail
    assert "`combined_score`" in evaluation.failure.detail
    beside = reading(base, {"combined_score": 2.0, "accuracy": value, "seconds": 0.5})
    assert fitness(CHILD.id, [beside]) == 2.0


def test_a_combined_score_that_is_a_flag_is_a_number(base):
    evaluation = reading(base, {"combined_score": True, "b": 3.0})

    assert fitness(CHILD.id, [evaluation]) == 1.0


def test_flags_do_not_count_towards_the_fitness(base):
    assert fitness(CHILD.id, [reading(base, {"a": 4.0, "valid": False})]) == 4.0


def test_flags_are_numbers_in_a_cascade(base):
    (base / "evaluator.py").write_text("def evaluate_stage1(p): ...\ndef evaluate_stage2(p): ...\n")

    evaluation = reading(base, {"valid": True}, stage="evaluate_stage1")

    assert fitness(CHILD.id, [evaluation]) == 1.0


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_score_that_is_not_finite_is_an_invalid_result_that_names_it(base, value):
    evaluation = reading(base, {"combined_score": {"__nonfinite__": value}, "b": 1.0})

    assert kind(evaluation) is FailureKind.INVALID_RESULT
    assert "combined_score" in evaluation.failure.detail
    assert value in evaluation.failure.detail
    assert evaluation.scores == {}


@pytest.mark.parametrize(
    "value", ["0.5", "n/a", None, [1.0], {"mean": 1.0}, _object("(1+2j)", "complex")]
)
def test_a_combined_score_that_is_no_number_is_an_invalid_result_that_names_it(base, value):
    evaluation = reading(base, {"combined_score": value, "b": 1.0})

    assert kind(evaluation) is FailureKind.INVALID_RESULT
    assert "`combined_score` is not a number" in evaluation.failure.detail


def test_a_number_beyond_any_float_is_an_invalid_result(base):
    assert kind(reading(base, {"a": 10**400})) is FailureKind.INVALID_RESULT
    assert kind(reading(base, raw=b'{"metrics": {"a": 1e999}}')) is FailureKind.INVALID_RESULT


def test_a_metric_that_is_not_finite_and_not_in_the_fitness_is_only_shown(base):
    evaluation = reading(base, {"combined_score": 1.0, "loss": {"__nonfinite__": "nan"}})

    assert evaluation.failure is None
    assert evaluation.artifacts == {"loss": "nan"}


def test_an_axis_that_is_not_finite_is_an_invalid_result(base):
    config = "database: {feature_dimensions: [size]}\n"
    metrics = {"combined_score": 1.0, "size": {"__nonfinite__": "inf"}}

    assert kind(reading(base, metrics, config=config)) is FailureKind.INVALID_RESULT


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"metrics": 3}',
        b'{"metrics": {"a": NaN}}',
        b'{"metrics": {"a": 1, "a": 2}}',
        b'{"metrics": {"a": 1}, "artifacts": 3}',
        b'{"metrics": {}}',
        b'{"metrics": {"a": "text"}}',
        b"\xff",
        b'{"metrics": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_dict_with_a_number_is_an_invalid_result(base, raw):
    assert kind(reading(base, raw=raw)) is FailureKind.INVALID_RESULT


@pytest.mark.parametrize("metrics", [{"error": 0.0}, {"error": "boom"}, {"error": 0.0, "ok": True}])
def test_an_error_alone_is_a_failure_and_no_score_of_zero(base, metrics):
    evaluation = reading(base, metrics)

    assert kind(evaluation) is FailureKind.RUNTIME
    assert evaluation.scores == {}


def test_the_text_of_an_error_is_the_failures_detail(base):
    assert reading(base, {"error": "boom"}).failure == Failure(FailureKind.RUNTIME, "boom")


def reported(base: Path, metrics: Any, artifacts: dict[str, str] | None = None) -> Evaluation:
    return reading(
        base, raw=json.dumps({"metrics": metrics, "artifacts": artifacts or {}}).encode()
    )


@pytest.mark.parametrize(
    "metrics",
    [
        {"combined_score": 0.0, "error": "name 'climb' is not defined"},
        {"combined_score": -1e9, "error": "name 'climb' is not defined"},
        {"combined_score": {"__nonfinite__": "-inf"}, "error": "name 'climb' is not defined"},
        {"combined_score": None, "error": "name 'climb' is not defined"},
        {"runs_successfully": 0.5, "error": "name 'climb' is not defined"},
        {"value": 0.0, "eval_time": 1.5, "error": "name 'climb' is not defined"},
        {"accuracy": 0.0, "error_message": "name 'climb' is not defined"},
        {"validity": 0.0, "combined_score": 0.0, "error_info": "name 'climb' is not defined"},
    ],
)
def test_an_error_text_beside_no_score_is_a_failure_of_the_program_with_that_text(base, metrics):
    evaluation = reported(base, metrics)

    assert evaluation.failure == Failure(FailureKind.RUNTIME, "name 'climb' is not defined")
    assert evaluation.scores == {}
    assert evaluation.artifacts["error"] == "name 'climb' is not defined"


def test_an_error_in_the_artifacts_of_a_result_of_zero_is_told_with_its_type_and_place(base):
    artifacts = {
        "error_type": "TypeError",
        "error_message": "'int' object is not callable",
        "traceback": 'Traceback\n  File "program.py", line 3, in f\n    return 3(x)\nTypeError',
        "suggestion": "Check the types",
    }

    evaluation = reported(base, {"combined_score": 0.0, "validity": 0.0}, artifacts)

    assert kind(evaluation) is FailureKind.RUNTIME
    lines = evaluation.failure.detail.splitlines()
    assert lines[0] == "TypeError: 'int' object is not callable"
    assert '  File "program.py", line 3, in f' in lines
    assert evaluation.artifacts["suggestion"] == "Check the types"


def test_of_a_traceback_the_exception_comes_first(base):
    trace = "Traceback (most recent call last):\n  File \"p.py\", line 3, in f\nKeyError: 'a'\n"

    evaluation = reported(base, {"combined_score": 0.0}, {"traceback": trace})

    assert evaluation.failure.detail.splitlines() == [
        "KeyError: 'a'",
        '  File "p.py", line 3, in f',
    ]


def test_a_result_that_is_rejected_with_a_reason_is_an_invalid_result(base):
    shapes = {"stderr": "Invalid shapes: (25, 2)", "failure_stage": "shape_validation"}
    rejected = {"combined_score": 0.0, "validity": 0.0}

    for evaluation in (
        reported(base, rejected, shapes),
        reported(base, {"combined_score": 0.0, "valid": 0, "message": "Invalid shapes: (25, 2)"}),
        reported(
            base, {"combined_score": 0.0, "success": False, "reason": "Invalid shapes: (25, 2)"}
        ),
    ):
        assert kind(evaluation) is FailureKind.INVALID_RESULT
        assert evaluation.failure.detail.startswith("Invalid shapes: (25, 2)")
        assert evaluation.artifacts["error"].startswith("Invalid shapes: (25, 2)")


def test_an_error_flag_is_a_failure_though_it_has_no_text(base):
    evaluation = reported(base, {"combined_score": 0.0, "error": True})

    assert evaluation.failure == Failure(FailureKind.RUNTIME, "the evaluator reports an error")


@pytest.mark.parametrize(
    ("metrics", "artifacts"),
    [
        ({"combined_score": 0.0, "error": 0.25}, {}),
        ({"combined_score": -0.25, "error": 0.25}, {}),
        ({"combined_score": 0.0, "error": 0.0}, {}),
        ({"combined_score": 0.0, "error": None}, {}),
        ({"combined_score": 0.0, "error": ""}, {}),
        ({"combined_score": 0.0, "error": "None"}, {}),
        ({"combined_score": 0.0, "error": "0.25"}, {}),
        ({"combined_score": 0.0, "error": False}, {}),
        ({"combined_score": 0.0, "errors": []}, {}),
        ({"combined_score": 0.9, "error": "1 of 10 cases failed"}, {}),
        ({"combined_score": 0.9}, {"traceback": "Traceback", "failure_stage": "case 3"}),
        ({"accuracy": 0.9}, {"error": "1 of 10 cases failed"}),
        ({"combined_score": 0.0}, {"stderr": "DeprecationWarning: old"}),
        ({"combined_score": 0.0, "success": False}, {}),
        ({"combined_score": -3.5, "valid": False, "message": "over by 3.5"}, {}),
        ({"combined_score": 0.0, "valid": True, "message": "fine"}, {"stderr": "a warning"}),
    ],
)
def test_a_result_that_reports_no_error_keeps_its_score(base, metrics, artifacts):
    evaluation = reported(base, metrics, artifacts)

    assert evaluation.failure is None
    assert fitness(CHILD.id, [evaluation]) is not None


def test_the_size_of_a_program_is_no_score_that_outweighs_an_error(base):
    config = "database: {feature_dimensions: [size]}\n"
    (base / "config.yaml").write_text(config)
    result = {"metrics": {"score": 0.0, "size": 90}, "artifacts": {"traceback": "KeyError: 'a'"}}

    evaluation = reading(base, raw=json.dumps(result).encode(), config=config)

    assert evaluation.failure == Failure(FailureKind.RUNTIME, "KeyError: 'a'")


def test_a_timeout_flag_is_a_timeout(base):
    metrics = {"error": 0.0, "combined_score": 0.0, "timeout": True}

    assert kind(reading(base, metrics)) is FailureKind.TIMEOUT


def test_a_failed_job_is_a_failed_evaluation_with_what_it_printed(base):
    evaluation = reading(
        base,
        raw=b"",
        result=None,
        failure=Failure(FailureKind.MEMORY, "over 512 MiB"),
        stdout=b"hello\n",
        stderr=b"\x1b[31mTraceback\x1b[0m\xff\x00",
        cpu_seconds=2.0,
        peak_memory_mib=512.0,
        boot_seconds=0.25,
    )

    assert evaluation.failure == Failure(FailureKind.MEMORY, "over 512 MiB")
    assert evaluation.artifacts == {"stdout": "hello\n", "stderr": "Traceback\ufffd\ufffd"}
    assert (evaluation.cpu_seconds, evaluation.peak_memory_mib) == (2.0, 512.0)
    assert evaluation.boot_seconds == 0.25


def test_the_built_in_axes_are_measured_on_the_text(base):
    [(_, features)] = reading(base, {"combined_score": 1.0}).features.items()

    assert features["complexity"] == 12.0
    assert features["diversity"] == pytest.approx(0.1 * 6 + 10 * 1 + 0.5 * 4)


def test_a_metric_named_like_a_built_in_axis_wins(base):
    evaluation = reading(base, {"combined_score": 1.0, "complexity": 3.0})

    assert evaluation.features[CHILD.id]["complexity"] == 3.0


def test_the_axis_score_is_the_fitness(base):
    config = "database: {feature_dimensions: [score]}\n"

    evaluation = reading(base, {"a": 1.0, "b": 3.0}, config=config)

    assert evaluation.features[CHILD.id] == {"score": 2.0}


def test_an_axis_that_is_not_measured_is_named_with_what_there_is(base):
    config = "database: {feature_dimensions: [speed]}\n"

    evaluation = reading(base, {"combined_score": 1.0}, config=config)

    assert kind(evaluation) is FailureKind.INVALID_RESULT
    assert "axis `speed` was not measured" in evaluation.failure.detail
    assert "combined_score" in evaluation.failure.detail


def test_an_axis_need_not_be_measured_before_the_last_stage(base):
    (base / "evaluator.py").write_text("def evaluate_stage1(p): ...\ndef evaluate_stage2(p): ...\n")
    config = "database: {feature_dimensions: [speed]}\n"

    assert reading(base, {"a": 1.0}, config=config, stage="evaluate_stage1").failure is None
    assert reading(base, {"a": 1.0}, config=config, stage="evaluate_stage2").failure is not None


def test_compatible_mode_leaves_an_evaluation_unverified(base):
    options = {"sandbox.mode": "compatible"}

    assert not reading(base, {"a": 1.0}, options=options).verified


def test_artifacts_are_clipped_and_cleaned_and_searched_for_secrets(base):
    texts = {
        "log": "\x1b[1mbold\x1b[0m\r\n password = hunter2, token=abc key " + "a1" * 20,
        "long": "word " * 100,
    }
    raw = json.dumps({"metrics": {"a": 1}, "artifacts": texts}).encode()

    kept = reading(base, raw=raw, config="prompt: {max_artifact_bytes: 100}\n").artifacts

    assert kept["log"] == "bold\n password = <REDACTED>, token=<REDACTED> key <REDACTED_TOKEN>"
    assert "[400 characters left out]" in kept["long"]
    assert len(kept["long"]) < 140


def test_artifacts_may_be_left_as_they_are_or_switched_off(base):
    raw = json.dumps({"metrics": {"a": 1}, "artifacts": {"log": "token=abc"}}).encode()

    plain = reading(base, raw=raw, config="prompt: {artifact_security_filter: false}\n")
    none = reading(base, raw=raw, config="evaluator: {enable_artifacts: false}\n")

    assert plain.artifacts == {"log": "token=abc"}
    assert none.artifacts == {}


def test_artifacts_are_bounded_in_number_and_in_all():
    texts = {f"n{n:03}": "ab " * 3_000 for n in range(200)}

    kept = bounded_artifacts(texts, chars=20_000, redact=False)

    assert sum(map(len, kept.values())) <= MAX_TOTAL_CHARS + OUTPUT_CHARS + 100
    assert "n199" in kept["left_out"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("unit", ["a-", "token", "token=", "\x1b[", "\x1b]", "'", "sk-"])
def test_searching_a_megabyte_for_secrets_is_quick(unit):
    started = time.thread_time()
    bounded_artifacts({"x": unit * 300_000}, chars=20_000, redact=True)
    assert time.thread_time() - started < 5.0


def test_a_match_of_two_is_not_an_openevolve_trial(base):
    problem = load([base])
    trial = Trial("evaluate", (CHILD.id, CHILD.id))

    with pytest.raises(ValueError, match="one player"):
        problem.prepare(trial, {CHILD.id: CHILD})


def test_an_unknown_stage_is_refused(base):
    with pytest.raises(ValueError, match="no stage 'other'"):
        load([base]).prepare(Trial("other", (CHILD.id,)), {CHILD.id: CHILD})


def test_a_score_of_another_type_is_named_with_its_type(base):
    evaluation = reading(base, {"combined_score": "0.5"})

    assert evaluation.failure is not None
    assert "`combined_score` is not a number but of type str: 0.5" in evaluation.failure.detail


def test_a_result_without_numbers_names_what_was_returned(base):
    evaluation = reading(base, {"metrics": {"score": 1.0}, "note": "x"})

    assert evaluation.failure is not None
    assert "it returned `metrics`, `note`; numbers inside a list or a dict" in (
        evaluation.failure.detail
    )
