"""The MAP-Elites grid of a run as a picture."""

import math
from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.axes import Axes as Plot
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from app.domain.problem import Axis
from app.domain.search.archive import Elite
from app.reports.plots import INK, SIZE, SOFT, plain

TICKS = 6
COLORS = "viridis"
BELOW = "#3b3b3b"


def archive(elites: Sequence[tuple[int, Elite]], axes: Sequence[Axis], title: str) -> Figure:
    """Draws the best elite of each cell over all islands.

    With one axis the grid is one row; with more than two the first two are shown, and a square
    shows the best of every cell it stands for.  A search without a grid has its elites drawn by
    island.

    Args:
      elites: (island, elite), as the ledger gives them; may be empty.
      axes: The run's grid as it stands.
      title: Usually the run's name.
    """
    figure = Figure(figsize=SIZE, layout="constrained")
    plot = figure.add_subplot()
    if not elites:
        plain(plot, title, "", "")
        plot.set(xticks=[], yticks=[])
        plot.text(
            0.5, 0.5, "the archive is empty", transform=plot.transAxes, ha="center", color=SOFT
        )
    elif not axes or any(len(elite.cell) != len(axes) for _, elite in elites):
        _by_island(plot, elites, title)
    else:
        _grid(figure, plot, elites, axes, title)
    return figure


def best_by_cell(elites: Sequence[tuple[int, Elite]], n_axes: int) -> dict[tuple[int, int], Elite]:
    """Returns the fittest elite of each (column, row): the first two indices of a cell's key.

    A missing second index is 0.  Ties: the first one given.
    """
    best: dict[tuple[int, int], Elite] = {}
    for _, elite in elites:
        column, row = int(elite.cell[0]), int(elite.cell[1]) if n_axes > 1 else 0
        known = best.get((column, row))
        if known is None or elite.quality > known.quality:
            best[column, row] = elite
    return best


def _grid(
    figure: Figure,
    plot: Plot,
    elites: Sequence[tuple[int, Elite]],
    axes: Sequence[Axis],
    title: str,
) -> None:
    across, up = axes[0], axes[1] if len(axes) > 1 else None
    columns, rows = across.bins, up.bins if up else 1
    best = best_by_cell(elites, len(axes))
    table = [[math.nan] * columns for _ in range(rows)]
    for (column, row), elite in best.items():
        table[row][column] = elite.fitness
    plain(plot, title, _label(across), _label(up) if up else "")
    plot.grid(False)
    lowest = _lowest_colored([elite.fitness for elite in best.values()])
    colors = colormaps[COLORS].with_extremes(under=BELOW)
    image = plot.imshow(
        table, origin="lower", aspect="auto", cmap=colors, interpolation="nearest", vmin=lowest
    )
    below = any(elite.fitness < lowest for elite in best.values())
    bar = figure.colorbar(image, ax=plot, shrink=0.9, extend="min" if below else "neither")
    bar.set_label("fitness (higher is better)", color=INK)
    if columns * rows <= 144:
        _numbers(plot, best, lowest)
    (column, row), _ = max(best.items(), key=lambda entry: entry[1].quality)
    plot.plot(column, row, marker="s", markersize=22, fillstyle="none", color="#d64545", mew=2)
    _ticks(plot, across, up)
    cells = math.prod(axis.bins for axis in axes)
    filled = len({elite.cell for _, elite in elites})
    hidden = f"; best over {', '.join(axis.name for axis in axes[2:])}" if len(axes) > 2 else ""
    islands = len({island for island, _ in elites})
    plot.set_title(
        f"{filled} of {cells} cells, {islands} islands merged{hidden}",
        loc="right",
        color=SOFT,
        fontsize=9,
    )


def _lowest_colored(values: Sequence[float]) -> float:
    """Returns where the colors begin: a few hopeless cells must not make the others look alike."""
    ordered = sorted(values)
    middle, high = ordered[len(ordered) // 2], ordered[-1]
    return max(ordered[0], middle - 3 * (high - middle)) if high > middle else ordered[0]


def _numbers(plot: Plot, best: dict[tuple[int, int], Elite], lowest: float) -> None:
    highest = max(elite.fitness for elite in best.values())
    span = highest - lowest
    decimals = min(max(1 - math.floor(math.log10(span)), 0), 6) if span > 0 else 3
    for (column, row), elite in best.items():
        shown = elite.fitness
        told = f"{shown:.{decimals}f}" if abs(shown) < 1e5 else f"{shown:.2e}"
        color = "black" if shown > lowest + span / 2 else "white"
        plot.text(column, row, told, ha="center", va="center", fontsize=6.5, color=color)


def _ticks(plot: Plot, across: Axis, up: Axis | None) -> None:
    """Writes the value at the edges between bins, a few of them."""
    places = _edges(across)
    plot.set_xticks([place - 0.5 for place in places], [_edge(across, place) for place in places])
    if up is None:
        plot.set_yticks([])
        return
    places = _edges(up)
    plot.set_yticks([place - 0.5 for place in places], [_edge(up, place) for place in places])


def _edges(axis: Axis) -> list[int]:
    stride = max(1, math.ceil(axis.bins / TICKS))
    return sorted({*range(0, axis.bins, stride), axis.bins})


def _edge(axis: Axis, place: int) -> str:
    if axis.low is None or axis.high is None:
        return str(place)
    return f"{axis.low + (axis.high - axis.low) * place / axis.bins:.4g}"


def _label(axis: Axis) -> str:
    if axis.low is None or axis.high is None:
        return f"{axis.name} (range not learnt yet)"
    learnt = ", provisional" if axis.provisional else ""
    return f"{axis.name}  [{axis.low:.4g}, {axis.high:.4g}{learnt}], {axis.bins} bins"


def _by_island(plot: Plot, elites: Sequence[tuple[int, Elite]], title: str) -> None:
    plain(plot, title, "island", "fitness (higher is better)")
    islands = [island for island, _ in elites]
    plot.scatter(islands, [elite.fitness for _, elite in elites], s=22, color="#0b6e99", alpha=0.6)
    plot.xaxis.set_major_locator(MaxNLocator(integer=True))
    plot.set_title(f"{len(elites)} elites", loc="right", color=SOFT, fontsize=9)
