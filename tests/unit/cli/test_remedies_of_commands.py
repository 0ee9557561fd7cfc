"""Each remedy of a command that refuses its options is carried out, and the refusal is gone."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import app.cli.branch
import app.cli.compare
import app.cli.delete
import app.cli.doctor_models
import app.cli.evaluate
import app.cli.export
import app.cli.new
import app.cli.program_folder
import app.cli.run
import app.cli.transfer
import app.cli.up
import app.client.target
import app.config.changes
import app.config.layers
import app.config.lite
import app.config.resolve
from app.adapters.problems import configures_problem
from app.cli.application import status_of
from app.cli.branch import Candidates, Pattern, cascaded, speculate
from app.client import local_state
from app.client.plan import RunPlan, plan_run
from app.client.setting_layers import SettingLayers, read_layers
from app.client.target import Target, embedded_stack, find_target
from app.config.changes import fixed
from app.config.layers import UsageError, from_assignments, from_environment, from_file
from app.config.resolve import resolved
from app.domain.evaluation import FailureKind
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.remedies import Commonest, explained
from app.domain.run import RunState
from app.domain.search.cohort import CutReason
from app.patterns.commands import Command
from tests.engine.toy import problem
from tests.unit.cli.remedies import is_carried_out, remedies
from tests.unit.config.test_changes import CHANGES, begun, revision

SPEED = "budget.proposals=4"


def branched(
    pattern: Callable[..., Pattern],
    command: Sequence[str] = (),
    shells: Sequence[str] = (),
    **given: Any,
) -> None:
    commands = [Command(["sh", "-c", text]) for text in shells]
    pattern(Candidates(command=list(command), shells=commands), **given)


def possible(*, deployed: bool = False, **given: bool) -> None:
    addresses = ("postgresql://h/db", "redis://h") if deployed else (None, None)
    options = {"detach": False, "reproducible": False, "dashboard": False, **given}
    app.cli.run._require_possible(Target(Path(), *addresses), **options)


def with_workers() -> None:
    with local_state.up_lock(Path()):
        possible(detach=True)


def deployed_by(**variables: str) -> Target:
    return find_target(
        [from_environment({f"EVOQ_{name}": text for name, text in variables.items()})]
    )


def planned(*assignments: str) -> RunPlan:
    layers = read_layers(assignments, None, {"search.seed": 1})
    return plan_run(problem(), layers, local=True, no_model=True)


def equal_workers(*arms: str) -> None:
    plans = [planned(assignment) for assignment in arms]
    runs = [app.cli.compare._PlannedRun("p", "arm", 1, plan) for plan in plans]
    app.cli.compare._require_equal_workers(runs)


def begun_again(*, proposals: int = 4, comparison: str = "first") -> None:
    """Begins a run of the comparison `first` of 4 proposals, or finds that it began."""
    before, again = (
        app.cli.compare._PlannedRun("p", "arm", 1, planned(f"budget.proposals={number}"))
        for number in (4, proposals)
    )
    name = before.run_name("first")
    earlier = before.plan.new_run(name)
    runs = SimpleNamespace(named=lambda asked: earlier if asked == name else None)
    session = SimpleNamespace(
        ctx=None, store=SimpleNamespace(begin=lambda: nullcontext(SimpleNamespace(runs=runs)))
    )
    with pytest.MonkeyPatch.context() as patch, suppress(AttributeError):
        patch.setattr("app.engine.lifecycle.start", lambda *_: None)
        app.cli.compare._begin_run(cast(Any, session), comparison, again)


def compared(*problems: str) -> None:
    for name in problems:
        folder = Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "initial_program.py").write_text("x = 1\n")
        (folder / "evaluator.py").write_text("def evaluate(path):\n    return {'a': 1}\n")
    arms = {"a": ["search.strategy=map_elites"]}
    app.cli.compare._plan_runs(
        problems, arms, [1], 4, None, [], no_model=True, strict=False, local=True
    )


def named(path: str, make: Callable[[Path], Any]) -> Path:
    """Returns a path at which something was made."""
    found = Path(path)
    found.parent.mkdir(parents=True, exist_ok=True)
    make(found)
    return found


def written(path: str) -> None:
    with app.cli.export.new_file(Path(path)):
        pass


REPOSITORY = replace(
    problem(),
    seeds=(Program.of_files({"a.py": "x = 1\n", "b.json": "{}\n"}),),
    edit=EditRules(evolve=("*.py", "b.json")),
)


def evolving(path: str) -> None:
    """Reads the folder of a file, which was made."""
    folder = named(path, Path.touch).parent
    app.cli.program_folder.read_evolving(REPOSITORY, folder, "FILE")


def best_written(path: str) -> None:
    best = SimpleNamespace(program=Program("x = 1\n"), source="x = 1\n")
    app.cli.export._write_best(cast(Any, best), path)


def of_file(text: str) -> None:
    found = from_file(text, "f.yaml", foreign=configures_problem)
    assert found is not None
    resolved([found], {})


def revised(setting: str, value: Any, state: RunState = RunState.RUNNING) -> None:
    revision(begun(state=state), {setting: value})


@dataclass(frozen=True, slots=True)
class Row:
    """A refusal, with the words of its remedy and what carries it out.

    Attributes:
      given: A call that is refused.
      remedy: The words of the remedy.
      carried_out: A call in place of `given` for each alternative that the remedy names.
    """

    given: Callable[[], Any]
    remedy: str
    carried_out: Sequence[Callable[[], Any]]


def rows(
    call: Callable[..., Any], *given: tuple[Sequence[Any], str, Sequence[Sequence[Any]]]
) -> Iterable[Row]:
    """Yields a row for each refusal of a function: its arguments, words and other arguments."""
    for refused, remedy, carried_out in given:
        yield Row(
            lambda refused=refused: call(*refused),
            remedy,
            [lambda other=other: call(*other) for other in carried_out],
        )


SHELLS, ONE = ["true", "true"], ["true"]
ROWS = [
    Row(
        lambda: begun_again(proposals=9),
        "Give the settings of the earlier comparison, or another --name",
        [begun_again, lambda: begun_again(proposals=9, comparison="second")],
    ),
    Row(
        lambda: branched(speculate, ONE, SHELLS),
        "Give `-- COMMAND`, or -c TEXT once for each candidate",
        [lambda: branched(speculate, ONE), lambda: branched(speculate, shells=SHELLS)],
    ),
    Row(
        lambda: branched(speculate, shells=SHELLS, n=3),
        "Repeat -c, or give `-- COMMAND`",
        [
            lambda: branched(speculate, shells=["true"] * 3),
            lambda: branched(speculate, ONE, n=3),
        ],
    ),
    Row(
        lambda: branched(cascaded, shells=SHELLS),
        "Give one candidate, which runs again and again",
        [lambda: branched(cascaded, shells=ONE)],
    ),
    Row(
        lambda: branched(cascaded, ONE, fan_out="1,x"),
        "Give numbers above 0, as 1,2,4",
        [lambda: branched(cascaded, ONE, fan_out="1,2,4")],
    ),
    *rows(
        app.cli.compare._settings_of_arms,
        (
            ("", ["small"]),
            "Write NAME:KEY=VALUE, as small:search.islands=1",
            [("", ["small:search.islands=1"])],
        ),
        (
            ("", [f"small:{SPEED}"]),
            "Use --iterations, --seeds and --seed, or --set for all arms",
            [("map_elites", [])],
        ),
        (
            ("", ["_small:search.islands=1"]),
            "Use up to 40 letters, digits, dashes and underscores, a letter or digit first",
            [("", ["small_1-2:search.islands=1"])],
        ),
    ),
    *rows(
        equal_workers,
        (
            ("sandbox.places=1", "sandbox.places=2"),
            "Compare them in commands of their own",
            [("sandbox.places=1",), ("sandbox.places=2",)],
        ),
    ),
    *rows(
        compared,
        (
            ("a/p", "b/p"),
            "Compare them in commands of their own, or rename a folder",
            [("a/p",), ("b/p",), ("a/p", "b/q")],
        ),
    ),
    Row(
        lambda: app.cli.export._empty(str(named("x/file", Path.touch).parent)),
        "Name a folder that is new or empty",
        [
            lambda: app.cli.export._empty("new"),
            lambda: app.cli.export._empty(str(named("y/empty", Path.mkdir))),
        ],
    ),
    Row(
        lambda: app.cli.export.require_several(problem(), begun(), "--patch"),
        "Write the best one with `evoq export-best toy --out FILE`",
        [
            lambda: best_written("best.py"),
            lambda: app.cli.export.require_several(REPOSITORY, begun(), "--patch"),
        ],
    ),
    Row(
        lambda: app.cli.program_folder.read_evolving(REPOSITORY, Path("absent"), "FILE"),
        "Name a folder with files that evolve: *.py, b.json",
        [lambda: evolving("with/a.py"), lambda: evolving("other/b.json")],
    ),
    Row(
        lambda: evolving("above/notes.txt"),
        "Name the folder in which these patterns match files: *.py, b.json",
        [lambda: evolving("above/root/a.py")],
    ),
    Row(
        lambda: written(str(named("file", Path.touch))),
        "Name another file, or move this one away",
        [lambda: written("other"), lambda: [Path("file").rename("away"), written("file")]],
    ),
    Row(
        lambda: local_state.require_own(named("r/metrics.csv", Path.touch).parent, "--out"),
        "Name another folder, or move these files away",
        [
            lambda: local_state.require_own(Path("other"), "--out"),
            lambda: [
                Path("r/metrics.csv").rename("metrics.csv"),
                local_state.require_own(Path("r"), "--out"),
            ],
        ],
    ),
    *rows(
        app.cli.run.require_name,
        (
            ("-x",),
            "Use up to 100 letters, digits, dots, dashes and underscores, a letter or digit first, "
            "not digits alone",
            [("x-1",), ("1.x_y",), ("x" * 100,)],
        ),
        (("12",), "not digits alone", [("a12",)]),
    ),
    Row(
        lambda: possible(deployed=True, reproducible=True),
        "Leave out --detach, EVOQ_DATABASE_URL and EVOQ_REDIS_URL",
        [lambda: possible(reproducible=True)],
    ),
    Row(
        lambda: possible(deployed=True, detach=True, dashboard=True),
        "Leave out --detach, or use `evoq dashboard` or that of `evoq up`",
        [lambda: possible(dashboard=True), lambda: possible(deployed=True, detach=True)],
    ),
    Row(
        lambda: possible(detach=True),
        "Start `evoq up` in another terminal first, or leave --detach out",
        [with_workers, possible],
    ),
    Row(
        lambda: deployed_by(DATABASE_SESSION_URL="postgresql://h/d"),
        "Give the pooler's address as EVOQ_DATABASE_URL, or leave this one out",
        [
            lambda: deployed_by(
                DATABASE_SESSION_URL="postgresql://h/d",
                DATABASE_URL="postgresql://pooler/d",
                REDIS_URL="redis://h",
            ),
            deployed_by,
        ],
    ),
    Row(
        lambda: deployed_by(DATABASE_URL="postgresql://h/d"),
        "Give both for a deployment (EVOQ_REDIS_URL, or --set redis_url=…), or neither to run "
        "embedded",
        [
            lambda: deployed_by(DATABASE_URL="postgresql://h/d", REDIS_URL="redis://h"),
            lambda: find_target(
                [
                    from_assignments(["redis_url=redis://h"]),
                    from_environment({"EVOQ_DATABASE_URL": "postgresql://h/d"}),
                ]
            ),
            deployed_by,
        ],
    ),
    Row(
        lambda: deployed_by(DATABASE_URL="mysql://h/d", REDIS_URL="redis://h"),
        "Write postgresql://USER:PASSWORD@HOST:5432/NAME",
        [
            lambda: deployed_by(
                DATABASE_URL="postgresql://USER:PASSWORD@HOST:5432/NAME", REDIS_URL="redis://h"
            )
        ],
    ),
    *rows(
        revised,
        (
            ("search.islands", 3),
            "Leave it out, or start another run with it",
            [("search.top_programs", 3)],
        ),
        (
            ("sandbox.places", 3),
            "Pause the run, then give it to `evoq resume`",
            [("sandbox.places", 3, RunState.PAUSED)],
        ),
    ),
    *rows(
        of_file,
        (
            ("- a\n",),
            "Write sections such as `search:` with settings below them",
            [("search:\n  islands: 2\n",)],
        ),
        (
            ("max_generations: 5\nllm_providers: 7\n",),
            "Correct the file",
            [("max_generations: 5\nllm_providers: []\n",)],
        ),
        (
            ("search: {speed_of_light: 7}\n",),
            "docs/settings.md lists all",
            [("search: {islands: 2}\n",)],
        ),
        (
            ("prompts: {template_variations: {a: 1}}\n",),
            "Correct the value, or leave it out to have the default",
            [("prompts: {}\n",)],
        ),
    ),
    *rows(
        of_file,
        (
            ("search: {strategy: random}\nstrategy: {speed: 1}\n",),
            "Leave it out: the recipe has no parameters of its own",
            [("search: {strategy: random}\n",)],
        ),
        (
            ("prompts: {templates: {diff_user: '{nonsense}'}}\n",),
            "`docs/prompts.md` has every template and setting; `evoq prompt` shows them",
            [("prompts: {templates: {diff_user: '{current_program}'}}\n",)],
        ),
    ),
    Row(
        lambda: from_environment({"EVOQ_SEARCH__ISLAND": "2"}),
        "The closest known one is `search.islands`",
        [lambda: from_environment({"EVOQ_SEARCH__ISLANDS": "2"})],
    ),
    Row(
        lambda: from_environment({"EVOQ_DATABASE_ULR": "2"}),
        "The closest known one is EVOQ_DATABASE_URL",
        [lambda: from_environment({"EVOQ_DATABASE_URL": "2"})],
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.remedy[:40])
def test_a_remedy_that_is_carried_out_ends_the_refusal(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        row.given()
    assert row.remedy in caught.value.remedy, caught.value.remedy

    for carry_out in row.carried_out:
        carry_out()


FAILURES = {
    FailureKind.BAD_EDIT: (
        "Block 1 matches nowhere.",
        "line 3 is outside the EVOLVE-BLOCK regions",
    ),
    FailureKind.IMPORT_BLOCKED: ("line 3: this problem does not allow `os` to be imported",),
    FailureKind.RUNTIME: (
        "NameError: a",
        "ModuleNotFoundError: No module named 'scipy'",
        "more than 9 processes and threads at once",
    ),
    FailureKind.TIMEOUT: ("no result within 60 s", "more than 2.5 s of CPU time"),
    FailureKind.MEMORY: ("more than 512 MiB of memory",),
    FailureKind.NO_CODE: ("The reply was cut off at its token limit.",),
}
ENDS = [
    *((kind, detail) for kind in FailureKind for detail in FAILURES.get(kind, ("a detail",))),
    *((reason, "") for reason in CutReason),
]
RAISED = 1024


@pytest.mark.parametrize(("kind", "detail"), ENDS)
def test_a_running_run_takes_the_remedy_of_its_commonest_failure(
    kind: FailureKind | CutReason, detail: str
) -> None:
    remedy = explained(Commonest(kind, 3), 4, detail, max_tokens=4096).remedy
    commands = re.findall(r"`--set '?([^'`]+)'?`", remedy.replace("\n", " "))
    named = set(re.findall(r"\b(?:llm|sandbox|search|prompts|queue|budget)\.[a-z_]+", remedy))

    for assignment in commands:
        values = from_assignments([assignment]).values
        if set(values) & fixed().keys():
            assert remedy.startswith("Start another run"), remedy
            plan_run(problem(), SettingLayers((from_assignments([assignment]),)), local=True)
        else:
            revision(begun({"search": {"similarity": 0.9}}), values)
    for setting in named - fixed().keys():
        value = CHANGES.get(setting, RAISED)
        revision(begun(), {setting: value})
    if re.search(r"instructions|config\.yaml|problem\.yaml|requirements\.txt|markers", remedy):
        assert "another run" in remedy, remedy


def test_a_command_that_makes_a_problem_takes_its_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert status_of(["new", "p", "--format", "shinka"])
    [choice] = re.findall(r"Choose one of ([^.]+)\.", capsys.readouterr().err)
    for number, format in enumerate(choice.split(", ")):
        assert status_of(["new", f"p{number}", "--format", format]) == 0

    assert status_of(["new", "p0"])
    assert "Choose another name." in capsys.readouterr().err
    assert status_of(["new", "q"]) == 0


def test_a_validation_that_is_left_out_or_defined_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status_of(["new", "p"])
    evaluator = Path("p/evaluator.py")
    assert status_of(["evaluate", "p", "absent.py", "--validation"])
    assert "Leave it out, or define one" in capsys.readouterr().err

    assert status_of(["evaluate", "p", "absent.py"])
    assert "absent.py" in capsys.readouterr().err
    evaluator.write_text(f"{evaluator.read_text()}\n\ndef evaluate_validation(path):\n    pass\n")
    assert status_of(["evaluate", "p", "absent.py", "--validation"])
    assert "absent.py" in capsys.readouterr().err


def test_an_embedded_stack_is_kept_without_the_addresses_of_a_deployment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = {"EVOQ_DATABASE_URL": "postgresql://h/d", "EVOQ_REDIS_URL": "redis://h"}
    for name, address in variables.items():
        monkeypatch.setenv(name, address)
    assert status_of(["up"])
    remedy = capsys.readouterr().err
    assert "Unset EVOQ_DATABASE_URL and EVOQ_REDIS_URL to keep an embedded stack" in remedy

    for name in re.findall(r"EVOQ_\w+_URL", remedy):
        monkeypatch.delenv(name, raising=False)
    assert not find_target().deployed


def test_workers_inherit_a_variable_that_was_corrected_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(tmp_path, None, None)
    monkeypatch.setenv("EVOQ_SANDBOX__PLACES", "many")
    with pytest.raises(UsageError, match="Correct the variable, or leave it out"):
        embedded_stack(target)

    monkeypatch.setenv("EVOQ_SANDBOX__PLACES", "2")
    embedded_stack(target)
    monkeypatch.delenv("EVOQ_SANDBOX__PLACES")
    embedded_stack(target)


@pytest.mark.parametrize(
    ("variables", "remedy", "carried_out"),
    [
        (
            {"EVOQ_LLM__BASE_URL": "https://api.openai.com/v1"},
            "or another address in llm.base_url, of an endpoint that needs none",
            {"EVOQ_LLM__BASE_URL": "http://127.0.0.1:9/v1"},
        ),
        (
            {"EVOQ_LLM__PROVIDER": "openai"},
            "or llm.base_url for an endpoint that needs none",
            {"EVOQ_LLM__BASE_URL": "http://127.0.0.1:9/v1"},
        ),
        ({"EVOQ_LLM__PROVIDER": "openai"}, "set OPENAI_API_KEY", {"OPENAI_API_KEY": "a-key"}),
    ],
)
def test_a_missing_key_has_a_remedy_that_ends_the_finding(
    variables: dict[str, str],
    remedy: str,
    carried_out: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"EVOQ_LLM__MODEL": "m", **variables}.items():
        monkeypatch.setenv(name, value)
    target = Target(Path(), None, None)
    assert remedy in app.cli.doctor_models.check_model(target).remedy

    for name, value in carried_out.items():
        monkeypatch.setenv(name, value)
    assert remedy not in app.cli.doctor_models.check_model(target).remedy


OTHERWISE = {
    "Name runs, or give --older-than DAYS; `evoq list-runs` lists them.": "test_delete_command",
    "Give --yes to delete these runs without a question.": "test_delete_command",
    "Correct the name, or install the package that provides the recipe.": "test_remedies",
    "It is the setting `search.{}`.": "test_remedies",
    "The closest known one is `{}.{}`.": "test_remedies",
    "Write --set key=value, without spaces.": "test_remedies",
    "Name a setting of it, such as {}.KEY.": "test_remedies",
    "Correct the syntax; quote texts that hold `: ` or begin with a bracket.": "test_remedies",
    "Write {}.": "test_remedies",
    "Correct the value, or leave it out to have the default.": "test_remedies",
    "Choose one of {}.": "branches above, and the test of `evoq new`",
    "Choose another name.": "the test of `evoq new`",
    "Leave it out, or define one: docs/problems.md.": "the test of `evoq evaluate`",
    "Unset EVOQ_DATABASE_URL and EVOQ_REDIS_URL to keep an embedded stack.": "a test above",
    "Correct the variable, or leave it out.": "the test of workers above",
    "Nothing was added. If the file is damaged, export the run again.": "test_cli_run",
}
"""Remedies that are carried out elsewhere, or cannot be."""


@pytest.mark.parametrize(
    "module",
    [
        app.cli.branch,
        app.cli.compare,
        app.cli.delete,
        app.cli.evaluate,
        app.cli.export,
        app.client.local_state,
        app.cli.new,
        app.cli.program_folder,
        app.cli.run,
        app.client.target,
        app.cli.transfer,
        app.cli.up,
        app.config.changes,
        app.config.layers,
        app.config.lite,
        app.config.resolve,
    ],
    ids=lambda module: module.__name__,
)
def test_every_remedy_of_a_command_is_carried_out_here(module: Any) -> None:
    tried = [row.remedy for row in ROWS]

    for text in remedies(module):
        assert text in OTHERWISE or is_carried_out(text, tried), text
