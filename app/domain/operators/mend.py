"""The operator `mend`: a model mends a program that failed in the sandbox, shown its error.

The child's parent is that of the failed program, which was measured.  The model writes the function
in which it failed anew, or edits the program by SEARCH/REPLACE blocks where that function is not
known or long.  Where no program of the island failed lately, the operator does what `function`
does.
"""

from dataclasses import replace
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
from app.domain.operators.function import FUNCTION
from app.domain.program import Program
from app.domain.prompting.feedback import failing_lines
from app.domain.prompting.prompts import mend_function_prompt, mend_prompt
from app.domain.replies.children import read_edited, with_changes
from app.domain.replies.definition import read_definition
from app.domain.source.definitions import Definition, changeable_definitions

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

# Failures of an island to draw from, so that few are mended twice.
_NEWEST = 8
# A longer definition is edited, not written anew.
_MOST_LINES = 60


def failed_lately(population: Population, rng: Random) -> Aim | None:
    """Returns a failed program to mend, drawn from the newest of the island; None without any."""
    failures = population.failures(MENDED, _NEWEST)
    return rng.choice(failures) if failures else None


def converse(brief: Brief) -> Conversation:
    """Sends the failed program with its error; the child is that program without it."""
    failed = brief.failed
    if failed is None or failed.program is None:
        return (yield from FUNCTION.converse(brief))
    broken, describe = failed.program, describer(brief.prompts)
    focus = failing_definition(broken, failed.failure)

    def read(reply: Completion, draft: Draft) -> Child:
        if focus is None:
            child = read_edited(reply, broken, brief.edit, describe)
        else:
            child = read_definition(reply, broken, focus, brief.edit, describe)
        if isinstance(child, Failure):
            return child
        return with_changes(child, brief.parent(draft).program, describe, "Mended")

    prompts = [
        mend_prompt(brief, draft, failed)
        if focus is None
        else mend_function_prompt(brief, draft, failed, focus)
        for draft in brief.drafts
    ]
    return (yield from with_repairs(brief, prompts, read))


def failing_definition(broken: Program, failure: Failure) -> Definition | None:
    """Returns the definition that a model can write anew to mend a program.

    It is the innermost that holds a line of the traceback, from the innermost line on, or the only
    one of the program.  None where there is none, or it is too long to be written anew.
    """
    definitions = changeable_definitions(broken)
    held = [
        min(around, key=lambda each: each.lines)
        for line in reversed(failing_lines(failure))
        if (around := [each for each in definitions if each.first < line <= each.end])
    ]
    found = held[:1] or (definitions if len(definitions) == 1 else [])
    return next((each for each in found if each.lines <= _MOST_LINES), None)


MEND = Operator(
    "mend",
    converse,
    aim=failed_lately,
    reads=replace(FUNCTION.reads, mended=True),
    repairs=True,
)
