"""So many places, handed out in the order of asking; within one event loop."""

import asyncio
from collections import deque
from collections.abc import Callable


class Semaphore:
    """Semaphore of which one request may take several.

    A request that wants more than there are is let in alone, so that none waits for ever.
    """

    def __init__(self, most: Callable[[], int]) -> None:
        """Hands out nothing yet.

        Args:
          most: How many there are at this moment; 0: nobody is let in.
        """
        self._most = most
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self.taken = 0

    @property
    def waiting(self) -> int:
        """Semaphore that are waited for."""
        return sum(wanted for turn, wanted in self._waiting if not turn.done())

    async def take(self, wanted: int, *, first: bool = False) -> None:
        """Waits until so many are free, and takes them.

        Args:
          wanted: >= 1.
          first: Whether it is served before those who wait already.
        """
        if self._fit(wanted) and (first or not self._waiting):
            self.taken += wanted
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        one = turn, wanted
        if first:
            self._waiting.appendleft(one)
        else:
            self._waiting.append(one)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(wanted)
            elif one in self._waiting:
                self._waiting.remove(one)
                self.admit()
            raise

    def give(self, wanted: int) -> None:
        """Gives places back, to who is next."""
        self.taken -= wanted
        self.admit()

    def admit(self) -> None:
        """Lets in who now fits; called where there may have come to be more places."""
        while self._waiting and self._fit(self._waiting[0][1]):
            turn, wanted = self._waiting.popleft()
            if not turn.done():
                self.taken += wanted
                turn.set_result(None)

    def _fit(self, wanted: int) -> bool:
        most = self._most()
        return most > 0 and (self.taken + wanted <= most or not self.taken)
