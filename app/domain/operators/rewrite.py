"""The operator `rewrite`: a model writes a complete program."""

from app.domain.operator import Brief, Child, Completion, Conversation, Draft, Operator
from app.domain.operators.conversation import describer, with_repairs
from app.domain.prompting.prompts import rewrite_prompt
from app.domain.prompting.sections import PROMPTED
from app.domain.replies.children import read_rewritten


def converse(brief: Brief) -> Conversation:
    """Sends one prompt for each draft; the child replaces its first parent in full."""
    describe = describer(brief.prompts)

    def read(reply: Completion, draft: Draft) -> Child:
        return read_rewritten(reply, brief.parent(draft).program, brief.edit, describe)

    prompts = [rewrite_prompt(brief, draft) for draft in brief.drafts]
    return (yield from with_repairs(brief, prompts, read))


REWRITE = Operator("rewrite", converse, form=True, reads=PROMPTED, repairs=True)
