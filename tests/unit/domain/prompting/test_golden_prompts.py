"""Every prompt of every operator that asks a model stays byte for byte as it is.

`golden_prompts.json` holds one digest for each kind of brief and operator, over all budgets of
tokens.  Where a change of the texts is meant, write the file anew:
`EVOQ_WRITE_GOLDEN=1 python -m pytest tests/unit/domain/prompting/test_golden_prompts.py`.
"""

import json
import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import (
    Ancestry,
    Brief,
    Completion,
    Direction,
    Draft,
    FailedChild,
    Operator,
    ProgramRecord,
    Prompt,
    Role,
    TriedDirection,
)
from app.domain.operators.complete import COMPLETE
from app.domain.operators.diff import DIFF
from app.domain.operators.directed import DIRECTED
from app.domain.operators.function import FUNCTION
from app.domain.operators.mend import MEND
from app.domain.operators.rewrite import REWRITE
from app.domain.program import Program
from app.domain.prompting.rules import PromptRules

GOLDEN = Path(__file__).with_name("golden_prompts.json")
BUDGETS = (0, *range(150, 1_400, 125), 32_000)
OPERATORS = (DIFF, REWRITE, FUNCTION, COMPLETE, MEND, DIRECTED)


def program(number: int, extra: str = "") -> Program:
    source = (
        "# EVOLVE-BLOCK-START\n"
        f"def priority(item, bins):\n    weight = {number} + item\n{extra}    return weight\n"
        "# EVOLVE-BLOCK-END\n\n\n"
        "def pack(items):\n    return [priority(item, 3) for item in items]\n"
    )
    return Program(source)


def record(number: int, fitness: float | None, **more: Any) -> ProgramRecord:
    extra = "".join(f"    weight -= {n}\n" for n in range(number % 5))
    return ProgramRecord(program(number, extra), fitness, **more)


PARENT = record(
    0,
    0.5,
    metrics={"speed": 2.0, "size": 3.25},
    features={"complexity": 40.0},
    artifacts={"stderr": "warning: {slow}", "trace": "line 3 " * 30, "key": "sk-" + "a1B2" * 12},
    changes="Change 1: '1' to '2'",
)
UNMEASURED_PARENT = replace(PARENT, fitness=None, metrics={}, artifacts={}, changes="")
OTHERS = (
    record(1, 0.9, metrics={"speed": 9.0}),
    record(2, 0.5000001, features={"complexity": 3.0}, changes="Short change"),
    record(3, None),
    record(4, 0.1, metrics={"speed": 1.0}, features={"complexity": 1.0}),
    replace(PARENT, program=Program(PARENT.program.source.replace("\n\n\n", "\n\n"))),
    record(6, 0.9, changes="x" * 200),
)
SIBLINGS = (
    record(11, 0.75, changes="Change 2"),
    record(12, 0.5, metrics={"speed": 1.0}),
    record(13, None, changes="y" * 900),
    record(14, 0.1, changes="not shown: the fourth"),
)
FAILED = FailedChild(
    Failure(FailureKind.RUNTIME, "ValueError: secret 42\nprogram line 3, in priority"),
    program(21),
    "Change 3",
    ("case 1", "case 2"),
    {"stdout": "printed", "failing_input": "[1, 2]"},
)
ANCESTRY = Ancestry(
    (record(31, 0.4, changes="Change 4"), record(32, 0.3), record(33, 0.2, changes="Change 5")),
    (
        FAILED,
        FailedChild(Failure(FailureKind.TIMEOUT, "10 s"), program(22), "Change 6"),
        FAILED,
    ),
)
TRIED = (
    TriedDirection(Direction("ties", "Break ties."), 0.6, 0.5),
    TriedDirection(Direction("", "Nothing."), failure=FailureKind.SYNTAX),
)
VARIED = {
    "template_variations": {"hello": ["Good day.\n", "Hello.\n", "Hi.\n"]},
    "templates": {
        "diff_user": "{hello}{top_programs}{evolution_history}{artifacts}{improvement_areas}",
        "full_rewrite_user": "{hello}{evolution_history}\n{current_program}{feature_coords}",
        "top_program": "{hello}{program_number} {score} {key_features}\n{program_snippet}\n",
        "ancestor": "{hello}{changes} {performance}\n",
        "previous_attempt": "{hello}{attempt_number} {outcome} {performance} {changes}\n",
        "failed_attempt": "{hello}{number} {failure} {detail}\n",
        "inspiration_program": "{hello}{program_type} {unique_features} {program_snippet}\n",
        "inspirations_section": "{hello}{inspiration_programs}",
    },
}


def brief_of(
    parent: ProgramRecord = PARENT, *, drafts: int = 1, full: bool = True, **settings: Any
) -> Brief:
    inspirations = OTHERS if full else ()
    known = {each.program.id: each for each in (parent, *inspirations)}
    first = Draft(7, 0, 0, 1, (parent.program.id,), tuple(known)[1:])
    further = Draft(8, 0, 0, 2, (OTHERS[0].program.id, OTHERS[3].program.id), first.inspirations)
    if not full:
        known[OTHERS[0].program.id], known[OTHERS[3].program.id] = OTHERS[0], OTHERS[3]
    return Brief(
        "Make it larger.",
        "python",
        (first, further)[:drafts],
        known,
        siblings=SIBLINGS if full else (),
        ancestry=ANCESTRY if full else Ancestry(),
        failed=FAILED if full else None,
        tried=TRIED if full else (),
        prompts=PromptRules(
            **{
                "num_top_programs": 3,
                "num_diverse_programs": 2,
                "function": "priority",
                "functions_per_prompt": 4,
                **settings,
            }
        ),
        repair_turns=1,
        seed="s",
    )


BRIEFS = {
    "everything": brief_of(),
    "two drafts": brief_of(drafts=2),
    "nothing but the parent": brief_of(full=False),
    "a parent without a fitness": brief_of(UNMEASURED_PARENT),
    "every number open": brief_of(num_top_programs=None, num_diverse_programs=None),
    "no other programs": brief_of(num_top_programs=0, num_diverse_programs=0),
    "no artifacts": brief_of(include_artifacts=False),
    "unfiltered": brief_of(artifact_security_filter=False, max_artifact_bytes=20),
    "messages of failures": brief_of(failure_messages=True),
    "simpler": brief_of(suggest_simplification_after_chars=10),
    "labels": brief_of(include_changes_under_chars=300, concise_implementation_max_lines=None),
    "variations": brief_of(drafts=2, **VARIED),
    "first variation": brief_of(use_template_stochasticity=False, **VARIED),
    "by task": replace(brief_of(drafts=2), by_task=True),
    "by task, refined": replace(
        brief_of(full=False),
        by_task=True,
        drafts=(replace(brief_of(full=False).drafts[0], role=Role.REFINER),),
    ),
    "from scratch": replace(brief_of(full=False), by_task=True),
    "every role": replace(brief_of(drafts=2), roles=frozenset(Role)),
}
REPLIES = {
    Role.STRATEGIST: "1. ties: Break ties by size.\n2. order: Sort first.",
    Role.ADVERSARY: "It divides by zero.",
    Role.GENERATOR: "No code, but a sentence.",
}
CHILD = f"```python\n{program(99).source}```"


def asked(operator: Operator, brief: Brief) -> list[Prompt]:
    """Returns every prompt of a conversation whose first replies are of no use."""
    conversation = operator.converse(brief)
    prompts: list[Prompt] = []
    try:
        batch = next(conversation)
        while True:
            prompts += batch
            again = sum(prompt.role is Role.GENERATOR for prompt in prompts) > len(brief.drafts)
            batch = conversation.send(
                [
                    Completion(CHILD if again else REPLIES[Role.GENERATOR])
                    if prompt.role is Role.GENERATOR
                    else Completion(REPLIES[prompt.role])
                    for prompt in batch
                ]
            )
    except StopIteration:
        return prompts


def digest(operator: Operator, brief: Brief) -> str:
    prompts = [
        prompt
        for budget in BUDGETS
        for prompt in asked(
            operator, replace(brief, prompts=replace(brief.prompts, max_prompt_tokens=budget))
        )
    ]
    # The digests are older than this field, which the tasks of agents alone have.
    text = repr(prompts).replace(", program=None", "")
    return f"{len(prompts)} prompts: {sha256(text.encode()).hexdigest()[:24]}"


@pytest.mark.parametrize("kind", BRIEFS)
def test_prompts_are_byte_for_byte_as_they_were(kind: str) -> None:
    digests = {operator.name: digest(operator, BRIEFS[kind]) for operator in OPERATORS}
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("EVOQ_WRITE_GOLDEN"):
        golden[kind] = digests
        GOLDEN.write_text(json.dumps(golden, indent=2) + "\n")
    assert digests == golden[kind]
