"""A hash table of words with chains."""

BUCKETS = 40
MULTIPLIER = 3


class Table:
    def __init__(self, words):
        self.buckets = [[] for _ in range(BUCKETS)]
        for word in words:
            self.buckets[place(word)].append(word)

    def __contains__(self, word):
        chain = self.buckets[place(word)]
        return any(known == word for known in chain)


def place(word):
    """Returns the bucket of a word."""
    value = 7
    for letter in word:
        value = (value * MULTIPLIER + ord(letter)) % 65521
    return value % BUCKETS
