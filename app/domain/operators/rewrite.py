"""The operator that asks for a complete program."""

from app.domain.operator import Brief, Child, Completion, Conversation, Draft, Operator
from app.domain.operators.asking import asked, teller
from app.domain.prompting.parts import ANCESTORS, ATTEMPTS, FAILURES
from app.domain.prompting.prompts import rewrite_prompt
from app.domain.replies.interpretation import read_rewritten


def converse(brief: Brief) -> Conversation:
    """Asks once a draft; the child replaces its first parent in full."""
    tell = teller(brief.prompts)

    def read(reply: Completion, draft: Draft) -> Child:
        return read_rewritten(reply, brief.known[draft.parents[0]].program, brief.edit, tell)

    return (yield from asked(brief, [rewrite_prompt(brief, one) for one in brief.drafts], read))


REWRITE = Operator(
    "rewrite", converse, siblings=ATTEMPTS, ancestors=ANCESTORS, failures=FAILURES, repairs=True
)
