"""The protections of sandboxes, as lines."""

from collections import Counter
from collections.abc import Sequence

from app.ports.protocols import Protection
from app.ports.workers import Worker


def protection_lines(protections: Sequence[Protection], *, verbose: bool = False) -> list[str]:
    """Returns one line on the protections that work, and one on each that is missing."""
    on = [protection.name for protection in protections if protection.on]
    named = f": {'; '.join(on)}" if verbose else " (-v names them)"
    lines = [f"sandbox: {len(on)} of {len(protections)} protections on{named}"]
    lines += [f"sandbox: missing: {p.name} ({p.remedy})" for p in protections if not p.on]
    return lines


def lines_of_workers(workers: Sequence[Worker], *, verbose: bool = False) -> list[str]:
    """Returns the lines on the protections of a deployment's workers, those that agree together."""
    reports = Counter(worker.protections for worker in workers if worker.protections is not None)
    lines = []
    for protections, agreeing in reports.most_common():
        found = [Protection(name, not remedy, remedy) for name, remedy in protections or ()]
        lines += [
            f"{agreeing} of {len(workers)} workers: {line}"
            for line in protection_lines(found, verbose=verbose)
        ]
    if silent := len(workers) - reports.total():
        lines.append(f"{silent} of {len(workers)} workers: sandbox: none has booted yet")
    return lines or ["sandbox: no live worker evaluates programs: start one of the queue `cpu`"]
