"""The commonest failure of a run: which it is, its reason and its remedy."""

import re

import pytest

from app.config.section import fields_of
from app.config.settings import RunSettings
from app.domain.evaluation import FailureKind
from app.domain.remedies import Commonest, commonest, explained
from app.domain.search.cohort import CutReason

CASES = {
    FailureKind.NO_CODE: ("No fenced program.\nIt begins: Sure!", "Sure!", "rewrite"),
    FailureKind.BAD_EDIT: ("Block 1 of 1 matches nowhere.", "matches nowhere", "{rewrite: 1}"),
    FailureKind.UNCHANGED: ("The program equals its parent.", "equals", "llm.temperature"),
    FailureKind.REFUSED: ("The model declined: no", "declined", "instructions"),
    FailureKind.TOO_LONG: ("The program has 9 characters", "9", "max_code_length"),
    FailureKind.SYNTAX: ("line 3: invalid syntax", "line 3", "{rewrite: 1}"),
    FailureKind.IMPORT_BLOCKED: (
        "line 3: this problem does not allow `os` to be imported: denied", "os", "Allow `os`",
    ),
    FailureKind.RUNTIME: ("NameError: name 'np' is not defined", "NameError", "`mend`"),
    FailureKind.INVALID_SIGNATURE: ("f takes (x)", "f takes", "`mend`"),
    FailureKind.TIMEOUT: ("no result within 60 s", "60 s", "sandbox.wall_seconds=120"),
    FailureKind.MEMORY: ("more than 512 MiB of memory", "512", "sandbox.memory_mib=1024"),
    FailureKind.OUTPUT_LIMIT: ("more than 9 bytes of output", "9 bytes", "sandbox.output_bytes"),
    FailureKind.INVALID_RESULT: ("nan is no score", "nan", "evoq show"),
    FailureKind.SANDBOX_VIOLATION: ("a system call", "system call", "instructions"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FailureKind)
def test_each_failure_has_its_reason_and_a_remedy(kind: FailureKind) -> None:
    detail, reason, remedy = CASES[kind]
    explanation = explained(Commonest(kind, 3), 4, detail, max_tokens=4096)

    assert reason in explanation.reason
    assert remedy in explanation.remedy
    assert explanation.text.startswith(f"3 of 4 proposals ended as {kind.value}: ")
    assert "\n" not in explanation.text


@pytest.mark.parametrize("kind", [FailureKind.NO_CODE, FailureKind.BAD_EDIT])
def test_replies_that_are_cut_off_name_the_limit_and_one_that_is_larger(kind: FailureKind) -> None:
    detail = "The reply was cut off at its token limit. The reply holds nothing but reasoning."
    explanation = explained(Commonest(kind, 20), 20, detail, max_tokens=4096)

    assert "llm.max_tokens (4096 now)" in explanation.remedy
    assert "--set llm.max_tokens=16384" in explanation.remedy
    assert "llm.reasoning_effort" in explanation.remedy


@pytest.mark.parametrize("reason", [CutReason.DUPLICATE, CutReason.SIMILAR])
def test_programs_that_are_known_are_explained_too(reason: CutReason) -> None:
    most = commonest({"no_code": 3}, {reason.value: 9, "below_threshold": 20})

    assert most == Commonest(reason, 9)
    assert explained(most, 40, "", max_tokens=None).remedy


def test_a_reason_that_holds_for_a_part_says_for_how_many() -> None:
    most = Commonest(FailureKind.RUNTIME, 9)
    explanation = explained(most, 20, "NameError: a\nline 2", max_tokens=None, alike=4)

    assert "9 of 20 proposals ended as runtime, 4 of them: NameError: a." in explanation.text


def test_two_of_a_kind_are_not_explained() -> None:
    assert commonest({"no_code": 2, "syntax": 1}, {"duplicate": 2}) is None
    assert commonest({"no_code": 3, "syntax": 1}, {"duplicate": 2}) is not None
    assert commonest({}, {}) is None


def test_a_module_that_is_missing_in_the_sandbox_is_named() -> None:
    detail = "ModuleNotFoundError: No module named 'scipy'"
    explanation = explained(Commonest(FailureKind.RUNTIME, 3), 3, detail, max_tokens=None)

    assert "`scipy` is not installed" in explanation.remedy
    assert "requirements.txt" in explanation.remedy


def test_every_setting_that_a_remedy_names_exists() -> None:
    details = [*(detail for detail, _, _ in CASES.values()), "cut off at its token limit"]
    details += ["more than 2 s of CPU time", "more than 9 processes and threads at once"]
    texts = [
        explained(Commonest(kind, 3), 3, detail, max_tokens=1).remedy
        for kind in FailureKind
        for detail in details
    ]
    sections = RunSettings.model_fields
    named = set(re.findall(r"\b(llm|sandbox|search)\.(\w+)", " ".join(texts)))
    assert len(named) > 7
    for section, key in named:
        settings = sections[section].annotation
        assert settings is not None
        assert key in fields_of(settings), f"{section}.{key}"
