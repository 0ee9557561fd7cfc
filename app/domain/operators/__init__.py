"""Operators, one in each module: how parents become children.  No I/O.

The module `conversation` holds what several operators share; the modules `*_edits` hold the changes
that `mutate` draws from.
"""

from app.domain.operator import Operator
from app.domain.operators.agent import AGENT
from app.domain.operators.complete import COMPLETE
from app.domain.operators.diff import DIFF
from app.domain.operators.directed import DIRECTED
from app.domain.operators.function import FUNCTION
from app.domain.operators.mend import MEND
from app.domain.operators.mutate import MUTATE
from app.domain.operators.rewrite import REWRITE
from app.domain.operators.search import SEARCH
from app.domain.operators.seed import SEED
from app.domain.operators.tune import Optimiser, tuner


def operators(optimiser: Optimiser) -> dict[str, Operator]:
    """Returns every operator by its name; `tune` asks `optimiser` for its points."""
    return {
        operator.name: operator
        for operator in (
            *(SEED, REWRITE, DIFF, FUNCTION, COMPLETE, MEND, DIRECTED, SEARCH, AGENT, MUTATE),
            tuner(optimiser),
        )
    }
