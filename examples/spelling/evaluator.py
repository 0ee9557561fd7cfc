"""Measures how fast the library answers, beside a loop of its own on the same machine."""

import importlib.util
import os
import random
import sys
import time

REPEATS = 3


def load(folder):
    """Returns the entry of the library: in guarded mode its stand-in."""
    sys.path.insert(0, folder)
    path = os.path.join(folder, "main.py")
    spec = importlib.util.spec_from_file_location("main", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def vocabulary(seed, size):
    rng = random.Random(seed)
    letters = "eeeettaaooiinnsshhrrddlluucmwfgypbvk"
    return sorted({"".join(rng.choices(letters, k=rng.randint(3, 7))) for _ in range(size)})


def queries(words, seed, count):
    rng = random.Random(seed)
    texts = []
    for word in rng.choices(words, k=count):
        n = rng.randrange(len(word))
        texts.append(rng.choice([word, word[:n] + word[n + 1 :], word[:n] + "e" + word[n:]]))
    return texts


def expected(words, query, most=6):
    known = set(words)
    letters = "abcdefghijklmnopqrstuvwxyz"
    parts = [(query[:n], query[n:]) for n in range(len(query) + 1)]
    near = {a + b[1:] for a, b in parts if b}
    near |= {a + c + b[1:] for a, b in parts if b for c in letters}
    near |= {a + c + b for a, b in parts for c in letters}
    near |= {a + b[1] + b[0] + b[2:] for a, b in parts if len(b) > 1}
    first = [query] if query in known else []
    return (first + sorted((near & known) - {query}))[:most]


def check(folder):
    words = vocabulary(1, 800)
    asked = [*queries(words, 2, 30), "a", "zzzz", words[0] * 2]
    given = load(folder).answers(words, asked)
    if len(given) != len(asked):
        return {"error": f"{len(given)} answers to {len(asked)} queries"}
    pairs = zip(asked, given, strict=True)
    wrong = [query for query, found in pairs if list(found) != expected(words, query)]
    if wrong:
        return {"error": f"{len(wrong)} of {len(asked)} answers are wrong, such as of {wrong[:1]}"}
    return {"combined_score": 0.0}


def speed(folder):
    words = vocabulary(3, 1500)
    asked = queries(words, 4, 40)
    library = load(folder)
    seconds, unit = [], []
    for _ in range(REPEATS):
        unit.append(timed(lambda: [expected(words, query) for query in asked[:10]]))
        begun = time.perf_counter()
        given = library.answers(words, asked)
        seconds.append(time.perf_counter() - begun)
    if [list(found) for found in given] != [expected(words, query) for query in asked]:
        return {"error": "an answer of the measured queries is wrong"}
    return {"combined_score": min(unit) / min(seconds), "seconds": min(seconds)}


def timed(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
