"""The places of a worker are one number, under two names."""

import pytest

from app.config.places import LEAST, places


@pytest.mark.parametrize(
    ("environment", "cores", "expected"),
    [
        ({}, 64, 64),
        ({}, 1, LEAST),
        ({"EVOQ_EVALUATE_CONCURRENCY": "12"}, 2, 12),
        ({"EVOQ_SANDBOX__PLACES": "2"}, 64, 2),
        ({"EVOQ_EVALUATE_CONCURRENCY": "", "EVOQ_SANDBOX__PLACES": "3"}, 64, 3),
        ({"EVOQ_EVALUATE_CONCURRENCY": "3", "EVOQ_SANDBOX__PLACES": "3"}, 64, 3),
    ],
)
def test_places_are_the_given_number_or_the_cores(
    environment: dict[str, str], cores: int, expected: int
) -> None:
    assert places(environment, cores) == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"EVOQ_EVALUATE_CONCURRENCY": "12", "EVOQ_SANDBOX__PLACES": "4"},
            "EVOQ_EVALUATE_CONCURRENCY is 12 and EVOQ_SANDBOX__PLACES is 4: both are the trials",
        ),
        ({"EVOQ_EVALUATE_CONCURRENCY": "0"}, "must be a number of trials, 1 or more, not '0'"),
        ({"EVOQ_SANDBOX__PLACES": "many"}, "EVOQ_SANDBOX__PLACES must be a number of trials"),
    ],
)
def test_a_number_that_cannot_hold_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        places(environment, 8)
