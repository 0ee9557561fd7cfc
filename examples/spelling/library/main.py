"""Answers queries about the spelling of words."""

import json
import os

from edits import neighbours
from table import Table

PARAMETERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "params.json")


def answers(words, queries):
    """Returns the known words within one edit of each query."""
    with open(PARAMETERS) as file:
        parameters = json.load(file)
    table = Table(words)
    return [answer(table, query, parameters) for query in queries]


def answer(table, query, parameters):
    found = [query] if query in table else []
    others = set()
    for word in neighbours(query, parameters["alphabet"]):
        if word != query and word in table:
            others.add(word)
    return (found + sorted(others))[: parameters["most"]]
