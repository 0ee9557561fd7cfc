"""The operator `complete`: a model completes the next version of a function, as in FunSearch.

Source: Romera-Paredes et al. 2024, "Mathematical discoveries from program search with large
language models".  Departures: the versions are the parent's and those of the fittest other parents
and inspirations that differ from it, so that the recipe decides which they are; the file is part of
a prompt to a chat model.
"""

import re
from dataclasses import replace

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import (
    Brief,
    Child,
    Completion,
    Conversation,
    Draft,
    Operator,
    ProgramRecord,
    Prompt,
    Reads,
    ReplyForm,
)
from app.domain.operators.conversation import describer, with_repairs
from app.domain.prompting.prompts import complete_prompt
from app.domain.prompting.reply_forms import version_form
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.sections import PROMPTED, rank
from app.domain.replies.function_body import read_completed
from app.domain.source.functions import Function, evolving, find_function


def converse(brief: Brief) -> Conversation:
    """Sends one prompt for each draft, for the next version of its parent's function."""
    rules = brief.prompts
    names = {draft.ordinal: _function_name(brief, draft, rules) for draft in brief.drafts}
    drafts = tuple(draft for draft in brief.drafts if names[draft.ordinal])
    prompts = [
        complete_prompt(brief, draft, name, _versions(brief, draft, name, rules))
        for draft in drafts
        if (name := names[draft.ordinal])
    ]
    numbers = {prompt.sample: _next_version(prompt, names[prompt.sample]) for prompt in prompts}
    by_draft = zip(drafts, prompts, strict=True)
    prompts = [
        replace(prompt, form=_form(brief, draft, names[draft.ordinal], numbers[draft.ordinal]))
        for draft, prompt in by_draft
    ]

    def read(reply: Completion, draft: Draft) -> Child:
        parent, name = brief.parent(draft).program, names[draft.ordinal]
        number = numbers[draft.ordinal]
        return read_completed(reply, parent, name, number, brief.edit, describer(rules))

    children: list[Child] = []
    if prompts:
        children = yield from with_repairs(replace(brief, drafts=drafts), prompts, read)
    by_ordinal = dict(zip((draft.ordinal for draft in drafts), children, strict=True))
    return [by_ordinal.get(draft.ordinal, _NO_FUNCTION) for draft in brief.drafts]


_NO_FUNCTION = Failure(
    FailureKind.NO_CODE,
    "The parent does not say which function evolves: prompts.function names it.",
)


def _function_name(brief: Brief, draft: Draft, rules: PromptRules) -> str:
    parent = brief.parent(draft).program
    return (evolving(parent, rules.function) or "") if parent.language == "python" else ""


def _next_version(prompt: Prompt, name: str) -> int:
    """Returns the version that a prompt asks for: the last in its file, which may have been cut."""
    numbers = re.findall(rf"^def {re.escape(name)}_v(\d+)\b", prompt.user, re.MULTILINE)
    return max(map(int, numbers), default=0)


def _form(brief: Brief, draft: Draft, name: str, number: int) -> ReplyForm | None:
    own = find_function(brief.parent(draft).program.source.replace("\r\n", "\n"), name)
    return None if own is None else version_form(own, number)


def _versions(brief: Brief, draft: Draft, name: str, rules: PromptRules) -> list[ProgramRecord]:
    """Returns the programs whose versions the prompt shows: the parent, then the fittest others."""
    parent = brief.parent(draft)
    own = find_function(parent.program.source, name)
    assert own is not None
    records, seen = [parent], {_without_layout(own)}
    others = dict.fromkeys((*draft.parents[1:], *draft.inspirations))
    for record in sorted((brief.known[program] for program in others), key=rank, reverse=True):
        if len(records) >= rules.functions_per_prompt:
            break
        version = find_function(record.program.source, name)
        if not version or version.parameters != own.parameters:
            continue
        if _without_layout(version) not in seen:
            records.append(record)
            seen.add(_without_layout(version))
    return records


def _without_layout(function: Function) -> str:
    return "".join(function.body.split())


COMPLETE = Operator(
    "complete",
    converse,
    form=True,
    reads=Reads(failures=PROMPTED.failures),
    repairs=True,
    language="python",
    of_function=True,
)
