"""Where pages read: documents that all viewers share while they are fresh."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from app.dashboard.games import GamesDocument, at_work, games_document, with_moves
from app.dashboard.pages.layout import page, say
from app.dashboard.reads import ArchiveDocument, RunReader, TreeDocument
from app.dashboard.system import SystemDocument
from app.dashboard.tail import Tail, Tails
from app.domain.run import Run
from app.ports.runs import ComparedRuns
from app.reports.bands import ComparisonBands, comparison, comparisons
from app.reports.course import Improvement
from app.reports.documents import RunDocument
from app.reports.generations import GenerationRow
from app.reports.runs import RunRow

_T = TypeVar("_T")
FRESH_SECONDS = 2.0
"""Age up to which a document that costs many statements is shown again."""
MOST_SHARE, MOST_SECONDS = 0.02, 30.0
"""Share of the time that one document may take to be read, and the age that no document exceeds."""
GAMES_SECONDS = 0.9
"""The same of the games of a run, whose boards are drawn once a second."""
CHECKED_SECONDS = 60.0
"""The same of the checks of the installation, which ask model endpoints."""
_MOST = 256


class Sources:
    """The reads of the pages."""

    def __init__(self, reader: RunReader, tails: Tails) -> None:
        """Reads nothing yet."""
        self.reader = reader
        self._tails = tails
        self._read: dict[object, tuple[float, Any]] = {}
        self._locks: dict[object, asyncio.Lock] = {}

    async def run(self, name: str) -> Run | None:
        """Returns a run; where there is none, draws a page that says so, and returns None."""
        with suppress(LookupError):
            return await asyncio.to_thread(self.reader.run, name)
        with page("No such run"):
            say(f"This ledger has no run {name!r}. The page “Runs” lists those it has.")
        return None

    async def newest(self) -> list[Run]:
        return await self._fresh("newest", self.reader.newest)

    async def runs(self) -> list[RunRow]:
        return await self._fresh("runs", lambda: self.reader.runs(inside=False))

    async def document(self, run: Run) -> RunDocument:
        return await self._fresh(("document", run.id), lambda: self.reader.document(run))

    async def failures(self, run: Run, kinds: tuple[str, ...]) -> dict[str, str]:
        """Returns the commonest message of each kind of failure."""
        return await self._fresh(
            ("failures", run.id, kinds), lambda: self.reader.usual_failures(run, kinds)
        )

    async def generations(self, run: Run) -> list[GenerationRow]:
        return await self._fresh(("generations", run.id), lambda: self.reader.generations(run))

    async def writers(
        self, run: Run, improvements: Sequence[Improvement]
    ) -> dict[tuple[str, str], int]:
        """Returns how many improvements each role and model took part in."""
        programs = [improvement.program for improvement in improvements]
        key = ("writers", run.id, len(programs))
        return await self._fresh(key, lambda: self.reader.writers(run, programs), MOST_SECONDS)

    async def archive(self, run: Run, island: int | None) -> ArchiveDocument:
        return await self._fresh(
            ("archive", run.id, island), lambda: self.reader.archive(run, island)
        )

    async def system(self) -> SystemDocument:
        return await self._fresh("system", self.reader.system)

    async def installation(self) -> Sequence[Mapping[str, object]]:
        return await self._fresh("installation", self.reader.installation, CHECKED_SECONDS)

    async def tree(self, run: Run, improvements: Sequence[Improvement]) -> TreeDocument:
        """Returns the tree of a run; see `RunReader.tree`."""
        key = ("tree", run.id, len(improvements))
        return await self._fresh(key, lambda: self.reader.tree(run, improvements))

    async def games(self, run: Run, cohort: int | None) -> GamesDocument:
        """Returns the games of a run, with the moves of those at work; see `games_document`."""
        course = (await self.tail(run)).course
        found = await self._fresh(
            ("games", run.id, cohort),
            lambda: games_document(self.reader.store, run, course, cohort),
            GAMES_SECONDS,
        )
        if not (trials := at_work(found)):
            return found
        key = ("moves", run.id, cohort)
        moves = await self._fresh(key, lambda: self.reader.moves(trials), GAMES_SECONDS)
        return with_moves(found, moves)

    async def comparisons(self) -> list[ComparedRuns]:
        return await self._fresh("comparisons", lambda: comparisons(self.reader.store))

    async def comparison(self, name: str) -> ComparisonBands:
        return await self._fresh(("comparison", name), lambda: comparison(self.reader.store, name))

    async def tail(self, run: Run) -> Tail:
        """Returns the tail of a run, complete up to now."""
        tail = self._tails.of(run.id)
        await tail.complete()
        return tail

    async def _fresh(
        self, key: object, read: Callable[[], _T], seconds: float = FRESH_SECONDS
    ) -> _T:
        """Returns what `read` returned at most `seconds` ago; viewers at once read once.

        What takes long to read is shown for longer, so that pages that are left open take
        `MOST_SHARE` of the ledger's time at most for each document.
        """
        async with self._locks.setdefault(key, asyncio.Lock()):
            until, document = self._read.get(key, (-math.inf, None))
            began = time.monotonic()
            if began > until:
                document = await asyncio.to_thread(read)
                ended = time.monotonic()
                shown = min(max(seconds, (ended - began) / MOST_SHARE), MOST_SECONDS)
                self._read[key] = ended + shown, document
                if len(self._read) > _MOST:
                    oldest = min(self._read, key=lambda each: self._read[each][0])
                    del self._read[oldest]
                    self._locks.pop(oldest, None)
            return document  # type: ignore[no-any-return]  # what `read` returned
