"""The operator `agent`: a command changes the program's files in a folder of its own."""

from app.domain.operator import Brief, Child, Completion, Conversation, Draft, Operator
from app.domain.operators.conversation import describer, with_repairs
from app.domain.prompting.prompts import agent_prompt
from app.domain.prompting.sections import FAILURES
from app.domain.replies.agent import read_agent


def converse(brief: Brief) -> Conversation:
    """Sends one task for each draft; the reply is the files that its agent left."""

    def read(reply: Completion, draft: Draft) -> Child:
        parent = brief.known[draft.parents[0]].program
        return read_agent(reply, parent, brief.edit, describer(brief.prompts))

    return (yield from with_repairs(brief, [agent_prompt(brief, d) for d in brief.drafts], read))


AGENT = Operator("agent", converse, failures=FAILURES)
