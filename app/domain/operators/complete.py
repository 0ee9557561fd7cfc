"""The operator that has a function completed: FunSearch's way of asking.

Source: Romera-Paredes et al. 2024, "Mathematical discoveries from program search with large
language models".  Departures: the versions are the parent's and those of the fittest inspirations
that differ from it, not draws of one island's clusters; a chat model is asked, in words around the
file.
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
)
from app.domain.operators.asking import asked, teller
from app.domain.prompting.parts import FAILURES, rank
from app.domain.prompting.prompts import complete_prompt
from app.domain.prompting.rules import PromptRules
from app.domain.replies.function_body import read_completed
from app.domain.source.functions import Function, cut_up, evolving


def converse(brief: Brief) -> Conversation:
    """Asks once a draft for the next version of its parent's function."""
    rules = brief.prompts
    names = {one.ordinal: _name(brief, one, rules) for one in brief.drafts}
    able = tuple(draft for draft in brief.drafts if names[draft.ordinal])
    prompts = [
        complete_prompt(brief, draft, name, _versions(brief, draft, name, rules))
        for draft in able
        if (name := names[draft.ordinal])
    ]
    numbers = {prompt.sample: _asked_for(prompt, names[prompt.sample]) for prompt in prompts}

    def read(reply: Completion, draft: Draft) -> Child:
        parent, name = brief.known[draft.parents[0]].program, names[draft.ordinal]
        number = numbers[draft.ordinal]
        return read_completed(reply, parent, name, number, brief.edit, teller(rules))

    children: list[Child] = []
    if prompts:
        children = yield from asked(replace(brief, drafts=able), prompts, read)
    made = dict(zip((draft.ordinal for draft in able), children, strict=True))
    return [made.get(draft.ordinal, _NONE) for draft in brief.drafts]


_NONE = Failure(
    FailureKind.NO_CODE,
    "The parent does not say which function evolves: prompts.function names it.",
)


def _name(brief: Brief, draft: Draft, rules: PromptRules) -> str:
    parent = brief.known[draft.parents[0]].program
    return (evolving(parent, rules.function) or "") if parent.language == "python" else ""


def _asked_for(prompt: Prompt, name: str) -> int:
    """Returns the version a prompt asks for: the last of its file, however many were cut."""
    shown = re.findall(rf"^def {re.escape(name)}_v(\d+)\b", prompt.user, re.MULTILINE)
    return max(map(int, shown), default=0)


def _versions(brief: Brief, draft: Draft, name: str, rules: PromptRules) -> list[ProgramRecord]:
    """Returns whose versions are shown, at least the parent's, the fittest others first."""
    parent = brief.known[draft.parents[0]]
    own = cut_up(parent.program.source, name)
    assert own is not None
    found, seen = [parent], {_plain(own)}
    beside = dict.fromkeys((*draft.parents[1:], *draft.inspirations))
    for known in sorted((brief.known[one] for one in beside), key=rank, reverse=True):
        version = cut_up(known.program.source, name)
        if len(found) >= rules.functions_per_prompt:
            break
        if version and version.parameters == own.parameters and _plain(version) not in seen:
            found.append(known)
            seen.add(_plain(version))
    return found


def _plain(function: Function) -> str:
    return "".join(function.body.split())


COMPLETE = Operator("complete", converse, failures=FAILURES, repairs=True)
