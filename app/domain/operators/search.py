"""The operator `search`: a child is the best program of a run inside that begins at the parents.

A pattern inside a pattern: the recipe of the run around decides which children are kept, that of
the run inside how each of them is found.
"""

from app.domain.operator import Brief, Conversation, Operator


def converse(brief: Brief) -> Conversation:
    """Returns what the run inside the only draft found."""
    yield from ()
    if brief.found is None:
        raise ValueError(f"no run inside the proposals {[d.ordinal for d in brief.drafts]} ended")
    return [brief.found]


SEARCH = Operator("search", converse, asks_model=False, searches=True)
