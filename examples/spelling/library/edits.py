"""Words that are one edit away from a word."""


def neighbours(word, alphabet):
    """Yields every text that one deletion, change, insertion or swap makes of a word."""
    for n in range(len(word)):
        yield word[:n] + word[n + 1 :]
        for letter in alphabet:
            yield word[:n] + letter + word[n + 1 :]
    for n in range(len(word) + 1):
        for letter in alphabet:
            yield word[:n] + letter + word[n:]
    for n in range(len(word) - 1):
        yield word[:n] + word[n + 1] + word[n] + word[n + 2 :]
