"""The address that `evoq mock-llm` names can be asked."""

import pytest

from app.cli.mock_llm import asked_at


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("10.1.2.3", "10.1.2.3"),
        ("gpu-box", "gpu-box"),
    ],
)
def test_the_address_is_one_that_this_machine_reaches(host: str, told: str) -> None:
    assert asked_at(host) == told
