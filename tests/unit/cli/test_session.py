"""The order in which a session of an embedded run starts its parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli import session
from app.cli.output import Screen
from app.cli.target import Target
from app.config.settings import RunSettings


class Probe:
    """A sandbox that notes when it is asked for its protections."""

    def __init__(self, order: list[str]):
        self._order = order

    def protections(self) -> list[object]:
        self._order.append("protections")
        return []

    def close(self) -> None:
        self._order.append("closed")


@pytest.mark.parametrize("inline", [False, True])
def test_workers_start_before_a_sandbox_is_booted_to_name_its_protections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: bool
):
    order: list[str] = []

    @contextmanager
    def sandbox(*_: object, **__: object) -> Iterator[Probe]:
        order.append("sandbox")
        yield Probe(order)

    @contextmanager
    def ledger(*_: object, workers: bool = False, **__: object) -> Iterator[SimpleNamespace]:
        order.append("workers" if workers else "ledger")
        yield SimpleNamespace(store=None)

    monkeypatch.setattr(session, "open_sandbox", sandbox)
    monkeypatch.setattr(session, "open_ledger", ledger)
    monkeypatch.setattr(session, "with_queue", lambda _: None)
    monkeypatch.setattr(session, "_pause_left_behind", lambda *_: order.append("paused"))
    monkeypatch.setattr(session.bootstrap, "context", lambda *_, **__: None)
    opened = session.open_session(
        Target(tmp_path), RunSettings(), inline=inline, screen=Screen(json=False)
    )
    with opened:
        pass

    if inline:
        assert order == ["sandbox", "protections", "ledger"]
    else:
        assert order == ["sandbox", "workers", "paused", "protections", "closed"]
