"""The rows and bytes that the ledger keeps of programs of several files."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from app.adapters.store.sql import SqlStore
from app.domain.operator import Brief, Conversation, Offspring, Operator
from app.domain.program import Program
from app.engine.context import Context
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.test_agent_operator import SEVERAL

BUDGET = 12
FIXED = {f"data/{n}.txt": b"%d\n" % n * 1000 for n in range(2000)}
COUNTED = """
    SELECT (SELECT count(*) FROM programs), (SELECT count(*) FROM proposals), count(*),
        sum(pg_column_size(texts.*)) FROM texts
"""
NAMES = tuple(f"part{n}.py" for n in range(4))


def _change_one(brief: Brief) -> Conversation:
    """Changes `a.py` of five files."""
    yield from ()
    return [
        Offspring(
            Program.of_files(
                {file.path: file.source for file in brief.known[draft.parents[0]].program.files}
                | {"a.py": f"x = {1 + draft.ordinal / 100}\n"}
            )
        )
        for draft in brief.drafts
    ]


@pytest.mark.parametrize("fixed", [{}, FIXED], ids=["five files", "among 2,000"])
def test_a_proposal_stores_the_files_that_it_changed(ctx: Context, fixed: dict[str, bytes]) -> None:
    seed = Program.of_files({"a.py": "x = 0.0\n"} | {name: f"# {name}\n" for name in NAMES})
    toy = replace(SEVERAL, seeds=(seed,), fixed=fixed, files={"evaluator.py": b"# toy", **fixed})
    change = Operator("nudge", _change_one, asks_model=False)
    ctx = replace(ctx, operators={**ctx.operators, "nudge": change})
    run_to_the_end(ctx, toy, new_run(toy, budget=BUDGET))
    assert isinstance(ctx.store, SqlStore)
    with ctx.store._engine.connect() as connection:
        programs, proposals, texts, size = connection.execute(text(COUNTED)).one()
    assert programs == proposals == BUDGET + 1
    assert texts == len(NAMES) + programs
    assert size < 200 * texts
