"""The operator that asks for a complete program."""

from app.domain.operator import Brief, Conversation, Operator
from app.domain.prompts import ATTEMPTS, rewrite_prompt
from app.domain.replies import read_rewritten


def converse(brief: Brief) -> Conversation:
    """Asks once a draft; the child replaces its first parent in full."""
    replies = yield [rewrite_prompt(brief, draft) for draft in brief.drafts]
    return [
        read_rewritten(reply, brief.known[draft.parents[0]].program, brief.edit)
        for draft, reply in zip(brief.drafts, replies, strict=True)
    ]


REWRITE = Operator("rewrite", converse, siblings=ATTEMPTS)
