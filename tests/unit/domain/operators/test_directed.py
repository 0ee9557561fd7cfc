"""The operator `directed`: one question for a cohort, and a child in each of its directions."""

from dataclasses import replace

import pytest

from app.adapters.model.providers.scripted import ScriptedModel
from app.domain.operator import Brief, Child, Direction, Offspring, Prompt, Role, TriedDirection
from app.domain.operators.directed import DIRECTED
from app.domain.prompting.directions import packaged
from tests.unit.domain.operators.test_diff_and_rewrite import BRIEF, held

ADVISED = replace(BRIEF, roles=frozenset((Role.STRATEGIST, Role.ADVERSARY)))
STRATEGIST = replace(BRIEF, roles=frozenset((Role.STRATEGIST,)))


class Team:
    """Answers in each role; the builder writes the number that its direction names."""

    def __init__(
        self,
        directions: str = "1. value: Set x to 7.\n2. value: Set x to 8.\n",
        critique: str = "x is too small.",
        fix: str = "```python\nx = 99\n```",
    ) -> None:
        self.asked: list[Prompt] = []
        self._directions, self._critique, self._fix = directions, critique, fix

    def answer(self, prompt: Prompt) -> str:
        self.asked.append(prompt)
        if prompt.role is Role.STRATEGIST:
            return self._directions
        if prompt.role is Role.ADVERSARY:
            return self._critique
        if "# Its critique" in prompt.user:
            return self._fix
        return f"```python\nx = {prompt.user.split('Set x to ')[-1].split('.')[0]}\n```"

    def children(self, brief: Brief) -> list[Child]:
        return held(DIRECTED, ScriptedModel(self.answer), brief)

    @property
    def roles(self) -> list[Role]:
        return [prompt.role for prompt in self.asked]


def sources(children: list[Child]) -> list[str]:
    return [child.program.source for child in children if isinstance(child, Offspring)]


def test_each_child_follows_its_own_direction() -> None:
    team = Team()

    assert sources(team.children(STRATEGIST)) == ["x = 7\n", "x = 8\n"]
    assert team.roles == [Role.STRATEGIST, Role.GENERATOR, Role.GENERATOR]
    assert [prompt.direction for prompt in team.asked] == [
        None,
        Direction("value", "Set x to 7.", "scripted"),
        Direction("value", "Set x to 8.", "scripted"),
    ]


def test_without_a_strategist_the_directions_are_packaged() -> None:
    team = Team()
    team.children(BRIEF)

    assert team.roles == [Role.GENERATOR, Role.GENERATOR]
    assert [prompt.direction for prompt in team.asked] == [packaged(4), packaged(5)]
    assert [packaged(n).text in team.asked[n - 4].user for n in (4, 5)] == [True, True]


def test_what_a_strategist_leaves_out_is_packaged() -> None:
    team = Team("1. value: Set x to 7.")
    team.children(STRATEGIST)

    assert [prompt.direction for prompt in team.asked[1:]] == [
        Direction("value", "Set x to 7.", "scripted"),
        packaged(5),
    ]


def test_a_strategist_is_asked_for_as_many_as_there_are_and_shown_what_was_tried() -> None:
    team = Team()
    tried = (TriedDirection(Direction("book", "Learn openings."), 3.0, 1.0),)
    team.children(replace(STRATEGIST, tried=tried))

    question = team.asked[0].user
    assert "Propose 2 direction(s)" in question
    assert "- book: Learn openings. → fitness 3, +2 to its parent" in question
    assert "x = 1" in question


def test_a_critique_is_answered_by_a_fix_that_replaces_the_child() -> None:
    team = Team()

    children = team.children(ADVISED)

    assert sources(children) == ["x = 99\n", "x = 99\n"]
    assert team.roles == [
        Role.STRATEGIST,
        *[Role.GENERATOR] * 2,
        *[Role.ADVERSARY] * 2,
        *[Role.GENERATOR] * 2,
    ]
    assert "x = 7\n" in team.asked[3].user
    assert "Set x to 7." in team.asked[3].user
    assert "x is too small." in team.asked[5].user
    assert isinstance(children[0], Offspring)
    assert "'x = 1' to 'x = 99'" in children[0].changes, "the changes are those to the parent"


@pytest.mark.parametrize("critique", ["NO FAULT", "**No fault.**\n", ""])
def test_a_child_without_a_fault_is_not_fixed(critique: str) -> None:
    team = Team(critique=critique)

    assert sources(team.children(ADVISED)) == ["x = 7\n", "x = 8\n"]
    assert len(team.asked) == 5


@pytest.mark.parametrize("fix", ["I cannot do that.", "```python\nx = (\n```", ""])
def test_a_fix_that_cannot_be_used_leaves_the_child_as_it_is(fix: str) -> None:
    assert sources(Team(fix=fix).children(ADVISED)) == ["x = 7\n", "x = 8\n"]


def test_a_child_that_could_not_be_read_is_not_criticised() -> None:
    team = Team("1. Set x to (.\n2. Set x to 8.")

    assert sources(team.children(ADVISED)) == ["x = 99\n"]
    assert team.roles.count(Role.ADVERSARY) == 1


@pytest.mark.parametrize("repair_turns", [0, 1, 2])
@pytest.mark.parametrize(
    "roles", [(), (Role.STRATEGIST,), (Role.ADVERSARY,), (Role.STRATEGIST, Role.ADVERSARY)]
)
def test_a_conversation_asks_no_more_than_budgets_set_aside(
    roles: tuple[Role, ...], repair_turns: int
) -> None:
    asked: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        """Answers as badly as can be: every repair turn is needed, and every child has a fault."""
        asked.append(prompt)
        if prompt.role is not Role.GENERATOR:
            return "It is bad."
        before = sum(one.sample == prompt.sample for one in asked if one.role is Role.GENERATOR)
        return f"```python\nx = {prompt.sample}\n```" if before > repair_turns else ""

    brief = replace(BRIEF, roles=frozenset(roles), repair_turns=repair_turns)
    assert len(sources(held(DIRECTED, ScriptedModel(answer), brief))) == 2

    most = DIRECTED.most_completions(repair_turns, roles)
    spared = Role.STRATEGIST in roles  # one question for two drafts
    assert len(asked) == most * len(brief.drafts) - spared
