"""Scores a sorting network of six wires and at most twelve comparators, as few as can sort.

The score is the share of the 64 inputs of zeros and ones that come out sorted: a network that sorts
them sorts everything.
"""

import importlib.util
from itertools import product

WIRES, MOST = 6, 12


def score(program):
    pairs = [sorted(int(wire) % WIRES for wire in pair) for pair in program.comparators()]
    if len(pairs) > MOST:
        raise ValueError(f"{len(pairs)} comparators, more than {MOST}")
    return {"combined_score": sum(is_sorted(bits, pairs) for bits in INPUTS) / len(INPUTS)}


INPUTS = list(product((0, 1), repeat=WIRES))


def is_sorted(bits, pairs):
    wires = list(bits)
    for low, high in pairs:
        if wires[low] > wires[high]:
            wires[low], wires[high] = wires[high], wires[low]
    return wires == sorted(wires)


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return score(program)
