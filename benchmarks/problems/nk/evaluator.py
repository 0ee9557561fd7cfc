"""Scores 24 bits on an NK landscape: what a bit is worth depends on four others, drawn once."""

import importlib.util
from random import Random
from statistics import fmean

GENES, NEIGHBOURS = 24, 4


def landscape():
    """Returns for each bit the bits that its worth depends on, and the worth of each pattern."""
    rng = Random("NK")
    others = [[m for m in range(GENES) if m != n] for n in range(GENES)]
    links = [(n, *rng.sample(others[n], NEIGHBOURS)) for n in range(GENES)]
    return links, [[rng.random() for _ in range(2 << NEIGHBOURS)] for _ in range(GENES)]


LINKS, TABLES = landscape()


def score(program):
    bits = [int(value) % 2 for value in program.bits()]
    if len(bits) != GENES:
        raise ValueError(f"{len(bits)} values, not {GENES}")
    worths = (
        table[sum(bits[m] << k for k, m in enumerate(link))]
        for link, table in zip(LINKS, TABLES, strict=True)
    )
    return {"combined_score": fmean(worths)}


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return score(program)
