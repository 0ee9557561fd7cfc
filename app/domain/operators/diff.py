"""The operator that asks for SEARCH/REPLACE edits."""

from app.domain.operator import Brief, Child, Completion, Conversation, Draft, Operator
from app.domain.operators.asking import asked, teller
from app.domain.prompting.parts import ANCESTORS, ATTEMPTS, FAILURES
from app.domain.prompting.prompts import diff_prompt
from app.domain.replies.interpretation import read_edited


def converse(brief: Brief) -> Conversation:
    """Asks once a draft; the child is its first parent with the reply's edits applied."""
    tell = teller(brief.prompts)

    def read(reply: Completion, draft: Draft) -> Child:
        return read_edited(reply, brief.known[draft.parents[0]].program, brief.edit, tell)

    return (yield from asked(brief, [diff_prompt(brief, one) for one in brief.drafts], read))


DIFF = Operator(
    "diff", converse, siblings=ATTEMPTS, ancestors=ANCESTORS, failures=FAILURES, repairs=True
)
