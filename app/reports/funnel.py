"""The funnel of a run: how far its proposals came, and what was spent on those that came so far."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.ports.history import FunnelGroup, Reached
from app.ports.ledger import Transaction

MOST_FOLDED = 50_000
"""Proposals of a run that are counted: the first, so that no count ever falls."""

NAMES = {
    Reached.ASKED: "asked",
    Reached.ANSWERED: "answered",
    Reached.USABLE: "usable",
    Reached.NEW: "new",
    Reached.RAN: "ran",
    Reached.MEASURED: "measured",
    Reached.BETTER: "better",
    Reached.BEST: "best",
}
"""Column headings, in order."""


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """The proposals that reached a step.

    Attributes:
      name: Of `NAMES`.
      tokens: Of their prompts and replies, repair turns included.
      model_seconds: Summed over the requests for them.
      sandbox_seconds: Real time of their trials.
    """

    name: str
    proposals: int
    tokens: int
    model_seconds: float
    sandbox_seconds: float


@dataclass(frozen=True, slots=True)
class FunnelLine:
    """How far the proposals of one operator and one model came.

    Attributes:
      operator, model: "" in the line of all; the model also where none replied.
      steps: One for each of `Reached`, in order.
      erred: How many were new and ran with an error.
      requests, prompt_tokens, reply_tokens: Of all of them.
    """

    operator: str
    model: str
    steps: tuple[FunnelStep, ...]
    erred: int
    requests: int
    prompt_tokens: int
    reply_tokens: int

    def count(self, reached: Reached) -> int:
        """Returns how many proposals reached a step."""
        return self.steps[reached].proposals

    def tokens_each(self, reached: Reached) -> float | None:
        """Returns the tokens of the line for each proposal that reached a step; None if none."""
        count = self.count(reached)
        return self.steps[0].tokens / count if count else None

    def cells(self) -> tuple[str, ...]:
        """Returns the line as texts, in the order of `HEADINGS`."""
        spent = self.steps[0]
        each = self.tokens_each(Reached.RAN)
        return (
            self.operator or "all",
            self.model or "–",
            *(f"{step.proposals:,}" for step in self.steps),
            f"{self.erred:,}",
            f"{spent.tokens:,}",
            "–" if each is None else f"{each:,.0f}",
            f"{spent.model_seconds:.0f}",
            f"{spent.sandbox_seconds:.1f}",
        )


HEADINGS = (
    *("operator", "model", *NAMES.values(), "with an error"),
    *("tokens", "tokens for each that ran", "model s", "sandbox s"),
)


@dataclass(frozen=True, slots=True)
class Funnel:
    """The funnel of a run, by operator and model.

    Attributes:
      total: The sum of all lines.
      whole: Whether no proposal was left out; see `MOST_FOLDED`.
    """

    lines: tuple[FunnelLine, ...] = ()
    total: FunnelLine = FunnelLine("", "", (), 0, 0, 0, 0)
    whole: bool = True

    def rows(self) -> list[tuple[str, ...]]:
        """Returns the lines as texts, and that of all where there are several."""
        shown = [*self.lines, self.total] if len(self.lines) > 1 else self.lines
        return [line.cells() for line in shown]


def read_funnel(tx: Transaction, run: int) -> Funnel:
    """Reads the funnel of a run in one query."""
    return folded(tx.history.funnel(run, MOST_FOLDED))


def folded(groups: Sequence[FunnelGroup]) -> Funnel:
    """Returns the funnel of groups that are disjoint."""
    keys = dict.fromkeys((group.operator, group.model) for group in groups)
    lines = tuple(
        _line(key, [group for group in groups if (group.operator, group.model) == key])
        for key in keys
    )
    total = _line(("", ""), groups)
    return Funnel(lines, total, total.count(Reached.ASKED) < MOST_FOLDED)


def _line(key: tuple[str, str], groups: Sequence[FunnelGroup]) -> FunnelLine:
    return FunnelLine(
        *key,
        tuple(_steps(groups)),
        erred=sum(group.erred for group in groups),
        requests=sum(group.requests for group in groups),
        prompt_tokens=sum(group.prompt_tokens for group in groups),
        reply_tokens=sum(group.reply_tokens for group in groups),
    )


def _steps(groups: Iterable[FunnelGroup]) -> Iterator[FunnelStep]:
    for reached, name in NAMES.items():
        so_far = [group for group in groups if group.reached >= reached]
        yield FunnelStep(
            name,
            proposals=sum(group.proposals for group in so_far),
            tokens=sum(group.prompt_tokens + group.reply_tokens for group in so_far),
            model_seconds=sum(group.model_seconds for group in so_far),
            sandbox_seconds=sum(group.sandbox_seconds for group in so_far),
        )
