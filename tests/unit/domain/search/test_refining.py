"""Whose children the refiner writes; pure."""

from dataclasses import replace

import pytest

from app.config.checks import require_refining
from app.config.layers import UsageError, from_assignments
from app.config.resolve import resolved
from app.config.rules import refining_of
from app.domain.operator import Brief, Draft, ProgramRecord, Prompt, Role
from app.domain.program import Program
from app.domain.search.refining import Refining, scheduled
from app.domain.search.refining import assigned as in_roles

PARENT = Program("x = 0\n")
OTHERS = [Program(f"x = {n}\n") for n in range(1, 5)]
ALWAYS = Refining(share=1.0, top=2, stalled=2)


def brief(
    *, parent: float | None = 5.0, others: tuple[float, ...] = (), children: tuple[float, ...] = ()
) -> Brief:
    shown = dict(zip((one.id for one in OTHERS), others, strict=False))
    programs = {one.id: one for one in (PARENT, *OTHERS)}
    known = {one: ProgramRecord(programs[one], fitness) for one, fitness in shown.items()}
    return Brief(
        "",
        "python",
        (Draft(7, 0, 0, 1, (PARENT.id,), tuple(shown)),),
        {**known, PARENT.id: ProgramRecord(PARENT, parent)},
        siblings=tuple(
            ProgramRecord(Program(f"y = {n}\n"), fitness) for n, fitness in enumerate(children)
        ),
        seed="42/7",
    )


def role(given: Brief, rules: Refining = ALWAYS) -> Role:
    return scheduled(given, rules).drafts[0].role


@pytest.mark.parametrize(
    ("others", "due"),
    [((), True), ((6.0, 4.0), True), ((5.0, 5.0, 5.0), True), ((6.0, 7.0, 1.0), False)],
)
def test_a_child_is_eligible_if_its_parent_is_at_the_top_of_its_island(others, due):
    assert (role(brief(others=others)) is Role.REFINER) == due


@pytest.mark.parametrize(
    ("children", "due"),
    [
        ((4.0, 5.0), True),
        ((4.0, 5.0, 9.0), True),  # the newest two
        ((4.0, 6.0), False),
        ((4.0,), False),
        ((), False),
    ],
)
def test_a_child_is_eligible_if_the_newest_children_were_no_better(children, due):
    far_below = (9.0, 9.0, 9.0)

    assert (role(brief(others=far_below, children=children)) is Role.REFINER) == due


def test_a_child_of_an_unmeasured_parent_is_not_eligible():
    assert role(brief(parent=None)) is Role.GENERATOR


def test_the_refiner_writes_the_same_share_of_eligible_children_each_time():
    rules = replace(ALWAYS, share=0.25)
    drawn = []
    for n in range(2000):
        given = replace(brief(), seed=f"42/{n}")
        assert role(given, rules) is role(given, rules)
        drawn.append(role(given, rules))

    assert 0.2 < drawn.count(Role.REFINER) / len(drawn) < 0.3
    assert role(brief(), replace(ALWAYS, share=0.0)) is Role.GENERATOR


def test_a_prompt_takes_the_role_of_its_draft_unless_it_has_one():
    given = scheduled(brief(), ALWAYS)
    prompts = [
        Prompt("", "write", 7),
        Prompt("", "plan", 7, Role.JUDGE),
        Prompt("", "another", 8),
    ]

    assigned = in_roles(given, prompts)

    assert [one.role for one in assigned] == [Role.REFINER, Role.JUDGE, Role.GENERATOR]
    assert in_roles(brief(), prompts) == prompts


@pytest.mark.parametrize(
    ("assignments", "share"),
    [
        ((), 0.0),
        (("llm.roles.refiner.model=big",), 0.5),
        (("llm.roles.refiner.model=big", "llm.refiner_share=0"), 0.0),
        (("llm.roles.judge.model=big",), 0.0),
        (("llm.refiner_share=0.1",), 0.1),
    ],
)
def test_without_a_refiner_no_child_is_refined_unless_a_share_is_set(assignments, share):
    settings = resolved([from_assignments(["llm.model=small", *assignments])], {}).settings

    assert refining_of(settings.llm).share == share


def test_a_refiner_whose_parents_cannot_be_seen_is_refused():
    assignments = ["llm.model=m", "llm.refiner_share=1", "llm.refiner_top=4"]

    with pytest.raises(UsageError, match=r"llm\.refiner_top"):
        require_refining(resolved([from_assignments(assignments)], {}).settings)
    require_refining(
        resolved([from_assignments([*assignments, "search.top_programs=4"])], {}).settings
    )
