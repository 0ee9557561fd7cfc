"""Programs of several files in whole runs, and in the ledger."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from app.adapters.model.providers.scripted import ScriptedModel
from app.adapters.store.sql import SqlStore
from app.config.settings import PromptSettings, RunSettings, SearchSettings
from app.domain.evaluation import Failure, FailureKind, Trial
from app.domain.operator import Prompt
from app.domain.operators.diff import DIFF
from app.domain.operators.mend import MEND
from app.domain.operators.mutate import MUTATE
from app.domain.operators.rewrite import REWRITE
from app.domain.operators.seed import SEED
from app.domain.operators.tune import PointRequest, tuner
from app.domain.problem import EditRules, Evaluator, Folder, Job, Outcome, Problem
from app.domain.program import Program, ProgramId
from app.engine.context import Context
from app.ports.history import Settled
from app.ports.protocols import NEVER, Stop
from app.reports.ledger_file import read_ledger, verified, write_ledger
from tests.engine import toy
from tests.engine.conftest import new_run, run_to_the_end

FILES = {
    "number.py": "def number():\n    return 0.5\n",
    "params.json": '{"scale": 1.0}\n',
    "scale.py": "def scale(x):\n    return 1.25 * x\n",
}
SEEDS = Program.of_files(FILES)
CONTEXT = {"README.md": "# Bring the number near pi.\n"}


def prepare(trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
    [player] = trial.players
    files = programs[player].files
    texts = [file.source.encode() for file in files]
    folder = Folder(tuple(file.path for file in files), tuple(map(len, texts)), "number.py")
    evaluator = Evaluator(toy.DIGEST, {"evaluator.py": b"open(path)"})
    return Job(evaluator, trial.stage, ((".py", b"".join(texts)),), folder=folder)


class FolderSandbox:
    """Executes the files of a program in this process."""

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        assert job.folder is not None
        [(_, joined)] = job.programs
        texts, start = {}, 0
        for path, size in zip(job.folder.paths, job.folder.sizes, strict=True):
            texts[path] = joined[start : start + size].decode()
            start += size
        names: dict[str, object] = {}
        try:
            for path in ("number.py", "scale.py"):
                exec(texts[path], names)
            x = eval("scale(number())", names) * json.loads(texts["params.json"])["scale"]
            return Outcome(json.dumps({"x": float(x)}).encode(), None)
        except Exception as error:
            detail = f"{type(error).__name__}\nprogram scale.py line 2, in scale"
            return Outcome(None, Failure(FailureKind.RUNTIME, detail))

    def close(self) -> None: ...


@pytest.fixture
def problem() -> Problem:
    return replace(
        toy.problem(),
        seeds=(SEEDS,),
        prepare=prepare,
        context=CONTEXT,
        edit=EditRules(evolve=("*.py", "params.json")),
    )


def middle(request: PointRequest) -> tuple[float, ...]:
    return tuple(1.0 + 0.1 * n for n in range(request.dimensions))


def settled(
    ctx: Context,
    problem: Problem,
    operators: Mapping[str, float],
    model: ScriptedModel | None = None,
    budget: int = 24,
) -> tuple[int, list[Settled], dict[ProgramId, Program]]:
    """Returns the run, its settled proposals and their programs."""
    known = (SEED, MUTATE, tuner(middle), DIFF, REWRITE, MEND)
    ctx = replace(
        ctx,
        sandbox=FolderSandbox(),
        operators={one.name: one for one in known},
        model=lambda run: model or ScriptedModel(lambda prompt: ""),
    )
    settings = RunSettings(
        search=SearchSettings(islands=1), prompts=PromptSettings(max_prompt_tokens=4000)
    )
    new = replace(
        new_run(problem, budget=budget),
        operators=dict(operators),
        settings=settings.model_dump(mode="json"),
        islands=1,
    )
    run = run_to_the_end(ctx, problem, new)
    with ctx.store.begin() as tx:
        found = tx.history.settled(run)
        programs = tx.programs.get([one.program for one in found if one.program])
    return run, list(found), programs


def changed(programs: Mapping[ProgramId, Program]) -> set[str]:
    before = set(SEEDS.files)
    return {file.path for each in programs.values() for file in set(each.files) - before}


def test_operators_without_a_model_change_one_file_of_several(
    ctx: Context, problem: Problem
) -> None:
    _, found, programs = settled(ctx, problem, {"mutate": 0.5, "tune": 0.5}, budget=40)
    assert changed(programs) == {"number.py", "scale.py"}
    fitness = [one.fitness for one in found if one.fitness is not None]
    assert max(fitness) > -abs(0.5 * 1.25 - math.pi)
    for program in programs.values():
        assert [file.path for file in program.files] == sorted(FILES)


def test_a_model_sees_every_file_and_changes_several_in_one_reply(
    ctx: Context, problem: Problem
) -> None:
    prompts: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        prompts.append(prompt)
        return (
            f"number.py\n```python\ndef number():\n    return {prompt.sample}.5\n```\n"
            f'params.json\n```json\n{{"scale": {prompt.sample + 2}.0}}\n```\n'
        )

    _, _, programs = settled(ctx, problem, {"diff": 1.0}, ScriptedModel(answer), budget=8)
    assert {"number.py", "params.json"} <= changed(programs)
    for prompt in prompts:
        assert all(path in prompt.user for path in (*FILES, *CONTEXT))
        assert "def scale(x):" in prompt.user
        assert "# Bring the number near pi." in prompt.user
        assert "write its path on a line of its own" in prompt.user


def test_a_reply_about_a_fixed_file_fails_and_names_it(ctx: Context, problem: Problem) -> None:
    model = ScriptedModel(lambda prompt: "README.md\n```\nNothing.\n```\n")
    _, found, _ = settled(ctx, problem, {"rewrite": 1.0}, model, budget=4)
    failures = [one.failure for one in found if one.failure is not None]
    assert failures
    assert all("README.md does not evolve" in failure.detail for failure in failures)


def test_a_failure_is_mended_in_the_file_that_it_names(ctx: Context, problem: Problem) -> None:
    asked: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        if "which failed" in prompt.user:
            asked.append(prompt)
            return f"```python\ndef scale(x):\n    return {prompt.sample + 2}.0 * x\n```\n"
        text = f"def scale(x):\n    return undefined_{prompt.sample} * x\n"
        return f"scale.py\n```python\n{text}```\n"

    model = ScriptedModel(answer)
    _, found, programs = settled(ctx, problem, {"diff": 0.5, "mend": 0.5}, model, budget=24)
    assert asked
    assert all("its file `scale.py`" in prompt.user for prompt in asked)
    assert any(one.operator == "mend" and one.fitness is not None for one in found)
    assert changed(programs) == {"scale.py"}


def test_a_distinct_file_is_stored_once(ctx: Context, store: SqlStore, problem: Problem) -> None:
    _, _, programs = settled(ctx, problem, {"mutate": 1.0})
    distinct = {file.source for program in programs.values() for file in program.files}
    with store._engine.connect() as connection:
        stored = connection.execute(text("SELECT text FROM texts")).scalars().all()
        sources = connection.execute(text("SELECT DISTINCT source FROM programs")).scalars().all()
    assert set(stored) >= distinct
    assert len(stored) == len(set(stored))
    assert sources == [""]


def test_a_run_travels_with_all_files_of_its_programs(
    ctx: Context, store: SqlStore, problem: Problem, tmp_path: Path
) -> None:
    run, _, programs = settled(ctx, problem, {"mutate": 1.0})
    path = tmp_path / "run.ledger.gz"
    with store.begin() as tx:
        found = tx.runs.get(run)
    with path.open("wb") as file:
        write_ledger(store, found, file)
    copied = read_ledger(store, verified(path, lambda *given: problem), "copy")
    with store.begin() as tx:
        again = {one.program for one in tx.history.settled(copied.id) if one.program}
        assert tx.programs.get(sorted(again)) == {key: programs[key] for key in again}
