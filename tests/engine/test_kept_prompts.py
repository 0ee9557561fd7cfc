"""The texts of prompts in the ledger: kept, bounded, shown without secrets, or not kept."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.adapters.store.sql import SqlStore
from app.client import target
from app.config.settings import PromptSettings
from app.dashboard.reads import RunReader
from app.domain.operator import Completion
from app.domain.run import Run
from app.engine.context import Context
from app.reports.checkpoint import write_checkpoint
from app.reports.program import ProgramDocument
from app.reports.summary import summarise
from app.reports.waiting import QueueState
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.test_replies import Answering
from tests.engine.toy import problem
from tests.integration.cli import Evoq
from tests.unit.cli.remedies import replace_everywhere

NO_QUEUE = "redis://127.0.0.1:9/0"
SECRET = "sk-0123456789abcdef"


def asked(ctx: Context, **prompts: Any) -> tuple[Run, ProgramDocument, Answering]:
    """Runs the operator `asked` once with settings of prompts; returns what it asked and made."""
    model = Answering(lambda prompt: Completion(f"x = {prompt.sample + 1}.5\n", "answering"))
    order = new_run(problem(), budget=1)
    settings = {**order.settings, "prompts": asdict(PromptSettings(**prompts))}
    new = replace(order, operators={"asked": 1.0}, settings=settings)
    run_id = run_to_the_end(replace(ctx, model=lambda run: model), problem(), new)
    reader = RunReader(ctx.store, NO_QUEUE, ctx.problem, QueueState)
    run = reader.run(str(run_id))
    [made] = [row for row in reader.proposals(run, 0, 10) if row.ordinal == 0]
    assert made.program is not None
    return run, reader.program(run, made.program), model


def test_prompts_are_kept_beside_the_replies_to_them(ctx: Context):
    _, document, model = asked(ctx)

    shown = [(reply.system, reply.user) for reply in document.replies]

    assert shown == [(prompt.system, prompt.user) for prompt in model.asked]
    assert len(shown) == 2
    assert [reply.prompt for reply in document.replies] == [p.digest for p in model.asked]


def test_long_prompts_are_cut_and_say_so(ctx: Context):
    _, document, model = asked(ctx, max_logged_chars=3)

    user = model.asked[0].user
    assert len(user) > 3
    assert document.replies[0].user == f"{user[:3]}\n… {len(user) - 3} more characters"


def test_a_run_may_keep_no_prompts(ctx: Context):
    _, document, model = asked(ctx, log_prompts=False)

    assert [(reply.system, reply.user) for reply in document.replies] == [(None, None)] * 2
    assert [reply.prompt for reply in document.replies] == [p.digest for p in model.asked]


def test_prompts_are_shown_without_secrets(ctx: Context, store: SqlStore):
    run, document, _ = asked(ctx)
    address = store._engine.url.set(drivername="postgresql").render_as_string(False)
    with psycopg.connect(address) as connection:
        connection.execute("UPDATE completions SET user_text = %s", (f"key: {SECRET}",))

    reader = RunReader(ctx.store, NO_QUEUE, ctx.problem, QueueState)

    assert SECRET not in str(reader.program(run, document.program).replies)


def test_a_checkpoint_holds_the_conversations_without_secrets(
    ctx: Context, store: SqlStore, tmp_path: Path
):
    run, document, model = asked(ctx)
    address = store._engine.url.set(drivername="postgresql").render_as_string(False)
    with psycopg.connect(address) as connection:
        connection.execute("UPDATE completions SET system_text = %s", (f"key: {SECRET}",))

    summary = summarise(ctx.store, run.id, problem())
    written = write_checkpoint(ctx.store, summary, problem(), tmp_path)

    text = (written / f"programs/{document.program}.json").read_text()
    prompts = json.loads(text)["prompts"]
    assert [texts["user"] for texts in prompts.values()] == [p.user for p in model.asked]
    assert [texts["responses"] for texts in prompts.values()] == [
        [reply.text] for reply in document.replies
    ]
    assert SECRET not in text


@pytest.fixture
def evoq(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Evoq:
    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    monkeypatch.setenv("EVOQ_REDIS_URL", NO_QUEUE)
    replace_everywhere(monkeypatch, target, "stored_problem", lambda store, run: problem())
    return Evoq(capsys)


def test_the_command_line_prints_prompts_beside_replies(ctx: Context, evoq: Evoq):
    _, document, model = asked(ctx)
    made = ("show", "toy-run", "--program", document.program[:12])

    answer = evoq(*made, "--prompt", "--json").json
    text = evoq(*made, "--prompt", "--reply").out

    assert [prompt["user"] for prompt in answer["prompts"]] == [p.user for p in model.asked]
    assert "replies" not in answer
    assert model.asked[0].user in text
    assert "reply of answering (operator, turn 2, 0 tokens):" in text
    assert "user" not in evoq(*made, "--reply", "--json").json["replies"][0]


def test_the_command_line_says_where_prompts_are_not_kept(ctx: Context, evoq: Evoq):
    _, document, _ = asked(ctx, log_prompts=False)

    shown = evoq("show", "toy-run", "--program", document.program[:12], "--prompt")

    assert "not kept: prompts.log_prompts is off in this run" in shown.out
