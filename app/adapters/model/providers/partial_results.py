"""Calls of several prompts in parts: the failure of a part loses no other's completions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from app.domain.operator import Completion, Prompt
from app.ports.protocols import Misconfigured, Stopped, Unavailable

PartialResult: TypeAlias = list[Completion] | Unavailable
"""Result of a part: a completion for each of its prompts, or why there are not that many."""


def partial_result(
    complete: Callable[[Sequence[Prompt]], list[Completion]], prompts: Sequence[Prompt]
) -> PartialResult:
    """Completes a part, and returns its failure as a value."""
    try:
        return complete(prompts)
    except Unavailable as fault:
        return fault


async def partial_results(parts: Sequence[Awaitable[list[Completion]]]) -> list[PartialResult]:
    """Waits until every part has ended, and returns the results in order.

    Where it is cancelled, so is every part that has not ended, which counts as stopped.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    # A cancelled `gather` raises this once all parts have ended.
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
    results: list[PartialResult] = []
    for task in tasks:
        fault = Stopped("the requests were dropped") if task.cancelled() else task.exception()
        if fault is None:
            results.append(task.result())
        elif isinstance(fault, Unavailable):
            results.append(fault)
        else:
            raise fault
    return results


def merged(
    positions: Sequence[Sequence[int]], results: Sequence[PartialResult]
) -> list[Completion]:
    """Returns the completions of a whole call, in order of its prompts.

    Args:
      positions: Of each part's prompts in the call; together all positions, each once.
      results: One for each part.

    Raises:
      Stopped: A part was asked to stop.
      Unavailable: A part failed.  The message is that of the first failure, or of the first that
        needs a person; `answered` holds the completions of all parts.
    """
    answered: dict[int, Completion] = {}
    faults: list[Unavailable] = []
    for part, result in zip(positions, results, strict=True):
        if isinstance(result, Unavailable):
            faults.append(result)
            answered |= {part[place]: answer for place, answer in result.answered.items()}
        else:
            answered |= zip(part, result, strict=True)
    if not faults:
        return [answered[place] for place in range(len(answered))]
    first = (each for kind in (Stopped, Misconfigured) for each in faults if isinstance(each, kind))
    fault = next(first, faults[0])
    unanswered = sum(each.unanswered for each in faults)
    if (fault.unanswered, fault.answered) == (unanswered, answered):
        raise fault
    raise type(fault)(*fault.args, unanswered=unanswered, answered=answered) from fault
