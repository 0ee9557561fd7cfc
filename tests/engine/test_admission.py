"""Programs that one transaction offers to the same cell meet each other there."""

from dataclasses import replace

import pytest

from app.domain.program import Program
from app.domain.search.archive import Elite
from app.engine import lifecycle
from app.engine.admission import Admission
from app.engine.context import Context
from tests.engine.conftest import new_run
from tests.engine.toy import problem


@pytest.mark.parametrize("known", [True, False], ids=["read ahead", "read one by one"])
def test_the_fittest_of_several_newcomers_has_the_cell(ctx: Context, known: bool) -> None:
    run = lifecycle.start(ctx, problem(), new_run(problem(), budget=12, islands=2))
    fitness = (1.0, 3.0, 2.0)
    programs = [Program(f"x = {number}\n") for number in fitness]
    with ctx.store.begin() as tx:
        tx.programs.put(programs)
        islands = tx.archive.islands(run.id, lock=True)
        admission = Admission(tx, run, ctx.strategy(run), islands)
        key, other = (2,), (3,)
        if known:
            admission.read({1: {key, other}})
        newcomers = [
            Elite(program.id, value, 6, 0, key)
            for program, value in zip(programs, fitness, strict=True)
        ]
        taken = [admission.offer(newcomer, 1, 0).elite is not None for newcomer in newcomers]
        assert taken == [True, True, False]
        assert admission.offer(replace(newcomers[2], cell=other), 1, 0).elite is not None
        admission.clear(1, reset=False)
        assert admission.offer(newcomers[2], 1, 0).elite == newcomers[2]
        assert tx.archive.island(run.id, 1).cell(key).occupants == (newcomers[2],)
