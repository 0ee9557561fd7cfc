"""The page of the system: workers, queues, endpoints, leases, disk, and the installation."""

from collections.abc import Mapping

from nicegui import ui

from app.dashboard.pages.layout import (
    Cell,
    Grid,
    Link,
    Mark,
    Tiles,
    heading,
    keep_live,
    page,
    say,
    set_text,
    table,
)
from app.dashboard.pages.sources import CHECKED_SECONDS, Sources
from app.dashboard.pages.text import shown
from app.dashboard.system import LeasesDocument, SystemDocument
from app.domain.search.fleets import waiting_text


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/system", response_timeout=30)
    async def system_page() -> None:
        with page("System"):
            view = _SystemView(sources)
            keep_live(view.refresh, 2.0)
            ui.timer(0.1, view.check, once=True)
            ui.timer(CHECKED_SECONDS, view.check, immediate=False)


class _SystemView:
    """The elements of one viewer's page."""

    def __init__(self, sources: Sources) -> None:
        """Draws them without values."""
        self._sources = sources
        self._fault = say("", "notice")
        self._tiles = Tiles(
            ("places at models", "places in sandboxes", "planning", "ledger", "disk free")
        )
        self._workers = table(
            "Workers",
            ("worker", "queue", "sandbox protections", "fault"),
            "No worker has reported in the last 20 s: `evoq up`, `evoq run` or "
            "`docker compose up` starts them, and `evoq doctor` says what is missing.",
        )
        self._queues = table(
            "Queues",
            ("queue", "waiting messages", "nobody serves"),
            "Redis does not answer.",
            numbers=("waiting messages",),
        )
        empty = "No endpoint was used in the last 10 s."
        self._models = table("Models", ("endpoint", "now"), empty)
        counts = ("weight", "generating", "evaluating", "leases held", "run out", "begun again")
        self._flight = table("In flight", ("run", *counts), "No run is running.", numbers=counts)
        heading("Installation")
        say(
            "What `evoq doctor` finds where the dashboard runs, each minute; for sandboxes see "
            "the workers above.",
            "grey",
        )
        self._checks = Grid(
            ("check", "state", "detail", "remedy"),
            name="Installation",
            empty="Not checked.",
            words="remedy",
        )

    async def refresh(self) -> None:
        """Draws what has changed."""
        system = await self._sources.system()
        set_text(self._fault, shown(system.fault))
        self._tiles.show(
            places_at_models=_places(system.model_places),
            places_in_sandboxes=_places(system.sandbox_places),
            planning=_PLANNING[system.planning],
            ledger=_size(system.ledger_bytes),
            disk_free=f"{_size(system.disk_free_bytes)} of {_size(system.disk_bytes)}",
        )
        _show_workers(self._workers, system)
        self._queues.show(
            [
                [name, str(n), waiting_text({name: waits}) if waits else ""]
                for name, n in system.queues.items()
                for waits in (system.unserved.get(name, 0),)
            ]
        )
        self._models.show([[str(each["endpoint"]), str(each["text"])] for each in system.endpoints])
        self._flight.show([_lease_cells(each) for each in system.leases])

    async def check(self) -> None:
        """Checks the installation."""
        self._checks.show([_check_cells(found) for found in await self._sources.installation()])


_PLANNING = {True: "at work", False: "nothing plans", None: "not known"}


def _lease_cells(leases: LeasesDocument) -> list[Cell]:
    numbers = (leases.generating, leases.evaluating, leases.held, leases.lapsed, leases.repeated)
    link = Link(f"run {leases.run}", f"/run/{leases.run}")
    return [link, f"{leases.weight:g}", *map(str, numbers)]


def _check_cells(found: Mapping[str, object]) -> list[Cell]:
    mark = "ok" if found["ok"] else ("missing" if found["required"] else "note")
    detail, remedy = shown(str(found["detail"])), shown(str(found["remedy"]))
    return [str(found["name"]), Mark(mark), detail, remedy]


def _size(count: int) -> str:
    """Returns a number of bytes in MiB or GiB."""
    mib = count / 2**20
    return f"{mib:,.0f} MiB" if mib < 10_000 else f"{mib / 1024:,.0f} GiB"


def _show_workers(grid: Grid, system: SystemDocument) -> None:
    rows = []
    for worker in system.workers:
        protections = worker.protections
        off = [name for name, remedy in protections.items() if remedy]
        said = f"{len(protections) - len(off)} of {len(protections)}" if protections else "–"
        missing = f"; not: {', '.join(off)}" if off else ""
        rows.append([worker.id, ", ".join(worker.queues), said + missing, shown(worker.fault)])
    grid.show(rows)


def _places(number: int | None) -> str:
    return "no worker" if number is None else str(number)
