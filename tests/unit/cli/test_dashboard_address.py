"""The address of a dashboard: a token of the environment does not go to a container's log."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.dashboard import served
from app.cli.output import Screen
from app.dashboard import server


@pytest.mark.parametrize("variable", ["marmot-7431", None])
def test_a_token_is_printed_only_where_it_was_made_for_this_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str | None
) -> None:
    @contextmanager
    def serving(_ctx: Any, _url: str, place: server.Place, **_shown: object) -> Iterator[Any]:
        yield SimpleNamespace(address=f"http://here:1/?token={place.token or 'random'}")

    monkeypatch.setattr("app.cli.dashboard.serving", serving)
    monkeypatch.delenv("EVOQ_DASHBOARD_TOKEN", raising=False)
    if variable:
        monkeypatch.setenv("EVOQ_DASHBOARD_TOKEN", variable)

    with served(None, "", Screen(json=False)):  # type: ignore[arg-type]
        pass

    printed = "".join(capsys.readouterr())
    assert "http://here:1/" in printed
    assert "marmot" not in printed
    assert ("token=random" in printed) == (variable is None)
