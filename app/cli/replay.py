"""`evoq replay`: the recorded events of a run, as they were streamed."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from app.cli.options import Debug, Json, RunName
from app.cli.output import Screen
from app.client.notes import CommandError
from app.client.target import open_run
from app.dashboard.frames import encode
from app.domain.events import Event, EventKind
from app.ports.protocols import Store

PAGE = 1000


def replay(
    name: RunName,
    generation: Annotated[
        int | None,
        typer.Option("--generation", metavar="N", min=0, help="One generation; 0 is the seeds'."),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option("--speed", metavar="X", help="So many times as fast as it was recorded."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Writes the recorded events of a run again, without a model or a worker.

    Each line is a frame, the same bytes that /ws of the dashboard sent live. Without --speed all
    come at once, and so they do in the one document of --json.

    Examples:
      evoq replay connect_four-1 --generation 3 --speed 10
      evoq replay connect_four-1 --json
    """
    if speed is not None and not speed > 0:
        raise CommandError(f"--speed {speed:g}: a replay takes time. Give a number above 0")
    with open_run(name) as (ledger, run):
        events = recorded(ledger.store, run.id, generation)
        if as_json:
            frames = [json.loads(encode(run.id, event)) for event in events]
            Screen(json=True).answer({"run": run.name, "frames": frames})
            return
        for event in paced(events, speed, time.sleep):
            sys.stdout.write(f"{encode(run.id, event)}\n")
            sys.stdout.flush()


def recorded(store: Store, run: int, generation: int | None = None) -> Iterator[Event]:
    """Yields the events of a run in order, read page by page.

    Args:
      store: The ledger.
      run: The run's number.
      generation: The events after the end of the one before, up to the end of this one, and the
        seeds' is 0; None for all events.

    Raises:
      CommandError: The run has no such generation that has ended.
    """
    after, last = 0, None
    if generation is not None:
        with store.begin() as tx:
            ends = [0]
            while page := tx.events.read(run, ends[-1], PAGE, (EventKind.CLOSED,)):
                ends += [event.seq for event in page]
        if len(ends) == 1:
            raise CommandError(
                f"--generation {generation}: the run has no generation of games that has ended: "
                f"only recipes whose programs play each other record them. Leave --generation out "
                f"to replay the whole run; `evoq metrics RUN --by generation` has the generations "
                f"of other recipes"
            )
        if generation + 1 >= len(ends):
            raise CommandError(
                f"--generation {generation}: the run has {len(ends) - 1} generations that have "
                f"ended. Give a number from 0 to {len(ends) - 2}"
            )
        after, last = ends[generation : generation + 2]
    while True:
        with store.begin() as tx:
            page = tx.events.read(run, after, PAGE)
        for event in page:
            if last is not None and event.seq > last:
                return
            yield event
        if len(page) < PAGE:
            return
        after = page[-1].seq


def paced(
    events: Iterator[Event], speed: float | None, wait: Callable[[float], None]
) -> Iterator[Event]:
    """Yields events with the pauses that were between them, divided by `speed`."""
    before: float | None = None
    for event in events:
        if speed is not None and before is not None and event.seconds > before:
            wait((event.seconds - before) / speed)
        before = event.seconds
        yield event
