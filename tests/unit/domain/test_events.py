"""Events: their typed facts, and how the ledger stores them."""

import json

import pytest

from app.domain.evaluation import FailureKind
from app.domain.events import (
    Admitted,
    Broken,
    Cancelled,
    Changed,
    Closed,
    Crowned,
    Cut,
    Directed,
    Entered,
    EventKind,
    Fact,
    Failed,
    Finished,
    Founded,
    GateTested,
    Improved,
    Moved,
    Noticed,
    Paused,
    Played,
    Refused,
    Regridded,
    Rerated,
    Resumed,
    Scored,
    Started,
    Validated,
    document,
    read_fact,
    stalled_for,
)
from app.domain.operator import Role
from app.domain.problem import Axis
from app.domain.search.cohort import CutReason

PROGRAM = "f" * 64
OTHER = "b1" * 32
OFFERED = {
    "proposal": 7,
    "program": PROGRAM,
    "island": 2,
    "operator": "diff",
    "fitness": -1.5,
    "cell": [3, 0],
}
STORED: list[tuple[Fact, dict[str, object]]] = [
    (
        Started(seed=1, budget=30, operators={"diff": 1.0}),
        {"seed": 1, "budget": 30, "operators": {"diff": 1.0}},
    ),
    (Resumed(budget=60), {"budget": 60}),
    (Paused(reason="asked"), {"reason": "asked"}),
    (
        Changed(setting="llm.model", before=None, after="m"),
        {"setting": "llm.model", "before": None, "after": "m"},
    ),
    (Finished(proposals=30, reason="spent"), {"proposals": 30, "reason": "spent"}),
    (Cancelled(reason="asked"), {"reason": "asked"}),
    (Broken(reason="no seed"), {"reason": "no seed"}),
    (Noticed(text="a text"), {"text": "a text"}),
    (
        Directed(proposal=7, island=2, category="search", text="Look ahead.", by="wise"),
        {"proposal": 7, "island": 2, "category": "search", "text": "Look ahead.", "by": "wise"},
    ),
    (
        Improved(program=PROGRAM, fitness=0.5, settled=4),
        {"program": PROGRAM, "fitness": 0.5, "settled": 4},
    ),
    (
        Crowned(program=PROGRAM, fitness=0.5, settled=4),
        {"program": PROGRAM, "fitness": 0.5, "settled": 4},
    ),
    (Rerated(program=PROGRAM, fitness=0.25), {"program": PROGRAM, "fitness": 0.25}),
    (
        Entered(cohort=3, island=0, proposal=7, program=PROGRAM, parents=(OTHER,)),
        {"cohort": 3, "island": 0, "proposal": 7, "program": PROGRAM, "parents": [OTHER]},
    ),
    (
        GateTested(cohort=3, program=PROGRAM, stage="smoke", failure=None),
        {"cohort": 3, "program": PROGRAM, "stage": "smoke", "failure": None},
    ),
    (
        Played(
            cohort=3,
            first=PROGRAM,
            second=OTHER,
            game=1,
            score=1.0,
            moves=("e4", "e5"),
            termination="time",
            failure=FailureKind.TIMEOUT,
            culprit=OTHER,
        ),
        {
            "cohort": 3,
            "first": PROGRAM,
            "second": OTHER,
            "game": 1,
            "score": 1.0,
            "moves": ["e4", "e5"],
            "termination": "time",
            "failure": "timeout",
            "culprit": OTHER,
        },
    ),
    (
        Scored(cohort=3, island=0, points={PROGRAM: 1.5}, games={PROGRAM: 2}),
        {"cohort": 3, "island": 0, "points": {PROGRAM: 1.5}, "games": {PROGRAM: 2}},
    ),
    (
        Closed(cohort=3, island=0, podium=(PROGRAM, OTHER)),
        {"cohort": 3, "island": 0, "podium": [PROGRAM, OTHER]},
    ),
    (
        Moved(program=PROGRAM, fitness=0.5, source=0, island=1, cell=(3, "x"), reset=True),
        {
            "program": PROGRAM,
            "fitness": 0.5,
            "source": 0,
            "island": 1,
            "cell": [3, "x"],
            "reset": True,
        },
    ),
    (
        Validated(program=PROGRAM, fitness=None, failure=FailureKind.TIMEOUT),
        {"program": PROGRAM, "fitness": None, "failure": "timeout"},
    ),
    (
        Regridded(axes=(Axis("x", 5, 0.0, 1.0),)),
        {
            "axes": [
                {
                    "name": "x",
                    "bins": 5,
                    "low": 0.0,
                    "high": 1.0,
                    "provisional": False,
                    "scaled": False,
                }
            ]
        },
    ),
    (
        Admitted(proposal=7, program=PROGRAM, island=2, operator="diff", fitness=-1.5, cell=(3, 0)),
        OFFERED,
    ),
    (
        Refused(
            proposal=None,
            program=PROGRAM,
            island=2,
            operator="diff",
            fitness=-1.5,
            cell=None,
            role=Role.REFINER,
        ),
        {**OFFERED, "proposal": None, "cell": None, "role": "refiner"},
    ),
    (
        Refused(
            proposal=7,
            program=PROGRAM,
            island=2,
            operator="diff",
            fitness=-1.5,
            cell=None,
            clone_of=OTHER,
        ),
        {**OFFERED, "cell": None, "clone_of": OTHER},
    ),
    (
        Founded(proposal=-1, program=PROGRAM, island=2, operator="seed", fitness=-1.5, cell=(3, 0)),
        {**OFFERED, "proposal": -1, "operator": "seed"},
    ),
    (
        Cut(
            proposal=7,
            island=2,
            operator="diff",
            program=None,
            why=CutReason.DUPLICATE,
            reason="same",
        ),
        {
            "proposal": 7,
            "island": 2,
            "operator": "diff",
            "program": None,
            "why": "duplicate",
            "reason": "same",
        },
    ),
    (
        Failed(proposal=7, island=2, operator="diff", program=PROGRAM, failure=FailureKind.TIMEOUT),
        {"proposal": 7, "island": 2, "operator": "diff", "program": PROGRAM, "failure": "timeout"},
    ),
]


@pytest.mark.parametrize(("fact", "stored"), STORED, ids=[fact.kind for fact, _ in STORED])
def test_a_fact_is_stored_under_the_names_of_its_fields(
    fact: Fact, stored: dict[str, object]
) -> None:
    assert json.loads(json.dumps(document(fact))) == stored


@pytest.mark.parametrize(("fact", "stored"), STORED, ids=[fact.kind for fact, _ in STORED])
def test_a_stored_fact_is_read_back_as_it_was(fact: Fact, stored: dict[str, object]) -> None:
    assert read_fact(fact.kind, stored) == fact


def test_every_kind_of_event_has_a_fact() -> None:
    assert {fact.kind for fact, _ in STORED} == set(EventKind)


def improved(fitness: float, settled: int) -> Improved:
    return Improved(program=PROGRAM, fitness=fitness, settled=settled)


def test_small_improvements_do_not_count() -> None:
    improvements = [improved(1.0, 0), improved(1.0004, 10), improved(1.0008, 20)]

    assert stalled_for(improvements, 30, 0.001) == 30


def test_small_improvements_count_once_they_add_up_to_the_threshold() -> None:
    improvements = [improved(1.0, 0), improved(1.0004, 10), improved(1.0008, 20)]

    assert stalled_for([*improvements, improved(1.0012, 25)], 30, 0.001) == 5


def test_a_less_fit_best_that_was_measured_at_more_stages_counts() -> None:
    assert stalled_for([improved(1.0, 0), improved(0.5, 20)], 30, 0.001) == 10


def test_every_new_champion_counts_whatever_its_fitness() -> None:
    champions = [Crowned(program=PROGRAM, fitness=0.5, settled=at) for at in (0, 10, 20)]
    assert stalled_for(champions, 25, threshold=0.1) == 5
