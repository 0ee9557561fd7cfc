"""Similarity of source texts: estimated from sketches of their tokens, or of their embeddings.

Source: Broder 1997, "On the resemblance and containment of documents": the share of equal minima of
random permutations estimates the Jaccard index of two sets.
"""

import ast
import re
import zlib
from collections.abc import Sequence
from random import Random

from app.domain.source.syntax import numbered_locals, remembered, tree_or_none, with_replaced

WIDTH = 128
"""Permutations: the standard error of the estimate is at most 0.044."""
_SHINGLE = 3
_PRIME = 2**61 - 1
_RNG = Random(1997)
_PERMUTATIONS = [(_RNG.randrange(1, _PRIME), _RNG.randrange(_PRIME)) for _ in range(WIDTH)]
_TOKEN = re.compile(r"\w+(?:\.\w+)*|[^\w\s]")


@remembered
def sketch(text: str) -> tuple[int, ...]:
    """Returns the minima of the permutations over all runs of three tokens of a text.

    Comments, layout and the names of local variables of a Python program do not count.
    """
    tree = tree_or_none(text)
    normal = text if tree is None else ast.unparse(with_replaced(tree, numbered_locals(tree)))
    tokens = _TOKEN.findall(normal)
    last = max(1, len(tokens) - _SHINGLE + 1)
    shingles = {" ".join(tokens[n : n + _SHINGLE]).encode() for n in range(last)}
    hashes = [zlib.crc32(shingle) for shingle in shingles]
    return tuple(min((a * each + b) % _PRIME for each in hashes) for a, b in _PERMUTATIONS)


def similarity(one: str, other: str) -> float:
    """Returns the estimated share of runs of three tokens that two texts have in common: 0 to 1."""
    pairs = zip(sketch(one), sketch(other), strict=True)
    return sum(mine == theirs for mine, theirs in pairs) / WIDTH


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Returns the cosine of the angle between two vectors of length 1."""
    return sum((a * b for a, b in zip(one, other, strict=True)), 0.0)
