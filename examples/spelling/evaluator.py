"""Runs the library's tests, then measures its speed beside a loop of its own on this machine."""

import glob
import importlib.util
import os
import random
import runpy
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


def close_words(seed, most):
    """Returns words that are near each other: each kind of edit leads from one to another."""
    rng = random.Random(seed)
    word = "".join(rng.sample("abcdefghijklmnopqrstuvwxyz", 5))
    edits = {word, word[1:], word[:-1], word[:2] + "z" + word[3:], word + "y", "x" + word}
    edits |= {word[1] + word[0] + word[2:], word[:3] + word[4] + word[3]}
    return word, sorted(rng.sample(sorted(edits), most))


def tests(folder):
    library = load(folder)
    return failed_test(folder, library) or wrong_answer(library) or {"combined_score": 0.0}


def failed_test(folder, library):
    """Returns the first of the library's own tests that fails; None if all pass."""
    sys.modules["main"] = library
    paths = sorted(glob.glob(os.path.join(folder, "tests", "test_*.py")))
    if not paths:
        return {"error": "the library has no tests"}
    for path in paths:
        for name, test in runpy.run_path(path).items():
            if name.startswith("test_"):
                try:
                    test()
                except AssertionError:
                    return {"error": f"{os.path.basename(path)}: {name} fails"}
    return None


def wrong_answer(library):
    words = vocabulary(1, 800)
    cases = [(words, [*queries(words, 2, 30), "a", "zzzz", words[0] * 2])]
    for seed in range(24):
        word, near = close_words(seed, 2 + seed % 6)
        cases.append((near, [word, *near]))
    for known, asked in cases:
        given = library.answers(known, asked)
        if len(given) != len(asked):
            return {"error": f"{len(given)} answers to {len(asked)} queries"}
        for query, found in zip(asked, given, strict=True):
            if list(found) != expected(known, query):
                return {"error": f"the answer to {query!r} is wrong: {list(found)}"}
    return None


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
