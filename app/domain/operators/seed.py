"""The operator `seed`: every child equals its parent.  It offers a run's seeds to the islands."""

from app.domain.operator import Brief, Conversation, Offspring, Operator


def converse(brief: Brief) -> Conversation:
    """Returns each draft's first parent as its child."""
    yield from ()
    return [Offspring(brief.parent(draft).program) for draft in brief.drafts]


SEED = Operator("seed", converse, asks_model=False, together=True)
