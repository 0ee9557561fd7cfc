"""Options of the charts: pure functions of what is shown."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from statistics import quantiles
from typing import Any

from app.dashboard.comparisons import ArmDocument
from app.dashboard.games import GenerationDocument
from app.dashboard.reads import ArchiveDocument, CellDocument
from app.domain.games import Rating
from app.domain.problem import Axis
from app.domain.program import ProgramId
from app.reports.course import Improvement, MeasuredProposal
from app.reports.games import RatedPlayer

GREY, LINE = "#8a8f98", "#8884"
COLOURS = ("#2f7ed8", "#d9822b", "#2a9d6f", "#b5479b", "#8f6a3a", "#5f6caf", "#c0392b", "#1f9bb0")
"""Told apart on light and on dark ground, and by most who see few colours."""
ID_CHARS = 12
"""Characters of a program's id that a point carries, enough to find it by."""


def _axis(name: str, **options: Any) -> dict[str, Any]:
    return {
        "type": "value",
        "name": name,
        "nameLocation": "middle",
        "nameGap": 28,
        "nameTextStyle": {"color": GREY},
        "axisLabel": {"color": GREY, "hideOverlap": True},
        "axisLine": {"lineStyle": {"color": GREY}},
        "splitLine": {"lineStyle": {"color": LINE}},
        **options,
    }


def _chart(series: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    return {
        "animation": False,
        "color": list(COLOURS),
        "grid": {"left": 64, "right": 16, "top": 36, "bottom": 44},
        "legend": {"top": 4, "textStyle": {"color": GREY}},
        "tooltip": {"trigger": "item", "confine": True},
        "xAxis": x,
        "yAxis": y,
        "series": series,
    }


def lowest_shown(values: Sequence[float], best: float | None) -> float | None:
    """Returns where the axis of fitness begins; None where it begins at the lowest value.

    A few programs that are far worse than the rest would press all others into one line.
    """
    if len(values) < 8 or best is None:
        return None
    quarter, middle, _ = quantiles(values, n=4)
    low = min(quarter, middle) - 2 * max(best - quarter, abs(best) * 1e-6)
    return low if min(values) < low else None


def curve(
    points: Sequence[MeasuredProposal], improvements: Sequence[Improvement], settled: int
) -> dict[str, Any]:
    """Returns the chart of a run: the best so far, and every measured proposal."""
    steps: list[list[float]] = [[best.settled, best.fitness] for best in improvements]
    if steps:
        steps.append([max(settled, steps[-1][0]), steps[-1][1]])
    low = lowest_shown([point.fitness for point in points], steps[-1][1] if steps else None)

    def scatter(name: str, taken: bool, symbol: str) -> dict[str, Any]:
        return {
            "name": name,
            "type": "scatter",
            "symbol": symbol,
            "symbolSize": 5,
            "itemStyle": {"opacity": 0.55},
            "data": [
                [point.settled, point.fitness, point.program[:ID_CHARS]]
                for point in points
                if point.admitted is taken
            ],
        }

    best = {
        "name": "best so far",
        "type": "line",
        "step": "end",
        "showSymbol": len(steps) < 100,
        "symbolSize": 6,
        "lineStyle": {"width": 2},
        "data": steps,
        "z": 3,
    }
    series = [best, scatter("entered a cell", True, "circle"), scatter("no cell", False, "diamond")]
    y = _axis("fitness", scale=True, nameGap=48, **({} if low is None else {"min": low}))
    return _chart(series, _axis("settled proposals", min=0, minInterval=1), y)


def curves(runs: Mapping[str, Iterable[Improvement]], ends: Mapping[str, int]) -> dict[str, Any]:
    """Returns the best so far of several runs in one chart.

    Args:
      runs: Improvements by the run's name.
      ends: Settled proposals of each.
    """
    series = []
    for name, improvements in runs.items():
        data: list[list[float]] = [[best.settled, best.fitness] for best in improvements]
        if data:
            data.append([max(ends[name], data[-1][0]), data[-1][1]])
        series.append(
            {"name": name, "type": "line", "step": "end", "showSymbol": False, "data": data}
        )
    y = _axis("best fitness so far", scale=True, nameGap=48)
    return _chart(series, _axis("settled proposals", min=0, minInterval=1), y)


def bands(arms: Sequence[ArmDocument]) -> dict[str, Any]:
    """Returns the best so far of arms: medians over runs, in bands between the quartiles."""
    series: list[dict[str, Any]] = []
    drawn = [arm for arm in arms if arm.band]
    for arm, colour in zip(drawn, cycle(COLOURS), strict=False):
        line = {"type": "line", "step": "end", "showSymbol": False, "color": colour}
        edge: dict[str, Any] = {
            "lineStyle": {"opacity": 0},
            "stack": arm.arm,
            "stackStrategy": "all",
        }
        edge |= {"silent": True, "tooltip": {"show": False}}
        low = [[point.settled, point.low] for point in arm.band]
        width = [[point.settled, point.high - point.low] for point in arm.band]
        middle = [[point.settled, point.middle] for point in arm.band]
        area = {"areaStyle": {"opacity": 0.18}}
        series += [
            {**line, **edge, "name": f"{arm.arm}: lower quartile", "data": low},
            {**line, **edge, **area, "name": f"{arm.arm}: upper quartile", "data": width},
            {**line, "name": arm.arm, "data": middle},
        ]
    lows = [point.low for arm in drawn for point in arm.band]
    begin = lowest_shown(lows, max((arm.band[-1].high for arm in drawn), default=None))
    y = _axis(
        "best fitness so far", scale=True, nameGap=48, **({} if begin is None else {"min": begin})
    )
    options = _chart(series, _axis("settled proposals", min=0, minInterval=1), y)
    options["legend"]["data"] = [arm.arm for arm in drawn]
    return options


def ratings(
    generations: Sequence[GenerationDocument], rated: Sequence[RatedPlayer]
) -> dict[str, Any]:
    """Returns the ratings of champions, in their intervals, and of runners-up.

    Args:
      generations: Of one island, oldest first; one that goes on is left out.
      rated: Players of theirs.
    """
    known = {player.program: player.rating for player in rated}
    places: list[list[tuple[int, ProgramId, Rating]]] = [
        [
            (each.number, each.podium[place], known[each.podium[place]])
            for each in generations
            if len(each.podium) > place and each.podium[place] in known
        ]
        for place in range(2)
    ]
    line = {"type": "line", "symbolSize": 6}
    edge = {**line, "showSymbol": False, "lineStyle": {"opacity": 0}, "silent": True}
    edge |= {"stack": "interval", "stackStrategy": "all", "color": COLOURS[0]}
    champions, runners_up = places
    series = [
        {**edge, "name": "low", "data": [[n, rating.low] for n, _, rating in champions]},
        {
            **edge,
            "name": "high",
            "areaStyle": {"opacity": 0.18},
            "data": [[n, rating.high - rating.low] for n, _, rating in champions],
        },
    ]
    for name, place, colour in zip(
        ("champion", "runner-up"), (champions, runners_up), COLOURS, strict=False
    ):
        data = [[n, round(rating.value, 1), player[:ID_CHARS]] for n, player, rating in place]
        series.append({**line, "name": name, "color": colour, "data": data})
    options = _chart(
        series,
        _axis("generation", minInterval=1, scale=True),
        _axis("rating", scale=True, nameGap=48),
    )
    options["legend"]["data"] = ["champion", "runner-up"]
    return options


def grid_map(
    archive: ArchiveDocument, island: int | None, across: int, up: int | None
) -> dict[str, Any]:
    """Returns the heat map of a grid: the best fitness of each cell.

    Args:
      archive: With at least one axis.
      island: One island; None for the best of all.
      across: Index of the axis that is drawn from left to right.
      up: Index of the axis that is drawn upwards; None where there is one axis alone.
    """
    best = best_cells(archive.cells, island, across, up)
    values = [cell.fitness for cell in best.values()]
    low = lowest_shown(values, max(values, default=None))
    data = [[x, y, cell.fitness, cell.program[:ID_CHARS]] for (x, y), cell in best.items()]
    x, y = archive.axes[across], None if up is None else archive.axes[up]
    options = _chart(
        [{"type": "heatmap", "data": data, "emphasis": {"itemStyle": {"borderColor": GREY}}}],
        _bins(x),
        _bins(y) if y else {"type": "category", "data": [""], "show": False},
    )
    options["visualMap"] = {
        "min": min(values, default=0.0) if low is None else low,
        "max": max(values, default=1.0),
        "dimension": 2,
        "calculable": True,
        "orient": "horizontal",
        "left": "center",
        "top": 0,
        "itemHeight": 120,
        "textStyle": {"color": GREY},
        "inRange": {"color": ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"]},
    }
    options["grid"] = {"left": 88, "right": 16, "top": 48, "bottom": 56}
    del options["legend"]
    return options


def best_cells(
    cells: Iterable[CellDocument], island: int | None, across: int, up: int | None
) -> dict[tuple[int, int], CellDocument]:
    """Returns the fittest cell at each place of two axes, or of one, whatever the others are."""
    best: dict[tuple[int, int], CellDocument] = {}
    for cell in cells:
        if island is not None and cell.island != island:
            continue
        at = int(cell.cell[across]), 0 if up is None else int(cell.cell[up])
        if at not in best or cell.fitness > best[at].fitness:
            best[at] = cell
    return best


def _bins(axis: Axis) -> dict[str, Any]:
    options = _axis(axis.name, type="category", nameGap=36, splitLine={"show": False})
    options["data"] = [_from(axis, n) for n in range(axis.bins)]
    return options


def _from(axis: Axis, n: int) -> str:
    if axis.low is None or axis.high is None:
        return str(n)
    return f"{axis.low + n * (axis.high - axis.low) / axis.bins:.4g}"
