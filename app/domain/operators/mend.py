"""The operator `mend`: a model mends a program that failed in the sandbox, shown its error.

The child's parent is that of the failed program, which was measured.  Where no program of the
island failed lately, the operator does what `diff` does.
"""

from random import Random

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import (
    Aim,
    Brief,
    Child,
    Completion,
    Conversation,
    Draft,
    Operator,
    Population,
)
from app.domain.operators.conversation import describer, with_repairs
from app.domain.operators.diff import DIFF
from app.domain.prompting.prompts import mend_prompt
from app.domain.replies.children import read_edited, with_changes

MENDED = frozenset(
    (
        FailureKind.RUNTIME,
        FailureKind.TIMEOUT,
        FailureKind.MEMORY,
        FailureKind.OUTPUT_LIMIT,
        FailureKind.INVALID_SIGNATURE,
        FailureKind.INVALID_RESULT,
        FailureKind.SYNTAX,
        FailureKind.IMPORT_BLOCKED,
    )
)
"""Failures of a trial that an edit may mend."""

_NEWEST = 8  # failures of an island to draw from, so that few are mended twice


def failed_lately(population: Population, rng: Random) -> Aim | None:
    """Returns a failed program to mend, drawn from the newest of the island; None without any."""
    failures = population.failures(MENDED, _NEWEST)
    return rng.choice(failures) if failures else None


def converse(brief: Brief) -> Conversation:
    """Sends the failed program with its error; the child is that program after the edits."""
    failed = brief.failed
    if failed is None or failed.program is None:
        return (yield from DIFF.converse(brief))
    broken, describe = failed.program, describer(brief.prompts)

    def read(reply: Completion, draft: Draft) -> Child:
        child = read_edited(reply, broken, brief.edit, describe)
        if isinstance(child, Failure):
            return child
        return with_changes(child, brief.known[draft.parents[0]].program, describe, "Mended")

    prompts = [mend_prompt(brief, draft, failed) for draft in brief.drafts]
    return (yield from with_repairs(brief, prompts, read))


MEND = Operator(
    "mend",
    converse,
    aim=failed_lately,
    mends=True,
    siblings=DIFF.siblings,
    ancestors=DIFF.ancestors,
    failures=DIFF.failures,
    repairs=True,
)
