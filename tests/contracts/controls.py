"""Honest programs that do unusual things, and earn what they should in both modes."""

import json
from dataclasses import replace

import pytest

from app.domain.problem import Evaluator, Job, Limits, Mode
from app.ports.protocols import Sandbox

LIMITS = Limits(
    wall_seconds=60.0, cpu_seconds=30.0, memory_mib=512, output_bytes=500_000, processes=32
)
EVALUATOR = Evaluator(
    "controls",
    {
        "evaluator.py": b"""
import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [module.solve(n) for n in (2, 3)]
    return {"combined_score": sum(float(one) for one in found)}
"""
    },
)

CONTROLS = {
    "threads": """
from concurrent.futures import ThreadPoolExecutor
def solve(n):
    with ThreadPoolExecutor(8) as pool:
        return sum(pool.map(lambda x: x, [1] * n)) * n
""",
    "multiprocessing": """
import multiprocessing
def child(n, end): end.send(n * n)
def solve(n):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(False)
    process = context.Process(target=child, args=(n, theirs))
    process.start()
    value = ours.recv()
    process.join()
    return value
""",
    "NumPy": """
import numpy
def solve(n):
    a = numpy.full((200, 200), float(n))
    values = numpy.linalg.eigvalsh(a)
    return round(values.max() / 200 * n, 6)
""",
    "temporary files": """
import os, shutil, tempfile
def solve(n):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.bin")
        with open(path, "wb") as file: file.write(b"x" * (n * n << 20))
        shutil.copy(path, path + "2")
        return os.path.getsize(path + "2") >> 20
""",
    "heavy but legal memory": """
def solve(n):
    block = bytearray(300 << 20)
    block[-1] = n
    return block[-1] * n
""",
    "deep recursion": """
import sys
sys.setrecursionlimit(20000)
def down(k): return 0 if k == 0 else 1 + down(k - 1)
def solve(n): return down(9000) - 9000 + n * n
""",
    "printing a lot": """
import sys
def solve(n):
    for _ in range(2000):
        print("x" * 50)
        print("y" * 20, file=sys.stderr)
    return n * n
""",
    "locks, queues and shared memory": """
import multiprocessing
from multiprocessing import shared_memory
def child(n, lock, queue, name):
    memory = shared_memory.SharedMemory(name)
    with lock:
        memory.buf[0] += n
    memory.close()
    queue.put(n)
def solve(n):
    context = multiprocessing.get_context("fork")
    lock, queue = context.Lock(), context.Queue()
    memory = shared_memory.SharedMemory(create=True, size=16)
    memory.buf[0] = 0
    children = [context.Process(target=child, args=(n, lock, queue, memory.name)) for _ in range(n)]
    for one in children: one.start()
    received = sum(queue.get() for _ in children)
    for one in children: one.join()
    total = memory.buf[0]
    memory.close()
    memory.unlink()
    return total if total == received else -1
""",
    "a manager's dictionary": """
import multiprocessing
def child(shared, n): shared[n] = n * n
def solve(n):
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager:
        shared = manager.dict()
        one = context.Process(target=child, args=(shared, n))
        one.start()
        one.join()
        return shared[n]
""",
    "its own interpreter": """
import subprocess, sys
def solve(n):
    command = [sys.executable, "-c", f"print({n} ** 2)"]
    return int(subprocess.run(command, capture_output=True, text=True).stdout)
""",
    "asyncio": """
import asyncio
async def square(n):
    await asyncio.sleep(0.01)
    return n * n
async def both(n):
    return max(await asyncio.gather(square(n), square(n)))
def solve(n): return asyncio.run(both(n))
""",
    "a large value": """
def solve(n):
    values = [float(n * n)] * 500_000
    return values[sum(values) > 0]
""",
    "patched built-ins and warnings": """
import builtins, random, sys, warnings
random.seed(1)
shout = builtins.print
builtins.print = lambda *a, **k: shout("my own", *a, **k)
sys.stdout.write("quiet")
def solve(n):
    warnings.warn("old")
    print(n)
    return n * n
""",
    "a time limit of its own": """
import signal, time
def solve(n):
    def late(*a): raise TimeoutError
    signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        time.sleep(10)
    except TimeoutError:
        return n * n
""",
}


class ControlContract:
    """Subclass it and provide the fixture `sandbox`."""

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        raise NotImplementedError

    @pytest.mark.parametrize("control", CONTROLS)
    def test_an_honest_program_earns_its_score(self, sandbox: Sandbox, control: str) -> None:
        for mode in Mode:
            program = CONTROLS[control].encode()
            outcome = sandbox.run(Job(EVALUATOR, "evaluate", ((".py", program),), LIMITS, mode))
            assert outcome.result is not None, (mode, outcome.failure, outcome.stderr[-500:])
            assert json.loads(outcome.result)["metrics"]["combined_score"] == 13.0, mode

    def test_large_values_cross_completely(self, sandbox: Sandbox) -> None:
        text = (
            b"import importlib.util\ndef evaluate(path):\n"
            b"    s = importlib.util.spec_from_file_location('p', path)\n"
            b"    m = importlib.util.module_from_spec(s)\n    s.loader.exec_module(m)\n"
            b"    a, b = m.lists(), m.tables()\n"
            b"    return {'n': len(a), 'sum': sum(a), 'm': len(b), 'k': b['k77777'][1]}\n"
        )
        program = (
            b"def lists(): return [0.5] * 1_000_000\n"
            b"def tables(): return {f'k{n}': [n, str(n)] for n in range(100_000)}\n"
        )
        evaluator = Evaluator("large values", {"evaluator.py": text})
        for mode in Mode:
            limits = replace(LIMITS, memory_mib=1024)
            outcome = sandbox.run(Job(evaluator, "evaluate", ((".py", program),), limits, mode))
            assert outcome.result is not None, (mode, outcome.failure)
            found = json.loads(outcome.result)["metrics"]
            assert found == {"n": 1_000_000, "sum": 500_000.0, "m": 100_000, "k": "77777"}
