"""`evoq show RUN --program ID`: one program, what it measured, and what that took."""

import re
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from app.cli.display import number
from app.cli.execution import find
from app.cli.faults import Failed
from app.cli.screen import Screen
from app.cli.show import problem_of
from app.cli.target import opened, place, require_runs
from app.config.layers import UsageError
from app.domain.evaluation import Evaluation
from app.domain.program import ProgramId
from app.domain.run import Run
from app.ports.ledger import Transaction


def show_program(name: str, told: str, screen: Screen) -> None:
    """Shows a program of a run.

    Args:
      name: The run's.
      told: The beginning of the program's id.
      screen: Where to.
    """
    at = place()
    require_runs(at)
    with opened(at) as ledger:
        run = find(ledger.store, name)
        stages = problem_of(ledger.store, run).stages
        with ledger.store.begin() as tx:
            program = program_named(tx, run, told)
            source = tx.programs.get([program])[program].source
            evaluations = tx.history.evaluations(run.id, program)
    if not screen.json:
        screen.say(source.rstrip())
        screen.out.print(_table(stages, program, evaluations))
    screen.answer(
        {
            "program": program,
            "source": source,
            "trials": [_trial(program, one) for one in evaluations],
        }
    )


def program_named(tx: Transaction, run: Run, told: str) -> ProgramId:
    """Returns the program of a run whose id begins so.

    Raises:
      UsageError: That is not the beginning of an id.
      Failed: None or several begin so.
    """
    if not re.fullmatch(r"[0-9a-f]{4,64}", told):
        raise UsageError(
            "not the beginning of a program's id",
            where="--program",
            value=told,
            remedy="Give 4 to 64 of its hexadecimal digits; `evoq metrics` lists them.",
        )
    found = tx.programs.named(run.id, told)
    if len(found) != 1:
        raise Failed(
            f"{run.name} has {'no' if not found else 'more than one'} program whose id begins "
            f"with {told}; `evoq metrics {run.name}` lists them"
        )
    return found[0]


def _trial(program: ProgramId, one: Evaluation) -> dict[str, Any]:
    failure = one.failure
    return {
        "metrics": dict(one.metrics.get(program, {})),
        "features": dict(one.features.get(program, {})),
        "failure": {"kind": failure.kind.value, "detail": failure.detail} if failure else None,
        "verified": one.verified,
        "wall_seconds": one.wall_seconds,
        "cpu_seconds": one.cpu_seconds,
        "peak_memory_mib": one.peak_memory_mib,
        "boot_seconds": one.boot_seconds,
    }


def _table(stages: Sequence[str], program: ProgramId, evaluations: Sequence[Evaluation]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0))
    for column in ("trial", "came to", "wall s", "CPU s", "peak MiB", "boot s", "verified"):
        table.add_column(column)
    for index, one in enumerate(evaluations):
        shown = ", ".join(
            f"{name} {value:.6g}" for name, value in one.metrics.get(program, {}).items()
        )
        table.add_row(
            stages[index] if index < len(stages) else str(index + 1),
            one.failure.kind.value if one.failure else shown,
            f"{one.wall_seconds:.3f}",
            f"{one.cpu_seconds:.3f}",
            number(one.peak_memory_mib),
            f"{one.boot_seconds:.3f}",
            "yes" if one.verified else "no",
        )
    return table
