"""The control: the loop of design document 001, one slot held through generation and evaluation.

Written from the code in that document (§ 2.4: `parallel_generations` tasks at once, each running
`_evolve_once` from parent to database).  Everything is one process and the database is a list, so
its only costs are waits.  The model is the same SIMULATED endpoint, the evaluation a sleep.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field

import aiohttp

PROMPT = "# The current program\n```python\nx = {x:.4f}\ny = {y:.4f}\n```\n"


@dataclass(slots=True)
class SlotLoop:
    """Evolves for a time, and records when each evaluation ended."""

    base_url: str
    slots: int
    evaluations: int
    evaluation_seconds: float
    done: list[float] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        """Runs for `seconds`."""
        client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), raise_for_status=True
        )
        database: list[tuple[float, float]] = [(0.0, 0.0)]
        guard, evaluating = asyncio.Lock(), asyncio.Semaphore(self.evaluations)
        started = time.monotonic()

        async def evolve_once() -> None:
            async with guard:
                x, y = random.choice(database)
            asked = [{"role": "user", "content": PROMPT.format(x=x, y=y)}]
            body = {"model": "mock", "messages": asked}
            async with client.post(f"{self.base_url}/chat/completions", json=body) as answer:
                await answer.json()
            async with evaluating:
                await asyncio.sleep(self.evaluation_seconds)
            async with guard:
                database.append((random.uniform(-5, 5), random.uniform(-5, 5)))
            self.done.append(time.monotonic() - started)

        pending: set[asyncio.Task[None]] = set()
        while time.monotonic() - started < seconds:
            while len(pending) < self.slots:
                pending.add(asyncio.create_task(evolve_once()))
            finished, pending = await asyncio.wait(
                pending, return_when=asyncio.FIRST_COMPLETED, timeout=1.0
            )
            for task in finished:
                task.result()
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await client.close()


def per_second(
    base_url: str, slots: int, evaluations: int, seconds: tuple[float, float, float]
) -> float:
    """Returns the rate of document 001's loop.

    Args:
      base_url: The simulated endpoint.
      slots: `parallel_generations`.
      evaluations: `parallel_evaluations`.
      seconds: Duration of one evaluation, of the warm-up, of the measurement.
    """
    evaluation, warm_up, measured = seconds
    loop = SlotLoop(base_url, slots, evaluations, evaluation)
    asyncio.run(loop.run(warm_up + measured))
    return sum(warm_up <= at < warm_up + measured for at in loop.done) / measured
