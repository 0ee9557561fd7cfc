"""`evoq replay`: the bytes of a replay are those that were streamed live."""

import asyncio
from dataclasses import replace
from itertools import islice

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.cli.replay import paced, recorded
from app.client.notes import CommandError
from app.dashboard.frames import encode
from app.dashboard.tail import Tail
from app.domain.events import EventKind
from app.domain.run import RunState
from app.engine import lifecycle
from app.engine.context import Context
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.test_tournament import facts, game, played
from tests.engine.toy import problem


def test_replayed_bytes_equal_those_that_were_streamed_while_the_run_went_on(ctx: Context) -> None:
    toy = game()
    new = replace(new_run(toy, islands=1, budget=8, in_flight=16), strategy="tournament")
    ctx = replace(ctx, problem=lambda digest: toy)
    executor = ctx.executor
    assert isinstance(executor, InlineExecutor)
    run = lifecycle.start(ctx, toy, new).id

    def worked_on() -> bool:
        with ctx.store.begin() as tx:
            return tx.runs.get(run).state is RunState.RUNNING

    async def captured() -> tuple[list[str], bool]:
        """Returns the frames, and whether some came before the first step of the run."""
        frames = Tail(ctx.store, run).frames(0)
        live = [await anext(frames)]
        begun = worked_on()
        work = asyncio.create_task(asyncio.to_thread(executor.drain, table(ctx), lambda: False))
        while '"kind":"finished"' not in live[-1]:
            live.append(await asyncio.wait_for(anext(frames), 60))
        await work
        return live, begun

    live, begun = asyncio.run(captured())

    assert begun
    assert len(live) > 20
    assert [encode(run, event) for event in recorded(ctx.store, run)] == live


def test_a_run_without_games_has_no_generation_to_replay(ctx: Context) -> None:
    run = run_to_the_end(ctx, problem(), new_run(problem(), budget=4))

    with pytest.raises(CommandError, match="Leave --generation out to replay the whole run"):
        list(recorded(ctx.store, run, 0))


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
