"""Calls of several prompts that are asked in parts: one part's fault loses no other's answers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from app.domain.operator import Completion, Prompt
from app.ports.protocols import Misconfigured, Unavailable

Ended: TypeAlias = list[Completion] | Unavailable
"""How a part ended: a completion for each of its prompts, or why not."""


def ended(
    complete: Callable[[Sequence[Prompt]], list[Completion]], prompts: Sequence[Prompt]
) -> Ended:
    """Asks a part, and returns its fault as a value."""
    try:
        return complete(prompts)
    except Unavailable as fault:
        return fault


async def all_ended(asked: Sequence[Awaitable[list[Completion]]]) -> list[Ended]:
    """Waits for parts side by side until every one has ended, in order: nothing is left behind."""
    ends: list[Ended] = []
    for end in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(end, BaseException) and not isinstance(end, Unavailable):
            raise end
        ends.append(end)
    return ends


def joined(places: Sequence[Sequence[int]], ends: Sequence[Ended]) -> list[Completion]:
    """Returns the completions of a whole call, in order of its prompts.

    Args:
      places: Of each part's prompts among those of the call; together all of them, each once.
      ends: One a part.

    Raises:
      Unavailable: A part failed.  Says what the first one says, or the first that needs a person,
        and holds what came of all of them.
    """
    answered: dict[int, Completion] = {}
    faults: list[Unavailable] = []
    for own, end in zip(places, ends, strict=True):
        if isinstance(end, Unavailable):
            faults.append(end)
            answered |= {own[place]: one for place, one in end.answered.items()}
        else:
            answered |= zip(own, end, strict=True)
    if not faults:
        return [answered[place] for place in range(len(answered))]
    told = next((one for one in faults if isinstance(one, Misconfigured)), faults[0])
    unanswered = sum(one.unanswered for one in faults)
    if (told.unanswered, told.answered) == (unanswered, answered):
        raise told
    raise type(told)(*told.args, unanswered=unanswered, answered=answered) from told
