"""Each error text of the product that says what to do is carried out, here or where it is named.

`test_remedies` and its siblings are about `remedy` arguments.  This module is about the texts of
exceptions that hold the advice themselves, wherever in the product they are raised.
"""

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import workers.metrics
from app.adapters.queue.address import broker_url
from app.adapters.sandbox.docker import ENGINES_OWN, profile
from app.celery import configuration
from app.cli import doctor, quota
from app.cli.evaluate import _read_content
from app.cli.export import _explaining
from app.cli.play import _opponent
from app.cli.replay import recorded, replay
from app.client.local_state import require_writable
from app.config.models import ModelSettings
from app.config.places import VARIABLES, places
from app.domain.search.fleets import fleet_name
from app.domain.search.quotas import project_name
from app.patterns import storage
from app.patterns.outcomes import answer_of
from app.patterns.workspace import Workspace
from mock_llm.draws import read_amount
from mock_llm.replies import read_script
from tests.unit.cli.remedies import Row, advised, is_carried_out, remedies
from workers.tracing import exporter

REPOSITORY = Path(__file__).parents[3]
PROFILE = REPOSITORY / "app/adapters/sandbox/image/seccomp.json"
QUEUE = {"EVOQ_REDIS_URL": "redis://host:6379/0"}


class NoEvents:
    """A ledger in which a run has closed two generations, and measured programs as given."""

    def __init__(self, closed: int = 0, programs: Sequence[str] = ()) -> None:
        self._closed, self._programs = closed, programs

    def begin(self) -> "NoEvents":
        return self

    def __enter__(self) -> Any:
        def read(run: int, after: int, limit: int, kinds: Sequence[Any] = ()) -> list[Any]:
            numbers = range(after + 1, self._closed + 1)
            return [SimpleNamespace(seq=number, seconds=0.0) for number in numbers]

        def best(run: int) -> Any:
            return SimpleNamespace(program=self._programs[0]) if self._programs else None

        def named(run: int, prefix: str) -> list[str]:
            return [program for program in self._programs if program.startswith(prefix)]

        def get(ids: Sequence[str]) -> dict[str, str]:
            return {program: program for program in ids}

        return SimpleNamespace(
            events=SimpleNamespace(read=read),
            history=SimpleNamespace(best=best),
            programs=SimpleNamespace(named=named, get=get),
        )

    def __exit__(self, *_: object) -> None:
        pass


def played_against(prefix: str | None, *programs: str) -> None:
    ledger = cast(Any, SimpleNamespace(store=NoEvents(0, programs)))
    _opponent(ledger, cast(Any, SimpleNamespace(id=1, name="r")), prefix)


def generation(number: int | None, closed: int) -> None:
    list(recorded(cast(Any, NoEvents(closed)), 1, number))


def at_speed(speed: float) -> None:
    with suppress(LookupError):  # the run is looked for next
        replay("absent", speed=speed)


def addressed(url: str) -> None:
    ModelSettings(model="m", base_url=url)


def branched(folder: str, choice: storage.Storage | None = None) -> None:
    with Workspace(folder, storage=choice) as opened:
        opened.branch()


def written(name: str, text: str) -> Path:
    Path(name).write_text(text)
    return Path(name)


def with_socket(name: str) -> Path:
    """Returns a folder that holds a socket."""
    Path(name).mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{name}/s")
    return Path(name)


def output(path: str) -> None:
    with _explaining(Path(path)), Path(path).open("wb"):
        pass


def listening(port: int) -> None:
    workers.metrics.serve(f"127.0.0.1:{port}")


ROWS = [
    Row(
        lambda: configuration({}),
        "give the queue's address, as redis://host:6379/0",
        [lambda: configuration(QUEUE)],
    ),
    Row(
        lambda: configuration({**QUEUE, "EVOQ_LOG_FORMAT": "xml"}),
        "must be text or json",
        [
            lambda: configuration({**QUEUE, "EVOQ_LOG_FORMAT": "text"}),
            lambda: configuration({**QUEUE, "EVOQ_LOG_FORMAT": "json"}),
        ],
    ),
    Row(
        lambda: broker_url("http://host"),
        "the queue's address must start with one of",
        [lambda: broker_url("redis://host:6379/0"), lambda: broker_url("unix:///tmp/r.sock?db=0")],
    ),
    Row(
        lambda: places(dict(zip(VARIABLES, ("2", "3"), strict=True)), 4),
        "set one of them",
        [lambda name=name: places({name: "2"}, 4) for name in VARIABLES],
    ),
    Row(
        lambda: workers.metrics.serve("9464"),
        "write 127.0.0.1:9464",
        [lambda: listening(0)],
    ),
    Row(
        lambda: exporter({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}),
        "write http/protobuf",
        [
            lambda: exporter(
                {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
            )
        ],
    ),
    Row(
        lambda: project_name("a team"),
        "write 1 to 64 letters, digits,",
        [lambda: project_name("a-team")],
    ),
    Row(
        lambda: quota._named(None, changes=True),
        "Name the project, as `evoq quota vision --runs 2`",
        [lambda: quota._named("vision", changes=True)],
    ),
    Row(
        lambda: quota._given(2.0, {}, remove=True),
        "Give --remove alone",
        [lambda: quota._given(None, {}, remove=True)],
    ),
    Row(
        lambda: quota._given(0.0, {"runs": "two"}, remove=False),
        "Give a number from 0 to 2147483647, or `none`",
        [lambda: quota._given(2.0, {"runs": "2", "usd_per_day": "none"}, remove=False)],
    ),
    Row(
        lambda: fleet_name("gpu:Llama 70B"),
        "write `gpu` or `cpu`, and after a colon the label",
        [lambda: fleet_name("gpu:llama70b"), lambda: fleet_name("cpu")],
    ),
    Row(
        lambda: addressed("host:8000"),
        "write http://HOST:PORT/v1 or https://HOST/v1",
        [lambda: addressed("http://host:8000/v1"), lambda: addressed("https://host/v1")],
    ),
    Row(
        lambda: addressed("https://user:word@host/v1"),
        "give a key, in the variable of api_key_variable",
        [
            lambda: ModelSettings(
                model="m", base_url="https://host/v1", api_key_variable="KEY_OF_HOST"
            )
        ],
    ),
    Row(
        lambda: addressed("https://host/v1/chat/completions"),
        "it must end where /chat/completions is appended, usually with /v1",
        [lambda: addressed("https://host/v1")],
    ),
    Row(
        lambda: read_amount("slow"),
        "is no amount: write",
        [
            lambda text=text: read_amount(text)
            for text in ("0.8", "lognormal:0.8,0.5", "normal:1,1")
        ],
    ),
    Row(
        lambda: read_script(written("empty.txt", "")),
        "write a reply into it",
        [lambda: read_script(written("empty.txt", "a reply"))],
    ),
    Row(
        lambda: read_script(written("empty.jsonl", "\n")),
        "write a reply a line, as a JSON string",
        [lambda: read_script(written("empty.jsonl", '"a reply"\n"another"\n'))],
    ),
    Row(
        lambda: profile("absent.json", PROFILE),
        "Name a JSON file as `docker run --security-opt seccomp=` takes it",
        [
            lambda: profile(str(written("p.json", json.dumps({"defaultAction": "x"}))), PROFILE),
            lambda: profile(ENGINES_OWN, PROFILE),
        ],
    ),
    Row(
        lambda: profile(str(written("p.json", "{}")), PROFILE),
        "See app/adapters/sandbox/image/seccomp.json",
        [lambda: profile(str(written("p.json", PROFILE.read_text())), PROFILE)],
    ),
    Row(
        lambda: _read_content(Path("absent.py")),
        "Check the path",
        [lambda: _read_content(written("p.py", ""))],
    ),
    Row(
        lambda: output("absent/file"),
        "Give another path with --out",
        [lambda: output("file")],
    ),
    Row(
        lambda: require_writable(written("taken", "") / "out"),
        "Give another one with --out",
        [lambda: require_writable(Path("out"))],
    ),
    Row(
        lambda: played_against("ab", "abc1", "abc2"),
        "`evoq metrics r` lists them",
        [lambda: played_against("abc2", "abc1", "abc2")],
    ),
    Row(
        lambda: played_against(None),
        "Wait for one, or let the run go on",
        [lambda: played_against(None, "abc1")],
    ),
    Row(
        lambda: generation(3, 3),
        "Give a number from 0 to 2",
        [lambda: generation(0, 3), lambda: generation(2, 3)],
    ),
    Row(
        lambda: generation(0, 0),
        "Leave --generation out to replay the whole run",
        [lambda: generation(None, 0)],
    ),
    Row(lambda: at_speed(0), "Give a number above 0", [lambda: at_speed(0.5)]),
    Row(lambda: branched("/proc"), "use a folder in it", [lambda: branched("folder")]),
    Row(
        lambda: answer_of("done"),
        "return a bool, (bool, score) or (bool, error)",
        [lambda: answer_of(True), lambda: answer_of((True, 0.5)), lambda: answer_of((False, "e"))],
    ),
    Row(
        lambda: branched(str(with_socket("sockets")), storage.Storage.COPY),
        "which a branch cannot copy; remove it",
        [
            lambda: [
                Path("sockets/s").unlink(missing_ok=True),
                branched("sockets", storage.Storage.COPY),
            ]
        ],
    ),
    Row(
        lambda: branched("mounted", storage.Storage.REFLINK),
        "leave the choice open",
        [lambda: branched("mounted")],
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.advice[:40])
def test_an_advice_that_is_carried_out_ends_the_refusal(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage, "_reflink_works", lambda base, scratch: False)
    for name in ("folder", "mounted"):
        Path(name).mkdir()
    row.check()


def test_a_folder_that_is_mounted_is_not_advised_to_leave_open_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "lower_layers", lambda base: ["/lower"])
    monkeypatch.setattr(storage, "_overlay_works", lambda base, scratch: False)

    with pytest.raises(storage.MountError, match="use a folder that is not mounted"):
        storage.choose(tmp_path, tmp_path)


def test_a_variable_that_no_worker_could_use_is_a_finding_until_it_is_corrected_or_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVOQ_SANDBOX__CPUS", "many")
    [found] = doctor._wrong_variables()
    assert found.detail.startswith("EVOQ_SANDBOX__CPUS: ")
    assert found.remedy == "correct the variable, or leave it out"

    monkeypatch.setenv("EVOQ_SANDBOX__CPUS", "2")
    assert doctor._wrong_variables() == []
    monkeypatch.delenv("EVOQ_SANDBOX__CPUS")
    assert doctor._wrong_variables() == []


SANDBOXES = "tests/unit/adapters/sandbox/test_remedies_of_sandboxes.py"
PROBLEMS = "tests/unit/cli/test_remedies_of_problems.py"
LEDGERS = "tests/engine/test_remedies_of_ledgers.py"
CLUSTERS = "tests/unit/adapters/kubernetes/test_remedies_of_clusters.py"
SENT = "tests/unit/patterns/test_sent_work.py"
PODS = "tests/kubernetes/test_branches.py"
IN_COMPATIBLE_MODE = (
    "tests/integration/test_cli_check.py::test_a_failure_of_one_mode_alone_is_quoted"
)
MACHINES = (
    "tests/unit/cli/test_remedies_of_machines.py::test_an_advice_about_a_machine_that_is_carried_"
    "out_ends_the_refusal"
)
ELSEWHERE: Mapping[str, str] = {
    "migrations: set EVOQ_DATABASE_URL": "tests/engine/test_store.py::test_alembic_upgrades_the_"
    "database_that_the_variable_names",
    "no Docker engine answers at": f"{SANDBOXES}::test_an_engine_that_is_silent_is_passed_over_by_"
    "the_setting_and_the_variable_that_are_named",
    "sandbox.{}={} is for {}": f"{SANDBOXES}::test_child_processes_are_used_where_the_"
    "setting_of_containers_is_left_out",
    "Measure in guarded mode": f"{PROBLEMS}::test_a_remedy_that_is_carried_out_ends_the_refusal",
    "Correct the path, relative to": f"{PROBLEMS}::test_a_remedy_that_is_carried_out_ends_the_"
    "refusal",
    "another command works on": "tests/integration/test_cli_run.py::test_a_run_in_one_process_is_"
    "paused_for_the_next_command_and_left_by_workers",
    "no worker works on it: `evoq resume": "tests/integration/test_cli_run.py::test_a_run_in_one_"
    "process_is_paused_for_the_next_command_and_left_by_workers",
    "a command asks the servers": "tests/unit/cli/test_local_model.py::test_a_run_that_has_begun_"
    "takes_the_model_of_a_server_too",
    "it is mounted, so that only an overlay": "tests/unit/cli/test_remedies_of_the_product.py::"
    "test_a_folder_that_is_mounted_is_not_advised_to_leave_open_what_is",
    "is mounted below": "tests/unit/patterns/test_workspace.py::test_a_folder_with_something_"
    "mounted_in_it_is_refused",
    **dict.fromkeys(
        (
            "cannot be read by other users",
            *("or does not exist for this platform", "root's Postgres must run"),
            *("no unused user id", "no account `nobody`", "is not a plain file"),
            *("Postgres does not run as root", "belongs to another user"),
            *("cannot exchange two folders", "cannot be removed; remove it by hand"),
            *("EVOQ_VLLM_M", "the vLLM engine refuses", "no such folder; give"),
            *("the engine has no runtime", "has not ended after"),
            *("has ended: see {}", "Flower", "cannot listen on"),
        ),
        MACHINES,
    ),
    **dict.fromkeys(
        (
            *("Write the answer into it", "Give a text file, or -", "Give seconds, 0 or more"),
            "Add --rate-429 SHARE",
        ),
        "tests/unit/cli/test_remedies_of_options.py::test_a_remedy_that_is_carried_out_ends_the_"
        "refusal",
    ),
    **dict.fromkeys(
        (
            *("is not installed here", "this worker serves the model", "no model for {}"),
            *("changed by another command", "no worker would work on", "Choose a run of a game"),
            *("unset EVOQ_DATABASE_URL and EVOQ_REDIS_URL to continue", "there are no runs here"),
            *("there is no run", "Set EVOQ_HOME to another folder", "use {} one"),
            *("wait for a person", "set llm.answers", "needs a key: set", "to replay"),
            *("raise llm.max_in_flight", "leave `cases` out", "return 0 or 1"),
            "was not measured: the evaluator must",
        ),
        "tests/unit/cli/test_remedies_of_runs.py::test_an_advice_about_a_run_that_is_carried_out_"
        "ends_the_refusal",
    ),
    "cannot be reached: {}. Start Redis": f"{LEDGERS}::test_a_queue_that_runs_at_the_address_ends_"
    "its_refusal",
    "EVOQ_DATABASE_URL is not set": f"{LEDGERS}::test_a_worker_with_the_ledgers_address_has_a_"
    "context",
    "was made by another version": f"{LEDGERS}::test_another_database_takes_the_place_of_one_of_"
    "another_version",
    "choose another --name or resume it": f"{LEDGERS}::test_a_run_has_another_name_than_those_that_"
    "exist_or_is_resumed",
    "exists; choose another --name": "tests/engine/test_ledger_file.py::test_a_name_that_is_taken_"
    "adds_nothing_and_another_adds_the_run",
    "both with --reproducible": "tests/engine/test_replay.py::test_a_replayed_run_is_the_recorded_"
    "one_and_pays_nothing",
    "has spent its budget": "tests/integration/test_cli_run.py::test_a_run_ends_with_its_document_"
    "and_files_and_can_be_shown",
    "runs no programs: `evoq play": "tests/unit/cli/test_play.py::test_person_and_program_move_in_"
    "turn_until_the_game_is_over",
    "Use its objects": IN_COMPATIBLE_MODE,
    **dict.fromkeys(
        (
            *("`seeds` has no start program", "leave `program` out"),
            *("Put the files of the program into", "Name files of {} characters together"),
            *("Name it, or measure in compatible", "Measure in compatible mode, or leave"),
        ),
        "tests/unit/adapters/problems/test_repository.py::test_a_remedy_that_is_carried_out_ends_"
        "the_refusal",
    ),
    **dict.fromkeys(
        ("pause them first, or leave --full out", "Give another path with --export"),
        "tests/engine/test_delete_command.py::test_what_a_refusal_advises_ends_it",
    ),
    "those of OpenEvolve have one": "tests/engine/test_programs_of_files.py::test_a_checkpoint_is_"
    "refused_and_folders_are_written_in_its_place",
    "no Kubernetes cluster": f"{CLUSTERS}::test_a_kubeconfig_that_the_variable_names_is_used",
    "Create the namespace": "tests/kubernetes/test_jobs.py::test_a_namespace_that_is_created_ends_"
    "the_refusal",
    "and nothing builds images in a cluster": f"{CLUSTERS}::test_an_image_takes_the_place_of_"
    "requirements",
    "the problem's files, the harness and the program are": f"{CLUSTERS}::test_large_files_are_"
    "data_on_a_claim",
    "where agents find commands": "tests/integration/test_agents.py::test_a_command_that_is_not_"
    "there_is_named",
    "another name": f"{SENT}::test_a_group_is_at_work_in_one_process_and_outlives_it",
    "is an overlay, which pods do not see": f"{PODS}::test_what_cannot_run_is_said",
    "is said to be mounted here": f"{PODS}::test_what_cannot_run_is_said",
    "cannot be sent elsewhere; remove it": f"{SENT}::test_what_no_patch_holds_is_named_and_removed",
    "use the same version at both ends": f"{PODS}::test_a_callable_runs_where_the_versions_of_"
    "python_agree",
    "by cloudpickle, which is not installed": f"{SENT}::test_a_missing_cloudpickle_is_named_with_"
    "its_remedy",
    "Leave out what belongs to this process": "tests/engine/test_branches.py::test_callables_cross_"
    "and_those_that_cannot_are_named",
    "register_pickle_by_value": f"{SENT}::test_a_module_that_is_missing_there_is_named",
    "give the limits to the runner": "tests/unit/patterns/test_patterns.py::test_what_runs_"
    "elsewhere_is_not_counted_and_has_limits_of_its_own",
    "has no address that an agent could ask": "tests/engine/test_agent_operator.py::test_a_model_"
    "without_an_address_is_no_model_for_agents",
}
"""The beginning of an advice to the test that carries it out."""

NONE = (
    *("a window needs", "no end of a request", "a name occurs twice", "must return a dict of"),
    *("did not name its default index", "the ledger holds no run", "EVOQ_REDIS_URL: {}"),
    *("the run is in the ledger", "only `evoq check` reads"),
    *("asks for {} completions", "asks for an opinion", "cannot run a program of two lines"),
    *("asks no person", "is running in {} already", "has no judges", "as `evoq export` writes it"),
    *("no file of `evoq export`", "--set"),
    *("a patch may not change", "no end within {} s"),
)
"""Texts with such words that advise nothing: nothing is to be done, or it is a fault of ours."""
COLLECTED = {
    *("app.adapters.problems", "app.adapters.sandbox.data_mounts", "app.config"),
    "app.adapters.sandbox.choose",
    "app.cli.delete",
    *("app.adapters.sandbox.dependencies", "app.adapters.sandbox.environments"),
    *("app.adapters.sandbox.installation", "app.adapters.sandbox.warm_sandbox"),
    *("app.cli.application", "app.cli.branch", "app.cli.compare", "app.cli.doctor"),
    *("app.cli.doctor_models", "app.cli.doctor_services"),
    *("app.cli.evaluate", "app.cli.export", "app.client.local_model", "app.client.local_state"),
    *("app.cli.mock_llm", "app.cli.new", "app.cli.errors", "app.cli.prompt"),
    *("app.cli.program_folder", "app.cli.scale"),
    *("app.client.setting_layers", "app.client.adjustments", "app.client.requirements"),
    *(
        "app.cli.run",
        "app.cli.show",
        "app.client.run_names",
        "app.client.target",
        "app.cli.transfer",
        "app.cli.up",
    ),
}
"""Modules and packages whose `remedy` arguments the siblings of this module collect."""
NOT_COLLECTED: Mapping[str, str] = {
    "workers.harness.errors": IN_COMPATIBLE_MODE,
    "app.adapters.model.agents.model": "tests/engine/test_agent_operator.py::test_where_nothing_"
    "isolates_the_run_is_paused_with_the_remedy",
    "app.cli.branch_runner": "tests/unit/cli/test_branch.py::test_where_commands_run_is_said_once",
    "app.patterns.isolated": "tests/unit/cli/test_branch.py::test_a_machine_that_keeps_nothing_"
    "apart_says_what_to_do",
}
"""Modules with one remedy, which no collector reads, and the tests that carry them out."""


def _missing(path: Path) -> list[str]:
    tried = [row.advice for row in ROWS]
    known = [*ELSEWHERE, *NONE]
    return [
        text
        for text in advised(path)
        if not is_carried_out(text, tried) and not any(words in text for words in known)
    ]


PRODUCT = [
    path
    for package in ("app", "workers", "mock_llm")
    for path in sorted((REPOSITORY / package).rglob("*.py"))
]


def test_every_error_that_says_what_to_do_is_carried_out_or_listed() -> None:
    missing = {str(path.relative_to(REPOSITORY)): _missing(path) for path in PRODUCT}

    assert {path: texts for path, texts in missing.items() if texts} == {}


def test_each_word_of_the_lists_is_a_text_of_the_product() -> None:
    texts = [text for path in PRODUCT for text in advised(path)]
    listed = [*ELSEWHERE, *NONE]

    assert [words for words in listed if not any(words in text for text in texts)] == []


@pytest.mark.parametrize("test", sorted({*ELSEWHERE.values(), *NOT_COLLECTED.values()}))
def test_what_is_carried_out_elsewhere_is_carried_out_there(test: str) -> None:
    path, _, name = test.partition("::")

    assert f"def {name}(" in (REPOSITORY / path).read_text()


def test_every_module_with_remedies_is_collected_or_listed() -> None:
    names = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        for path in PRODUCT
        if remedies(SimpleNamespace(__file__=str(path)))
    }
    collected = {
        name for name in names if any(f"{name}.".startswith(f"{each}.") for each in COLLECTED)
    }

    assert names - collected == set(NOT_COLLECTED)
