"""The address that `evoq mock-llm` prints can be reached."""

import pytest

from app.cli.mock_llm import reachable_host


@pytest.mark.parametrize(
    ("host", "reachable"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("10.1.2.3", "10.1.2.3"),
        ("gpu-box", "gpu-box"),
    ],
)
def test_the_address_is_one_that_this_machine_reaches(host: str, reachable: str) -> None:
    assert reachable_host(host) == reachable
