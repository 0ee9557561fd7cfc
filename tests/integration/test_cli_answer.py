"""`evoq answer`: a person answers a run of the ledger."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.model.providers.human import HumanModel
from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.sql import SqlStore
from app.domain.operator import Prompt
from app.domain.operators.seed import SEED
from app.engine import lifecycle
from app.engine.context import Context
from app.ports.protocols import Unavailable
from tests.engine.conftest import new_run, no_model
from tests.engine.toy import ToySandbox, problem
from tests.integration.cli import Evoq
from tests.integration.test_model_human import later


@pytest.fixture
def folder(store: SqlStore, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The answers of a run `asking` that asks a person; `alone` asks nobody."""
    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")
    toy = problem()
    ctx = Context(store, no_model, ToySandbox(), InlineExecutor(), lambda _: toy, {SEED.name: SEED})
    order = new_run(toy)
    people = {"provider": "human", "model": "ada", "answers": str(tmp_path)}
    asking = {**order.settings, "llm": {**order.settings["llm"], **people}}
    lifecycle.start(ctx, toy, replace(order, name="asking", settings=asking))
    lifecycle.start(ctx, toy, replace(order, name="alone"))
    return tmp_path / "asking"


def ask(folder: Path, *samples: int) -> None:
    for sample in samples:
        with pytest.raises(Unavailable):
            HumanModel("ada", folder, wait_seconds=0.0).complete([Prompt("", f"Q{sample}", sample)])


@pytest.fixture
def evoq(capsys: pytest.CaptureFixture[str]) -> Evoq:
    return Evoq(capsys)


def test_the_oldest_prompt_is_shown_and_answered_from_a_file(evoq: Evoq, folder: Path):
    ask(folder, 1, 2)

    shown = evoq("answer", "asking")
    assert (shown.code, shown.out) == (0, "Q1\n")
    assert "--reply" in shown.err

    reply = folder / "mine.txt"
    reply.write_text("x = 1\n")
    document = evoq("answer", "asking", "--reply", reply, "--json").json
    assert document["answered"].startswith("1-")
    assert [name.split("-")[0] for name in document["waiting"]] == ["2"]
    [got] = HumanModel("ada", folder, wait_seconds=0, clock=later).complete([Prompt("", "Q1", 1)])
    assert got.text == "x = 1\n"


@pytest.mark.parametrize(
    ("run", "expected"), [("asking", "no prompt of asking waits"), ("alone", "asks no person")]
)
def test_a_run_without_open_prompts_is_an_error(evoq: Evoq, folder: Path, run: str, expected: str):
    result = evoq("answer", run)

    assert result.code == 1
    assert expected in result.err


def test_a_reply_that_cannot_be_read_is_refused(evoq: Evoq, folder: Path):
    ask(folder, 1)

    result = evoq("answer", "asking", "--reply", folder / "nowhere")

    assert result.code == 1
    assert "nowhere: cannot be read" in result.err
    assert evoq("answer", "asking").out == "Q1\n"


def test_an_empty_reply_is_refused(evoq: Evoq, folder: Path):
    ask(folder, 1)
    empty = folder / "empty.txt"
    empty.write_text(" \n")

    result = evoq("answer", "asking", "--reply", empty)

    assert result.code == 1
    assert "empty.txt: is empty" in result.err
    assert evoq("answer", "asking").out == "Q1\n"
