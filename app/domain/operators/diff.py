"""The operator `diff`: a model edits the parent by SEARCH/REPLACE blocks."""

from app.domain.operator import Brief, Child, Completion, Conversation, Draft, Operator
from app.domain.operators.conversation import describer, with_repairs
from app.domain.prompting.prompts import diff_prompt
from app.domain.prompting.sections import PROMPTED
from app.domain.replies.children import read_edited


def converse(brief: Brief) -> Conversation:
    """Sends one prompt for each draft; the child is its first parent after the reply's edits."""
    describe = describer(brief.prompts)

    def read(reply: Completion, draft: Draft) -> Child:
        return read_edited(reply, brief.parent(draft).program, brief.edit, describe)

    prompts = [diff_prompt(brief, draft) for draft in brief.drafts]
    return (yield from with_repairs(brief, prompts, read))


DIFF = Operator("diff", converse, form=True, reads=PROMPTED, repairs=True)
