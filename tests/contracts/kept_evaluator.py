# ruff: noqa: E501  # program texts are lines of their own
"""What a sandbox promises where one process of the evaluator measures several programs."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import pytest

from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job, Limits, Mode, Outcome
from app.ports.protocols import Sandbox
from tests.contracts.sandbox import last_outcome

LIMITS = Limits(
    wall_seconds=60.0, cpu_seconds=10.0, memory_mib=256, output_bytes=200_000, result_bytes=100_000
)
BRIEF = replace(LIMITS, wall_seconds=4.0)

EVALUATOR = """
import builtins, dataclasses, functools, gc, importlib.util, locale, logging, math, os, random
import resource, signal, subprocess, sys, tempfile, threading, time, warnings

import numpy
GENERATOR = random.Random(1)
ARRAYS = numpy.random.default_rng(1)
SEEN, TABLE, POINTS = [], {"best": 0}, numpy.zeros(3)

@dataclasses.dataclass
class Settings:
    weight: int = 1
    notes: list = dataclasses.field(default_factory=list)
SETTINGS = Settings()
class Counter:
    calls = 0
def with_default(value, seen=[]):
    seen.append(value)
def closing():
    count = 0
    def add():
        nonlocal count
        count += 1
        return count
    return add
ADD = closing()
@functools.lru_cache
def squared(x):
    return x * x

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def state():
    return [
        GENERATOR.getstate()[1][-5:], str(ARRAYS.bit_generator.state), repr(SEEN), repr(TABLE), repr(POINTS),
        repr(SETTINGS), Counter.calls, repr(with_default.__defaults__), ADD.__closure__[0].cell_contents,
        squared.cache_info().currsize, math.floor(2.5), len([0, 0]), random.random(),
        float(numpy.random.rand()), signal.getsignal(signal.SIGALRM) is signal.SIG_DFL,
        signal.getitimer(signal.ITIMER_REAL)[0], sorted(set(os.environ) - {"LC_CTYPE"}),
        [p for p in sys.path], [a for a in sys.argv], sys.getrecursionlimit(), sorted(n for n in sys.modules if "progr" in n),
        threading.active_count(), len(os.listdir("/proc/self/fd")), gc.isenabled(),
        resource.getrlimit(resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, 0),
        len(warnings.filters), os.getcwd() == os.environ["TMPDIR"], os.listdir("."),
        tempfile.gettempdir() == os.environ["TMPDIR"], sys.stdout is sys.__stdout__, os.umask(0o77),
        numpy.geterr(), numpy.get_printoptions(), numpy.getbufsize(), locale.setlocale(locale.LC_ALL),
        logging.getLogger().level, len(logging.getLogger().handlers), logging.getLogger("own").level,
        logging.getLevelName(35), sys.get_int_max_str_digits(), sys.getswitchinterval(),
        gc.get_threshold(), time.tzname,
    ]

"""
MEASURE = """
def NAME(path):
    before = list(map(repr, state())) if ASK else []
    program = load(path)
    answer = program.solve(3)
    ACT
    return {"combined_score": float(answer == 9), "pid": os.getpid(), "state": before}
"""

CARELESS = {
    "a list": "SEEN.append(answer)",
    "a table": "TABLE['best'] = max(TABLE['best'], answer)",
    "an array": "POINTS[0] += 1",
    "an object": "SETTINGS.weight += 1",
    "a list of an object": "SETTINGS.notes.append(answer)",
    "a class": "Counter.calls += 1",
    "a default": "with_default(answer)",
    "a closure": "ADD()",
    "a cache": "squared(answer)",
    "a generator": "GENERATOR.random()",
    "a generator of NumPy": "ARRAYS.random()",
    "a new name": "globals()['LATEST'] = answer",
    "an object of the program": "SEEN.append(program.Thing())",
    "a function of the program": "SEEN.append(program.solve)",
    "the program's text in its own names": "exec(open(path).read(), globals())",
    "a built-in": "builtins.len = lambda parts: 7",
    "a function of a library": "math.floor = lambda number: 7",
    "a module": "sys.modules['statistics'] = program",
    "a thread": "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "a thread that waits for the program": (
        "threading.Thread(target=program.wait, daemon=True).start(); time.sleep(0.1)"
    ),
    "a child process": "subprocess.Popen(['sleep', '60'])",
    "a descriptor": "os.dup(0)",
    "a handler": "signal.signal(signal.SIGALRM, lambda *a: None)",
    "an alarm": "signal.alarm(60)",
    "a blocked signal": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})",
    "a limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    "a limit of CPU time": "resource.setrlimit(resource.RLIMIT_CPU, (2, 2))",
    "a recursion limit": "sys.setrecursionlimit(500)",
    "a filter of warnings": "warnings.simplefilter('ignore')",
    "a warning": "warnings.warn(str(answer))",
    "a priority": "os.nice(1)",
    "memory": "numpy.ones(20 << 20, numpy.uint8).nbytes and bytearray(64 << 20)",
    "the treatment of errors": "numpy.seterr(all='raise')",
    "how arrays are printed": "numpy.set_printoptions(precision=2)",
    "a locale": "locale.setlocale(locale.LC_ALL, 'C.UTF-8' if locale.setlocale(locale.LC_ALL) == 'C' else 'C')",
    "the root logger": "logging.basicConfig(level=logging.DEBUG)",
    "the digits of an integer": "sys.set_int_max_str_digits(5000)",
    "a generator without end": "globals()['PARTS'] = (part for part in [answer])",
}
"""Evaluators that keep something of a trial where the next would find it."""
SAMPLE = (
    "a list", "an object of the program", "a generator of NumPy", "a built-in", "a thread",
    "a descriptor", "a handler", "a limit", "memory", "the treatment of errors",
)  # fmt: skip
"""One of each kind of state, for a second kind of isolation: what is compared does not differ."""

TIDIED = {
    "the environment": "os.environ['ANSWER'] = str(answer); del os.environ['HOME']",
    "the directory": "os.chdir('/')",
    "the search path": "sys.path.insert(0, os.path.dirname(path))",
    "the program as a module": "sys.modules['program'] = program",
    "an import by name": "sys.path.insert(0, os.path.dirname(path)); import program as again",
    "the arguments": "sys.argv.append(path)",
    "the output": "sys.stdout = open(os.devnull, 'w')",
    "a temporary file": "tempfile.NamedTemporaryFile(delete=False).close()",
    "a cycle that holds the program": "program.itself = [program]; program.itself.append(program)",
    "the mask of files": "os.umask(0)",
    "a child that has ended": "subprocess.run(['true'])",
}
"""Evaluators whose traces the harness removes, so that their process is kept all the same."""

SQUARE = """
import time
class Thing:
    def value(self): return 99
def wait(): time.sleep(60)
def solve(x): return x * x
"""

POISON = {
    "descriptors with the answer": """
import os, socket, stat, struct
def line():
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode): return fd
        except OSError: pass
def solve(x):
    sock = socket.socket(fileno=os.dup(line()))
    body = struct.pack('>II', 16, 0) + b'[2,"returned",9]'
    for part in (struct.pack('>I', len(body)) + body)[:4], body:
        socket.send_fds(sock, [part], [0] * 200)
    os.read(line(), 1)
""",
    "a large answer": "def solve(x): return [bytes(40 << 20), x * x]",
    "an array that fills the memory": "import numpy\ndef solve(x): return numpy.ones(6 << 20)",
    "thousands of objects": "def solve(x): return [object() for _ in range(20000)]",
    "an exception with a name": "def solve(x): raise type('E' * 90, (Exception,), {})('x' * 1000)",
    "thousands of names": "for n in range(20000): globals()[f'f{n}'] = n\ndef solve(x): return x * x",
    "names of the evaluator": (
        "SEEN, TABLE, evaluate, load, math = [9], {}, 1, 2, 3\ndef solve(x): return x * x"
    ),
    "a name of a module": "__name__ = 'math'\n__file__ = '/x'\ndef solve(x): return x * x",
    "an iterator without end": "import itertools\ndef solve(x): return itertools.count()",
    "an end in the middle": "import os\ndef solve(x): os._exit(0)",
    "a stopped process": "import os, signal\ndef solve(x):\n    if os.fork() == 0: os.kill(os.getppid(), 19)\n    return x * x",
}  # fmt: skip
"""Programs whose answers could leave something in the process that read them."""
WAITING = "a stopped process"
"""That of them which ends with its deadline."""

Open: TypeAlias = Callable[[int], AbstractContextManager[Sandbox]]
"""Opens one sandbox in which a process of the evaluator measures so many trials at most."""


QUIET, ASKING = "quiet", "asking"
"""Functions of `MEASURING` that do nothing between two trials, and that first look at the state."""


def function(name: str, act: str = "pass", *, ask: bool = True) -> str:
    """Returns the text of a function that measures a program and then acts."""
    return MEASURE.replace("NAME", name).replace("ACT", act).replace("ASK", str(ask))


ACTS = {act: f"act_{n}" for n, act in enumerate([*CARELESS.values(), *TIDIED.values()])}
"""The functions of `MEASURING` by what they do."""
_FUNCTIONS = (
    function(QUIET, ask=False),
    function(ASKING),
    *(function(name, act) for act, name in ACTS.items()),
)
MEASURING = Evaluator("measuring", {"evaluator.py": (EVALUATOR + "".join(_FUNCTIONS)).encode()})
"""One evaluator for most tests, so that they share a sandbox: to boot one takes longer than they."""


def evaluator(act: str) -> Evaluator:
    """Returns an evaluator of its own that acts, and never looks at the state."""
    text = (EVALUATOR + function(QUIET, act, ask=False)).encode()
    return Evaluator(f"measuring, and {act}", {"evaluator.py": text})


def trial(
    sandbox: Sandbox,
    function: str = QUIET,
    source: str = SQUARE,
    *,
    of: Evaluator = MEASURING,
    limits: Limits = LIMITS,
    mode: Mode = Mode.GUARDED,
) -> Outcome:
    programs = ((".py", source.encode()),)
    return last_outcome(sandbox, Job(of, function, programs, limits, mode))


FAILING = "def solve(x): raise ValueError('no')"


def metrics(outcome: Outcome) -> dict[str, Any]:
    assert outcome.result is not None, outcome
    measured: dict[str, Any] = json.loads(outcome.result)["metrics"]
    return measured


class KeptEvaluatorContract:
    """Subclass it and provide the fixtures `opened`, and `shared`, which is open for the module."""

    careless: ClassVar[tuple[str, ...]] = tuple(CARELESS)
    """The evaluators of `CARELESS` that are tried."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Gives a test the careless evaluators of its class."""
        if "careless" in metafunc.fixturenames:
            metafunc.parametrize("careless", self.careless)

    @pytest.fixture
    def opened(self) -> Open:
        raise NotImplementedError

    @pytest.fixture
    def shared(self) -> Sandbox:
        raise NotImplementedError

    @pytest.fixture
    def keeping(self, shared: Sandbox) -> Sandbox:
        """A sandbox whose next trial is the first of a fresh process."""
        assert trial(shared, source=FAILING).failure is not None
        return shared

    def test_one_process_measures_programs_in_turn(self, keeping: Sandbox) -> None:
        pids = {metrics(trial(keeping))["pid"] for _ in range(6)}
        assert len(pids) == 1

    @pytest.mark.parametrize("most", [1, 2])
    def test_a_process_measures_no_more_than_it_may(self, opened: Open, most: int) -> None:
        with opened(most) as sandbox:
            pids = [metrics(trial(sandbox))["pid"] for _ in range(6)]
        assert all(pids.count(pid) == most for pid in pids)

    def test_a_process_that_runs_the_program_itself_is_never_kept(self, keeping: Sandbox) -> None:
        pids = [metrics(trial(keeping, mode=Mode.COMPATIBLE))["pid"] for _ in range(3)]
        assert len(set(pids)) == 3

    @pytest.mark.parametrize(
        "text", ["open(os.environ['EVOQ_PROGRAM_SOURCE']).read()", "inspect.getsource(program)"]
    )
    def test_a_process_that_may_execute_a_programs_text_is_never_kept(
        self, keeping: Sandbox, text: str
    ) -> None:
        of = evaluator(f"import inspect; exec({text}, {{}})")
        pids = [metrics(trial(keeping, of=of))["pid"] for _ in range(3)]
        assert len(set(pids)) == 3

    def test_nothing_of_a_trial_is_found_by_the_next(self, keeping: Sandbox, careless: str) -> None:
        first, second = (metrics(trial(keeping, ACTS[CARELESS[careless]])) for _ in range(2))
        assert second["state"] == first["state"]
        assert second["combined_score"] == 1.0
        assert second["pid"] != first["pid"]

    @pytest.mark.parametrize("what", TIDIED)
    def test_what_each_trial_changes_is_put_back(self, keeping: Sandbox, what: str) -> None:
        found = [metrics(trial(keeping, ACTS[TIDIED[what]])) for _ in range(3)]
        for measured in found[1:]:
            assert measured["state"] == found[0]["state"]
            assert measured["pid"] == found[0]["pid"]

    @pytest.mark.parametrize("what", POISON)
    def test_no_answer_of_a_program_harms_the_next(self, keeping: Sandbox, what: str) -> None:
        limits = BRIEF if what == WAITING else LIMITS
        fresh = metrics(trial(keeping, ASKING, limits=limits))["state"]
        outcome = trial(keeping, ASKING, POISON[what], limits=limits)
        assert outcome.failure is not None or metrics(outcome)["combined_score"] in (0.0, 1.0)
        after = trial(keeping, ASKING, limits=limits)
        assert metrics(after)["state"] == fresh
        assert metrics(after)["combined_score"] == 1.0
        assert after.peak_memory_mib < 200

    def test_a_failure_ends_the_process(self, keeping: Sandbox) -> None:
        first = metrics(trial(keeping))["pid"]
        failed = trial(keeping, source=FAILING)
        assert failed.failure is not None
        assert failed.failure.kind is FailureKind.RUNTIME
        assert metrics(trial(keeping))["pid"] != first

    def test_a_timeout_ends_the_process(self, keeping: Sandbox) -> None:
        brief = replace(LIMITS, wall_seconds=1.0)
        first = metrics(trial(keeping, limits=brief))["pid"]
        slow = trial(keeping, limits=brief, source="def solve(x):\n    while True: pass")
        assert slow.failure is not None
        assert slow.failure.kind is FailureKind.TIMEOUT
        assert metrics(trial(keeping, limits=brief))["pid"] != first

    def test_each_trial_has_the_whole_cpu_time(self, keeping: Sandbox) -> None:
        frugal = replace(LIMITS, cpu_seconds=1.0)
        busy = "until = time.process_time() + 0.6\n    while time.process_time() < until: pass"
        outcomes = [trial(keeping, of=evaluator(busy), limits=frugal) for _ in range(2)]
        assert len({metrics(outcome)["pid"] for outcome in outcomes}) == 1
        assert all(0.6 <= outcome.cpu_seconds < 1.0 for outcome in outcomes)

    def test_an_evaluator_beyond_its_cpu_time_is_ended(self, keeping: Sandbox) -> None:
        frugal = replace(LIMITS, cpu_seconds=1.0)
        of = evaluator("while answer != 9: pass")
        assert metrics(trial(keeping, of=of, limits=frugal))["combined_score"] == 1.0
        outcome = trial(keeping, source="def solve(x): return 8", of=of, limits=frugal)
        assert outcome.failure is not None
        assert outcome.failure.kind is FailureKind.TIMEOUT
        assert outcome.wall_seconds < LIMITS.wall_seconds / 2
