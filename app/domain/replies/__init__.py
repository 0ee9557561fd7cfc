"""Replies: from the text of a completion to a child program, or to a Failure that says why not."""
