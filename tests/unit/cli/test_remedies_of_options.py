"""Each remedy of a command that refuses an option or a name is carried out, and helps."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import app.cli.answer
import app.cli.errors
import app.cli.mock_llm
import app.cli.prompt
import app.cli.scale
import app.cli.show
import app.client.local_model
import app.reports.scaling
import mock_llm.server
from app.adapters.model import local_servers
from app.adapters.model.local_servers import LocalModel, LocalServer
from app.adapters.model.providers.human import PROMPT, REPLY
from app.cli import application
from app.cli.application import status_of
from app.cli.commands import COMMANDS
from app.cli.errors import error_report
from app.cli.output import Screen
from app.client import target as targets
from app.client.local_model import with_local_model
from app.client.notes import CommandError
from app.config.layers import from_assignments
from app.domain.run import Run
from app.domain.scaling import Fleet, Goal, Load, sized
from app.ports.protocols import Unavailable
from tests.engine.toy import problem
from tests.unit.cli.remedies import Row, is_carried_out, remedies, replace_everywhere, replaced
from tests.unit.config.test_changes import begun

OLLAMA = LocalServer("Ollama", "http://127.0.0.1:11434/v1", (LocalModel("a"),))
QUIET = Screen(json=False, quiet=True)


def written(name: str, text: str) -> Path:
    Path(name).write_text(text)
    return Path(name)


@contextmanager
def opened(run: Run) -> Iterator[None]:
    """Lets a command find a run in a ledger that holds nothing else."""

    @contextmanager
    def open_run(*_: Any) -> Iterator[Any]:
        yield None, run

    with replaced(targets, open_run=open_run):
        yield


def injected(*, rate: float = 0.0, hang: float = 0.0, retry_after: float | None = None) -> None:
    app.cli.mock_llm._faults(rate, 0.0, hang, 0.0, retry_after)


def listening(host: str) -> None:
    """Serves a simulation for a moment."""

    async def serve(simulation: Any, listener: Any, stop: Any) -> Any:
        listener.close()
        counts = SimpleNamespace(answered=0, injected={}, queue_full=0, peak_running=0)
        return SimpleNamespace(metrics=counts)

    with replaced(mock_llm.server, serve=serve):
        app.cli.mock_llm._serve(cast(Any, None), host, 0, [], QUIET)


def answered(reply: str) -> None:
    """Answers the prompt of a run that asks a person."""
    run = begun({"llm": {"provider": "human", "model": "me", "answers": "answers"}})
    folder = Path("answers") / run.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"1-abc{REPLY}").unlink(missing_ok=True)
    (folder / f"1-abc{PROMPT}").write_text("What now?")
    with opened(run), redirect_stdout(io.StringIO()):
        app.cli.answer.answer("toy", reply=reply)


def from_input(text: str) -> None:
    with replaced(sys, stdin=io.StringIO(text)):
        answered("-")


def prompted(*paths: str, run: str | None = None) -> None:
    for name in paths:
        Path(name).mkdir(exist_ok=True)
        (Path(name) / "initial_program.py").write_text("x = 1\n")
        (Path(name) / "evaluator.py").write_text("def evaluate(path):\n    return {'a': 1}\n")
    with (
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
        replaced(app.cli.prompt, _of_run=lambda *_: None),
    ):
        app.cli.prompt.prompt(list(paths), run=run)


def drafted(island: int) -> None:
    archive = SimpleNamespace(island=lambda run, index: SimpleNamespace(size=0))
    with suppress(CommandError):  # the island is empty, which is looked at next
        app.cli.prompt._draft(
            cast(Any, SimpleNamespace(archive=archive)),
            *(begun(), problem(), cast(Any, None), None, island),
        )


def shown(*, program: str | None) -> None:
    with replaced(app.cli.show, _show_program=lambda *_: None):
        app.cli.show.show("toy", program=program, reply=True)


def named(beginning: str) -> None:
    programs = SimpleNamespace(named=lambda run, prefix: ["abcd" * 16])
    app.cli.show.program_named(cast(Any, SimpleNamespace(programs=programs)), begun(), beginning)


def auto(*assignments: str, found: bool) -> None:
    servers = ([OLLAMA] if found else [], [])
    with replaced(local_servers, local_servers=lambda **_: servers):
        with_local_model([from_assignments(assignments)])


def mock(call: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: call(*arguments)


def sized_for(usd: float, price: float | None) -> None:
    """Sizes a fleet whose workers report a price, or none, for so many dollars."""
    load = Load("r", 1, 1, None, {"gpu": 1}, {"gpu": 1})
    fleet = Fleet("gpu", usd_per_hour=price)
    with replaced(
        app.reports.scaling, read_sizing=lambda *_: sized([load], [fleet], Goal(None, usd))
    ):
        app.cli.scale._sizing(cast(Any, None), Goal(), None, {})


ROWS = [
    Row(
        mock(app.cli.scale.scale),
        "Write `evoq scale RUN`, or `evoq scale --all`",
        [mock(app.cli.scale.scale, None, True)],
    ),
    Row(
        mock(app.cli.scale._seconds, "soon"),
        "Write a time as 2026-12-24T18:00, or a duration as 90m, 6h or 2d",
        [mock(app.cli.scale._seconds, text) for text in ("2126-12-24T18:00", "90m", "6h", "2d")],
    ),
    Row(
        mock(app.cli.scale._seconds, "2020-01-01"),
        "Give a time in the future; without a time zone it is that of this machine",
        [mock(app.cli.scale._seconds, "2120-01-01")],
    ),
    Row(
        mock(app.cli.scale._numbers, ["gpus=4"], "--max"),
        "Write gpu=N or cpu=N, with N from 1 on; a fleet with a tag is gpu:TAG=N",
        [mock(app.cli.scale._numbers, ["gpu=1", "cpu=64", "gpu:llama70b=2"], "--max")],
    ),
    Row(
        mock(sized_for, 5.0, None),
        "Set EVOQ_PRICES__GPU_USD_PER_HOUR and EVOQ_PRICES__CPU_USD_PER_HOUR where workers run",
        [mock(sized_for, 5.0, 3.0)],
    ),
    Row(
        mock(app.cli.mock_llm._models, [""]),
        "Give a name, or leave the option out to serve any",
        [mock(app.cli.mock_llm._models, ["m"]), mock(app.cli.mock_llm._models, [])],
    ),
    Row(
        mock(app.cli.mock_llm._amount, "--latency", "slow"),
        "For example 0.8, normal:0.8,0.2 or lognormal:0.8,0.5",
        [
            mock(app.cli.mock_llm._amount, "--latency", text)
            for text in ("0.8", "normal:0.8,0.2", "lognormal:0.8,0.5")
        ],
    ),
    Row(
        lambda: injected(rate=0.9, hang=0.9),
        "Rates are shares of all requests: 0.1 is every tenth",
        [lambda: injected(rate=0.1, hang=0.1)],
    ),
    Row(
        lambda: injected(rate=0.1, retry_after=-1),
        "Give seconds, 0 or more",
        [lambda: injected(rate=0.1, retry_after=0), lambda: injected(rate=0.1, retry_after=2)],
    ),
    Row(
        lambda: injected(retry_after=1),
        "Add --rate-429 SHARE",
        [lambda: injected(rate=0.1, retry_after=1)],
    ),
    Row(
        mock(app.cli.mock_llm._replies, Path("absent.jsonl")),
        "One reply a line as a JSON string in a .jsonl file; any other file is one reply",
        [
            lambda: app.cli.mock_llm._replies(written("r.jsonl", '"a"\n"b"\n')),
            lambda: app.cli.mock_llm._replies(written("r.txt", "a reply")),
        ],
    ),
    Row(
        lambda: listening("192.0.2.1"),
        "Give an address of this machine, and a port you may listen on",
        [lambda: listening("127.0.0.1")],
    ),
    Row(
        lambda: answered(str(written("empty.md", " \n"))),
        "Write the answer into it",
        [lambda: answered(str(written("empty.md", "Try pi.")))],
    ),
    Row(
        lambda: answered("absent.md"),
        "Give a text file, or -",
        [lambda: answered(str(written("reply.md", "Try pi."))), lambda: from_input("Try pi.")],
    ),
    Row(
        prompted,
        "Name a problem, or a run with --run",
        [lambda: prompted("toy"), lambda: prompted(run="toy-1")],
    ),
    Row(
        lambda: app.cli.prompt._operator("tune", {}),
        "Choose among ",
        [lambda: app.cli.prompt._operator("diff", {})],
    ),
    Row(
        lambda: app.cli.prompt._seed(problem(), "nobody"),
        "The seeds are " + problem().seeds[0].id[:12],
        [lambda: app.cli.prompt._seed(problem(), problem().seeds[0].id[:12])],
    ),
    Row(lambda: drafted(1), "Choose one of them", [lambda: drafted(0)]),
    Row(
        lambda: shown(program=None),
        "Add --program ID; `evoq metrics RUN` lists the programs of a run",
        [lambda: shown(program="abcd")],
    ),
    Row(
        lambda: named("best"),
        "Give 4 to 64 of its hexadecimal digits; `evoq metrics` lists them",
        [lambda: named("abcd"), lambda: named("abcd" * 16)],
    ),
    Row(
        lambda: auto("llm.model=auto", "llm.provider=openai", found=True),
        "Leave the provider out, or name its model",
        [
            lambda: auto("llm.model=auto", found=True),
            lambda: auto("llm.model=gpt-5-mini", "llm.provider=openai", found=True),
        ],
    ),
    Row(
        lambda: auto("llm.model=auto", found=False),
        "name its address with --api-base URL, or search without a model: --no-model",
        [
            lambda: auto("llm.model=auto", found=True),
            lambda: auto("llm.model=auto", f"llm.base_url={OLLAMA.base_url}", found=True),
            lambda: auto(found=False),
        ],
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.advice[:40])
def test_a_remedy_that_is_carried_out_ends_the_refusal(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row.check()


def test_the_help_that_a_wrong_option_names_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["list-runs", "--nope"]) == 2
    message = capsys.readouterr().err
    assert "`evoq list-runs --help` shows its arguments and options" in message

    assert status_of(["list-runs", "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_a_defect_that_is_run_again_with_debug_shows_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    replace_everywhere(monkeypatch, targets, "find_target", fail)
    assert status_of(["list-runs"]) == 1
    message = capsys.readouterr().err
    assert "run it again with --debug and report" in message
    assert "Traceback" not in message

    assert status_of(["list-runs", "--debug"]) == 1
    assert "in fail" in capsys.readouterr().err


def test_doctor_that_a_silent_service_names_is_a_command() -> None:
    remedy = error_report(Unavailable("the queue is silent")).remedy

    assert "`evoq doctor` says more" in remedy
    assert "doctor" in COMMANDS


def test_a_path_that_can_be_used_ends_the_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "file"
    with pytest.raises(OSError) as caught:  # noqa: PT011  any of the system
        path.touch()
    report = error_report(caught.value)
    assert (report.where, report.remedy.partition(",")[0]) == (str(path), "Check the path")

    path.parent.mkdir()
    path.touch()


OTHERWISE = {
    "`{} --help` shows its arguments and options.": "the test of help",
    "This is a defect: run it again with --debug and report what it says.": "the test of a defect",
    "Check that it is running and can be reached; `evoq doctor` says more.": "the test of doctor",
    "Check the path, its permissions and the free space.": "the test of a path",
}
"""Remedies of every command, each with a test of its own here."""


@pytest.mark.parametrize(
    "module",
    [
        *(app.client.local_model, app.cli.mock_llm, app.cli.errors, app.cli.prompt, app.cli.show),
        app.cli.scale,
        application,
    ],
    ids=lambda module: module.__name__,
)
def test_every_remedy_of_a_command_with_options_is_carried_out_here(module: Any) -> None:
    tried = [row.advice for row in ROWS]

    for text in remedies(module):
        assert text in OTHERWISE or is_carried_out(text, tried), text
