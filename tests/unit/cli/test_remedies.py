"""Each remedy of a refused setting is carried out, and the refusal is gone."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import app.client.adjustments
import app.client.requirements
import app.client.setting_layers
import app.config.checks
import app.config.fleet_checks
import app.config.mix
from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.overflow import overflow
from app.client.plan import RunPlan, plan_run
from app.client.setting_layers import (
    SettingLayers,
    load_problem,
    named_problem,
    read_layers,
    with_templates,
)
from app.config.checks import require_owned_by_run
from app.config.layers import Choices, UsageError, from_assignments, from_environment
from app.domain.evaluation import Cases
from app.domain.problem import Problem
from app.domain.program import Program
from tests.engine.toy import problem
from tests.unit.cli import remedies as files
from tests.unit.cli.remedies import is_carried_out, remedies

MODEL = "llm.model=m"
TWO = "llm.models=[{name: a}, {name: b}]"
PYTHON = replace(problem(), seeds=(Program("def f(x):\n    return 1.0 * x + 2.0\n"),))
GAME = replace(PYTHON, players=2)
TEXT = replace(PYTHON, seeds=(Program("a text\n", "text"),), language="text")
STAGES = replace(PYTHON, stages=("quick", "full"), cases=Cases())
VENDOR = "llm.base_url=https://api.openai.com/v1"
A, B, ANY = "{name: a, fleet: 'gpu:a'}", "{name: b, fleet: 'gpu:b'}", "{name: c}"
AT_A, AT_A_AND_B = "queue.fleets=['gpu:a']", "queue.fleets=['gpu:a', 'gpu:b']"


@dataclass(frozen=True, slots=True)
class Row:
    """A refusal, with the beginning of its remedy and what carries it out.

    Attributes:
      given: Settings that are refused.
      remedy: Words of the remedy.
      carried_out: Settings in place of `given`, once for each alternative that the remedy names.
      local: Whether a command brings the workers, which serve every fleet.
    """

    given: Sequence[str]
    remedy: str
    carried_out: Sequence[Sequence[str]]
    of: Problem = PYTHON
    local: bool = True


AGENT = "search.operators={agent: 1}"
COMMAND = "agent.command=[cat]"
ROWS = [
    Row(
        [MODEL, AGENT],
        'Give one, as --set \'agent.command=["my-agent", "{task}"]\'',
        [[MODEL, AGENT, "agent.command=[my-agent, '{task}']"]],
    ),
    Row(
        [AGENT, COMMAND],
        "Name a model, as --set llm.model=NAME, or set agent.network=false for an agent",
        [[AGENT, COMMAND, MODEL], [AGENT, COMMAND, "agent.network=false"]],
    ),
    Row(
        [MODEL, AGENT, COMMAND, "budget.tokens=90000"],
        "Raise it, or lower agent.tokens",
        [
            [MODEL, AGENT, COMMAND, "budget.tokens=900000"],
            [MODEL, AGENT, COMMAND, "budget.tokens=90000", "agent.tokens=30000"],
        ],
    ),
    Row(
        [MODEL, "llm.roles.agent.model=a"],
        "Give `agent` a weight in search.operators, and its agents a network; or leave the role",
        [[MODEL, "llm.roles.agent.model=a", AGENT, COMMAND], [MODEL]],
    ),
    Row(
        [MODEL, "llm.roles.agent.model=a", AGENT, COMMAND, "agent.network=false"],
        "Give `agent` a weight in search.operators, and its agents a network; or leave the role",
        [["llm.roles.agent.model=a", AGENT, COMMAND], [AGENT, COMMAND, "agent.network=false"]],
    ),
    Row(
        [MODEL, "llm.max_tokens=null", "budget.tokens=900000"],
        "Set llm.max_tokens, or leave the cap out",
        [[MODEL, "llm.max_tokens=100", "budget.tokens=900000"], [MODEL, "llm.max_tokens=null"]],
    ),
    Row(
        [MODEL, "budget.cost_usd=5"],
        "Set llm.usd_per_million_prompt_tokens and llm.usd_per_million_completion_tokens",
        [
            [
                *(MODEL, "budget.cost_usd=5", "llm.usd_per_million_prompt_tokens=1"),
                "llm.usd_per_million_completion_tokens=1",
            ],
            [MODEL, "budget.tokens=900000"],
        ],
    ),
    Row(
        [MODEL, "budget.tokens=5000"],
        "Raise it, or lower llm.max_tokens",
        [
            [MODEL, "budget.tokens=9000"],
            [MODEL, "budget.tokens=5000", "llm.max_tokens=2000"],
            [MODEL, "budget.tokens=5000", "llm.repair_turns=0"],
        ],
    ),
    Row(["search.gates=[0.5, 0.5]"], "Leave the others out", [["search.gates=[0.5]"]], of=STAGES),
    Row(
        ["search.strategy=tournament"],
        "Choose another recipe",
        [["search.strategy=map_elites"]],
    ),
    Row([], "Set search.strategy=tournament", [["search.strategy=tournament"]], of=GAME),
    Row(
        [MODEL, "llm.roles.refiner.model=r", "llm.refiner_top=5"],
        "Lower it, or raise search.top_programs",
        [
            [MODEL, "llm.roles.refiner.model=r", "llm.refiner_top=3"],
            [MODEL, "llm.roles.refiner.model=r", "llm.refiner_top=5", "search.top_programs=5"],
        ],
    ),
    Row(
        [MODEL, "llm.adaptive_weights=true"],
        "Leave it out, or name at least two models with weights in llm.models",
        [[MODEL], [TWO, "llm.adaptive_weights=true"]],
    ),
    Row(
        [TWO, "llm.adaptive_weights=true", "search.operators={tune: 1}"],
        "Leave it out, or give an operator that asks one a weight in search.operators",
        [
            [TWO, "search.operators={tune: 1}"],
            [TWO, "llm.adaptive_weights=true", "search.operators={diff: 1}"],
        ],
    ),
    Row(
        ["llm.models=[{name: a}, {name: a}]", "llm.adaptive_weights=true"],
        "Leave llm.adaptive_weights out, or one of the two",
        [["llm.models=[{name: a}, {name: a}]"], [TWO, "llm.adaptive_weights=true"]],
    ),
    Row(
        ["llm.roles.generator.model=g"],
        "Set llm.model, and search.operators to some that ask a model, or leave the role out",
        [[MODEL, "llm.roles.generator.model=g", "search.operators={diff: 1}"], []],
    ),
    Row(
        [MODEL, "llm.roles.refiner.model=r", "llm.refiner_share=0"],
        "llm.refiner_share",
        [[MODEL, "llm.roles.refiner.model=r", "llm.refiner_share=0.5"], [MODEL]],
    ),
    Row(
        [MODEL, "llm.roles.strategist.model=s"],
        "Give `directed` a weight in search.operators, or leave the role out",
        [[MODEL, "llm.roles.strategist.model=s", "search.operators={directed: 1}"], [MODEL]],
    ),
    Row(
        [MODEL, "llm.roles.embedder.model=e"],
        "Set llm.roles.embedder.model, and search.similarity",
        [[MODEL, "llm.roles.embedder.model=e", "search.similarity=0.99"], [MODEL]],
    ),
    Row(
        [MODEL, "llm.roles.judge.model=j"],
        "Set llm.feedback=true and a model of the role, or leave the role out",
        [[MODEL, "llm.roles.judge.model=j", "llm.feedback=true"], [MODEL]],
    ),
    Row(
        ["llm.feedback=true"],
        "Name a model, as --set llm.model=NAME or --set llm.roles.judge.model=NAME",
        [["llm.feedback=true", MODEL], ["llm.feedback=true", "llm.roles.judge.model=j"]],
    ),
    Row(
        ["search.operators={crossover: 1}"],
        "Choose among ",
        [["search.operators={mutate: 1}"], ["search.operators={tune: 1}"]],
    ),
    Row(
        ["search.operators={tune: -1}"],
        "Give weights of 0 or more",
        [["search.operators={tune: 0, mutate: 1}"]],
    ),
    Row(
        ["search.operators={tune: 0}"],
        "Give one of them a weight above 0",
        [["search.operators={tune: 1}"]],
    ),
    Row(
        ["search.operators={diff: 1}"],
        "Name a model, as --set llm.model=NAME, or use tune and mutate",
        [["search.operators={diff: 1}", MODEL], ["search.operators={tune: 1, mutate: 1}"]],
    ),
    Row(
        ["search.operators={search: 1}"],
        "Name it, as --set nested.strategy=reflexion",
        [["search.operators={search: 1}", "nested.strategy=reflexion"]],
    ),
    Row(
        ["search.operators={mutate: 1}", "nested.strategy=reflexion"],
        "Give it a weight in search.operators, or leave search.operators out",
        [
            ["search.operators={search: 1, mutate: 1}", "nested.strategy=reflexion"],
            ["nested.strategy=reflexion"],
        ],
    ),
    Row(
        ["nested.proposals=5"],
        "Set nested.strategy to their recipe, or leave it out",
        [["nested.proposals=5", "nested.strategy=reflexion"], []],
    ),
    Row(
        ["nested.strategy=reflexion", "budget.proposals=1"],
        "Raise it",
        [["nested.strategy=reflexion", "budget.proposals=9"]],
    ),
    Row(
        ["nested.strategy=reflexion", "queue.trials_at_once=2"],
        "Leave it out, or set sandbox.places",
        [["nested.strategy=reflexion"], ["nested.strategy=reflexion", "sandbox.places=2"]],
    ),
    Row(
        [MODEL, "search.operators={complete: 1}"],
        "Name it, as --set prompts.function=NAME",
        [
            [MODEL, "search.operators={complete: 1}", "prompts.function=f"],
            [MODEL, "search.operators={diff: 1}"],
        ],
        of=replace(
            PYTHON, seeds=(Program("def f(x):\n    return x\n\n\ndef g(x):\n    return x\n"),)
        ),
    ),
    Row([], "Name a model, as --set llm.model=NAME", [[MODEL]], of=TEXT),
    Row(
        [MODEL, "search.operators={mutate: 1}"],
        "Leave search.operators out, or give one that asks the model a weight, as "
        "--set 'search.operators={rewrite: 1}'",
        [[MODEL], [MODEL, "search.operators={rewrite: 1}"]],
        of=TEXT,
    ),
    Row(
        [MODEL, "search.operators={diff: 1}"],
        "or use an operator that writes the program, as --set 'search.operators={rewrite: 1}'",
        [[MODEL, "search.operators={rewrite: 1}"]],
        of=replace(PYTHON, seeds=(Program("# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\n"),)),
    ),
    Row(
        [MODEL, "llm.provider=openai"],
        "Set the variable, or llm.base_url for an endpoint that needs none",
        [
            [MODEL, "llm.provider=openai", "llm.base_url=http://127.0.0.1:8/v1"],
            ["OPENAI_API_KEY", MODEL, "llm.provider=openai"],
        ],
    ),
    Row(
        ["llm.models=[{name: a, provider: openai}]", "llm.base_url=http://127.0.0.1:8/v1"],
        "or leave out the provider openai of a, which then is asked at http://127.0.0.1:8/v1, or "
        "give it a base_url of its own",
        [
            ["llm.models=[{name: a}]", "llm.base_url=http://127.0.0.1:8/v1"],
            ["llm.models=[{name: a, provider: openai, base_url: 'http://127.0.0.1:9/v1'}]"],
        ],
    ),
    Row(
        [MODEL, VENDOR],
        "or another address in llm.base_url, of an endpoint that needs none",
        [[MODEL, "llm.base_url=http://127.0.0.1:8/v1"], ["OPENAI_API_KEY", MODEL, VENDOR]],
    ),
    Row(
        ["search.strategy=map_elite"],
        "Correct the name",
        [["search.strategy=map_elites"]],
    ),
    Row(
        ["strategy.patients=3"],
        "The closest known one is `strategy.patience`",
        [["strategy.patience=3"]],
    ),
    Row(
        ["strategy.top_programs=3"],
        "It is the setting `search.top_programs`",
        [["search.top_programs=3"]],
    ),
    Row(
        ["search.islands=0"],
        "Correct the value, or leave it out to have the default",
        [["search.islands=2"], []],
    ),
    Row(["search.island=2"], "The closest known one is `search.islands`", [["search.islands=2"]]),
    Row(["islands=2"], "The closest known one is `search.islands`", [["search.islands=2"]]),
    Row(["search=2"], "Name a setting of it, such as search.KEY", [["search.seed=2"]]),
    Row(["search.islands"], "Write --set key=value, without spaces", [["search.islands=2"]]),
    Row(
        ["search.operators={tune:1}"],
        "Write tune: 1",
        [["search.operators={tune: 1}"]],
    ),
    Row(["search.operators={tune: 1"], "Correct the syntax", [["search.operators={tune: 1}"]]),
    Row(
        [f"llm.models=[{A}, {B}]", AT_A_AND_B, "search.islands=1"],
        "Leave the others out, or raise search.islands",
        [
            [f"llm.models=[{A}]", AT_A, "search.islands=1"],
            [f"llm.models=[{A}, {B}]", AT_A_AND_B, "search.islands=2"],
        ],
        local=False,
    ),
    Row(
        [f"llm.models=[{A}, {B}]", "llm.feedback=true"],
        "Name judges of one fleet in llm.roles.judge.models, or one judge in llm.roles.judge.model",
        [
            [f"llm.models=[{A}, {B}]", "llm.feedback=true", f"llm.roles.judge.models=[{B}]"],
            [f"llm.models=[{A}, {B}]", "llm.feedback=true", "llm.roles.judge.model=j"],
        ],
        local=False,
    ),
    Row(
        [f"llm.models=[{A}]", "llm.roles.refiner={model: r, fleet: 'gpu:r'}"],
        "Leave it out: a model without a fleet is asked by the workers of any",
        [[f"llm.models=[{A}]", "llm.roles.refiner={model: r}"]],
        local=False,
    ),
    Row(
        [f"llm.models=[{A}]", AT_A_AND_B, "search.islands=2"],
        "Give a model of llm.models this `fleet`, or name one without a fleet",
        [
            [f"llm.models=[{A}, {B}]", AT_A_AND_B, "search.islands=2"],
            [f"llm.models=[{A}, {ANY}]", AT_A_AND_B, "search.islands=2"],
        ],
        local=False,
    ),
    Row(
        [f"llm.models=[{A}, {B}]", AT_A],
        "Name the fleet in queue.fleets, too, or leave those of the kind `gpu` out there",
        [
            [f"llm.models=[{A}, {B}]", AT_A_AND_B, "search.islands=2"],
            [f"llm.models=[{A}, {B}]", "queue.fleets=['cpu:big']"],
        ],
        local=False,
    ),
]


def planned(row: Row, given: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> RunPlan:
    """Plans a run; a word without `=` that looks like a variable is set instead."""
    variables = [name for name in given if re.fullmatch(r"[A-Z_]+", name)]
    for name in variables:
        monkeypatch.setenv(name, "a-key")
    layers = SettingLayers((from_assignments([one for one in given if one not in variables]),))
    try:
        return plan_run(row.of, layers, local=row.local)
    finally:
        for name in variables:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:7/v1")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.remedy[:40])
def test_a_remedy_that_is_carried_out_ends_the_refusal(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError) as caught:
        planned(row, row.given, monkeypatch)
    assert row.remedy in caught.value.remedy

    for given in row.carried_out:
        planned(row, given, monkeypatch)


def written(name: str, contents: bytes = b"x = 1\n") -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)
    return name


def templates(folder: str, *names: str, contents: bytes = b"Improve it.\n") -> None:
    for name in names:
        written(f"{folder}/{name}", contents)
    with_templates(Choices("--set", {"prompts.template_dir": folder}), Path())


def configured(contents: bytes | None = None) -> None:
    """Reads a configuration, which is not there where it has no contents."""
    read_layers((), "absent.yaml" if contents is None else written("c.yaml", contents))


def loaded(name: str) -> None:
    written("there/initial_program.py")
    written("there/evaluator.py", b"def evaluate(path):\n    return {'a': 1}\n")
    load_problem([Path(name)], SettingLayers(()))


def experiment(*problem: str) -> None:
    """Names a problem beside a configuration of FunSearch-Lite, or by that alone."""
    file = written("lite.yaml", b"task_name: nowhere\nmax_generations: 2\npopulation_size: 4\n")
    named_problem(problem or [file], file if problem else None)


def edited(body: str) -> None:
    program = Program(f"# EVOLVE-BLOCK-START\n{body}# EVOLVE-BLOCK-END\n")
    layers = SettingLayers((from_assignments([MODEL, "search.operators={diff: 1}"]),))
    plan_run(replace(PYTHON, seeds=(program,)), layers, local=True)


FILES = [
    files.Row(
        lambda: templates("absent"),
        "Name a folder that holds templates such as diff_user.txt",
        [lambda: templates("mine", "diff_user.txt")],
    ),
    files.Row(
        lambda: templates("mine", "other.md"),
        "each with the ending .txt",
        [lambda: templates("mine", "diff_user.txt")],
    ),
    files.Row(
        lambda: templates("mine", "diff_user.txt", contents=b"\xff"),
        "It must be text in UTF-8",
        [lambda: templates("mine", "diff_user.txt")],
    ),
    files.Row(
        lambda: configured(b"\xff"),
        "Check the path; it must be text in UTF-8",
        [lambda: configured(b"search: {islands: 2}\n")],
    ),
    files.Row(
        configured,
        "Check the path; it must be text in UTF-8",
        [lambda: configured(b"search: {islands: 2}\n")],
    ),
    files.Row(
        lambda: loaded("their"),
        "Check the spelling of the path",
        [lambda: loaded("there")],
    ),
    files.Row(
        experiment,
        "Name the problem: evoq run PROBLEM --config lite.yaml",
        [lambda: experiment("there")],
    ),
    files.Row(
        lambda: edited(""),
        "Put lines between the markers, or use an operator that writes the program",
        [lambda: edited("x = 1\n")],
    ),
]


@pytest.mark.parametrize("row", FILES, ids=lambda row: row.advice[:40])
def test_a_remedy_of_a_file_that_is_carried_out_ends_the_refusal(
    row: files.Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row.check()


OTHERWISE = {
    "Leave it out, and set {} where the workers of the queue {} are started (with Compose: in "
    "{}).": "the test below",
}
"""Remedies that are carried out elsewhere."""


@pytest.mark.parametrize(
    "module",
    [
        *(app.config.checks, app.config.fleet_checks, app.config.mix),
        *(app.client.setting_layers, app.client.adjustments, app.client.requirements),
    ],
)
def test_every_remedy_of_a_module_that_checks_settings_is_carried_out_here(module: Any) -> None:
    tried = [*(row.remedy for row in ROWS), *(row.advice for row in FILES)]

    for text in remedies(module):
        assert text in OTHERWISE or is_carried_out(text, tried), text


def test_a_setting_of_the_workers_is_set_where_they_start() -> None:
    with pytest.raises(UsageError) as caught:
        require_owned_by_run([from_assignments(["sandbox.cpus=2"])])
    variable = re.search(r"set (EVOQ_\w+)", caught.value.remedy)

    assert variable is not None
    assert from_environment({variable.group(1): "2"}).values == {"sandbox.cpus": 2}
    assert require_owned_by_run([from_environment({variable.group(1): "2"})])


def test_the_remedy_of_a_full_context_leaves_room_for_the_prompt() -> None:
    words = (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
        "(904 in the messages, {reply} in the completion)."
    )
    found = overflow(400, ErrorBody(words.format(reply=4096)), 4096)
    assert found is not None
    assert found.room == 0
    shorter = int((4096 - 904) * 0.9)  # as `LongestPrompt` says it

    after = overflow(400, ErrorBody(words.format(reply=shorter)), shorter)
    assert after is not None
    assert after.room is not None
    assert after.room > 904
