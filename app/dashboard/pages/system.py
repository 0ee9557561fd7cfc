"""The page of the system: workers, queues, endpoints, and what is in flight."""

from nicegui import ui

from app.dashboard.pages.layout import Grid, Link, Tiles, heading, keep_live, page, say, set_text
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import shown
from app.dashboard.reads import SystemDocument


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/system", response_timeout=30)
    async def system_page() -> None:
        with page("System"):
            heading("System", 1)
            fault = say("", "notice")
            tiles = Tiles(("places at models", "places in sandboxes", "planning"))
            heading("Workers")
            workers = Grid(
                ("worker", "queue", "sandbox protections", "fault"),
                name="Workers",
                empty="No worker has reported in the last 20 s: `evoq up`, `evoq run` or "
                "`docker compose up` starts them, and `evoq doctor` says what is missing.",
            )
            heading("Queues")
            queues = Grid(
                ("queue", "waiting messages"), name="Queues", empty="Redis does not answer."
            )
            heading("Models")
            models = Grid(
                ("endpoint", "now"),
                name="Models",
                empty="No endpoint was used in the last 10 s.",
            )
            heading("In flight")
            flight = Grid(
                ("run", "weight", "generating", "evaluating"),
                name="In flight",
                empty="No run is running.",
            )

            async def refresh() -> None:
                system = await sources.system()
                set_text(fault, shown(system.fault))
                tiles.show(
                    places_at_models=_places(system.model_places),
                    places_in_sandboxes=_places(system.sandbox_places),
                    planning="at work" if system.planning else "nothing plans",
                )
                _show_workers(workers, system)
                queues.show([[name, str(n)] for name, n in system.queues.items()])
                models.show([[each["endpoint"], each["text"]] for each in system.endpoints])
                flight.show(
                    [
                        [
                            Link(f"run {each['run']}", f"/run/{each['run']}"),
                            f"{each['weight']:g}",
                            str(each["generating"]),
                            str(each["evaluating"]),
                        ]
                        for each in system.in_flight
                    ]
                )

            await keep_live(refresh, 2.0)


def _show_workers(grid: Grid, system: SystemDocument) -> None:
    rows = []
    for worker in system.workers:
        protections = worker["protections"]
        off = [name for name, remedy in protections.items() if remedy]
        said = f"{len(protections) - len(off)} of {len(protections)}" if protections else "–"
        missing = f"; not: {', '.join(off)}" if off else ""
        rows.append([worker["id"], worker["kind"], said + missing, shown(worker["fault"])])
    grid.show(rows)


def _places(number: int | None) -> str:
    return "no worker" if number is None else str(number)
