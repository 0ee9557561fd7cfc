"""The command line itself: help, wrong usage, errors; starts nothing."""

import inspect
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from app.cli.application import status_of
from app.cli.commands import COMMANDS, Command, imported
from tests.integration.cli import Evoq, problem_folder
from tests.integration.mock_llm import mock_llm


@pytest.fixture
def evoq(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Evoq:
    monkeypatch.chdir(tmp_path)
    for variable in ("EVOQ_DATABASE_URL", "EVOQ_REDIS_URL", "EVOQ_HOME", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return Evoq(capsys)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_examples_and_takes_json(evoq: Evoq, command: str):
    result = evoq(command, "--help")

    assert result.code == 0
    assert "--json" in result.out
    assert "Examples:" in result.out
    assert f"evoq {command}" in result.out


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_the_list_of_commands_has_the_first_sentence_of_their_help(command: Command):
    paragraph = inspect.cleandoc(imported(command.place).__doc__ or "").partition("\n\n")[0]

    assert command.help == " ".join(paragraph.split("\n"))


def test_the_version_is_that_of_the_distribution(evoq: Evoq):
    result = evoq("--version")

    assert (result.code, result.err) == (0, "")
    assert result.out == f"{version('evoqueue')}\n"
    assert "Evolves programs" in evoq("--help").out
    assert evoq().code == 2


def test_a_command_that_does_not_exist_is_wrong_usage(evoq: Evoq):
    result = evoq("rnu")

    assert result.code == 2
    assert "rnu" in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rnu"], "error: No such command 'rnu'. Did you mean 'run'? `evoq --help` shows"),
        (["zzzz"], "error: No such command 'zzzz'. `evoq --help` shows"),
        (["run", "x", "--iteration", "3"], "error: No such option: --iteration"),
        (["run"], "error: Missing argument 'PROBLEM...'. `evoq run --help` shows"),
        (["run", "x", "--iterations", "0"], "error: Invalid value for '--iterations'"),
    ],
)
def test_wrong_usage_is_one_line_in_the_style_of_other_errors(
    evoq: Evoq, arguments: list[str], expected: str
):
    result = evoq(*arguments)

    assert result.code == 2
    assert result.err.startswith(expected)
    assert result.err.count("\n") == 1
    assert result.out == ""


@pytest.mark.parametrize(
    ("words", "completed"),
    [("evoq list", ["list-runs"]), ("evoq run --primary", ["--primary-model"])],
)
def test_the_shell_completes_commands_and_options(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    completed: list[str],
):
    monkeypatch.setenv("_EVOQ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))

    with pytest.raises(SystemExit) as ended:
        status_of([])

    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == completed


def test_wrong_usage_is_one_document_with_json(evoq: Evoq):
    result = evoq("run", "--iterations", "none", "x", "--json")

    assert result.code == 2
    assert result.json["error"]["kind"] == "usage"
    assert "--iterations" in result.json["error"]["what"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--set", "search.ilands=3"], "search.islands"),
        (["--set", "search.islands=0"], "search.islands"),
        (["--set", "search.operators={rewrite: 1}"], "llm.model"),
        (["--set", "redis_url=redis://localhost"], "EVOQ_DATABASE_URL"),
        (["--set", "sandbox.mode=guardd"], "sandbox.mode"),
        (["--set", "llm.provider=nobody"], "`llm.provider`: no provider"),
        (["--set", "llm.roles.refinr.model=m"], "the command line: `llm.roles`: no role"),
        (["--name", "a/b"], "--name"),
        (["--name", "12"], "--name"),
        (["--detach"], "evoq up"),
        (["--reproducible", "--detach"], "--reproducible"),
        (["--dashboard", "--detach"], "--dashboard"),
        (["--config", "absent.yaml"], "absent.yaml"),
        (["--set", "llm.model=m", "--set", "llm.base_url=https://api.openai.com/v1"], "OPENAI_API"),
    ],
)
def test_wrong_usage_of_run_is_found_before_anything_starts(
    evoq: Evoq, tmp_path: Path, arguments: list[str], expected: str
):
    folder = problem_folder(tmp_path / "problem")

    result = evoq("run", folder, *arguments, "--json")

    assert result.code == 2
    assert expected in json.dumps(result.json)
    assert expected in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / ".evoq").exists()


def test_a_problem_that_does_not_exist_is_wrong_usage(evoq: Evoq):
    result = evoq("check", "nowhere", "--json")

    assert result.code == 2
    assert result.json["error"]["where"] == "nowhere"


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({"evaluator": None}, "evaluator.py"),
        ({"evaluator": "def evaluate(path:\n"}, "evaluator.py:1"),
        ({"evaluator": "x = 1\n"}, "evaluate"),
        ({"config": "llm: [\n"}, "config.yaml"),
        ({"program": ""}, "initial_program.py"),
    ],
    ids=["no evaluator", "syntax error", "no evaluate", "no YAML", "empty program"],
)
@pytest.mark.parametrize("command", ["check", "run"])
def test_a_broken_problem_is_an_error_with_place_and_remedy(
    evoq: Evoq, tmp_path: Path, command: str, broken: dict[str, str | None], expected: str
):
    folder = problem_folder(tmp_path / "problem", **broken)  # type: ignore[arg-type]

    result = evoq(command, folder, "--json")

    error = result.json["error"]
    assert result.code == 1
    assert error["kind"] == "problem"
    assert expected in f"{error['where']} {error['what']}"
    assert error["remedy"]
    assert "Traceback" not in result.err


def test_strict_refuses_an_unknown_key_that_is_a_notice_otherwise(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "problem", config="max_iterationz: 3\n")

    result = evoq("run", folder, "--strict", "--json")

    assert result.code == 1
    assert "max_iterations" in result.json["error"]["value"]


def test_an_output_folder_that_cannot_be_written_is_found_before_the_run(
    evoq: Evoq, tmp_path: Path
):
    folder = problem_folder(tmp_path / "problem")
    (tmp_path / "file").write_text("")

    result = evoq("run", folder, "--out", tmp_path / "file" / "results", "--json")

    assert result.code == 1
    assert "--out" in result.json["error"]["what"]
    assert not (tmp_path / ".evoq").exists()


@pytest.mark.parametrize("command", ["show", "resume", "pause", "metrics", "plot", "watch"])
def test_without_any_run_a_run_is_not_found(evoq: Evoq, tmp_path: Path, command: str):
    result = evoq(command, "mine", "--json")

    assert result.code == 1
    assert ".evoq" in result.json["error"]["what"]
    assert not (tmp_path / ".evoq").exists()


def test_without_any_run_the_list_is_empty(evoq: Evoq, tmp_path: Path):
    result = evoq("list-runs", "--json")

    assert (result.code, result.json) == (0, [])
    assert not (tmp_path / ".evoq").exists()


def test_a_database_that_is_down_is_one_message(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVOQ_DATABASE_URL", "postgresql+psycopg://u:hunter2@127.0.0.1:1/db")
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")
    folder = problem_folder(tmp_path / "problem")

    result = evoq("run", folder, "--json")

    assert result.code == 1
    assert result.json["error"]["kind"] == "unavailable"
    assert "127.0.0.1" in result.json["error"]["what"]
    assert "hunter2" not in result.out + result.err
    assert "Traceback" not in result.err


def test_doctor_shows_whether_each_endpoint_answers(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVOQ_HOME", str(tmp_path))
    monkeypatch.setenv("EVOQ_SANDBOX__BACKEND", "process")
    monkeypatch.setenv("EVOQ_LLM__MODEL", "small")
    monkeypatch.setenv("EVOQ_LLM__ROLES", '{"judge": {"temperature": 0}}')
    monkeypatch.setattr("app.cli.doctor_models.ENDPOINT_SECONDS", 60.0)

    with mock_llm() as answering:
        monkeypatch.setenv("EVOQ_LLM__BASE_URL", answering.base_url)
        up = evoq("doctor", "--json")
    down = evoq("doctor", "--json")

    [answers] = (finding for finding in up.json if finding["name"] == "model")
    assert answers["ok"]
    assert answers["detail"] == f"small at {answering.base_url}: answers"
    [silent] = (finding for finding in down.json if finding["name"] == "model")
    assert not silent["ok"]
    assert silent["remedy"] == "start the endpoint, or correct llm.base_url and the key"


def test_doctor_of_a_deployment_names_the_workers_that_ask_the_model(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVOQ_DATABASE_URL", "postgresql+psycopg://u:hunter2@127.0.0.1:1/db")
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("EVOQ_SANDBOX__BACKEND", "process")
    monkeypatch.setenv("EVOQ_LLM__MODEL", "small")
    monkeypatch.setenv("EVOQ_LLM__BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.chdir(tmp_path)

    result = evoq("doctor", "--json")

    [model] = (finding for finding in result.json if finding["name"] == "model")
    assert "only gpu workers ask it" in model["remedy"]


def test_an_interrupt_before_the_run_begins_is_reported_as_such(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = problem_folder(tmp_path / "problem")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.cli.run.open_session", interrupted)
    result = evoq("run", folder, "--json")

    assert result.code == 1
    assert result.json["error"]["kind"] == "interrupted"
    assert "no run had begun" in result.err


def test_a_terminal_that_knows_ascii_only_ends_no_command(repository: Path, tmp_path: Path):
    problem_folder(tmp_path / "ünï")
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    environment["PYTHONIOENCODING"] = "ascii:strict"

    done = subprocess.run(
        [sys.executable, "-c", "from app.cli import main; main()", "prompt", str(tmp_path / "ünï")],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


def test_the_terminal_wraps_the_lines_of_a_help_text(evoq: Evoq, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "400")

    result = evoq("run", "--help")

    assert "started here and ended with it. Ctrl-C pauses the run" in result.out


@pytest.mark.parametrize("address", ["mysql://u:hunter2@h/db", "u:hunter2@h/db", "postgres://h/db"])
def test_an_address_that_is_no_postgres_is_wrong_usage(
    evoq: Evoq, monkeypatch: pytest.MonkeyPatch, address: str
):
    monkeypatch.setenv("EVOQ_DATABASE_URL", address)
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")

    result = evoq("list-runs", "--json")

    assert result.code == 2
    assert "postgresql://USER:PASSWORD" in result.json["error"]["remedy"]
    assert "hunter2" not in result.out + result.err


def test_help_imports_nothing_heavy(repository: Path):
    heavy = ("matplotlib", "celery", "sqlalchemy", "aiohttp", "docker", "pydantic", "numpy")
    script = (
        "import sys; from app.cli.application import status_of; status_of(['--help']); "
        f"sys.exit(' '.join(name for name in {heavy} if name in sys.modules) or None)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=repository, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
