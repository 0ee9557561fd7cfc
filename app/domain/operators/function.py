"""The operator `function`: a model rewrites one function, method or class of the parent.

The prompt names the definition and shows the program around it, of which long programs are shown in
outline; the reply is that definition alone, so that a program of any length costs the tokens of a
part of it.  A parent without such a definition is rewritten in full.
"""

from random import Random

from app.domain.operator import Brief, Child, Completion, Conversation, Draft, Operator
from app.domain.operators.conversation import describer, with_repairs
from app.domain.prompting.prompts import function_prompt, rewrite_prompt
from app.domain.prompting.sections import PROMPTED
from app.domain.replies.children import read_rewritten
from app.domain.replies.definition import read_definition
from app.domain.source.definitions import Definition, changeable_definitions


def converse(brief: Brief) -> Conversation:
    """Sends one prompt for each draft; the child is its first parent with another definition."""
    describe = describer(brief.prompts)
    focuses = {draft.ordinal: draw_focus(brief, draft) for draft in brief.drafts}

    def read(reply: Completion, draft: Draft) -> Child:
        parent, focus = brief.parent(draft).program, focuses[draft.ordinal]
        if focus is None:
            return read_rewritten(reply, parent, brief.edit, describe)
        return read_definition(reply, parent, focus, brief.edit, describe)

    prompts = [
        function_prompt(brief, draft, focus)
        if (focus := focuses[draft.ordinal]) is not None
        else rewrite_prompt(brief, draft)
        for draft in brief.drafts
    ]
    return (yield from with_repairs(brief, prompts, read))


def draw_focus(brief: Brief, draft: Draft) -> Definition | None:
    """Returns the definition that a draft's child changes; None where its parent has none.

    It is drawn by length, so that each line of the parent is changed as often as another; once for
    drafts of the same programs, whose prompts are samples of one text.
    """
    definitions = changeable_definitions(brief.parent(draft).program)
    if not definitions:
        return None
    shown = draft.parents, draft.inspirations
    alike = next(each for each in brief.drafts if (each.parents, each.inspirations) == shown)
    rng = Random(f"{brief.seed}/focus/{alike.ordinal}")
    return rng.choices(definitions, [each.lines for each in definitions])[0]


FUNCTION = Operator("function", converse, form=True, reads=PROMPTED, repairs=True)
