"""Settings of fleets: which models a step asks, and what is refused before a run begins."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.celery import name_worker
from app.config.fleet_checks import require_fleets
from app.config.fleets import fleets_of
from app.config.layers import UsageError
from app.config.settings import RunSettings

A = {"name": "A", "fleet": "gpu:a", "weight": 3.0}
B = {"name": "B", "fleet": "gpu:b"}
FREE = {"name": "C"}


def settings(*models: dict[str, Any], fleets: tuple[str, ...] = (), **llm: Any) -> RunSettings:
    given = {"queue": {"fleets": list(fleets)}, "llm": {"models": list(models), **llm}}
    return RunSettings.model_validate(given)


def asked(run: RunSettings, label: str) -> list[str]:
    drawn = not fleets_of(run).islands
    return [model.name for model in run.llm.of_fleet(label, drawn=drawn).models_of()]


def test_models_that_name_fleets_are_drawn_with_them() -> None:
    run = settings(A, B, FREE)
    assert fleets_of(run).models == {"a": 3.0, "b": 1.0, "": 1.0}
    assert [asked(run, label) for label in ("a", "b", "")] == [["A"], ["B"], ["C"]]


def test_an_island_of_a_fleet_asks_its_models_and_those_of_any() -> None:
    run = settings(A, B, FREE, fleets=("gpu:a", "gpu:b", "gpu"))
    assert [asked(run, label) for label in ("a", "b", "")] == [["A", "C"], ["B", "C"], ["C"]]


def test_without_fleets_the_settings_of_models_are_the_same_object() -> None:
    llm = settings(FREE).llm
    assert llm.of_fleet("", drawn=True) is llm


def test_roles_inherit_the_fleet_and_judges_have_one_of_their_own() -> None:
    run = settings(
        fleet="gpu:a", model="A", feedback=True, roles={"judge": {"model": "J", "fleet": "gpu:j"}}
    )
    rules = fleets_of(run)
    assert (rules.generating, rules.judges) == (("a",), "j")
    require_fleets(run, 1, asks=True)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (settings(A, fleets=("gpu:a", "gpu:b", "gpu:c")), "the run has 2 of them"),
        (settings(A, fleets=("gpu:a", "gpu:b")), "no model is asked by the workers of gpu:b"),
        (settings(A, B, fleets=("gpu:a",)), "no island is served by its fleet (gpu:b)"),
        (settings(A, B, feedback=True), "one step asks all judges"),
        (
            settings(A, roles={"refiner": {"model": "R", "fleet": "gpu:r"}}),
            "asked by the step that makes a child",
        ),
    ],
)
def test_fleets_that_do_not_fit_are_refused(run: RunSettings, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        require_fleets(run, 2, asks=True)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"queue": {"fleets": ["gpu:A"]}},
        {"queue": {"project": "a b"}},
        {"llm": {"model": "m", "fleet": "cpu:a"}},
    ],
)
def test_a_name_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RunSettings.model_validate(given)


def test_a_worker_of_a_queue_that_no_step_goes_to_ends_with_one_line() -> None:
    with pytest.raises(SystemExit, match="-Q gpu,gup: 'gup' names no fleet: write `gpu` or"):
        name_worker(_Named("celery@host"), {"queues": "gpu,gup"})


def test_a_worker_is_named_after_its_queues() -> None:
    worker = _Named("celery@host")
    name_worker(worker, {"queues": "gpu,gpu:llama70b"})
    assert worker.hostname == "gpu-gpu.llama70b@host"


class _Named:
    def __init__(self, hostname: str) -> None:
        self.hostname = hostname
