"""The texts that evaluators return beside their metrics, as values of a document."""

from collections.abc import Mapping

from app.adapters.problems.evaluator_result import clipped
from app.domain.secrets import redacted

ARTIFACT_CHARS = 4096
"""Characters of an artifact in a document."""


def artifacts_document(artifacts: Mapping[str, str], chars: int = ARTIFACT_CHARS) -> dict[str, str]:
    """Returns the evaluator's texts, each within `chars` characters and without secrets."""
    return {name: clipped(redacted(text), chars) for name, text in artifacts.items()}
