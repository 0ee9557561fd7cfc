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
from app.domain.prompting import templates
from app.domain.prompting.beside import beside
from app.domain.prompting.directions import PACKAGED, tried_text
from app.domain.prompting.directions import shown as shown_direction
from app.domain.prompting.filling import Filler, Template
from app.domain.prompting.reply_forms import definition_form, edits_form, program_form
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.section import Shown
from app.domain.prompting.sections import (
    ANCESTRY,
    ARTIFACTS,
    ATTEMPTS,
    EVOLUTION_HISTORY,
    FAILURES,
    FITTEST,
    HISTORY,
    SECTIONS,
    AnySection,
    everything,
    focus,
    numbers,
    rank,
    score,
    with_one_fewer,
)
from app.domain.prompting.tokens import fits
from app.domain.replies.agent_files import agent_files
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

Write = Callable[[Shown, Filler], str]
"""Returns the user text of a prompt that shows these sections."""


def diff_prompt(brief: Brief, draft: Draft) -> Prompt:
    """Returns the prompt that asks for SEARCH/REPLACE blocks."""
    prompt = _of_everything(brief, draft, templates.DIFF_USER, invited=True)
    return replace(prompt, form=edits_form(brief.parent(draft).program, brief.edit))


def rewrite_prompt(brief: Brief, draft: Draft) -> Prompt:
    """Returns the prompt that asks for the whole program."""
    prompt = _of_everything(brief, draft, _rewrite_template(brief, draft), invited=True)
    return replace(prompt, form=program_form(brief.parent(draft).program))


def _rewrite_template(brief: Brief, draft: Draft) -> Template:
    """Returns the template that asks for a draft's whole program.

    A replaced `full_rewrite_user` is meant for every such prompt, except those whose own template
    is replaced as well.
    """
    template = templates.FULL_REWRITE_USER
    if brief.by_task and draft.role is Role.REFINER:
        template = templates.REFINE_USER
    elif brief.by_task and draft.generation == 1 and not draft.inspirations:
        template = templates.SCRATCH_USER
    replaced = brief.prompts.templates
    meant = template.name in replaced or templates.FULL_REWRITE_USER.name not in replaced
    return template if meant else templates.FULL_REWRITE_USER


def function_prompt(brief: Brief, draft: Draft, focus: Definition) -> Prompt:
    """Returns the prompt that asks for another version of one definition of the parent.

    A program that leaves too little room for its history is shown in outline.
    """
    parent = brief.parent(draft).program
    source = _outlined(parent.source, focus, brief.prompts)
    prompt = _of_everything(
        brief, draft, templates.FUNCTION_USER, function=focus.name, current_program=source
    )
    return replace(prompt, form=definition_form(parent, focus), warmer=_FUNCTION_WARMER)


def _outlined(source: str, focus: Definition, rules: PromptRules) -> str:
    """Returns a program as a prompt about one definition shows it: in outline where it is long."""
    if not fits(source, rules.max_prompt_tokens // _LONG_PROGRAM_SHARE):
        source = outline(source, [focus])
    return source.rstrip("\n")


def strategist_prompt(brief: Brief) -> Prompt:
    """Returns the prompt that asks for a direction for each draft of a cohort."""
    tried = tried_text(brief.tried) or "None yet.\n"
    count = str(len(brief.drafts))
    prompt = _of_everything(
        brief, brief.drafts[0], templates.STRATEGIST_USER, count=count, tried=tried
    )
    return replace(prompt, role=Role.STRATEGIST)


def directed_prompt(brief: Brief, draft: Draft, direction: Direction) -> Prompt:
    """Returns the prompt that asks for the whole program, improved in a direction."""

    def write(shown: Shown, filler: Filler) -> str:
        user = _user(templates.FULL_REWRITE_USER, shown, filler)
        return user + filler.fill(templates.DIRECTION_USER, direction=shown_direction(direction))

    prompt = within_budget(brief, draft, write, everything(brief, draft))
    return replace(prompt, direction=direction)


def critique_prompt(brief: Brief, draft: Draft, child: Program, direction: Direction) -> Prompt:
    """Returns the prompt that asks for the faults of a child."""
    prompt = _of_one_program(
        brief,
        draft,
        templates.CRITIQUE_USER,
        current_program=child.source.rstrip("\n"),
        direction=shown_direction(direction),
    )
    return replace(prompt, role=Role.ADVERSARY)


def fix_prompt(
    brief: Brief, draft: Draft, child: Program, direction: Direction, critique: str
) -> Prompt:
    """Returns the prompt that asks for a child without the faults that its critique names."""
    return _of_one_program(
        brief,
        draft,
        templates.FIX_USER,
        current_program=child.source.rstrip("\n"),
        direction=shown_direction(direction),
        critique=critique,
    )


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
    parent = brief.parent(draft)
    others = [record for record in programs if record.program != parent.program]

    def write(shown: Shown, filler: Filler) -> str:
        ranked = [record.program for record in sorted((parent, *FITTEST.items(shown)), key=rank)]
        texts = versions(parent.program, ranked, name).rstrip("\n")
        values = _values(shown, filler, FAILURES)
        return filler.fill(templates.COMPLETE_USER, **values, function=name, versions=texts)

    shown = FITTEST.put(FAILURES.fill(Shown(parent), brief, draft), others)
    return replace(within_budget(brief, draft, write, shown), warmer=_FUNCTION_WARMER)


def mend_prompt(brief: Brief, draft: Draft, failed: FailedChild) -> Prompt:
    """Returns the prompt that asks for SEARCH/REPLACE blocks which mend a failed child.

    It shows the child and its failure, and no other program.
    """
    assert failed.program is not None
    source = failed.program.source.rstrip("\n")
    prompt = _of_one_program(
        brief, draft, templates.MEND_USER, failed, invited=True, failed_program=source
    )
    return replace(prompt, form=edits_form(failed.program, brief.edit))


def mend_function_prompt(
    brief: Brief, draft: Draft, failed: FailedChild, focus: Definition
) -> Prompt:
    """Returns the prompt that asks for one definition of a failed child without its fault.

    It shows the child, in outline where it is long, and its failure, and no other program.
    """
    assert failed.program is not None
    source = _outlined(failed.program.source, focus, brief.prompts)
    prompt = _of_one_program(
        brief,
        draft,
        templates.MEND_FUNCTION_USER,
        failed,
        failed_program=source,
        function=focus.name,
    )
    return replace(prompt, form=definition_form(failed.program, focus))


def again_prompt(brief: Brief, first: Prompt) -> Prompt | None:
    """Returns the prompt after a reply that made nothing new: the first, with a direction.

    The reply is not quoted, since models repeat a quotation.  The temperature is higher.  None
    where the budget of tokens does not allow a longer prompt.
    """
    purpose = f"again/{first.sample}"
    direction = brief.rng(purpose).choice(PACKAGED)
    filler = _filler(brief, purpose)
    user = first.user + filler.fill(templates.AGAIN_USER, direction=shown_direction(direction))
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
        filler = _filler(brief, f"repair/{first.sample}")
        user = first.user + filler.fill(
            templates.REPAIR_USER,
            reply=_quoted(reply, most),
            failure=failure.kind.value,
            detail=failure.detail,
        )
        if fits(first.system + user, rules.max_prompt_tokens):
            return replace(first, user=user)
    return None


def _quoted(reply: Completion, most: int) -> str:
    """Returns the beginning and the end of a reply, about `most` characters together."""
    text = without_thoughts(reply.text).strip() or "(nothing but reasoning)"
    return text if len(text) <= most else f"{text[: most // 2]}\n[...]\n{text[-most // 2 :]}"


def agent_prompt(brief: Brief, draft: Draft) -> Prompt:
    """Returns the task of an agent, which works in a folder with the parent's files."""
    parent = brief.parent(draft)

    def write(shown: Shown, filler: Filler) -> str:
        values = _values(shown, filler, ATTEMPTS, ANCESTRY, FAILURES, ARTIFACTS)
        files = "".join(f"- {file.path}\n" for file in agent_files(parent.program))
        if brief.edit.remove and parent.program.others:
            files += "They may be removed, too.\n"
        score_text, metrics = score(parent), numbers(parent.metrics) or "none"
        return filler.fill(
            templates.AGENT_USER, **values, files=files, fitness_score=score_text, metrics=metrics
        )

    prompt = within_budget(brief, draft, write, everything(brief, draft), in_folder=True)
    return replace(prompt, role=Role.AGENT, program=parent.program)


def _of_everything(
    brief: Brief, draft: Draft, template: Template, *, invited: bool = False, **more: str
) -> Prompt:
    """Returns a prompt that shows every section."""

    def write(shown: Shown, filler: Filler) -> str:
        return _user(template, shown, filler, **more)

    return within_budget(brief, draft, write, everything(brief, draft), invited=invited)


def _of_one_program(
    brief: Brief,
    draft: Draft,
    template: Template,
    failed: FailedChild | None = None,
    *,
    invited: bool = False,
    **more: str,
) -> Prompt:
    """Returns a prompt about the one program among its values, and the failure of that program."""

    def write(shown: Shown, filler: Filler) -> str:
        sections = () if failed is None else (FAILURES,)
        return filler.fill(template, **_values(shown, filler, *sections), **more)

    shown = Shown(brief.parent(draft))
    if failed is not None:
        shown = FAILURES.put(shown, [failed])
    return within_budget(brief, draft, write, shown, invited=invited)


def within_budget(
    brief: Brief,
    draft: Draft,
    write: Write,
    shown: Shown,
    *,
    invited: bool = False,
    in_folder: bool = False,
) -> Prompt:
    """Returns a draft's prompt, with its least useful items cut until it is short enough.

    Where nothing is left to cut, the prompt stays too long: the program itself is never cut.  The
    files beside the one in focus stand before the user text.

    Args:
      brief: The brief of the draft's cohort.
      draft: The draft of the child.
      write: Writes the user text.
      shown: The sections before anything is cut.
      invited: Whether the reply may change more files than the one in focus.
      in_folder: Whether the files are found in a folder, so that none stands in the text.
    """
    rules = brief.prompts
    system = templates.system_text(rules, brief.instructions)
    program, most = brief.parent(draft).program, rules.max_prompt_tokens
    others = (
        ""
        if in_folder
        else beside(program, brief.context, most, invited=brief.edit if invited else None)
    )
    while True:
        user = others + write(shown, _filler(brief, f"prompt/{draft.ordinal}"))
        fitting = fits(system + user, rules.max_prompt_tokens)
        fewer = None if fitting else with_one_fewer(shown)
        if fewer is None:
            left = shown.left_out
            return Prompt(system, user, draft.ordinal, left_out=left, shortest=not fitting)
        shown = fewer


def left_out(shown: Shown) -> str:
    """Returns the sentence of a prompt about what was cut; "" where nothing was."""
    if not shown.left_out:
        return ""
    counts = Counter(name.split(" ")[0] for name in shown.left_out)
    listed = ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts.items())
    return f"(Left out to keep this short: {listed}.)\n"


def _filler(brief: Brief, purpose: str) -> Filler:
    return Filler(brief.prompts, brief.rng(purpose), brief.language)


def _values(shown: Shown, filler: Filler, *sections: AnySection) -> dict[str, str]:
    """Returns the texts of sections and the values of every prompt, by placeholder."""
    texts = {section.name: section.text(shown, filler) for section in sections}
    return texts | {"language": filler.language, "left_out": left_out(shown)}


def _user(template: Template, shown: Shown, filler: Filler, **more: str) -> str:
    parent = shown.parent
    values = _values(shown, filler, *SECTIONS)
    values |= {
        "metrics": numbers(parent.metrics) or "none",
        "fitness_score": score(parent, *FITTEST.items(shown)),
        "feature_coords": numbers(parent.features) or "none",
        "feature_dimensions": ", ".join(parent.features) or "none",
        "improvement_areas": focus(shown, filler.rules),
        "evolution_history": _evolution_history(template, values, filler),
        "current_program": parent.program.source.rstrip("\n"),
        FITTEST.name: values[FITTEST.name] or "None yet.\n",
    }
    return filler.fill(template, **(values | more))


def _evolution_history(template: Template, values: dict[str, str], filler: Filler) -> str:
    """Returns the text of OpenEvolve's placeholder for the history, if the template has it."""
    if f"{{{EVOLUTION_HISTORY.name}}}" not in template.current(filler.rules):
        return ""
    history = {section.name: values[section.name] for section in HISTORY}
    text = filler.fill(EVOLUTION_HISTORY, **history) or "None yet.\n"
    return f"{text}\n{values['left_out']}" if values["left_out"] else text
