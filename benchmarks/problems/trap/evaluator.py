"""Scores 16 bits in four blocks, each of them deceptive: its best is all ones, and a block of all
zeros, the next best, gets worse by every single step towards them.

The metric `ones` is how many bits are set: an axis on which a search can keep what is worse.
"""

import importlib.util

BLOCKS, WIDTH = 4, 4
TRAP = (3.0, 1.0, 1.5, 2.0, 5.0)
"""Score of a block by its number of ones."""


def score(program):
    bits = [int(value) % 2 for value in program.bits()]
    if len(bits) != BLOCKS * WIDTH:
        raise ValueError(f"{len(bits)} values, not {BLOCKS * WIDTH}")
    ones = [sum(bits[WIDTH * block : WIDTH * block + WIDTH]) for block in range(BLOCKS)]
    reached = sum(TRAP[n] for n in ones)
    return {"combined_score": reached / (BLOCKS * TRAP[-1]), "ones": float(sum(ones))}


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return score(program)
