"""Plots of a run, on matplotlib's object-oriented side: no display, no global state."""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from app.reports.metrics import Row

SIZE = (9.0, 5.2)
DOTS_PER_INCH = 110
STEPS = 40
"""Columns that failures are counted in."""
INK, SOFT, DOT, BEST = "#1f2933", "#8895a7", "#9fb3c8", "#d64545"
PALETTE = (
    *("#0b6e99", "#e07a1f", "#3f8f4f", "#b0413e", "#7656a8"),
    *("#8c6d46", "#d1719f", "#7a7a7a", "#a8a032", "#2fa8b5"),
)


def evolution(rows: Sequence[Row], baselines: Mapping[str, float], title: str) -> Figure:
    """Draws each proposal's fitness and the best so far, over the proposals settled.

    Fitness far below everything else is left out of view and counted above: one bad child
    must not flatten the rest.

    Args:
      rows: In the order of settling; may be empty.
      baselines: Name to fitness, drawn as dashed lines.
      title: Usually the run's name.
    """
    figure, axes = _figure(title, "proposals settled", "fitness (higher is better)")
    children = [row for row in rows if row.ordinal >= 0]
    measured = [(n, row.fitness) for n, row in enumerate(children, 1) if row.fitness is not None]
    best = [
        (n, row.best_so_far) for n, row in enumerate(children, 1) if row.best_so_far is not None
    ]
    if not measured and not best:
        return _empty(figure, axes, "no proposal has been measured yet")
    axes.scatter(
        *_columns(measured), s=14, color=DOT, edgecolors="none", label="a proposal", zorder=2.5
    )
    axes.step(*_columns(best), where="post", color=BEST, linewidth=2, zorder=3, label="best so far")
    for (names, fitness), color in zip(_levels(baselines), _cycle(PALETTE), strict=False):
        label = f"{names}  {fitness:.6g}"
        axes.axhline(fitness, linestyle="--", linewidth=1.2, color=color, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0, max(len(children), 1) * 1.01)
    shown = [value for _, value in best] + list(baselines.values())
    hidden = _focus(axes, [value for _, value in measured], shown)
    if hidden:
        note = f"{hidden} of {len(measured)} below the view"
        axes.set_title(note, loc="right", color=SOFT, fontsize=9)
    _legend(axes)
    return figure


def failures(rows: Sequence[Row], title: str) -> Figure:
    """Draws the failed proposals by kind over the run, beside their totals; may be empty."""
    figure, axes = _figure(title, "proposals settled", "failed proposals")
    children = [row for row in rows if row.ordinal >= 0]
    failed = [(n, row.failure) for n, row in enumerate(children) if row.failure is not None]
    if not failed:
        told = "no proposal has settled yet" if not children else "no proposal failed"
        return _empty(figure, axes, told)
    totals: dict[str, int] = {}
    for _, kind in failed:
        totals[kind] = totals.get(kind, 0) + 1
    kinds = sorted(totals, key=lambda kind: (-totals[kind], kind))
    width = max(1, math.ceil(len(children) / STEPS))
    starts = list(range(0, len(children), width))
    below = [0] * len(starts)
    for kind, color in zip(kinds, _cycle(PALETTE), strict=False):
        counts = [0] * len(starts)
        for n, name in failed:
            counts[n // width] += name == kind
        label = f"{kind}  {totals[kind]}"
        axes.bar(starts, counts, width * 0.9, below, align="edge", color=color, label=label)
        below = [low + count for low, count in zip(below, counts, strict=True)]
    axes.set_xlim(0, max(starts[-1] + width, 1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    share = f"{len(failed)} of {len(children)} failed ({len(failed) / len(children):.0%})"
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9, title=share
    )
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG beside its place and moves it there, so that a reader never sees half."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a box stands for it
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(drawn.getbuffer())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _figure(title: str, across: str, up: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    plain(axes, title, across, up)
    return figure, axes


def plain(axes: Axes, title: str, across: str, up: str) -> None:
    """Gives axes the common look: no frame, a quiet grid, labels."""
    axes.set_title(title, loc="left", color=INK, fontsize=12)
    axes.set_xlabel(across, color=INK)
    axes.set_ylabel(up, color=INK)
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(True, color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(SOFT)


def _legend(axes: Axes, title: str | None = None) -> None:
    place = (1.01, 1.0)
    axes.legend(loc="upper left", bbox_to_anchor=place, frameon=False, fontsize=9, title=title)


def _empty(figure: Figure, axes: Axes, told: str) -> Figure:
    axes.text(0.5, 0.5, told, transform=axes.transAxes, ha="center", va="center", color=SOFT)
    axes.set_xticks([])
    axes.set_yticks([])
    return figure


def _levels(baselines: Mapping[str, float]) -> list[tuple[str, float]]:
    """Returns the baselines, fittest first, those of one fitness as one: a line hides a line."""
    together: dict[float, list[str]] = {}
    for name, fitness in sorted(baselines.items()):
        together.setdefault(fitness, []).append(name)
    return [("\n".join(together[level]), level) for level in sorted(together, reverse=True)]


def _columns(pairs: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [n for n, _ in pairs], [value for _, value in pairs]


def _cycle(colors: Sequence[str]) -> Any:
    while True:
        yield from colors


def _focus(axes: Axes, measured: Sequence[float], shown: Sequence[float]) -> int:
    """Sets the vertical range to what matters; returns how many measurements are below it.

    In view: everything of `shown`, the better quarter of all measurements, and twice as much
    below.
    """
    ordered = sorted(measured)
    better = ordered[len(ordered) * 3 // 4 :]
    low, high = min([*shown, *better[:1]]), max([*shown, *better[-1:]])
    fence = low - 2 * max(high - low, abs(high) * 1e-6)
    low = min([low, *(value for value in ordered if value >= fence)])
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    axes.set_ylim(low - margin, high + margin)
    return sum(1 for value in ordered if value < low - margin)
