"""`evoq scale`: how many workers each fleet should have, and why."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from app.cli.options import Debug, Json
from app.cli.output import Screen
from app.cli.tables import columns_table, labelled_table
from app.client.target import find_target, open_ledger, open_run
from app.config.layers import UsageError
from app.domain.run import Run as StoredRun
from app.domain.scaling import Goal, Sizing
from app.ports.protocols import Store
from app.reports.scaling import read_sizing
from app.reports.text import duration, usd

_UNITS = {"m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([mhd])")
_FLEET = re.compile(r"((?:gpu|cpu)(?::[^=\s]+)?)=([1-9]\d{0,5})")

Run = Annotated[str | None, typer.Argument(metavar="RUN", help="Name or number of a run.")]
All = Annotated[bool, typer.Option("--all", help="All running runs together, in place of RUN.")]
Deadline = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN", help="When the runs are to end: a time (2026-12-24T18:00), or 90m, 6h, 2d."
    ),
]
Dollars = Annotated[
    float | None,
    typer.Option("--budget-usd", metavar="USD", min=0, help="Most dollars an hour, in all."),
]
Most = Annotated[
    list[str] | None,
    typer.Option("--max", metavar="FLEET=N", help="Most workers, as gpu=4; may be repeated."),
]
Places = Annotated[
    list[str] | None,
    typer.Option(
        "--places",
        metavar="FLEET=N",
        help="Places of one worker, as gpu=32, where none is live to report them.",
    ),
]


def scale(
    run: Run = None,
    all_runs: All = False,
    deadline: Deadline = None,
    budget_usd: Dollars = None,
    most: Most = None,
    places: Places = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Shows how many workers each fleet should have, and why; starts none.

    Examples:
      evoq scale --all
      evoq scale online_bin_packing-1 --deadline 6h --budget-usd 12 --max gpu=4
    """
    if (run is None) != all_runs:
        raise UsageError(
            "either a run or all of them are sized",
            where="evoq scale",
            remedy="Write `evoq scale RUN`, or `evoq scale --all`.",
        )
    goal = Goal(_seconds(deadline), budget_usd, _numbers(most, "--max"))
    given = _numbers(places, "--places")
    screen, target = Screen(json=as_json), find_target()
    sizing = Sizing((), 0.0, {}, (), 0.0, too_dear=False)
    if run is not None:
        with open_run(run, target) as (ledger, chosen):
            sizing = _sizing(ledger.store, goal, chosen, given)
    elif target.used:
        with open_ledger(target) as ledger:
            sizing = _sizing(ledger.store, goal, None, given)
    _print(screen, sizing, goal)
    screen.answer(asdict(sizing))


def _sizing(store: Store, goal: Goal, run: StoredRun | None, places: Mapping[str, int]) -> Sizing:
    """Returns the sizes.

    Raises:
      UsageError: Dollars limit them, and no price is known of a worker that is needed.
    """
    try:
        return read_sizing(store, goal, run, places)
    except ValueError as error:
        raise UsageError(
            str(error),
            where="--budget-usd",
            remedy="Set EVOQ_PRICES__GPU_USD_PER_HOUR and EVOQ_PRICES__CPU_USD_PER_HOUR where "
            "workers run; a worker reports its price when it starts.",
        ) from error


def _print(screen: Screen, sizing: Sizing, goal: Goal) -> None:
    table = columns_table("fleet", "workers", "should be", "an hour", "why", right=("workers",))
    for size in sizing.fleets:
        name = f"{size.queue}:{size.tag}" if size.tag else size.queue
        price = usd(size.usd_per_hour)
        table.add_row(name, str(size.workers), str(size.replicas), price, size.why)
    if not sizing.fleets:
        screen.say("no worker and no run was ever here: nothing is needed")
        return
    screen.out.print(table)
    rows = {}
    if sizing.per_second:
        rows["rate"] = f"{sizing.per_second:.3g} proposals a second"
    for name, seconds in sizing.ends_in_seconds.items():
        rows[name] = "nothing measured yet" if seconds is None else f"ends in {duration(seconds)}"
        if name in sizing.late:
            rows[name] += f", after the deadline in {duration(goal.deadline_seconds or 0)}"
    rows["an hour"] = usd(sizing.usd_per_hour)
    if sizing.too_dear:
        rows["limits"] = "one worker of each fleet exceeds them"
    screen.out.print(labelled_table(rows.items()))


def _seconds(text: str | None) -> float | None:
    """Returns the seconds until a deadline.

    Raises:
      UsageError: The text is none, or its time has passed.
    """
    if text is None:
        return None
    if found := _DURATION.fullmatch(text):
        seconds = float(found[1]) * _UNITS[found[2]]
    else:
        try:
            seconds = (
                datetime.fromisoformat(text).astimezone() - datetime.now(UTC)
            ).total_seconds()
        except ValueError as error:
            raise UsageError(
                "neither a time nor a duration",
                where="--deadline",
                value=text,
                remedy="Write a time as 2026-12-24T18:00, or a duration as 90m, 6h or 2d.",
            ) from error
    if seconds <= 0:
        raise UsageError(
            "this time has passed",
            where="--deadline",
            value=text,
            remedy="Give a time in the future; without a time zone it is that of this machine.",
        )
    return seconds


def _numbers(texts: Sequence[str] | None, option: str) -> dict[str, int]:
    """Returns the number that is given for each fleet.

    Raises:
      UsageError: A text is not FLEET=N.
    """
    numbers: dict[str, int] = {}
    for text in texts or ():
        found = _FLEET.fullmatch(text)
        if found is None:
            raise UsageError(
                "not a number of a fleet",
                where=option,
                value=text,
                remedy="Write gpu=N or cpu=N, with N from 1 on; a fleet with a tag is gpu:TAG=N.",
            )
        numbers[found[1]] = int(found[2])
    return numbers
