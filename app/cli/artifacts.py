"""The texts that evaluators return beside their metrics, on the screen."""

import sys
from collections.abc import Mapping

from app.cli.output import MOST_NAMES, Screen
from app.reports.artifacts import artifacts_document

SHOWN_CHARS = 500
"""Characters of an artifact on the screen."""


def print_artifacts(
    subject: str, artifacts: Mapping[str, str], screen: Screen, *, whole: bool = False
) -> None:
    """Prints the beginning of each of a program's artifacts, or the whole of it."""
    chars = sys.maxsize if whole else SHOWN_CHARS
    texts = [item for item in artifacts_document(artifacts, chars).items() if item[1].strip()]
    for name, text in texts[:MOST_NAMES]:
        lines = text.strip().splitlines()
        screen.say(f"{subject}: artifact {name}: " + "\n    ".join(["", *lines][len(lines) == 1 :]))
    if len(texts) > MOST_NAMES:
        screen.say(f"{subject}: {len(texts) - MOST_NAMES} more artifacts; --json has them")
