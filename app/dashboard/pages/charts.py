"""Options of the charts: pure functions of what is shown."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from types import MappingProxyType
from typing import Any, TypeAlias

from app.dashboard.games import GenerationDocument
from app.dashboard.reads import ArchiveDocument
from app.domain.finite import between, difference
from app.domain.games import Rating
from app.domain.problem import Axis
from app.domain.program import ProgramId
from app.reports.bands import ArmBand
from app.reports.course import (
    Contribution,
    Improvement,
    MeasuredProposal,
    MetricCourse,
    MetricPoint,
)
from app.reports.games import RatedPlayer
from app.reports.generations import GenerationRow, score_lines
from app.reports.view import Scale, best_by_square, lowest_shown, range_shown, scale_of

Options: TypeAlias = dict[str, Any]
"""Options of ECharts, of a whole chart or of a part."""
GREY, LINE = "#858b94", "#8884"
COLOURS = ("#2f7ed8", "#d9822b", "#2a9d6f", "#b5479b", "#8f6a3a", "#5f6caf", "#c0392b", "#1f9bb0")
"""Told apart on light and on dark ground, and by most who see few colours."""
ID_CHARS = 12
"""Characters of a program's id that a point carries, enough to find it by."""
MOST_DECIMALS = 17
"""Decimals of a number beside a chart; a browser takes up to a hundred."""
MOST_GENERATIONS, MARKED_GENERATIONS = 1000, 60
"""Generations in a chart; with more than the second number a line has no symbols."""
ENTERED, NO_CELL, CUT, FAILED = COLOURS[0], GREY, COLOURS[3], COLOURS[1]
"""What became of a proposal, in the same colour in every chart."""


def _axis(name: str, **options: object) -> Options:
    return {
        "type": "value",
        "name": name,
        "nameLocation": "middle",
        "nameGap": 28,
        "nameTextStyle": {"color": GREY},
        "axisLabel": {"color": GREY, "hideOverlap": True},
        "axisLine": {"onZero": False, "lineStyle": {"color": GREY}},
        "splitLine": {"lineStyle": {"color": LINE}},
        **options,
    }


def _settled() -> Options:
    return _axis(
        "settled proposals", min=0, max="dataMax", minInterval=1, splitLine={"show": False}
    )


def _value(name: str, **options: object) -> Options:
    """Returns the axis of a value, whose name stands above it."""
    above = {"nameLocation": "end", "nameGap": 12}
    above["nameTextStyle"] = {"color": GREY, "align": "left"}
    return _axis(name, **above, scale=True, **options)


def _chart(series: list[Options], x: Options, y: Options) -> Options:
    return {
        "animation": False,
        "color": list(COLOURS),
        "grid": {"left": 8, "right": 16, "top": 48, "bottom": 28, "containLabel": True},
        "legend": {"top": 0, "right": 8, "type": "scroll", "textStyle": {"color": GREY}},
        "tooltip": {"trigger": "item", "confine": True},
        "xAxis": x,
        "yAxis": y,
        "series": series,
    }


def _fitness(name: str, scale: Scale, values: Sequence[float]) -> Options:
    """Returns the axis of a fitness, which says what of some values it leaves out."""
    left_out = Scale(scale.unit, scale.marks).note(values)
    name = f"{scale.named(name)}{left_out and f' ({left_out})'}"
    return _value(name, **({} if scale.low is None else {"min": scale.low}))


def _steps(best: Iterable[tuple[int, float]], settled: int, scale: Scale) -> list[list[float]]:
    """Returns the corners of a line through the values that are drawn, up to the last proposal."""
    steps: list[list[float]] = [[at, scale.at(value)] for at, value in best if scale.shows(value)]
    return [*steps, [max(settled, steps[-1][0]), steps[-1][1]]] if steps else []


def _baselines(baselines: Mapping[str, float], scale: Scale) -> Options:
    """Returns a line at the fitness of each baseline; equal ones share it."""
    named: dict[float, list[str]] = {}
    for name, fitness in baselines.items():
        if scale.shows(fitness) and (scale.low is None or scale.at(fitness) >= scale.low):
            named.setdefault(scale.at(fitness), []).append(name)
    label = {"formatter": "{b}", "position": "insideEndBottom", "color": GREY, "fontSize": 11}
    return {
        "symbol": "none",
        "silent": True,
        "label": label,
        "lineStyle": {"color": GREY, "type": "dashed"},
        "data": [{"yAxis": at, "name": ", ".join(names)} for at, names in named.items()],
    }


def curve(
    points: Sequence[MeasuredProposal],
    bests: Sequence[Improvement],
    settled: int,
    baselines: Mapping[str, float] = MappingProxyType({}),
) -> Options:
    """Returns the chart of a run: the best so far, every measured proposal, and baselines."""
    values = [point.fitness for point in points]
    scale = scale_of(values, bests[-1].fitness if bests else None)
    steps = _steps(((best.settled, best.fitness) for best in bests), settled, scale)
    marks = [
        MetricPoint(point.settled, point.fitness, point.program, point.entered) for point in points
    ]
    best = {**_step_line("best so far", steps), "markLine": _baselines(baselines, scale)}
    series = [best, *_scatters("fitness", marks, scale)]
    return _chart(series, _settled(), _fitness("fitness", scale, values))


def metric_curve(
    metric: MetricCourse, settled: int, baselines: Mapping[str, float] = MappingProxyType({})
) -> Options:
    """Returns the chart of a metric of the evaluator, for which higher need not be better.

    Args:
      metric: Over the run.
      settled: Settled proposals of the run.
      baselines: The metric of each baseline that has it.
    """
    values = [point.value for point in metric.points]
    scale = replace(scale_of(values), low=None)
    steps = _steps(((best.settled, best.value) for best in metric.best), settled, scale)
    best = {**_step_line("the best program", steps), "markLine": _baselines(baselines, scale)}
    always = [value for _, value in steps]
    always += [scale.at(value) for value in baselines.values() if scale.shows(value)]
    low, high = range_shown([scale.at(value) for value in values if scale.shows(value)], always)
    axis = _fitness("value", replace(scale, low=low), values)
    axis |= {} if high is None else {"max": high}
    return _chart([best, *_scatters("value", metric.points, scale)], _settled(), axis)


def _line(name: str, data: Sequence[object], **options: object) -> Options:
    return {"name": name, "type": "line", "data": data, **options}


def _step_line(name: str, steps: Sequence[Sequence[float]]) -> Options:
    few, width = len(steps) < 100, {"width": 2}
    return _line(name, steps, step="end", showSymbol=few, symbolSize=6, lineStyle=width, z=3)


def _scatters(value: str, points: Sequence[MetricPoint], scale: Scale) -> list[Options]:
    """Returns the points of programs that entered a cell, and those of the others."""
    shown: Options = {"dimensions": ["settled", value, "program"]}
    shown |= {"encode": {"x": 0, "y": 1, "tooltip": [0, 1, 2]}}

    def scatter(name: str, taken: bool, colour: str) -> Options:
        return {
            **shown,
            "name": name,
            "type": "scatter",
            # All symbols are drawn as one path.
            "large": True,
            "largeThreshold": 200,
            "symbolSize": 7 if taken else 5,
            "itemStyle": {"opacity": 0.75 if taken else 0.5, "color": colour},
            # Tuples, because NiceGUI watches every list of what it is given for changes.
            "data": tuple(
                (point.settled, scale.at(point.value), point.program[:ID_CHARS])
                for point in points
                if point.entered is taken and scale.shows(point.value)
            ),
        }

    return [scatter("entered a cell", True, ENTERED), scatter("no cell", False, NO_CELL)]


def outcomes(segments: Sequence[Contribution], span: int) -> Options:
    """Returns what became of the proposals: of each `span` that settled one after the other."""
    parts = {
        "entered a cell": (ENTERED, [segment.entered for segment in segments]),
        "no cell": (NO_CELL, [segment.refused for segment in segments]),
        "cut": (CUT, [segment.cut for segment in segments]),
        "failed": (FAILED, [segment.failed for segment in segments]),
    }
    bars = {"type": "bar", "stack": "outcomes", "barCategoryGap": "8%"}
    series = [
        {**bars, "name": name, "color": colour, "data": data}
        for name, (colour, data) in parts.items()
    ]
    x = _axis("settled proposals", type="category", boundaryGap=True)
    x["data"] = [str(n * span + 1) for n in range(len(segments))]
    name = "proposals" if span == 1 else f"proposals, {span} in each bar"
    options = _chart(series, x, _value(name, min=0, minInterval=1))
    options["tooltip"] = {"trigger": "axis", "confine": True}
    return options


def by_generation(rows: Sequence[GenerationRow]) -> Options:
    """Returns the best so far and the means of generations above the counts of their proposals.

    Args:
      rows: In order; of more than `MOST_GENERATIONS` every second, third … is drawn.
    """
    stride = -(-len(rows) // MOST_GENERATIONS) or 1
    lines = score_lines(rows[::stride])
    values = [value for line in lines.values() for value in line if value is not None]
    scale = scale_of(values, max(values, default=None))
    drawn = [scale.at(value) for value in values if scale.shows(value)]
    few = len(rows) <= MARKED_GENERATIONS
    series: list[Options] = []
    colours = (COLOURS[6], COLOURS[0], COLOURS[1])
    for (name, line), colour in zip(lines.items(), colours, strict=True):
        data = [
            scale.at(value) if value is not None and scale.shows(value) else None for value in line
        ]
        shown = {"showSymbol": few, "symbolSize": 6, "connectNulls": False}
        series.append(_line(name, data, color=colour, **shown))
    counts = {
        "with a fitness": (COLOURS[2], [row.num_valid for row in rows[::stride]]),
        "without one": (GREY, [row.num_candidates - row.num_valid for row in rows[::stride]]),
    }
    below = {"type": "bar", "stack": "counts", "xAxisIndex": 1, "yAxisIndex": 1}
    series += [
        {**below, "name": name, "color": colour, "data": data}
        for name, (colour, data) in counts.items()
    ]
    numbers = [str(row.generation) for row in rows[::stride]]
    every = "" if stride == 1 else f", one of {stride} drawn"
    x = {"type": "category", "boundaryGap": True, "data": numbers, "splitLine": {"show": False}}
    above = _axis("", **x, axisLabel={"show": False})
    options = _chart(series, above, _fitness("fitness", scale, values))
    left = _label_pixels(drawn)
    options["grid"] = [
        {"left": left, "right": 16, "top": 48, "bottom": "38%"},
        {"left": left, "right": 16, "top": "71%", "bottom": 44},
    ]
    options["xAxis"] = [above, _axis(f"generation{every}", **x, gridIndex=1)]
    options["yAxis"] = [
        options["yAxis"],
        _value("proposals", min=0, minInterval=1, splitNumber=2, gridIndex=1),
    ]
    options["tooltip"] = {"trigger": "axis", "confine": True}
    options["axisPointer"] = {"link": [{"xAxisIndex": "all"}]}
    return options


def _label_pixels(values: Sequence[float]) -> int:
    """Returns the room that the labels of an axis need, so that two charts begin at one line."""
    if not values:
        return 48
    low, high = min(values), max(values)
    step = difference(high, low) / 5
    decimals = min(max(0, math.ceil(-math.log10(step))), MOST_DECIMALS) if step > 0 else 0
    chars = max(len(f"{value:,.{decimals}f}") for value in (low, high))
    return 16 + 7 * min(max(chars, 4), MOST_DECIMALS + 4)


def curves(runs: Mapping[str, Iterable[Improvement]], ends: Mapping[str, int]) -> Options:
    """Returns the best so far of several runs in one chart.

    Args:
      runs: What the best of each run was, by the run's name; see `Course.bests`.
      ends: Settled proposals of each.
    """
    known = {name: list(bests) for name, bests in runs.items()}
    values = [best.fitness for bests in known.values() for best in bests]
    scale = replace(scale_of(values), low=None)
    steps = {
        name: _steps(((best.settled, best.fitness) for best in bests), ends[name], scale)
        for name, bests in known.items()
    }
    series = [_line(name, data, step="end", showSymbol=False) for name, data in steps.items()]
    return _chart(series, _settled(), _fitness("best fitness so far", scale, values))


def bands(arms: Mapping[str, ArmBand]) -> Options:
    """Returns the best so far of arms: medians over runs, in bands between the quartiles."""
    series: list[Options] = []
    drawn = {name: arm.band for name, arm in arms.items() if arm.band}
    points = [point for band in drawn.values() for point in band]
    values = [value for p in points for value in (p.q25, p.median, p.q75)]
    scale = scale_of(values, max((band[-1].q75 for band in drawn.values()), default=None))
    lows = [scale.at(p.q25) for p in points if scale.shows(p.q25)]
    bottom = min((scale.at(value) for value in values if scale.shows(value)), default=0.0)
    for (arm, band), colour in zip(drawn.items(), cycle(COLOURS), strict=False):
        line = {"type": "line", "step": "end", "showSymbol": False, "color": colour}
        edge = _edge(arm, tooltip={"show": False})
        shown = [p for p in band if scale.shows(p.median) and scale.shows(p.q75)]
        ends = [
            (p.settled, scale.at(p.q25) if scale.shows(p.q25) else bottom, scale.at(p.q75))
            for p in shown
        ]
        low = [[settled, below] for settled, below, _ in ends]
        width = [[settled, above - below] for settled, below, above in ends]
        middle = [[p.settled, scale.at(p.median)] for p in shown]
        area = {"areaStyle": {"opacity": 0.18}}
        series += [
            {**line, **edge, "name": f"{arm}: lower quartile", "data": low},
            {**line, **edge, **area, "name": f"{arm}: upper quartile", "data": width},
            {**line, "name": arm, "data": middle},
        ]
    tops = [band[-1].q75 for band in drawn.values()]
    highs = [scale.at(top) for top in tops if scale.shows(top)]
    begin = lowest_shown(lows, max(highs, default=None))
    y = _fitness("best fitness so far", replace(scale, low=begin), values)
    options = _chart(series, _settled(), y)
    options["legend"]["data"] = list(drawn)
    return options


def _edge(stack: str, **options: object) -> Options:
    """Returns the look of the lower edge of a band, or of its height, which is stacked upon it."""
    unseen = {"lineStyle": {"opacity": 0}, "silent": True}
    return {**unseen, "stack": stack, "stackStrategy": "all", **options}


def ratings(generations: Sequence[GenerationDocument], rated: Sequence[RatedPlayer]) -> Options:
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
    edge = {**line, **_edge("interval", showSymbol=False, color=COLOURS[0])}
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
    x = _axis("generation", minInterval=1, scale=True, splitLine={"show": False})
    options = _chart(series, x, _value("rating"))
    options["legend"]["data"] = ["champion", "runner-up"]
    return options


def grid_map(archive: ArchiveDocument, island: int | None, across: int, up: int | None) -> Options:
    """Returns the heat map of a grid: the best fitness of each cell.

    Args:
      archive: With at least one axis.
      island: One island; None for the best of all.
      across: Index of the axis that is drawn from left to right.
      up: Index of the axis that is drawn upwards; None where there is one axis alone.
    """
    cells_shown = [cell for cell in archive.cells if island in (None, cell.island)]
    best = best_by_square(cells_shown, across, up)
    values = [cell.fitness for cell in best.values()]
    scale = scale_of(values, max(values, default=None))
    shown = [scale.at(value) for value in values if scale.shows(value)]
    x, y = archive.axes[across], None if up is None else archive.axes[up]
    cells = {
        "type": "heatmap",
        "dimensions": [x.name, y.name if y else "", "fitness", "program"],
        "encode": {"x": 0, "y": 1, "value": 2, "tooltip": [2, 3]},
        "data": [
            [at, above, scale.at(cell.fitness), cell.program[:ID_CHARS]]
            for (at, above), cell in best.items()
        ],
        "emphasis": {"itemStyle": {"borderColor": GREY, "borderWidth": 2}},
    }
    options = _chart(
        [cells],
        _bins(x),
        _bins(y) if y else {"type": "category", "data": [""], "show": False},
    )
    options["visualMap"] = {
        "min": min(shown, default=0.0) if scale.low is None else scale.low,
        "max": max(shown, default=1.0),
        "dimension": 2,
        "calculable": True,
        "precision": _decimals(shown),
        "text": ["", scale.named("fitness")],
        "orient": "horizontal",
        "left": "center",
        "top": 0,
        "itemHeight": 120,
        "textStyle": {"color": GREY},
        "inRange": {"color": ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"]},
    }
    options["grid"] = {"left": 88, "right": 16, "top": 64, "bottom": 56}
    del options["legend"]
    return options


def _decimals(values: Sequence[float]) -> int:
    """Returns the decimals that show differences of a hundredth of the range; at least three."""
    span = difference(max(values), min(values)) if values else 0.0
    return 3 if span <= 0 else min(max(3, 2 - math.floor(math.log10(span))), MOST_DECIMALS)


def _bins(axis: Axis) -> Options:
    options = _axis(f"{axis.name}, from", type="category", nameGap=36)
    options["splitArea"] = {"show": True, "areaStyle": {"color": ["#8881", "#8880"]}}
    options["data"] = [_from(axis, n) for n in range(axis.bins)]
    return options


def _from(axis: Axis, n: int) -> str:
    if axis.low is None or axis.high is None:
        return str(n)
    low = between(axis.low, axis.high, n / axis.bins)
    return f"{low:,.0f}" if 100 <= abs(low) < 1e15 else f"{low:.3g}"
