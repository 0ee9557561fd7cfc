"""Runs a task's `evaluate.py`, and reads the two files that it writes.

This file is sent to the sandbox as the evaluator's module: it uses the standard library alone.
"""

import importlib
import inspect
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EVALUATE = "evaluate"
"""The task's module, which lies beside this one."""
CORRECT, METRICS = "correct.json", "metrics.json"
COMBINED = "combined_score"
FEEDBACK = "text_feedback"
_CONVENTIONS = (COMBINED, "error", "timeout")
"""Names of metrics with a meaning of their own, which a public metric may not take over."""


def load() -> None:
    """Imports the task's module.

    The text that is sent to a sandbox calls it at its end, so that trials need not.
    """
    importlib.import_module(EVALUATE)


def evaluate(path: str) -> object:
    """Returns the combined score and the public metrics of a program, with the feedback as text.

    Private metrics, and what the task prints of them, stay here.
    """
    with tempfile.TemporaryDirectory() as results, _silent():
        _run(path, results)
        correct, metrics = _read(results, CORRECT), _read(results, METRICS)
    text = metrics.get(FEEDBACK) or ""
    artifacts = {FEEDBACK: text if isinstance(text, str) else json.dumps(text)} if text else {}
    if not correct.get("correct"):
        reason = str(correct.get("error") or "the program is not correct")
        return _result({"error": reason}, artifacts)
    if COMBINED not in metrics:
        return _result({"error": f"{METRICS} has no `{COMBINED}`"}, artifacts)
    public = metrics.get("public") or {}
    shown = {name: value for name, value in public.items() if name not in _CONVENTIONS}
    return _result({**shown, COMBINED: metrics[COMBINED]}, artifacts)


def _run(path: str, results: str) -> None:
    """Calls `main` with two arguments, or runs the file as a script where `main` takes others.

    What it raises once both files are written, `SystemExit` among it, is a report to its shell.
    """
    main = getattr(sys.modules.get(EVALUATE), "main", None)
    try:
        if main is not None and _takes(main, path, results):
            main(path, results)
        else:
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{EVALUATE}.py")
            sys.argv = [script, "--program_path", path, "--results_dir", results]
            runpy.run_path(script, run_name="__main__")
    except (Exception, SystemExit) as raised:
        if all(os.path.exists(os.path.join(results, name)) for name in (CORRECT, METRICS)):
            return
        if isinstance(raised, SystemExit):
            raise RuntimeError(f"{EVALUATE}.py exited with {raised.code!r}") from raised
        raise


def _takes(main: Callable[..., object], *arguments: str) -> bool:
    try:
        inspect.signature(main).bind(*arguments)
    except TypeError:
        return False
    return True


def _result(metrics: dict[str, object], artifacts: dict[str, str]) -> object:
    """Returns a result with artifacts, as the harness's stand-in of OpenEvolve has it."""
    stand_in = importlib.import_module("openevolve.evaluation_result")
    return stand_in.EvaluationResult(metrics=metrics, artifacts=artifacts)


def _read(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise RuntimeError(f"{EVALUATE}.py wrote no {name} into results_dir") from None
    if not isinstance(document, dict):
        raise RuntimeError(f"{name} is not a JSON object")
    return document


@contextmanager
def _silent() -> Iterator[None]:
    """Discards standard output, where tasks print all of their metrics."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
