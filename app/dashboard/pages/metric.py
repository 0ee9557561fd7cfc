"""The part of a run's page that shows one metric of the evaluator, which the viewer chooses."""

from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import quote

from nicegui import ui
from nicegui.events import EChartPointClickEventArguments

from app.dashboard.pages.charts import metric_curve
from app.dashboard.pages.layout import Chart, heading, say
from app.dashboard.pages.text import shown
from app.domain.evaluation import COMBINED
from app.reports.course import Course
from app.reports.measured import MeasuredProgram


class MetricView:
    """A choice of a metric, and its chart; hidden while the evaluator has no metric of its own."""

    def __init__(self, wanted: str, clicked: Callable[[EChartPointClickEventArguments], None]):
        """Draws the elements.

        Args:
          wanted: The metric that is shown at first; "" for the first of the alphabet.
          clicked: Called when a point is clicked.
        """
        self._wanted = wanted
        self._names: list[str] = []
        self._course = Course()
        self._baselines: Mapping[str, MeasuredProgram] = {}
        with ui.element("div") as self._box:
            heading("Metrics of the evaluator")
            say("The line is the program with the best fitness so far.", "grey")
            self._choice = ui.select({}, label="Metric", with_input=True, on_change=self._choose)
            self._choice.props("dense outlined options-dense").style("max-width: 28rem")
            self._chart = Chart("A metric of the evaluator over the proposals", clicked)
        self._box.set_visibility(False)

    def show(self, course: Course, baselines: Mapping[str, MeasuredProgram]) -> None:
        """Draws the metric anew.

        Args:
          course: Of the run.
          baselines: Their measurements by name.
        """
        self._course, self._baselines = course, baselines
        names = course.metrics
        if not set(names) - {COMBINED}:
            return
        if names != self._names:
            self._names = names
            if self._wanted not in names:
                self._wanted = _first(names)
            options = {name: shown(name) for name in names}
            self._choice.set_options(options, value=self._wanted)
            self._box.set_visibility(True)
        self._draw()

    def _choose(self) -> None:
        if self._choice.value and self._choice.value != self._wanted:
            self._wanted = self._choice.value
            ui.navigate.history.replace(f"?metric={quote(self._wanted, safe='')}")
            self._draw()

    def _draw(self) -> None:
        name = self._choice.value
        if not name:
            return
        baselines = {
            seed: measured.metrics[name]
            for seed, measured in self._baselines.items()
            if name in measured.metrics
        }
        settled = self._course.progress.done
        course = self._course.metric(name)
        self._chart.show(partial(metric_curve, course, settled, baselines))


def _first(names: list[str]) -> str:
    return next(name for name in names if name != COMBINED)
