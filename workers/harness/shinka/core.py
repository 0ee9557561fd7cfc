"""Stand-in for the part of ShinkaEvolve that a task's `evaluate.py` uses: `run_shinka_eval`.

Source: the public contract of `shinka.core.run_shinka_eval` (ShinkaEvolve, Apache-2.0): arguments,
return value, and the two files of results.  Departures: runs are made one by one and all of them,
whatever `run_workers` and the options of early stopping say, and nothing is plotted.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Validate = Callable[[Any], "tuple[bool, str | None]"]

__path__: list[str] = []
# The original defines these names in `wrap_eval`.
sys.modules[f"{__name__}.wrap_eval"] = sys.modules[__name__]


@dataclass
class _Results:
    """What the runs of one program gave."""

    results: list[Any] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    valid: int = 0
    errors: list[str] = field(default_factory=list)


def load_program(program_path: str) -> Any:
    """Imports a program from its file."""
    spec = importlib.util.spec_from_file_location("program", program_path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{program_path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save_json_results(
    results_dir: str, metrics: dict[str, Any], correct: bool, error: str | None = None
) -> None:
    """Writes `metrics.json` and `correct.json`."""
    os.makedirs(results_dir, exist_ok=True)
    documents = {"correct.json": {"correct": correct, "error": error}, "metrics.json": metrics}
    for name, document in documents.items():
        with open(os.path.join(results_dir, name), "w", encoding="utf-8") as file:
            json.dump(document, file, default=_plain)


def run_shinka_eval(
    program_path: str,
    results_dir: str,
    experiment_fn_name: str,
    num_runs: int,
    get_experiment_kwargs: Callable[[int], dict[str, Any]] | None = None,
    aggregate_metrics_fn: Callable[[list[Any]], dict[str, Any]] | None = None,
    validate_fn: Validate | None = None,
    default_metrics_on_error: dict[str, Any] | None = None,
    **without_effect: Any,  # noqa: ARG001
) -> tuple[dict[str, Any], bool, str | None]:
    """Calls a function of the program `num_runs` times, and writes what it is worth.

    Args:
      program_path: The program's file.
      results_dir: Where the two files go.
      experiment_fn_name: The function.
      num_runs: How often it is called.
      get_experiment_kwargs: Returns the arguments of run 0, 1 …; without it a run gets `seed`,
        counted from 1.
      aggregate_metrics_fn: Folds the results of all runs into metrics.
      validate_fn: Returns whether a result is valid, and otherwise why.
      default_metrics_on_error: The metrics of a program that raised.
      without_effect: Further arguments of the original.

    Returns:
      The metrics, whether all runs were valid, and the first error.
    """
    runs, error = _Results(), ""
    metrics: dict[str, Any]
    try:
        function = getattr(load_program(program_path), experiment_fn_name)
        for index in range(num_runs):
            arguments = get_experiment_kwargs(index) if get_experiment_kwargs else None
            _run(runs, function, {"seed": index + 1} if arguments is None else arguments)
            if validate_fn is not None:
                _validate(runs, validate_fn)
        if runs.valid < num_runs and validate_fn is not None:
            error = f"Validation failed: {(runs.errors or ['no reason given'])[0]}"
        metrics = (
            aggregate_metrics_fn(runs.results)
            if aggregate_metrics_fn
            else {"num_successful_runs": len(runs.results)}
        )
        metrics["execution_time_mean"] = statistics.fmean(runs.seconds or [0.0])
        metrics["execution_time_std"] = statistics.pstdev(runs.seconds or [0.0])
        if validate_fn is not None:
            metrics["num_valid_runs"] = runs.valid
            metrics["num_invalid_runs"] = num_runs - runs.valid
            metrics["all_validation_errors"] = runs.errors
    except Exception as raised:
        error = str(raised) or type(raised).__name__
        metrics = {"combined_score": 0.0, **(default_metrics_on_error or {})}
    # Only plots of the original use this entry.
    metrics.pop("extra_data", None)
    save_json_results(results_dir, metrics, not error, error or None)
    return metrics, not error, error or None


def _run(runs: _Results, function: Any, arguments: dict[str, Any]) -> None:
    started = time.perf_counter()
    runs.results.append(function(**arguments))
    runs.seconds.append(time.perf_counter() - started)


def _validate(runs: _Results, validate_fn: Validate) -> None:
    valid, why = validate_fn(runs.results[-1])
    if valid:
        runs.valid += 1
    elif why and why not in runs.errors:
        runs.errors.append(why)


def _plain(value: Any) -> Any:
    """Returns a number or an array of NumPy as JSON values."""
    return value.tolist()
