"""Plots of a run: fitness, failures, the MAP-Elites grid and generations.

Drawn with matplotlib's object-oriented interface: no display, no global state.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib import colormaps
from matplotlib.axes import Axes as Plot
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from app.domain.digits import number_texts
from app.domain.finite import between, quantile
from app.domain.problem import Axis
from app.domain.search.archive import Elite
from app.reports.course import Course
from app.reports.generations import GenerationRow, score_lines
from app.reports.view import Scale, best_by_square, scale_of

SIZE = (9.0, 5.2)
TICKS = 6
"""Labels of an axis of the grid, about."""
_MARGIN = 0.05
"""The share of what is shown that is left free above it, as matplotlib does."""
_MARKED_GENERATIONS = 60
"""With more generations than these, a line through them has no markers."""
INK, SOFT, DOT, BEST = "#1f2933", "#8895a7", "#9fb3c8", "#d64545"
COLORS, BELOW_COLORS = "viridis", "#3b3b3b"
PALETTE = (
    *("#0b6e99", "#e07a1f", "#3f8f4f", "#b0413e", "#7656a8"),
    *("#8c6d46", "#d1719f", "#7a7a7a", "#a8a032", "#2fa8b5"),
)


def evolution(course: Course, baselines: Mapping[str, float], title: str) -> Figure:
    """Draws the fitness of measured proposals and the best so far, over the proposals settled.

    Fitness far below everything else is left out of view and counted above: one bad child
    must not flatten the rest.

    Args:
      course: Of the run; may be empty.
      baselines: Name to fitness, drawn as dashed lines.
      title: Usually the run's name.
    """
    points, best = course.points, course.bests
    values = [point.fitness for point in points]
    scale = scale_of(values, best[-1].fitness if best else None)
    fitness = scale.named("fitness (higher is better)")
    figure, plot = _figure(title, "proposals settled", fitness)
    if not points and not best:
        return _empty(figure, plot, "no proposal has been measured yet")
    end = max(course.progress.done, 1)
    drawn = [point for point in points if scale.shows(point.fitness)]
    plot.scatter(
        [point.settled for point in drawn],
        [scale.at(point.fitness) for point in drawn],
        s=14,
        color=DOT,
        edgecolors="none",
        label="a proposal",
        zorder=2.5,
    )
    steps = [(step.settled, scale.at(step.fitness)) for step in best if scale.shows(step.fitness)]
    if steps:
        steps.append((end, steps[-1][1]))
        plot.step(
            [settled for settled, _ in steps],
            [level for _, level in steps],
            where="post",
            color=BEST,
            linewidth=2,
            zorder=3,
            label="best so far",
        )
    levels = [each for each in _levels(baselines) if scale.shows(each[1])]
    texts = number_texts([level for _, level in levels] + [best[-1].fitness if best else None])
    for (names, level), text, color in zip(levels, texts, cycle(PALETTE), strict=False):
        label = _plain(f"{names}  {text}")
        plot.axhline(scale.at(level), linestyle="--", linewidth=1.2, color=color, label=label)
    plot.xaxis.set_major_locator(MaxNLocator(integer=True))
    plot.set_xlim(0, end * 1.01)
    if scale.low is not None:
        high = max([*(level for _, level in steps), *(scale.at(level) for _, level in levels)])
        plot.set_ylim(scale.low, high + _MARGIN * (high - scale.low))
    plot.set_title(scale.note(values), loc="right", color=SOFT, fontsize=9)
    _legend(plot)
    return figure


def failures(course: Course, title: str) -> Figure:
    """Draws the failed proposals by kind over the run, beside their totals; may be empty."""
    figure, plot = _figure(title, "proposals settled", "failed proposals")
    totals, settled = sum(course.failed, Counter[str]()), course.progress.done
    if not totals:
        text = "no proposal failed" if settled else "no proposal has settled yet"
        return _empty(figure, plot, text)
    width = course.span
    starts = [n * width for n in range(len(course.failed))]
    below = [0] * len(starts)
    kinds = sorted(totals, key=lambda kind: (-totals[kind], kind))
    for kind, color in zip(kinds, cycle(PALETTE), strict=False):
        counts = [of_kind[kind] for of_kind in course.failed]
        label = f"{kind}  {totals[kind]}"
        plot.bar(starts, counts, width * 0.9, below, align="edge", color=color, label=label)
        below = [low + count for low, count in zip(below, counts, strict=True)]
    plot.set_xlim(0, max(starts[-1] + width, 1))
    for axis in (plot.xaxis, plot.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    share = f"{totals.total()} of {settled} failed ({totals.total() / settled:.0%})"
    _legend(plot, title=share)
    return figure


def archive(elites: Sequence[tuple[int, Elite]], axes: Sequence[Axis], title: str) -> Figure:
    """Draws the best elite of each cell over all islands.

    With one axis the grid is one row.  With more than two axes the first two are shown, and each
    square shows the best of all the cells that share its first two indices.  The elites of a search
    without a grid are drawn by island.

    Args:
      elites: (island, elite), as the ledger returns them; may be empty.
      axes: The run's grid with its present ranges.
      title: Usually the run's name.
    """
    figure = Figure(figsize=SIZE, layout="constrained")
    plot = figure.add_subplot()
    if not elites:
        _style(plot, title, "", "")
        plot.set(xticks=[], yticks=[])
        plot.text(
            0.5, 0.5, "the archive is empty", transform=plot.transAxes, ha="center", color=SOFT
        )
    elif not axes or any(len(elite.cell) != len(axes) for _, elite in elites):
        _by_island(plot, elites, title)
    else:
        _grid(figure, plot, elites, axes, title)
    return figure


def by_generation(rows: Sequence[GenerationRow], title: str) -> Figure:
    """Draws the best so far, the means and the proposals of generations.

    Args:
      rows: Of the run, in order; may be empty.
      title: Usually the run's name.
    """
    lines = score_lines(rows)
    values = [value for line in lines.values() for value in line if value is not None]
    scale = scale_of(values, max(values, default=None))
    figure = Figure(figsize=SIZE, layout="constrained")
    plot, counts = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _style(plot, title, "", scale.named("fitness (higher is better)"))
    _style(counts, "", "generation", "proposals")
    if not rows:
        counts.set_yticks([])
        return _empty(figure, plot, "no generation has settled yet")
    numbers = [row.generation for row in rows]
    marker = "o" if len(rows) <= _MARKED_GENERATIONS else ""
    for (name, line), color in zip(lines.items(), (BEST, *PALETTE), strict=False):
        levels = [
            math.nan if value is None or not scale.shows(value) else scale.at(value)
            for value in line
        ]
        plot.plot(numbers, levels, color=color, marker=marker, markersize=4, label=name)
    if scale.low is not None:
        high = max(scale.at(value) for value in values if scale.shows(value))
        plot.set_ylim(scale.low, high + _MARGIN * (high - scale.low))
    plot.set_title(scale.note(values), loc="right", color=SOFT, fontsize=9)
    _legend(plot)
    measured = [row.num_valid for row in rows]
    others = [row.num_candidates - row.num_valid for row in rows]
    counts.bar(numbers, measured, color=PALETTE[2], label="with a fitness")
    counts.bar(numbers, others, bottom=measured, color=DOT, label="without one")
    counts.xaxis.set_major_locator(MaxNLocator(integer=True))
    counts.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    _legend(counts)
    return figure


def arms(curves: Mapping[str, Sequence[Sequence[float]]], title: str) -> Figure:
    """Draws the best so far of arms: the median over runs, in a band from quartile to quartile.

    Args:
      curves: The runs of each arm, each by settled proposals, from 0; equally many, may be empty.
      title: Names the problem.
    """
    bands = {arm: _band(runs) for arm, runs in curves.items()}
    values = [value for band in bands.values() for at in band for value in at]
    scale = scale_of(values, max(values, default=None))
    fitness = scale.named("best so far (higher is better)")
    figure, plot = _figure(title, "proposals settled", fitness)
    if not bands:
        return _empty(figure, plot, "no run has finished yet")
    starts = [value for band in bands.values() for value in band[0]]
    ends = number_texts([band[-1][1] for band in bands.values()], starts)
    for (arm, band), end, color in zip(bands.items(), ends, cycle(PALETTE), strict=False):
        settled = range(len(band))
        low, middle, high = (
            [scale.at(value) if scale.shows(value) else math.nan for value in line]
            for line in zip(*band, strict=True)
        )
        plot.fill_between(settled, low, high, step="post", color=color, alpha=0.18, linewidth=0)
        label = _plain(f"{arm}  {end}  (n = {len(curves[arm])})")
        plot.step(settled, middle, where="post", color=color, linewidth=2, label=label)
    plot.xaxis.set_major_locator(MaxNLocator(integer=True))
    plot.set_title(Scale(scale.unit, scale.marks).note(values), loc="right", color=SOFT, fontsize=9)
    _legend(plot)
    return figure


def _band(runs: Sequence[Sequence[float]]) -> list[tuple[float, float, float]]:
    """Returns the quartiles of curves after 0, 1, … settled proposals."""
    return [
        (quantile(at, 0.25), quantile(at, 0.5), quantile(at, 0.75))
        for at in zip(*runs, strict=True)
    ]


def _figure(title: str, across: str, up: str) -> tuple[Figure, Plot]:
    figure = Figure(figsize=SIZE, layout="constrained")
    plot = figure.add_subplot()
    _style(plot, title, across, up)
    return figure, plot


def _style(plot: Plot, title: str, across: str, up: str) -> None:
    """Gives a plot the common look: no frame, a quiet grid, labels."""
    plot.set_title(_plain(title), loc="left", color=INK, fontsize=12)
    plot.set_xlabel(_plain(across), color=INK)
    plot.set_ylabel(_plain(up), color=INK)
    plot.tick_params(colors=INK, labelsize=9)
    plot.grid(True, color="#e4e7eb", linewidth=0.8)
    plot.set_axisbelow(True)
    for side in ("top", "right"):
        plot.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        plot.spines[side].set_color(SOFT)


def _plain(text: str) -> str:
    """Returns a text that is drawn as it is: matplotlib reads a formula between dollar signs."""
    return text.replace("$", r"\$")


def _legend(plot: Plot, title: str | None = None) -> None:
    beside = (1.01, 1.0)
    plot.legend(loc="upper left", bbox_to_anchor=beside, frameon=False, fontsize=9, title=title)


def _empty(figure: Figure, plot: Plot, text: str) -> Figure:
    plot.text(0.5, 0.5, text, transform=plot.transAxes, ha="center", va="center", color=SOFT)
    plot.set_xticks([])
    plot.set_yticks([])
    return figure


def _levels(baselines: Mapping[str, float]) -> list[tuple[str, float]]:
    """Returns the names at each fitness, fittest first: equal baselines share one line."""
    names: dict[float, list[str]] = {}
    for name, fitness in sorted(baselines.items()):
        names.setdefault(fitness, []).append(name)
    return [("\n".join(names[level]), level) for level in sorted(names, reverse=True)]


def _grid(
    figure: Figure,
    plot: Plot,
    elites: Sequence[tuple[int, Elite]],
    axes: Sequence[Axis],
    title: str,
) -> None:
    across, up = axes[0], axes[1] if len(axes) > 1 else None
    columns, rows = across.bins, up.bins if up else 1
    best = best_by_square((elite for _, elite in elites), 0, 1 if up else None)
    values = [elite.fitness for elite in best.values()]
    scale = scale_of(values, max(values))
    table = [[math.nan] * columns for _ in range(rows)]
    for (column, row), elite in best.items():
        if scale.shows(elite.fitness):
            table[row][column] = scale.at(elite.fitness)
    shown = [scale.at(value) for value in values if scale.shows(value)]
    lowest, highest = min(shown) if scale.low is None else scale.low, max(shown)
    _style(plot, title, _label(across), _label(up) if up else "")
    plot.grid(False)
    colors = colormaps[COLORS].with_extremes(under=BELOW_COLORS)
    image = plot.imshow(
        table,
        origin="lower",
        aspect="auto",
        cmap=colors,
        interpolation="nearest",
        vmin=lowest,
        vmax=highest,
    )
    below = min(shown) < lowest
    bar = figure.colorbar(image, ax=plot, shrink=0.9, extend="min" if below else "neither")
    bar.set_label(scale.named("fitness (higher is better)"), color=INK)
    if columns * rows <= 144:
        _numbers(plot, best, scale, lowest, highest)
    (column, row), _ = max(best.items(), key=lambda entry: entry[1].quality)
    plot.plot(column, row, marker="s", markersize=22, fillstyle="none", color="#d64545", mew=2)
    _ticks(plot, across, up)
    cells = math.prod(axis.bins for axis in axes)
    filled = len({elite.cell for _, elite in elites})
    hidden = f"; best over {', '.join(axis.name for axis in axes[2:])}" if len(axes) > 2 else ""
    islands = len({island for island, _ in elites})
    merged = f", {islands} islands merged" if islands > 1 else ""
    left_out = Scale(scale.unit, scale.marks).note(values)
    note = f"{filled} of {cells} cells{merged}{hidden}{left_out and f'; {left_out}'}"
    plot.set_title(_plain(note), loc="right", color=SOFT, fontsize=9)


def _numbers(
    plot: Plot, best: dict[tuple[int, int], Elite], scale: Scale, lowest: float, highest: float
) -> None:
    """Writes the fitness of each cell into it; `lowest` and `highest` are those with a colour."""
    span = highest - lowest
    decimals = min(max(2 - math.floor(math.log10(span)), 0), 6) if span > 0 else 3
    for (column, row), elite in best.items():
        fitness = elite.fitness
        text = f"{fitness:.{decimals}f}" if abs(fitness) < 1e5 else f"{fitness:.2e}"
        dark = scale.shows(fitness) and scale.at(fitness) <= lowest + span / 2
        color = "white" if dark else "black"
        plot.text(column, row, text, ha="center", va="center", fontsize=6.5, color=color)


def _ticks(plot: Plot, across: Axis, up: Axis | None) -> None:
    """Labels some of the edges between bins with their values."""
    plot.set_xticks(*_edges(across))
    if up is None:
        plot.set_yticks([])
    else:
        plot.set_yticks(*_edges(up))


def _edges(axis: Axis) -> tuple[list[float], list[str]]:
    """Returns positions on the plot and their labels."""
    stride = max(1, math.ceil(axis.bins / TICKS))
    bins = sorted({*range(0, axis.bins, stride), axis.bins})
    if axis.low is None or axis.high is None:
        labels = [str(n) for n in bins]
    else:
        labels = [f"{between(axis.low, axis.high, n / axis.bins):.4g}" for n in bins]
    return [n - 0.5 for n in bins], labels


def _label(axis: Axis) -> str:
    if axis.low is None or axis.high is None:
        return f"{axis.name} (range not learnt yet)"
    learnt = ", provisional" if axis.provisional else ""
    return f"{axis.name}  [{axis.low:.4g}, {axis.high:.4g}{learnt}], {axis.bins} bins"


def _by_island(plot: Plot, elites: Sequence[tuple[int, Elite]], title: str) -> None:
    values = [elite.fitness for _, elite in elites]
    scale = scale_of(values, max(values))
    _style(plot, title, "island", scale.named("fitness (higher is better)"))
    drawn = [(island, elite.fitness) for island, elite in elites if scale.shows(elite.fitness)]
    plot.scatter(
        [island for island, _ in drawn],
        [scale.at(fitness) for _, fitness in drawn],
        s=22,
        color="#0b6e99",
        alpha=0.6,
    )
    plot.xaxis.set_major_locator(MaxNLocator(integer=True))
    left_out = Scale(scale.unit, scale.marks).note(values)
    note = f"{len(elites)} elites{left_out and f'; {left_out}'}"
    plot.set_title(note, loc="right", color=SOFT, fontsize=9)
