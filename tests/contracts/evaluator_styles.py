"""How evaluators use a program: each style works in guarded mode, or says clearly why not."""

import json
from typing import Any

import pytest

from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job, Limits, Mode, Outcome
from app.ports.protocols import Sandbox

LIMITS = Limits(wall_seconds=60.0, cpu_seconds=30.0, memory_mib=512)

PROGRAM = b'''\
"""A program."""
import os
import sys

RATE = 1.5


class Answer:
    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)

    def __eq__(self, other):
        return True


def solve(x, power=2, *rest, scale=1.0):
    """Returns a power."""
    return scale * x**power


def answer(x):
    return Answer(x * x)


async def later(x):
    return x * x


def numbers(n):
    for k in range(n):
        yield k


def ask_back(f, x):
    return f(x) + 1


def expected(x):
    return x


class Bag:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter([Answer(k) for k in range(self.n)])

    def __len__(self):
        return self.n

    def grow(self):
        self.n += 1
        return self.n


class Restless:
    """Never the same twice."""

    def __init__(self):
        self.looks = 0

    def look(self):
        self.looks += 1
        return self.looks

    value = property(look)

    def __float__(self):
        return float(self.look())

    def __len__(self):
        return self.look()

    def __getitem__(self, index):
        return self.look()

    def __str__(self):
        return str(self.look())

    def __iter__(self):
        return iter([Restless() for _ in range(self.look())])


class Endless:
    """Begins anew whenever it has ended."""

    def __init__(self):
        self.looks = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.looks += 1
        if self.looks % 3 == 0:
            raise StopIteration
        return self.looks


def sorted(values):
    return [99]


def count(path):
    with open(path) as file:
        return len(file.read())


def write():
    path = os.path.abspath("written.txt")
    with open(path, "w") as file:
        file.write("text")
    return path


def write_at(path):
    with open(path, "w") as file:
        file.write("text")


if __name__ == "__main__":
    print(solve(float(sys.argv[1]) if len(sys.argv) > 1 else float(input())))
    sys.exit(3 if "fail" in sys.argv else 0)
'''

HEAD = """
import importlib, importlib.util, os, subprocess, sys, runpy, inspect, asyncio, tempfile, shutil

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def expected(x):
    return x * x
"""

ALIKE = {
    "spec_from_file_location": "return {'v': load(path).solve(5)}",
    "__import__ and sys.path": (
        "sys.path.insert(0, os.path.dirname(path))\n"
        "return {'v': __import__(os.path.basename(path)[:-3]).solve(5)}"
    ),
    "SourceFileLoader": (
        "import importlib.machinery as m\n"
        "return {'v': m.SourceFileLoader('p', path).load_module().solve(5)}"
    ),
    "exec of the text": (
        "ns = {}\nexec(open(path).read(), ns)\nreturn {'v': ns['solve'](5), 'r': ns['RATE']}"
    ),
    "exec of the compiled text": (
        "ns = {}\nexec(compile(open(path).read(), path, 'exec'), ns)\nreturn {'v': ns['solve'](5)}"
    ),
    "exec in two dictionaries": (
        "ns = {}\nexec(open(path).read(), {}, ns)\nreturn {'v': ns['solve'](5), 'r': ns['RATE']}"
    ),
    "runpy": "ns = runpy.run_path(path)\nreturn {'v': ns['solve'](5), 'r': ns['RATE']}",
    "getsource of a function": (
        "text = inspect.getsource(load(path).solve)\n"
        "return {'n': len(text), 'ok': text.startswith('def solve') and 'x**power' in text}"
    ),
    "getsource of a module": "return {'n': len(inspect.getsource(load(path)))}",
    "signature": (
        "p = load(path)\nshown = inspect.signature(p.solve).parameters.values()\n"
        "return {'s': [[x.name, x.kind.name, x.default is x.empty] for x in shown],\n"
        "        'd': p.solve.__doc__, 'n': p.solve.__name__, 'f': inspect.isfunction(p.solve)}"
    ),
    "attributes": (
        "p = load(path)\n"
        "return {'has': hasattr(p, 'solve'), 'not': hasattr(p, 'other'), 'r': p.RATE,\n"
        "        'dir': 'solve' in dir(p), 'callable': callable(p.solve)}"
    ),
    "keywords": "p = load(path)\nreturn {'v': p.solve(5, power=3, scale=0.5), 'w': p.solve(x=2)}",
    "an object": (
        "p = load(path)\na = p.answer(3)\na.value = a.value + 1\n"
        "return {'v': a.value, 'f': float(a), 't': bool(a), 'i': isinstance(a, p.Answer),\n"
        "        'n': isinstance(3, p.Answer)}"
    ),
    "an object that changes when it is called": (
        "bag = load(path).Bag(3)\nfirst = [len(bag), bag.n, len(list(bag))]\nbag.grow()\n"
        "return {'f': first, 's': [len(bag), bag.n, len(list(bag))], 'l': bag.n}"
    ),
    "a long object": "return {'v': sum(float(one) for one in load(path).Bag(2500))}",
    "two loops over one generator": (
        "g = load(path).numbers(5)\nfirst = next(g)\nreturn {'v': [first, sum(g), list(g)]}"
    ),
    "a class": "return {'v': load(path).Answer(7).value}",
    "a generator": "return {'v': sum(load(path).numbers(5)), 'l': list(load(path).numbers(3))}",
    "a coroutine": (
        "p = load(path)\nasync def both():\n"
        "    return await asyncio.gather(p.later(3), p.later(4))\n"
        "return {'v': sum(asyncio.run(both())), 'c': inspect.iscoroutinefunction(p.later)}"
    ),
    "a callback that calls the program": (
        "p = load(path)\nreturn {'v': p.ask_back(lambda x: p.solve(x) + 1, 4)}"
    ),
    "a subprocess that imports": (
        "text = ('import importlib.util, sys\\ns = importlib.util.spec_from_file_location("
        "\"p\", sys.argv[1])\\n'\n"
        "        'm = importlib.util.module_from_spec(s); s.loader.exec_module(m)\\n'\n"
        "        'print(m.solve(5))')\n"
        "with tempfile.NamedTemporaryFile('w', suffix='.py') as file:\n"
        "    file.write(text); file.flush()\n"
        "    done = subprocess.run([sys.executable, file.name, path], capture_output=True)\n"
        "return {'v': float(done.stdout)}"
    ),
    "a subprocess that is the program": (
        "done = subprocess.run([sys.executable, path, '4'], capture_output=True, text=True)\n"
        "fed = subprocess.run([sys.executable, path], input='3', capture_output=True, text=True)\n"
        "bad = subprocess.run([sys.executable, path, '4', 'fail'], capture_output=True)\n"
        "return {'v': float(done.stdout), 'w': float(fed.stdout), 'c': bad.returncode}"
    ),
    "a subprocess that fails": (
        "done = subprocess.run([sys.executable, path, 'x'], capture_output=True, text=True)\n"
        "return {'c': done.returncode, 'e': 'ValueError' in done.stderr}"
    ),
    "a copy of the program": (
        "copy = os.path.join(tempfile.mkdtemp(), 'copy.py')\nshutil.copy(path, copy)\n"
        "done = subprocess.run([sys.executable, copy, '4'], capture_output=True, text=True)\n"
        "return {'v': load(copy).solve(5), 'w': float(done.stdout)}"
    ),
    "its source at the variable": (
        "import ast\ntext = open(os.environ['EVOQ_PROGRAM_SOURCE']).read()\n"
        "return {'n': len(text), 'f': len(ast.parse(text).body)}"
    ),
    "forked workers": (
        "import multiprocessing\np = load(path)\nglobal _solve\n_solve = p.solve\n"
        "pool = multiprocessing.get_context('fork')\nreader, writer = pool.Pipe(False)\n"
        "child = pool.Process(target=lambda: writer.send(p.solve(6)))\n"
        "child.start(); child.join()\nreturn {'v': reader.recv()}"
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\np = load(path)\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    return {'v': sum(pool.map(p.solve, range(20)))}"
    ),
}  # fmt: skip

GUARDED_ONLY_FAILS = {
    "a subclass": (
        "p = load(path)\nclass Mine(p.Answer):\n    pass\nreturn {'v': Mine(1).value}",
        "derives a class",
    ),
    "an object of the evaluator": (
        "class Box:\n    x = 1\nreturn {'v': float(load(path).answer(Box()))}",
        "cannot cross in guarded mode",
    ),
    "a file of the evaluator": (
        "with tempfile.NamedTemporaryFile('w') as file:\n    file.write('text'); file.flush()\n"
        "    return {'v': load(path).count(file.name)}",
        "Pass what is in it",
    ),
    "a file of the evaluator by its keyword": (
        "with tempfile.NamedTemporaryFile('w') as file:\n    file.write('text'); file.flush()\n"
        "    return {'v': load(path).count(path=file.name)}",
        "Pass what is in it",
    ),
    "a file of the program": (
        "return {'v': len(open(load(path).write()).read())}",
        "Let the program return what is in it",
    ),
}


OTHERS = {
    "a refused write": "load(path).write_at('/tmp/text')\nreturn {}",
    "the text of the stub": "return {'t': open(path).read()}",
    "exec in its own names": (
        "exec(open(path).read(), globals())\nreturn {'v': expected(4), 'w': solve(4)}"
    ),
    "an object that equals everything": (
        "a = load(path).answer(3)\nreturn {'e': a == 99, 'n': a != 99, 'o': 99 == a}"
    ),
    "an import of all names": (
        "sys.path.insert(0, os.path.dirname(path))\nnames = {}\n"
        "exec('from program import *\\nv = solve(5)\\ns = sorted([2, 1])', names)\n"
        "return {'v': names['v'], 's': names['s']}"
    ),
    "an object that changes": (
        "p = load(path)\nr = p.Restless()\n"
        "looks = (lambda: r.value, lambda: float(r), lambda: len(r), lambda: r[0],\n"
        "         lambda: str(r), lambda: [float(one) for one in r],\n"
        "         lambda: [one.value for one in r])\n"
        "return {str(n): look() == look() for n, look in enumerate(looks)}"
    ),
    "an iterator": "e = load(path).Endless()\nreturn {'v': [list(e), list(e), list(e)]}",
    "a script that waits": (
        "child = subprocess.Popen([sys.executable, path], stdin=subprocess.PIPE,\n"
        "                         stdout=subprocess.PIPE)\n"
        "try:\n    child.communicate(timeout=0.5) if False else child.wait(0.5)\n"
        "except subprocess.TimeoutExpired:\n    child.kill()\n"
        "out, _ = child.communicate()\nreturn {'n': len(out), 'c': child.returncode}"
    ),
    "another language": (
        "return {'n': len(open(path).read()), 's': os.path.splitext(path)[1]}"
    ),
}  # fmt: skip

FUNCTIONS = {
    body: f"style_{n}"
    for n, body in enumerate(
        [*ALIKE.values(), *(body for body, _ in GUARDED_ONLY_FAILS.values()), *OTHERS.values()]
    )
}
"""The function of `EVALUATOR` for each style."""


def _function(name: str, body: str) -> str:
    return f"\ndef {name}(path):\n" + "".join(f"    {line}\n" for line in body.splitlines())


EVALUATOR = Evaluator(
    "styles",
    {"evaluator.py": (HEAD + "".join(_function(n, b) for b, n in FUNCTIONS.items())).encode()},
)
"""One evaluator for all styles, so that they share sandboxes, whose boot takes longer than they."""


class EvaluatorStyleContract:
    """Subclass it and provide the fixture `sandbox`."""

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        raise NotImplementedError

    @staticmethod
    def run(sandbox: Sandbox, body: str, mode: Mode, suffix: str = ".py") -> Outcome:
        return sandbox.run(Job(EVALUATOR, FUNCTIONS[body], ((suffix, PROGRAM),), LIMITS, mode))

    def metrics(self, sandbox: Sandbox, body: str, mode: Mode = Mode.GUARDED) -> Any:
        outcome = self.run(sandbox, body, mode)
        assert outcome.result is not None, (outcome.failure, outcome.stderr.decode())
        return json.loads(outcome.result)["metrics"]

    @pytest.mark.parametrize("style", ALIKE)
    def test_a_style_measures_alike_in_both_modes(self, sandbox: Sandbox, style: str) -> None:
        guarded = self.metrics(sandbox, ALIKE[style], Mode.GUARDED)
        assert guarded == self.metrics(sandbox, ALIKE[style], Mode.COMPATIBLE)
        assert guarded

    @pytest.mark.parametrize("style", GUARDED_ONLY_FAILS)
    def test_a_style_that_cannot_work_fails_with_the_reason(
        self, sandbox: Sandbox, style: str
    ) -> None:
        body, words = GUARDED_ONLY_FAILS[style]
        outcome = self.run(sandbox, body, Mode.GUARDED)
        assert outcome.failure is not None
        assert outcome.failure.kind is FailureKind.RUNTIME
        assert words in outcome.failure.detail
        assert "sandbox.mode=compatible" in outcome.failure.detail

    def test_the_failure_of_a_refused_write_names_the_permitted_directory(
        self, sandbox: Sandbox
    ) -> None:
        outcome = self.run(sandbox, OTHERS["a refused write"], Mode.GUARDED)
        if outcome.failure is not None:  # else this /tmp is the program's own
            assert outcome.failure.kind is FailureKind.RUNTIME
            assert "tempfile.gettempdir()" in outcome.failure.detail

    def test_the_stub_names_the_path_of_the_program_text(self, sandbox: Sandbox) -> None:
        found = self.metrics(sandbox, OTHERS["the text of the stub"])
        assert "EVOQ_PROGRAM_SOURCE" in found["t"]

    def test_text_executed_in_the_evaluator_replaces_no_name_of_it(self, sandbox: Sandbox) -> None:
        assert self.metrics(sandbox, OTHERS["exec in its own names"]) == {"v": 16, "w": 16}

    def test_an_object_of_the_program_equals_nothing_of_the_evaluator(
        self, sandbox: Sandbox
    ) -> None:
        found = self.metrics(sandbox, OTHERS["an object that equals everything"])
        assert found == {"e": False, "n": True, "o": False}

    def test_an_import_of_all_names_replaces_no_built_in(self, sandbox: Sandbox) -> None:
        assert self.metrics(sandbox, OTHERS["an import of all names"]) == {"v": 25, "s": [1, 2]}

    def test_an_object_stays_as_it_was_read(self, sandbox: Sandbox) -> None:
        found = self.metrics(sandbox, OTHERS["an object that changes"])
        assert found == dict.fromkeys(found, True)
        assert len(found) == 7

    def test_an_exhausted_iterator_stays_exhausted(self, sandbox: Sandbox) -> None:
        assert self.metrics(sandbox, OTHERS["an iterator"]) == {"v": [[1, 2], [], []]}

    def test_a_killed_script_ends_with_its_program(self, sandbox: Sandbox) -> None:
        assert self.metrics(sandbox, OTHERS["a script that waits"]) == {"n": 0, "c": -9}

    @pytest.mark.parametrize("suffix", [".txt", ".rs", ".sh"])
    def test_a_program_in_another_language_is_a_file(self, sandbox: Sandbox, suffix: str) -> None:
        for mode in Mode:
            outcome = self.run(sandbox, OTHERS["another language"], mode, suffix)
            assert outcome.result is not None, outcome.failure
            found = json.loads(outcome.result)["metrics"]
            assert found == {"n": len(PROGRAM), "s": suffix}

    def test_an_evaluator_may_run_a_program_in_another_language(self, sandbox: Sandbox) -> None:
        text = HEAD + (
            "def evaluate(path):\n"
            "    copy = shutil.copy(path, os.path.join(tempfile.gettempdir(), 'built'))\n"
            "    os.chmod(copy, 0o700)\n"
            "    done = subprocess.run([copy, '5'], capture_output=True, text=True)\n"
            "    return {'v': float(done.stdout)}\n"
        )
        evaluator = Evaluator("shell", {"evaluator.py": text.encode()})
        program = b"#!/bin/sh\necho $(($1 * $1))\n"
        job = Job(evaluator, "evaluate", ((".sh", program),), LIMITS, Mode.COMPATIBLE)
        outcome = sandbox.run(job)
        assert outcome.result is not None, (outcome.failure, outcome.stderr)
        assert json.loads(outcome.result)["metrics"] == {"v": 25.0}
