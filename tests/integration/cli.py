"""The command, called in this process."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.adapters.store.schema import upgrade
from app.cli.application import status_of
from app.embedded.stack import EmbeddedStack

PROGRAM = """\
# EVOLVE-BLOCK-START
def value():
    return 1.5 + 2.0
# EVOLVE-BLOCK-END
"""
EVALUATOR = """\
import importlib.util


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return {"combined_score": -abs(program.value() - 10.0), "value": program.value()}
"""
STAGED = (
    EVALUATOR
    + """

def evaluate_stage1(program_path):
    return {"combined_score": 0.0, "stage1": 1.0}


def evaluate_stage2(program_path):
    return evaluate(program_path)
"""
)
"""Its stage 1 gives every program 0.0."""
CONFIG = """\
max_iterations: 12
random_seed: 3
database:
  num_islands: 2
  feature_dimensions: [complexity]
evaluator:
  timeout: 20
"""


@dataclass(frozen=True)
class CommandResult:
    """What a command result."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Evoq:
    """Runs commands and captures their output."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: object) -> CommandResult:
        self._capture.readouterr()
        code = status_of([str(argument) for argument in arguments])
        printed = self._capture.readouterr()
        return CommandResult(code, printed.out, printed.err)


@contextmanager
def kept_stack(home: Path, *, workers: bool = True) -> Iterator[None]:
    """Keeps the stack of a folder running, which every command of that folder joins.

    To start servers takes several times what most commands do, and workers several times as long.
    """
    environment = {**os.environ, "EVOQ_SANDBOX__BACKEND": "process"}
    stack = EmbeddedStack(home, upgrade, environment=environment)
    stack.start(workers=workers)
    try:
        yield
    finally:
        stack.stop()


def problem_folder(
    folder: Path, *, program: str = PROGRAM, evaluator: str | None = EVALUATOR, config: str = CONFIG
) -> Path:
    folder.mkdir()
    (folder / "initial_program.py").write_text(program)
    if evaluator is not None:
        (folder / "evaluator.py").write_text(evaluator)
    (folder / "config.yaml").write_text(config)
    return folder
