"""What the library promises, whatever makes it fast."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from main import answers

WORDS = ["cat", "cart", "coat", "act", "at", "cats", "dog", "bat", "hat", "rat", "sat"]


def test_a_known_word_comes_first() -> None:
    assert answers(WORDS, ["cat"]) == [["cat", "act", "at", "bat", "cart", "cats"]]


def test_an_unknown_word_is_corrected() -> None:
    assert answers(WORDS, ["doog", "zzz"]) == [["dog"], []]
