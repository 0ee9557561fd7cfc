"""Prompts: the texts that ask a model for a child, within a budget of tokens.

A prompt begins with the texts that change least from one prompt to the next, see `templates`; a
text that differs in every prompt, such as a number or a time, stands at the end.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from app.domain.evaluation import Failure
from app.domain.operator import (
    Brief,
    Completion,
    Direction,
    Draft,
    FailedChild,
    ProgramRecord,
    Prompt,
    Role,
)
from app.domain.program import Program
from app.domain.prompting.directions import PACKAGED, tried_text
from app.domain.prompting.directions import shown as shown_direction
from app.domain.prompting.reply_forms import definition_form, edits_form, program_form
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.sections import (
    Sections,
    TemplateFiller,
    focus,
    numbers,
    rank,
    score,
    sections,
)
from app.domain.prompting.tokens import fits
from app.domain.replies.reasoning import without_thoughts
from app.domain.source.definitions import Definition, outline
from app.domain.source.functions import versions

_QUOTED_SHARE = 5
"""A repair quotes up to a fifth of the prompt, where budgets expect a quarter."""
_QUOTED_CHARS = 2_000
"""Characters that a repair may quote beside any prompt, if there is room."""
_QUOTED_CHARS_AT_LEAST = 500
"""Fewest characters of a quotation; a shorter one does not show the text to repair."""

# Added to the temperature where one function is asked for, which a model copies at a lower one.
_FUNCTION_WARMER = 0.3
# Added after a reply that made nothing new.
_WARMER = 0.4
# A program that takes more than half of the budget of tokens is shown in outline.
_LONG_PROGRAM_SHARE = 2

WriteUserText = Callable[[Sections, TemplateFiller], str]
"""Returns the user text of a prompt with these sections."""


def diff_prompt(brief: Brief, draft: Draft) -> Prompt:
    """Returns the prompt that asks for SEARCH/REPLACE blocks."""
    prompt = within_budget(brief, draft, lambda shown, filler: _user("diff_user", shown, filler))
    parent = brief.known[draft.parents[0]].program
    return replace(prompt, form=edits_form(parent, brief.edit))


def rewrite_prompt(brief: Brief, draft: Draft) -> Prompt:
    """Returns the prompt that asks for the whole program."""
    name = _rewrite_template(brief, draft)
    prompt = within_budget(brief, draft, lambda shown, filler: _user(name, shown, filler))
    return replace(prompt, form=program_form(brief.known[draft.parents[0]].program))


def _rewrite_template(brief: Brief, draft: Draft) -> str:
    """Returns the name of the template that asks for a draft's whole program.

    A replaced `full_rewrite_user` is meant for every such prompt, except those whose own template
    is replaced as well.
    """
    name = "full_rewrite_user"
    if brief.by_task and draft.role is Role.REFINER:
        name = "refine_user"
    elif brief.by_task and draft.generation == 1 and not draft.inspirations:
        name = "scratch_user"
    replaced = brief.prompts.templates
    meant = name in replaced or "full_rewrite_user" not in replaced
    return name if meant else "full_rewrite_user"


def function_prompt(brief: Brief, draft: Draft, focus: Definition) -> Prompt:
    """Returns the prompt that asks for another version of one definition of the parent.

    A program that leaves too little room for its history is shown in outline.
    """
    parent = brief.known[draft.parents[0]].program
    source = _shown(parent.source, focus, brief.prompts)

    def write(shown: Sections, filler: TemplateFiller) -> str:
        return _user(
            "function_user",
            shown,
            filler,
            function=focus.name,
            current_program=source,
        )

    prompt = within_budget(brief, draft, write)
    return replace(prompt, form=definition_form(parent, focus), warmer=_FUNCTION_WARMER)


def _shown(source: str, focus: Definition, rules: PromptRules) -> str:
    """Returns a program as a prompt about one definition shows it: in outline where it is long."""
    if not fits(source, rules.max_prompt_tokens // _LONG_PROGRAM_SHARE):
        source = outline(source, [focus])
    return source.rstrip("\n")


def strategist_prompt(brief: Brief) -> Prompt:
    """Returns the prompt that asks for a direction for each draft of a cohort."""
    first = brief.drafts[0]

    def write(shown: Sections, filler: TemplateFiller) -> str:
        tried = tried_text(brief.tried) or "None yet.\n"
        return _user("strategist_user", shown, filler, count=str(len(brief.drafts)), tried=tried)

    return replace(within_budget(brief, first, write), role=Role.STRATEGIST)


def directed_prompt(brief: Brief, draft: Draft, direction: Direction) -> Prompt:
    """Returns the prompt that asks for the whole program, improved in a direction."""

    def write(shown: Sections, filler: TemplateFiller) -> str:
        user = _user("full_rewrite_user", shown, filler)
        return user + filler.filled("direction_user", {"direction": shown_direction(direction)})

    return replace(within_budget(brief, draft, write), direction=direction)


def critique_prompt(brief: Brief, draft: Draft, child: Program, direction: Direction) -> Prompt:
    """Returns the prompt that asks for the faults of a child."""
    return replace(_about(brief, draft, child, direction, "critique_user"), role=Role.ADVERSARY)


def fix_prompt(
    brief: Brief, draft: Draft, child: Program, direction: Direction, critique: str
) -> Prompt:
    """Returns the prompt that asks for a child without the faults that its critique names."""
    return _about(brief, draft, child, direction, "fix_user", critique=critique)


def _about(
    brief: Brief, draft: Draft, child: Program, direction: Direction, name: str, **more: str
) -> Prompt:
    """Returns a prompt about a child, with no other program."""

    def write(shown: Sections, filler: TemplateFiller) -> str:
        values = {
            "language": filler.language,
            "current_program": child.source.rstrip("\n"),
            "direction": shown_direction(direction),
            "left_out": left_out(shown),
        }
        return filler.filled(name, values | more)

    return within_budget(brief, draft, write, Sections(brief.known[draft.parents[0]]))


def complete_prompt(
    brief: Brief, draft: Draft, name: str, programs: Sequence[ProgramRecord]
) -> Prompt:
    """Returns the prompt that asks for the next version of a function.

    Args:
      brief: The brief of the draft's cohort.
      draft: The draft of the child.
      name: The function.
      programs: The programs whose versions are shown, the parent included; the last is cut first.
    """
    everything = sections(brief, draft)
    parent = everything.parent
    others = tuple(record for record in programs if record.program != parent.program)

    def write(shown: Sections, filler: TemplateFiller) -> str:
        ranked = [record.program for record in sorted((parent, *shown.top), key=rank)]
        values = {
            "language": filler.language,
            "function": name,
            "versions": versions(parent.program, ranked, name).rstrip("\n"),
            "failures": filler.failures(shown.failures),
            "left_out": left_out(shown),
        }
        return filler.filled("complete_user", values)

    shown = Sections(parent, top=others, failures=everything.failures)
    return replace(within_budget(brief, draft, write, shown), warmer=_FUNCTION_WARMER)


def mend_prompt(brief: Brief, draft: Draft, failed: FailedChild) -> Prompt:
    """Returns the prompt that asks for SEARCH/REPLACE blocks which mend a failed child.

    It shows the child and its failure, and no other program.
    """
    assert failed.program is not None
    source = failed.program.source.rstrip("\n")

    def write(shown: Sections, filler: TemplateFiller) -> str:
        values = {
            "language": filler.language,
            "failed_program": source,
            "failures": filler.failures(shown.failures),
            "left_out": left_out(shown),
        }
        return filler.filled("mend_user", values)

    parent = brief.known[draft.parents[0]]
    prompt = within_budget(brief, draft, write, Sections(parent, failures=(failed,)))
    return replace(prompt, form=edits_form(failed.program, brief.edit))


def mend_function_prompt(
    brief: Brief, draft: Draft, failed: FailedChild, focus: Definition
) -> Prompt:
    """Returns the prompt that asks for one definition of a failed child without its fault.

    It shows the child, in outline where it is long, and its failure, and no other program.
    """
    assert failed.program is not None
    program = failed.program
    source = _shown(program.source, focus, brief.prompts)

    def write(shown: Sections, filler: TemplateFiller) -> str:
        values = {
            "language": filler.language,
            "failed_program": source,
            "failures": filler.failures(shown.failures),
            "function": focus.name,
            "left_out": left_out(shown),
        }
        return filler.filled("mend_function_user", values)

    parent = brief.known[draft.parents[0]]
    prompt = within_budget(brief, draft, write, Sections(parent, failures=(failed,)))
    return replace(prompt, form=definition_form(program, focus))


def again_prompt(brief: Brief, first: Prompt) -> Prompt | None:
    """Returns the prompt after a reply that made nothing new: the first, with a direction.

    The reply is not quoted, since models repeat a quotation.  The temperature is higher.  None
    where the budget of tokens does not allow a longer prompt.
    """
    purpose = f"again/{first.sample}"
    direction = brief.rng(purpose).choice(PACKAGED)
    values = {"direction": shown_direction(direction)}
    user = first.user + _filler(brief, purpose).filled("again_user", values)
    if not fits(first.system + user, brief.prompts.max_prompt_tokens):
        return None
    return replace(first, user=user, warmer=first.warmer + _WARMER)


def repair_prompt(
    brief: Brief, first: Prompt, reply: Completion, failure: Failure
) -> Prompt | None:
    """Returns the prompt of a repair turn: the first prompt, then the reply and its failure.

    The first prompt stands unchanged at the beginning, so that endpoints can reuse its computation.
    None where the budget of tokens does not allow a longer prompt.
    """
    rules = brief.prompts
    for most in (max(_QUOTED_CHARS, len(first.user) // _QUOTED_SHARE), _QUOTED_CHARS_AT_LEAST):
        quoted = _quoted(reply, most)
        values = {"reply": quoted, "failure": failure.kind.value, "detail": failure.detail}
        filler = _filler(brief, f"repair/{first.sample}")
        user = first.user + filler.filled("repair_user", values)
        if fits(first.system + user, rules.max_prompt_tokens):
            return replace(first, user=user)
    return None


def _quoted(reply: Completion, most: int) -> str:
    """Returns the beginning and the end of a reply, about `most` characters together."""
    text = without_thoughts(reply.text).strip() or "(nothing but reasoning)"
    return text if len(text) <= most else f"{text[: most // 2]}\n[...]\n{text[-most // 2 :]}"


def within_budget(
    brief: Brief, draft: Draft, write: WriteUserText, shown: Sections | None = None
) -> Prompt:
    """Returns a draft's prompt, with its least useful items cut until it is short enough.

    Where nothing is left to cut, the prompt stays too long: the program itself is never cut.

    Args:
      brief: The brief of the draft's cohort.
      draft: The draft of the child.
      write: Writes the user text.
      shown: The sections; None for everything in the brief.
    """
    rules = brief.prompts
    system = rules.system(brief.instructions)
    shown = sections(brief, draft) if shown is None else shown
    while True:
        user = write(shown, _filler(brief, f"prompt/{draft.ordinal}"))
        fitting = fits(system + user, rules.max_prompt_tokens)
        shorter = None if fitting else shown.shorter()
        if shorter is None:
            left = shown.left_out
            return Prompt(system, user, draft.ordinal, left_out=left, shortest=not fitting)
        shown = shorter


def left_out(shown: Sections) -> str:
    """Returns the sentence of a prompt about what was cut; "" where nothing was."""
    if not shown.left_out:
        return ""
    counts = Counter(name.split(" ")[0] for name in shown.left_out)
    listed = ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts.items())
    return f"(Left out to keep this short: {listed}.)\n"


def _filler(brief: Brief, purpose: str) -> TemplateFiller:
    return TemplateFiller(brief.prompts, brief.rng(purpose), brief.language)


def _user(name: str, shown: Sections, filler: TemplateFiller, **more: str) -> str:
    parent, rules = shown.parent, filler.rules
    history = {
        "top_programs": filler.top(shown.top),
        "inspirations_section": filler.inspirations(shown.others),
        "previous_attempts": filler.attempts(shown.attempts, parent),
        "ancestry": filler.ancestry(parent, shown.ancestors),
        "failures": filler.failures(shown.failures),
    }
    values = history | {
        "metrics": numbers(parent.metrics) or "none",
        "fitness_score": score(parent, *shown.top),
        "feature_coords": numbers(parent.features) or "none",
        "feature_dimensions": ", ".join(parent.features) or "none",
        "improvement_areas": focus(shown, rules),
        "evolution_history": _evolution_history(name, history, shown, filler),
        "current_program": parent.program.source.rstrip("\n"),
        "language": filler.language,
        "artifacts": filler.artifacts(shown.artifacts),
        "left_out": left_out(shown),
    }
    values["top_programs"] = values["top_programs"] or "None yet.\n"
    return filler.filled(name, values | more)


def _evolution_history(
    name: str, history: dict[str, str], shown: Sections, filler: TemplateFiller
) -> str:
    """Returns the text of OpenEvolve's placeholder for the history, if the template has it."""
    if "{evolution_history}" not in filler.rules.template(name):
        return ""
    text = filler.filled("evolution_history", history) or "None yet.\n"
    return f"{text}\n{left_out(shown)}" if shown.left_out else text
