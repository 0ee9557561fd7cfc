"""`evoq replay`: the bytes of a replay are those that were streamed live."""

import asyncio
from itertools import islice

import pytest

from app.cli.output import CommandError
from app.cli.replay import paced, recorded
from app.dashboard.frames import encode
from app.dashboard.tail import Tail
from app.domain.events import EventKind
from app.engine.context import Context
from tests.engine.test_tournament import facts, game, played


def test_replayed_bytes_equal_the_live_ones(ctx: Context) -> None:
    run = played(ctx, game(), budget=8)

    async def streamed(n: int) -> list[str]:
        frames = Tail(ctx.store, run).frames(0)
        return [await anext(frames) for _ in range(n)]

    again = [encode(run, event) for event in recorded(ctx.store, run)]
    assert len(again) > 20
    assert asyncio.run(streamed(len(again))) == again


def test_the_generations_are_parts_of_the_whole(ctx: Context) -> None:
    run = played(ctx, game(), budget=8)

    parts = [list(recorded(ctx.store, run, number)) for number in range(3)]
    whole = list(recorded(ctx.store, run))
    joined = [event for part in parts for event in part]
    assert joined == whole[: len(joined)]
    assert [part[-1].kind for part in parts] == [EventKind.CLOSED] * 3
    with pytest.raises(CommandError, match="the run has 3 generations"):
        list(recorded(ctx.store, run, 3))


def test_pauses_are_those_of_the_recording_divided_by_the_speed(ctx: Context) -> None:
    run = played(ctx, game(), budget=4)
    events = list(recorded(ctx.store, run))
    waited: list[float] = []

    assert list(paced(iter(events), 4.0, waited.append)) == events
    assert sum(waited) == pytest.approx((events[-1].seconds - events[0].seconds) / 4.0)
    waited.clear()
    assert list(islice(paced(iter(events), None, waited.append), 5)) == events[:5]
    assert waited == []
    assert facts(ctx, run, EventKind.CLOSED)
