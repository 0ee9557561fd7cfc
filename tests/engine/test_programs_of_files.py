"""Programs of several files in everything that people see of a run."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import app.cli.apply
import app.cli.export
import app.cli.show
import app.cli.transfer
from app.client import target
from app.dashboard.server import Place, Serving, serving
from app.domain.evaluation import Trial
from app.domain.operator import Brief, Completion, Conversation, Offspring, Operator, Prompt, Role
from app.domain.operators.agent import AGENT
from app.domain.operators.seed import SEED
from app.domain.problem import EditRules, Evaluator, Job
from app.domain.program import Program, ProgramId
from app.domain.replies.agent import LeftFiles, agent_reply
from app.domain.run import Run
from app.engine import lifecycle
from app.engine.context import Context
from app.reports.folder import write_best
from app.reports.program_files import write_files
from app.reports.report import report
from app.reports.summary import BestProgram, summarise
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.test_dashboard import NO_QUEUE, TOKEN, get
from tests.engine.test_replies import Answering
from tests.engine.toy import DIGEST, problem
from tests.integration.cli import Evoq
from tests.unit.cli.remedies import replace_everywhere

MAIN, PARAMS, NOTES = "src/main.py", "params.json", "src/notes.txt"
FIRST = Program.of_files({MAIN: "x = 0.0\n", PARAMS: "{}\n", NOTES: "Nothing yet.\n"})


def prepare(trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
    sources = tuple((".py", programs[p].focused(MAIN).source.encode()) for p in trial.players)
    return Job(Evaluator(DIGEST, {"evaluator.py": b"open(path)"}), trial.stage, sources)


SEVERAL = replace(
    problem(),
    seeds=(FIRST,),
    prepare=prepare,
    edit=EditRules(evolve=("src/*", PARAMS), new_files=1),
    baselines={"start": FIRST.id},
)


def _step(brief: Brief) -> Conversation:
    """Asks nobody: brings x nearer to pi, and writes that into the notes."""
    yield from ()
    children = []
    for draft in brief.drafts:
        parent = brief.known[draft.parents[0]].program.focused(MAIN)
        x = float(parent.source.split("=")[1]) + 0.5
        child = parent.changed(f"x = {x}\n").focused(NOTES).changed(f"x is {x} now.\n")
        children.append(Offspring(child, "stepped"))
    return children


def _away(brief: Brief) -> Conversation:
    yield from ()
    parent = brief.known[brief.drafts[0].parents[0]].program.focused(MAIN)
    return [Offspring(parent.changed("x = -3.0\n")) for _ in brief.drafts]


STEP = Operator("step", _step, asks_model=False)


@pytest.fixture
def evoq(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Evoq:
    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    monkeypatch.setenv("EVOQ_REDIS_URL", NO_QUEUE)
    replace_everywhere(monkeypatch, target, "stored_problem", lambda store, run: SEVERAL)
    return Evoq(capsys)


@pytest.fixture
def served(ctx: Context) -> Iterator[Serving]:
    several = replace(ctx, problem=lambda digest: SEVERAL)
    with serving(several, NO_QUEUE, Place(port=0, token=TOKEN), pages=False) as dashboard:
        yield dashboard


def stepped(ctx: Context, budget: int = 4) -> Run:
    """Returns a run that has ended, whose best program differs from the first seed."""
    operators = {one.name: one for one in (SEED, STEP)}
    new = replace(new_run(SEVERAL, budget=budget, islands=1), operators={"step": 1.0})
    run = run_to_the_end(replace(ctx, operators=operators), SEVERAL, new)
    with ctx.store.begin() as tx:
        return tx.runs.get(run)


def best(ctx: Context, run: Run) -> BestProgram:
    found = summarise(ctx.store, run.id, SEVERAL).best
    assert found is not None
    return found


def files(program: Program) -> dict[str, str]:
    return {file.path: file.source for file in program.files}


def below(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_a_patch_makes_the_best_program_of_the_first_seed(
    ctx: Context, evoq: Evoq, tmp_path: Path
) -> None:
    run = stepped(ctx)
    patch, folder = tmp_path / "better.patch", tmp_path / "library"
    write_files(FIRST, folder)

    written = evoq("export", run.name, "--patch", "--out", patch)
    printed = evoq("export", run.name, "--patch")
    document = evoq("export", run.name, "--patch", "--json").json
    applied = subprocess.run(["git", "apply", str(patch)], cwd=folder, check=False)

    assert (written.code, applied.returncode) == (0, 0)
    assert printed.out == patch.read_text() == document["patch"]
    assert document["files"] == [MAIN, NOTES]
    assert below(folder) == files(best(ctx, run).program)
    assert evoq("export", run.name, "--patch", "--out", patch).code == 2


def test_the_patch_of_the_first_seed_is_empty_and_said_to_be(ctx: Context, evoq: Evoq) -> None:
    worse = Operator("worse", _away, asks_model=False)
    new = replace(new_run(SEVERAL, budget=1, islands=1), operators={"worse": 1.0})
    operators = {one.name: one for one in (SEED, worse)}
    run_to_the_end(replace(ctx, operators=operators), SEVERAL, new)

    exported = evoq("export", "toy-run", "--patch")

    assert (exported.code, exported.out) == (0, "")
    assert "the patch is empty" in exported.err
    assert "the first start program, as it is" in evoq("show", "toy-run").out


def test_a_program_is_committed_to_a_folder_and_a_conflict_names_the_files(
    ctx: Context, evoq: Evoq, tmp_path: Path
) -> None:
    run, folder = stepped(ctx), tmp_path / "library"
    write_files(FIRST, folder)
    (folder / "README.md").write_text("mine\n")
    (folder / NOTES).write_text("My notes.\n")

    refused = evoq("apply", run.name, folder, "--json")
    kept = below(folder)
    (folder / NOTES).write_text("Nothing yet.\n")
    committed = evoq("apply", run.name, folder, "--json")
    again = evoq("apply", run.name, folder)

    assert refused.code == 1
    assert NOTES in refused.json["error"]["message"]
    assert MAIN not in refused.json["error"]["message"]
    assert kept == {**files(FIRST), "README.md": "mine\n", NOTES: "My notes.\n"}
    assert (committed.code, committed.json["files"]) == (0, [MAIN, NOTES])
    assert below(folder) == {**files(best(ctx, run).program), "README.md": "mine\n"}
    assert again.code == 0
    assert "already" in again.out
    assert evoq("apply", run.name, tmp_path / "absent").code == 1


def test_a_program_of_one_file_has_no_patch(
    ctx: Context, evoq: Evoq, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_everywhere(monkeypatch, target, "stored_problem", lambda store, run: problem())
    run_to_the_end(ctx, problem(), new_run(problem(), budget=2))

    for arguments in (("export", "toy-run", "--patch"), ("apply", "toy-run", ".")):
        refused = evoq(*arguments, "--json")
        assert refused.code == 2
        assert "evoq export-best toy-run" in refused.json["error"]["remedy"]


def test_a_run_without_a_measured_program_has_no_patch(ctx: Context, evoq: Evoq) -> None:
    lifecycle.start(
        replace(ctx, problem=lambda digest: SEVERAL), SEVERAL, new_run(SEVERAL, budget=2)
    )

    for arguments in (("export", "toy-run", "--patch"), ("apply", "toy-run", ".")):
        refused = evoq(*arguments)
        assert refused.code == 1
        assert "no measured program yet" in refused.err


def test_programs_are_written_as_folders(ctx: Context, evoq: Evoq, tmp_path: Path) -> None:
    run = stepped(ctx)
    program = best(ctx, run).program

    printed = evoq("export-best", run.name)
    one = evoq("export-best", run.name, "--out", tmp_path / "one", "--json")
    every = evoq("export-programs", run.name, "--out", tmp_path / "every")
    index = (tmp_path / "every/programs.jsonl").read_text().splitlines()

    assert (one.code, every.code) == (0, 0)
    assert printed.out == program.text
    assert below(tmp_path / "one") == files(program) == one.json["files"]
    names = {json.loads(line)["program"]: json.loads(line)["file"] for line in index}
    assert below(tmp_path / "every" / names[program.id]) == files(program)
    assert below(tmp_path / "every" / names[FIRST.id]) == files(FIRST)
    assert names[FIRST.id] == f"seed-{FIRST.id[:12]}"


def test_a_checkpoint_is_refused_and_folders_are_written_in_its_place(
    ctx: Context, evoq: Evoq, tmp_path: Path
) -> None:
    run = stepped(ctx)

    refused = evoq("export-checkpoint", run.name, "--out", tmp_path / "output")

    assert refused.code == 1
    assert "those of OpenEvolve have one" in refused.err
    assert "`evoq export-programs toy-run --out DIR`" in refused.err
    assert evoq("export-programs", run.name, "--out", tmp_path / "every").code == 0


def test_the_folder_of_results_has_all_files_and_a_patch(ctx: Context, tmp_path: Path) -> None:
    run = stepped(ctx)
    summary = summarise(ctx.store, run.id, SEVERAL)
    (tmp_path / "best_program").mkdir()
    (tmp_path / "best_program/of_an_earlier_best.py").touch()

    for _ in range(2):
        write_best(summary, SEVERAL, tmp_path)

    assert below(tmp_path / "best_program") == files(best(ctx, run).program)
    assert f"+++ b/{MAIN}" in (tmp_path / "best.patch").read_text()
    document = json.loads((tmp_path / "best.json").read_text())
    assert (document["file"], document["patch"]) == ("best_program", "best.patch")
    assert {path.name for path in tmp_path.iterdir()} == {"best_program", "best.patch", "best.json"}


def test_a_run_is_shown_with_the_files_that_changed_and_the_patch(
    ctx: Context, evoq: Evoq, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stepped(ctx)

    shown = evoq("show", run.name).out
    document = evoq("show", run.name, "--json").json
    monkeypatch.setattr(app.cli.show, "MAX_LINES", 3)
    short = evoq("show", run.name).out

    assert f"2 of 3 files differ: {MAIN}, {NOTES}" in shown
    assert "-x = 0.0\n+x = " in shown
    assert "more lines of the patch" not in shown
    assert "more lines of the patch" in short
    assert document["best"]["files"] == files(best(ctx, run).program)
    assert get(served, f"/api/runs/{run.id}")["best"]["files"] == document["best"]["files"]


def test_a_program_is_shown_as_a_tree_with_its_changes(
    ctx: Context, evoq: Evoq, served: Serving
) -> None:
    run = stepped(ctx)
    program = best(ctx, run).program

    shown = evoq("show", run.name, "--program", program.id[:12]).out
    seed = evoq("show", run.name, "--program", FIRST.id[:12]).out
    document = evoq("show", run.name, "--program", program.id[:12], "--diff", "--json").json
    found = get(served, f"/api/runs/{run.id}/programs/{program.id}")
    parent = found["parents"][0]

    assert "params.json\nsrc/\n  main.py  (changed)\n  notes.txt  (changed)\n" in shown
    assert f"--- a/{MAIN}\n+++ b/{MAIN}\n" in shown
    assert "(changed)" not in seed
    assert "difference to its parent" not in seed
    assert document["files"] == found["files"] == files(program)
    assert document["source"] == program.text
    assert document["diff"] == get(served, f"/api/runs/{run.id}/diff/{parent}/{program.id}")
    assert document["diff"].startswith(f"diff --git a/{MAIN} b/{MAIN}\n")


def test_the_child_of_an_agent_is_shown_with_its_log(ctx: Context, evoq: Evoq) -> None:
    left = LeftFiles({MAIN: "x = 3.0\n", "src/more.py": "y = 1\n"})

    def answer(prompt: Prompt) -> Completion:
        text = agent_reply("The command ended with status 0.", "I moved x.", left)
        return Completion(text, "answering", role=Role.AGENT)

    operators = {one.name: one for one in (SEED, AGENT)}
    new = replace(new_run(SEVERAL, budget=1, islands=1), operators={"agent": 1.0})
    agents = replace(ctx, operators=operators, model=lambda run: Answering(answer))
    run = run_to_the_end(agents, SEVERAL, new)
    program = summarise(ctx.store, run, SEVERAL).best
    assert program is not None

    shown = evoq("show", "toy-run", "--program", program.measured.program).out
    whole = evoq("show", "toy-run", "--program", program.measured.program, "--reply").out

    assert "log of the agent:\n\nThe command ended with status 0.\n\nI moved x.\n" in shown
    assert "  more.py  (added)" in shown
    assert "files that the agent left" not in shown
    assert "files that the agent left" in whole


def test_the_report_has_the_tree_and_the_patch(ctx: Context) -> None:
    run = stepped(ctx)

    text = report(ctx.store, [(summarise(ctx.store, run.id, SEVERAL), SEVERAL)], [].append)

    assert "main.py  (changed)" in text
    assert f"+++ b/{MAIN}" in text
    assert "Nothing yet." in text
