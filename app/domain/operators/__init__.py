"""Operators, one a module: how parents become children.  No I/O; optimisers are handed in."""

from app.domain.operator import Operator
from app.domain.operators.complete import COMPLETE
from app.domain.operators.diff import DIFF
from app.domain.operators.mutate import MUTATE
from app.domain.operators.rewrite import REWRITE
from app.domain.operators.seed import SEED
from app.domain.operators.tune import Ask, tuner


def operators(ask: Ask) -> dict[str, Operator]:
    """Returns every operator by its name; `ask` is the optimiser behind `tune`."""
    return {
        operator.name: operator for operator in (SEED, REWRITE, DIFF, COMPLETE, MUTATE, tuner(ask))
    }
