"""The operator `agent`: a command changes the program's files in a folder of its own."""

from app.domain.operator import Brief, Conversation, Operator
from app.domain.operators.conversation import describer
from app.domain.prompting.prompts import agent_prompt
from app.domain.prompting.sections import PROMPTED
from app.domain.replies.agent import read_agent


def converse(brief: Brief) -> Conversation:
    """Sends one task for each draft; the reply is the files that its agent left."""
    replies = yield [agent_prompt(brief, draft) for draft in brief.drafts]
    return [
        read_agent(reply, brief.parent(draft).program, brief.edit, describer(brief.prompts))
        for reply, draft in zip(replies, brief.drafts, strict=True)
    ]


AGENT = Operator("agent", converse, asks_model=False, agent=True, reads=PROMPTED)
