"""`/api` and `/ws`: what programs read and do.  OpenAPI is at `/api/openapi.json`."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Literal

from fastapi import APIRouter, FastAPI, HTTPException, Path, Query, Request, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.websockets import WebSocketDisconnect

from app.dashboard import frames
from app.dashboard.control import ChangeRefused, Control
from app.dashboard.exhibitions import Exhibitions, PositionDocument
from app.dashboard.games import (
    GameDocument,
    GamesDocument,
    at_work,
    game_document,
    games_at_work,
    games_document,
    live_games,
    with_moves,
)
from app.dashboard.metrics import scrape
from app.dashboard.reads import (
    ArchiveDocument,
    CourseDocument,
    RunReader,
    TreeDocument,
    course_document,
    metric_document,
)
from app.dashboard.system import SystemDocument
from app.dashboard.tail import Tails
from app.domain.run import Run
from app.domain.scaling import FleetSize, Goal, Sizing
from app.domain.search.cohort import TrialId
from app.ports.protocols import Unavailable
from app.ports.runs import ComparedRuns
from app.reports.bands import ComparisonBands, comparison, comparisons
from app.reports.course import MetricCourse
from app.reports.documents import Json, to_json
from app.reports.generations import GenerationRow
from app.reports.metrics import MetricsRow
from app.reports.program import ProgramDocument, ProposalDocument
from app.reports.runs import RunRow

Name = Annotated[str, Path(alias="run", description="Name or number of a run.")]
Program = Annotated[str, Path(pattern="^[0-9a-f]{4,64}$", description="Beginning of its id.")]
After = Annotated[int, Query(ge=0, description="How many to skip.")]
Deadline = Annotated[
    datetime | None, Query(description="When the runs are to end, with its time zone.")
]
Dollars = Annotated[
    float | None, Query(ge=0, allow_inf_nan=False, description="Most dollars an hour, in all.")
]
Limit = Annotated[int, Query(ge=1, le=1000)]
MOVES_SECONDS = 0.5
"""How often the moves of games at work are read for a client that asks for them."""


@dataclass(frozen=True, slots=True)
class PositionRequest:
    """A position of a game against a program that is asked for.

    Attributes:
      program: Beginning of its id; "" for the best program of the run.
      moves: From the beginning of the game.
      answer: Whether the program is to make the next move.
    """

    program: str = ""
    moves: list[str] = field(default_factory=list)
    answer: bool = False


def routes(
    reader: RunReader, tails: Tails, control: Control, exhibitions: Exhibitions
) -> APIRouter:
    """Returns every route of `/api`."""
    router = APIRouter(prefix="/api")
    _add_runs(router, reader, tails)
    _add_proposals(router, reader)
    _add_programs(router, reader, tails)
    _add_games(router, reader, tails, exhibitions)
    _add_comparisons(router, reader)
    _add_system(router, reader)
    _add_changes(router, reader, control)
    _add_frames(router)
    return router


def _add_runs(router: APIRouter, reader: RunReader, tails: Tails) -> None:
    @router.get("/runs")
    def runs() -> list[RunRow]:
        """The newest hundred runs, newest first."""
        return reader.runs()

    @router.get("/runs/{run}")
    def run_(run: Name) -> Json:
        """The document of `evoq show RUN --json`."""
        return to_json(reader.document(reader.run(run), ratings=True))

    @router.get("/runs/{run}/course")
    async def course(run: Name) -> CourseDocument:
        """The folded events: curves, shares of operators, failures with examples."""
        row = await asyncio.to_thread(reader.run, run)
        return course_document(row, await tails.course(row.id))

    @router.get("/runs/{run}/metric")
    async def metric(
        run: Name, name: Annotated[str, Query(description="As the evaluator named it.")]
    ) -> MetricCourse:
        """A metric of the evaluator at each measured proposal and at each new best."""
        row = await asyncio.to_thread(reader.run, run)
        return metric_document(row, await tails.course(row.id), name)

    @router.get("/runs/{run}/events")
    def events(run: Name, after: After = 0, limit: Limit = 1000) -> PlainTextResponse:
        """Frames of the events with `seq` > `after`, one a line: the bytes that `/ws` sends."""
        row = reader.run(run)
        with reader.store.begin() as tx:
            page = tx.events.read(row.id, after=after, limit=limit)
        lines = "".join(f"{frames.encode(row.id, event)}\n" for event in page)
        return PlainTextResponse(lines, media_type="application/x-ndjson")


def _add_proposals(router: APIRouter, reader: RunReader) -> None:
    @router.get("/runs/{run}/proposals")
    def proposals(run: Name, after: After = 0, limit: Limit = 1000) -> list[MetricsRow]:
        """Settled proposals in order of settling."""
        return reader.proposals(reader.run(run), after, limit)

    @router.get("/runs/{run}/proposals/{ordinal}")
    def proposal(run: Name, ordinal: int) -> ProposalDocument:
        """A settled proposal, and the prompts and replies of models, also where no program came."""
        return reader.proposal(reader.run(run), ordinal)

    @router.get("/runs/{run}/generations")
    def generations(run: Name) -> list[GenerationRow]:
        """The lines of `evoq metrics RUN --by generation`; none where a recipe has none."""
        return reader.generations(reader.run(run))

    @router.get("/runs/{run}/archive")
    def archive(run: Name, island: Annotated[int | None, Query(ge=0)] = None) -> ArchiveDocument:
        """The cells of one island or of all, each with the elite that leads it."""
        return reader.archive(reader.run(run), island)


def _add_programs(router: APIRouter, reader: RunReader, tails: Tails) -> None:
    @router.get("/runs/{run}/programs/{program}", response_model=ProgramDocument)
    def program_(run: Name, program: Program) -> JSONResponse:
        """A program: source, `files` where it has several, measurements, replies, children."""
        return JSONResponse(to_json(reader.program(reader.run(run), program)))

    @router.get("/runs/{run}/programs/{program}/source", response_class=PlainTextResponse)
    def source(run: Name, program: Program) -> str:
        """The source alone, as text."""
        return reader.program(reader.run(run), program).source

    @router.get("/runs/{run}/diff/{old}/{new}", response_class=PlainTextResponse)
    def diff(run: Name, old: Program, new: Program) -> str:
        """The unified difference between two programs."""
        return reader.diff(reader.run(run), old, new)

    @router.get("/runs/{run}/lineage/{program}")
    def lineage(run: Name, program: Program) -> list[MetricsRow]:
        """The admissions of a program and its ancestors, the program first."""
        return reader.lineage(reader.run(run), program)

    @router.get("/runs/{run}/tree")
    async def tree(run: Name) -> TreeDocument:
        """The programs that became the best of the run and their ancestors, parents first."""
        row = await asyncio.to_thread(reader.run, run)
        course = await tails.course(row.id)
        return await asyncio.to_thread(reader.tree, row, list(course.improvements))


def _add_games(
    router: APIRouter, reader: RunReader, tails: Tails, exhibitions: Exhibitions
) -> None:
    @router.get("/runs/{run}/games")
    async def games(
        run: Name,
        generation: Annotated[int | None, Query(ge=1, description="Number of its cohort.")] = None,
    ) -> GamesDocument:
        """Generations, boards and crosstable of one or of the newest, ratings, directions."""
        row = await asyncio.to_thread(reader.run, run)
        course = await tails.course(row.id)
        games = await asyncio.to_thread(games_document, reader.store, row, course, generation)
        return with_moves(games, await asyncio.to_thread(reader.moves, at_work(games)))

    @router.get("/runs/{run}/games/{game}")
    def game_(run: Name, game: Annotated[int, Path(ge=1)]) -> GameDocument:
        """A game that ended, with its moves; its number is `seq` of its event."""
        return game_document(reader.store, reader.run(run), game)

    @router.post("/runs/{run}/play")
    async def play(run: Name, move: PositionRequest) -> PositionDocument:
        """The position after some moves of a game against a program. Needs the token."""
        row = await asyncio.to_thread(reader.run, run)
        return await exhibitions.turn(row, move.program, move.moves, answer=move.answer)


def _add_comparisons(router: APIRouter, reader: RunReader) -> None:
    @router.get("/comparisons")
    def comparisons_() -> list[ComparedRuns]:
        """The newest hundred comparisons (`evoq compare`), newest first."""
        return comparisons(reader.store)

    @router.get("/comparisons/{name}")
    def comparison_(name: str) -> ComparisonBands:
        """A comparison: the quartiles of its arms, the settings that differ."""
        return comparison(reader.store, name)


def _add_system(router: APIRouter, reader: RunReader) -> None:
    @router.get("/health")
    def health() -> dict[str, str]:
        """Whether the dashboard answers, and which version it is."""
        return {"status": "ok", "version": version("evoqueue")}

    @router.get("/system")
    def system() -> SystemDocument:
        """Workers, queues, endpoints, leases and disk."""
        return reader.system()

    @router.get("/scale")
    def scale(deadline: Deadline = None, budget_usd: Dollars = None) -> Sizing:
        """How many workers each fleet should have, as `evoq scale --all --json`."""
        try:
            return reader.sizing(Goal(_seconds_until(deadline), budget_usd))
        except ValueError as error:
            raise HTTPException(409, str(error)) from error

    @router.get("/scale/{queue}")
    def scale_(
        queue: Literal["gpu", "cpu"],
        tag: str = "",
        deadline: Deadline = None,
        budget_usd: Dollars = None,
    ) -> FleetSize:
        """One fleet of it, for KEDA's trigger `metrics-api` (`valueLocation: replicas`)."""
        for size in scale(deadline, budget_usd).fleets:
            if (size.queue, size.tag) == (queue, tag):
                return size
        return FleetSize(queue, tag, 0, 0, 0, 0.0, None, 0.0, "no run has ever asked for it")

    @router.get("/installation")
    def installation() -> list[dict[str, object]]:
        """What `evoq doctor` finds where the dashboard runs; sandboxes are not booted for it."""
        return [dict(finding) for finding in reader.installation()]


def _seconds_until(deadline: datetime | None) -> float | None:
    """Returns the seconds until a deadline; after it, a run is to end as soon as it can."""
    if deadline is None:
        return None
    return max(1.0, (deadline.astimezone() - datetime.now(UTC)).total_seconds())


def _add_changes(router: APIRouter, reader: RunReader, control: Control) -> None:
    def change(verb: str, act: Callable[[Run], None], summary: str) -> None:
        @router.post(f"/runs/{{run}}/{verb}", name=verb, description=summary)
        def changed(run: Name) -> dict[str, object]:
            row = reader.run(run)
            act(row)
            return {"run": row.name, "state": reader.run(run).state.value}

    change("pause", control.pause, "No step begins any more. Needs the token.")
    change("resume", control.resume, "Lets the run go on to its budget. Needs the token.")
    change("cancel", control.cancel, "Ends the run now. Needs the token.")

    @router.post("/runs/{run}/settings")
    def settings(run: Name, values: dict[str, object]) -> dict[str, object]:
        """Gives the run other settings, by dotted key, from the next steps on. Needs the token."""
        row = reader.run(run)
        changed = {
            fact.setting: {"before": fact.before, "after": fact.after}
            for fact in control.change(row, values)
        }
        return {"run": row.name, "changed": changed}


def _add_frames(router: APIRouter) -> None:
    @router.get("/frames.json")
    def frame_schema() -> dict[str, object]:
        """JSON Schema of the frames of `/ws`."""
        return frames.json_schema()

    @router.get("/frames.ts", response_class=PlainTextResponse)
    def frame_types() -> str:
        """TypeScript types of the frames of `/ws`."""
        return frames.typescript()


def add_metrics(app: FastAPI, reader: RunReader) -> None:
    """Adds `/metrics`."""

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return Response(scrape(reader), media_type=CONTENT_TYPE_LATEST)


def add_socket(app: FastAPI, reader: RunReader, tails: Tails) -> None:
    """Adds `/ws?run=R&after=N`: every event of a run with `seq` > N, then each as it comes.

    With `&moves=true` frames of the moves of games that are being played come between them.
    """

    @app.websocket("/ws")
    async def socket(
        websocket: WebSocket,
        run: str,
        after: Annotated[int, Query(ge=0)] = 0,
        moves: bool = False,
    ) -> None:
        try:
            row = await asyncio.to_thread(reader.run, run)
        except (LookupError, Unavailable) as error:
            await websocket.accept()
            await websocket.close(1008, str(error)[:120])
            return
        await websocket.accept()
        sending = [asyncio.create_task(_send(websocket, tails, row.id, after))]
        if moves:
            sending.append(asyncio.create_task(_send_moves(websocket, reader, tails, row.id)))
        try:
            # This loop notices the end of a client that only listens.
            while True:
                await websocket.receive_text()
        except (WebSocketDisconnect, KeyError):
            for task in sending:
                task.cancel()
                with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                    await task


async def _send(websocket: WebSocket, tails: Tails, run: int, after: int) -> None:
    while True:
        try:
            async for frame in tails.of(run).frames(after):
                await websocket.send_text(frame)
                after += 1
        except Unavailable:
            # The ledger is away for a while, and the client loses no frame.
            await asyncio.sleep(1.0)


async def _send_moves(websocket: WebSocket, reader: RunReader, tails: Tails, run: int) -> None:
    """Sends the moves so far of each game whose moves are others than those sent before."""
    sent: dict[TrialId, list[str]] = {}
    while True:
        try:
            course = await tails.course(run)
            played = await asyncio.to_thread(games_at_work, reader.store, run, course)
        except Unavailable:
            # The ledger cannot be reached; the next frame holds these moves too.
            await asyncio.sleep(1.0)
            continue
        made = await asyncio.to_thread(reader.moves, [game.trial for game in played])
        games = live_games(run, played, made)
        for game in games:
            if sent.get(game.trial) != game.moves:
                await websocket.send_text(frames.encode_moves(game))
        sent = {game.trial: game.moves for game in games}
        await asyncio.sleep(MOVES_SECONDS)


def add_errors(app: FastAPI) -> None:
    """Answers with a status and a sentence what reads and changes raise."""

    @app.exception_handler(LookupError)
    async def unknown(request: Request, error: LookupError) -> JSONResponse:  # noqa: ARG001
        if isinstance(error, KeyError | IndexError):
            raise error
        return JSONResponse({"detail": str(error)}, 404)

    @app.exception_handler(ChangeRefused)
    async def refused(request: Request, error: ChangeRefused) -> JSONResponse:  # noqa: ARG001
        return JSONResponse({"detail": str(error)}, 409)

    @app.exception_handler(Unavailable)
    async def unavailable(request: Request, error: Unavailable) -> JSONResponse:  # noqa: ARG001
        return JSONResponse({"detail": str(error)}, 503)
