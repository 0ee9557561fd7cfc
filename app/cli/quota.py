"""`evoq quota`: the projects of a deployment, with their weights and quotas."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated

import typer

from app.cli.options import Debug, Json
from app.cli.output import Screen
from app.cli.tables import columns_table
from app.client.target import find_target, open_ledger
from app.config.layers import UsageError
from app.domain.search.quotas import ProjectUse, Quota, project_name
from app.domain.setting import LARGEST_INTEGER, MOST
from app.ports.ledger import Transaction
from app.reports.text import usd

NONE = "none"
LARGEST_COUNT = 2**31 - 1
"""The largest integer of a column of numbers of runs or proposals."""

Project = Annotated[
    str | None, typer.Argument(metavar="[PROJECT]", help="The project; all are shown without it.")
]
Weight = Annotated[
    float | None,
    typer.Option("--weight", metavar="W", help="Its share of the workers beside other projects'."),
]
Runs = Annotated[
    str | None, typer.Option("--runs", metavar="N", help="Runs that plan at once, or `none`.")
]
Proposals = Annotated[
    str | None,
    typer.Option("--proposals", metavar="N", help="Proposals in flight at once, or `none`."),
]
Tokens = Annotated[
    str | None,
    typer.Option("--tokens-per-day", metavar="N", help="Tokens of a day (UTC), or `none`."),
]
Usd = Annotated[
    str | None,
    typer.Option("--usd-per-day", metavar="X", help="US dollars of a day (UTC), or `none`."),
]
Remove = Annotated[
    bool, typer.Option("--remove", help="Remove the weight and the quotas of the project.")
]


def quota(
    project: Project = None,
    weight: Weight = None,
    runs: Runs = None,
    proposals: Proposals = None,
    tokens_per_day: Tokens = None,
    usd_per_day: Usd = None,
    remove: Remove = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Shows the projects of a deployment with their weights and quotas, or sets one's.

    A run has the project of `evoq run --project`. A run beyond a quota plans nothing and waits; it
    shows why. Whoever reaches the ledger may change quotas.

    Examples:
      evoq quota
      evoq quota vision --weight 2 --proposals 64 --usd-per-day 20
      evoq quota vision --usd-per-day none
      evoq quota vision --remove
    """
    screen, target = Screen(json=as_json), find_target()
    limits = {
        "runs": runs,
        "proposals": proposals,
        "tokens_per_day": tokens_per_day,
        "usd_per_day": usd_per_day,
    }
    given = _given(weight, limits, remove=remove)
    name = _named(project, changes=bool(given) or remove)
    with open_ledger(target) as ledger, ledger.store.begin() as tx:
        if name and remove and not tx.projects.remove(name):
            raise _wrong("remove", name, "It has neither a weight nor a quota: nothing to remove.")
        if name and given:
            tx.projects.put(_with(tx.projects.quota(name) or Quota(name), given))
        shown = _read(tx, name)
    table = columns_table("project", "weight", "runs", "in flight", "tokens today", "spent today")
    for each, use in shown:
        table.add_row(
            each.project,
            f"{each.weight:g}",
            _of(use.runs, each.runs),
            _of(use.proposals, each.proposals),
            _of(use.tokens, each.tokens_per_day),
            usd(use.usd) + (f" of {usd(each.usd_per_day)}" if each.usd_per_day is not None else ""),
        )
    if shown:
        screen.out.print(table)
    else:
        screen.say("no run names a project, and none has a quota: `evoq run --project NAME`")
    screen.answer(
        [{**asdict(each), "use": _use(use)} for each, use in shown],
    )


def _given(
    weight: float | None, limits: Mapping[str, str | None], *, remove: bool
) -> dict[str, float | None]:
    """Returns the weight and the quotas that are given, by name; None for `none`.

    Raises:
      UsageError: One cannot be used, or is given with --remove.
    """
    given = {name: _number(name, text) for name, text in limits.items() if text is not None}
    if weight is not None:
        if not 0 < weight <= MOST:
            raise _wrong("weight", f"{weight:g}", f"Give a number above 0, at most {MOST}.")
        given["weight"] = weight
    if remove and given:
        raise _wrong("remove", "with other options", "Give --remove alone.")
    return given


def _named(project: str | None, *, changes: bool) -> str:
    """Returns the project that is named; "" for all.

    Raises:
      UsageError: None is named where one is to be changed, or it is no name.
    """
    if project is None:
        if changes:
            raise _wrong("PROJECT", "nothing", "Name the project, as `evoq quota vision --runs 2`.")
        return ""
    try:
        return project_name(project)
    except ValueError as error:
        raise _wrong("PROJECT", project, f"{error}.") from error


def _number(name: str, text: str) -> float | None:
    """Returns a quota.

    Raises:
      UsageError: It is neither `none` nor a number that the ledger holds.
    """
    if text == NONE:
        return None
    largest = LARGEST_INTEGER if name == "tokens_per_day" else LARGEST_COUNT
    if name == "usd_per_day":
        largest = MOST
    try:
        number = float(text) if name == "usd_per_day" else int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= largest:
        raise _wrong(name, text, f"Give a number from 0 to {largest}, or `none`.")
    return number


def _wrong(option: str, value: str, remedy: str) -> UsageError:
    where = option if option.isupper() else f"--{option.replace('_', '-')}"
    return UsageError("it cannot be used", where=where, value=value, remedy=remedy)


def _with(before: Quota, given: dict[str, float | None]) -> Quota:
    changes: dict[str, object] = dict(given)
    return replace(before, **changes)  # type: ignore[arg-type]  # checked by `_number`


def _read(tx: Transaction, project: str) -> list[tuple[Quota, ProjectUse]]:
    """Returns the quotas and the use of one project, or of all that have quotas or runs."""
    known = {each.project: each for each in tx.projects.quotas()}
    names = [project] if project else sorted({*known, *tx.projects.named()})
    return [(known.get(name, Quota(name)), tx.projects.use(name)) for name in names]


def _use(use: ProjectUse) -> dict[str, float]:
    return {
        "runs": use.runs,
        "proposals": use.proposals,
        "tokens_today": use.tokens,
        "usd_today": use.usd,
    }


def _of(used: int, most: int | None) -> str:
    return f"{used:,}" if most is None else f"{used:,} of {most:,}"
