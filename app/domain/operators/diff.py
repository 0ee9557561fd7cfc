"""The operator that asks for SEARCH/REPLACE edits."""

from app.domain.operator import Brief, Conversation, Operator
from app.domain.prompts import ATTEMPTS, diff_prompt
from app.domain.replies import read_edited


def converse(brief: Brief) -> Conversation:
    """Asks once a draft; the child is its first parent with the reply's edits applied."""
    replies = yield [diff_prompt(brief, draft) for draft in brief.drafts]
    return [
        read_edited(reply, brief.known[draft.parents[0]].program, brief.edit)
        for draft, reply in zip(brief.drafts, replies, strict=True)
    ]


DIFF = Operator("diff", converse, siblings=ATTEMPTS)
