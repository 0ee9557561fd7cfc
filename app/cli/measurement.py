"""Measurements of programs on the screen."""

from collections.abc import Sequence

from app.cli.artifacts import print_artifacts
from app.cli.output import Screen, mean_of
from app.client.measuring import Measurement
from app.domain.digits import exact_text, number_texts

_ONLY_STAGE = "evaluate"
"""The stage of a problem without stages; messages leave it out."""


def print_measurements(measurements: Sequence[tuple[str, Measurement]], screen: Screen) -> None:
    """Prints each named measurement: a line, a missed threshold, and the evaluator's artifacts."""
    texts = _metric_texts([measured for _, measured in measurements])
    for (name, measured), metrics in zip(measurements, texts, strict=True):
        spent, failure = f"{measured.wall_seconds:.2f} s", measured.failure
        if failure is None:
            label = "" if measured.verified else ", unverified"
            fitness = exact_text(measured.fitness)
            screen.say(f"{name}: fitness {fitness} in {spent}{label} ({metrics})")
            if measured.stopped:
                screen.say(f"{name}: {measured.stopped}")
        else:
            last = [stage for stage in measured.stages[-1:] if stage != _ONLY_STAGE]
            detail = failure.shown.strip() or "no detail"
            # The detail of a probe's failure names the probe itself.
            named = not last or detail.startswith(f"in {last[0]}: ")
            where = "" if named else f" in {last[0]}"
            screen.say(f"{name}: failed, {failure.kind.value}{where} after {spent}: {detail}")
        print_artifacts(name, measured.artifacts, screen)
    for mean in dict.fromkeys(mean_of(measured.fitness_names) for _, measured in measurements):
        if mean:
            screen.say(mean)


def _metric_texts(measurements: Sequence[Measurement]) -> list[str]:
    """Returns the metrics of each measurement as text, told apart from the others and its fitness.

    A fitness is exact, because the next one may come from another command; so is a metric that has
    nearly its value.
    """
    names = {name for measured in measurements for name in measured.metrics}
    fitness = [measured.fitness for measured in measurements]
    texts = {
        name: number_texts([measured.metrics.get(name) for measured in measurements], fitness)
        for name in names
    }
    return [
        ", ".join(
            f"{name} {exact_text(value) if value == measured.fitness else texts[name][n]}"
            for name, value in measured.metrics.items()
        )
        for n, measured in enumerate(measurements)
    ]
