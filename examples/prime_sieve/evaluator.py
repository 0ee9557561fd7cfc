"""Measures the sieve that the build made."""

import os
import subprocess
import time

LIMITS = {0: 0, 1: 0, 2: 0, 3: 1, 100: 25, 1000: 168, 10007: 1229, 100000: 9592, 2000000: 148933}
LONG, EXPECTED = 20_000_000, 1_270_607
REPEATS = 3


def count(folder, limit):
    program = os.path.join(folder, "sieve")
    done = subprocess.run([program, str(limit)], capture_output=True, text=True, timeout=20)
    if done.returncode:
        return f"status {done.returncode}: {done.stderr[-200:]}"
    return done.stdout.strip()


def check(folder):
    for limit, expected in LIMITS.items():
        if (found := count(folder, limit)) != str(expected):
            return {"error": f"below {limit} there are {expected} primes, not {found}"}
    return {"combined_score": 0.0}


def speed(folder):
    seconds = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        found = count(folder, LONG)
        seconds.append(time.perf_counter() - begun)
        if found != str(EXPECTED):
            return {"error": f"below {LONG} there are {EXPECTED} primes, not {found}"}
    return {"combined_score": 1.0 / min(seconds), "seconds": min(seconds)}
