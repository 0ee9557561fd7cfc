"""What every sandbox promises, whatever its isolation consists of."""

import json
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from app.adapters.sandbox.pool import PoolSettings
from app.adapters.store.leases import Withdrawal
from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Limits, Mode, Outcome
from app.ports.protocols import Sandbox, Starved, Stopped

WHOLE_CORPUS = os.environ.get("SANDBOX_ATTACKS") == "whole"
"""Whether everything is tried behind each isolation, as by `make attacks`."""
LIMITS = Limits(
    wall_seconds=60.0, cpu_seconds=10.0, memory_mib=256, output_bytes=200_000, result_bytes=100_000
)
POOL = PoolSettings(max_sandboxes=16, spares=0)
"""Of sandboxes that many tests share: one for each of their limits, in both modes.  With spares,
each test that ends one would boot two."""
IMPATIENT = replace(LIMITS, wall_seconds=0.5)
FRUGAL = replace(LIMITS, cpu_seconds=1.0)
NARROW = replace(LIMITS, memory_mib=128, processes=32)

EVALUATOR = b"""
import importlib.util, os, sys, tempfile
from openevolve.evaluation_result import EvaluationResult

HERE = os.path.dirname(os.path.abspath(__file__))

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def evaluate(path):
    return {"combined_score": load(path).solve(5)}

def evaluate_result(path):
    return EvaluationResult(
        metrics={"combined_score": load(path).solve(5)},
        artifacts={"text": "caf\\u00e9\\x00", "raw": b"\\xff\\xfe", "table": {"a": [1, 2]}},
    )

def duel(first, second):
    return {"first": load(first).solve(1), "second": load(second).solve(2)}

async def evaluate_later(path):
    return {"combined_score": load(path).solve(5)}

def beside(path):
    with open(os.path.join(HERE, "fixtures", "word.txt")) as file:
        return {"combined_score": 1.0, "word": file.read(), "name": __name__}

def source(path):
    with open(os.environ["EVOQ_PROGRAM_SOURCE"]) as file:
        return {"length": len(file.read())}

def callbacks(path):
    return {"combined_score": load(path).solve(lambda x: x + 1)}

def spawn(path):
    import subprocess
    text = "import sys,os;sys.path.insert(0,os.path.dirname(sys.argv[1]));" \\
           "m=__import__(os.path.splitext(os.path.basename(sys.argv[1]))[0]);print(m.solve(5))"
    done = subprocess.run([sys.executable, "-c", text, path], capture_output=True, text=True)
    return {"combined_score": float(done.stdout)}

def scratch(path):
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write("left behind")
    open("here.txt", "w").close()
    return {"combined_score": load(path).solve(5), "left": len(os.listdir(tempfile.gettempdir()))}

def settings(path):
    return {name: os.environ.get(name, "") for name in ("RICH_FEEDBACK", "WORKER_SECRET")}

def counted(path):
    global calls
    calls = globals().get("calls", 0) + 1
    return {"calls": calls}

def of_cases(path, cases):
    return {case: load(path).solve(int(case)) for case in cases}

def nothing(path):
    return None

def number(path):
    return 3.5

def cyclic(path):
    loop = {}
    loop["again"] = loop
    return loop

def size(path):
    with open(path) as file:
        return {"size": len(file.read()), "name": path[-4:]}

def lacks():
    import getpass, grp, pathlib, pwd
    user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(os.getgid())
    found = [name for name in (getpass.getuser(), os.environ["USER"], os.environ["LOGNAME"],
                               user.pw_name, user.pw_dir, group.gr_name) if not name]
    caches = ("CACHE_HOME", "CONFIG_HOME", "DATA_HOME", "STATE_HOME", "RUNTIME_DIR")
    names = "HOME", "TMPDIR", "JOBLIB_TEMP_FOLDER", *("XDG_" + name for name in caches)
    for place in (os.path.expanduser("~"), *(os.environ[name] for name in names)):
        try:
            os.makedirs(place, exist_ok=True)
            pathlib.Path(place, "probe").write_text("")
        except OSError as error:
            found.append(str(error))
    if os.environ.get("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS") != "0":
        found.append("a compiler may write one file larger than a trial may")
    return found

def machine(path):
    return {"evaluator": lacks(), "program": load(path).solve(5)}

def build(path):
    import subprocess
    folder, words = os.path.join(HERE, "build"), os.path.join(HERE, "fixtures", "word.txt")
    fresh = not os.path.exists(folder)
    os.makedirs(folder, exist_ok=True)
    tool = os.path.join(folder, "tool")
    with open(tool, "w") as file:
        file.write("#!/bin/sh\\necho 7\\n")
    os.chmod(tool, 0o755)
    with open(words, "a") as file:
        file.write("ade")
    with open(words) as file:
        words = file.read()
    done = subprocess.run([tool], capture_output=True, text=True, check=True)
    return {"tool": int(done.stdout), "fresh": fresh, "word": words, "x": load(path).solve(5)}

NOTES = os.path.join(tempfile.mkdtemp(), "notes")
with open(NOTES, "w") as file:
    file.write("marmot")

def named(path):
    import subprocess
    known = os.path.islink("/etc/passwd") or not os.path.isdir("/etc/evoq")
    done = subprocess.run(["id", "-un"], capture_output=True, text=True)
    return {"known": known, "name": done.stdout.strip()}

def tool(path):
    import subprocess
    subprocess.run(["no-such-compiler", path], check=True)

def relative(path):
    with open("fixtures/word.txt") as file:
        return {"combined_score": len(file.read())}

def noted(path):
    apart = tempfile.gettempdir() != os.path.dirname(os.path.dirname(NOTES))
    solved = load(path).solve(5)
    with open(NOTES) as file:
        return {"solved": solved, "read": len(file.read()), "apart": apart}
"""
NUMERICAL = b"""
import numpy
from evaluator import load

def evaluate(path):
    return {"combined_score": load(path).solve(5)}

def arrays(path):
    back = load(path).solve(numpy.arange(6, dtype="float32").reshape(2, 3))
    return {"sum": back.sum(), "rows": back.shape[0], "kind": str(back.dtype), "all": back}

def odd(path):
    return {"nan": float("nan"), "inf": numpy.inf, "flag": True, "text": "x", "np": numpy.int64(3),
            "huge": 10 ** 400, "nested": {"a": [1.5, None]}, "low": numpy.float32("-inf")}
"""
"""An evaluator apart, because to import NumPy takes as long as half of a boot."""
DATA = b"""
import importlib.util, os

WORDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "train", "words.txt")
with open(WORDS) as file:
    IMPORTED = file.read()

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    with open(WORDS) as file:
        return {"imported": IMPORTED, "measured": file.read(), "program": program.solve(5)}
"""
"""An evaluator with data that is not among its files."""

SQUARE = b"def solve(x):\n    return x * x\n"


BROKEN = {
    "syntax": (b"def evaluate(path)\n", ("evaluator.py", "line 1", "SyntaxError")),
    "import": (b"\nimport not_installed_here\n", ("evaluator.py", "line 2", "not_installed_here")),
    "exception": (b"raise RuntimeError('no GPU')\n", ("evaluator.py", "line 1", "no GPU")),
    "exit": (b"import os\nos._exit(3)\n", ("ended",)),
    "no function": (b"def other(path):\n    return {}\n", ("evaluator.py", "'evaluate'")),
}
"""Evaluators that cannot be used, and words of the error."""
SAMPLE_OF_BROKEN = ("exit",)


def problem(text: bytes = EVALUATOR, digest: str = "contract", **files: bytes) -> Evaluator:
    tree = {"evaluator.py": text, "fixtures/word.txt": b"marmot"}
    tree.update({name.replace("__", "/"): contents for name, contents in files.items()})
    return Evaluator(digest, tree, environment={"RICH_FEEDBACK": "1"})


def numerical() -> Evaluator:
    """Returns the problem of programs that may import NumPy, as their sandboxes do at the boot."""
    files = {**problem().files, "numerical.py": NUMERICAL}
    return Evaluator("contract with NumPy", files, entry="numerical.py")


def metrics(outcome: Outcome) -> dict[str, Any]:
    """Returns an outcome's metrics, showing the failure if there are none."""
    assert outcome.result is not None, (outcome.failure, outcome.stderr.decode())
    parsed: dict[str, Any] = json.loads(outcome.result)["metrics"]
    return parsed


def kind(outcome: Outcome) -> FailureKind:
    assert outcome.failure is not None, outcome.result
    assert outcome.result is None
    return outcome.failure.kind


def last_outcome(sandbox: Sandbox, job: Job) -> Outcome:
    """Runs a job as the last attempt of a trial: that the machine is busy changes nothing."""
    try:
        return sandbox.run(job)
    except Starved as starved:
        return starved.outcome


class SandboxContract:
    """Subclass it and provide the fixture `sandbox`, of any scope.

    Every test runs in both modes.
    """

    broken: ClassVar[tuple[str, ...]] = tuple(BROKEN)
    """The evaluators of `BROKEN` that are tried, each of which takes a boot in each mode."""
    only_guarded: ClassVar[tuple[str, ...]] = ()
    """Tests that do not run in compatible mode."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Gives a test the broken evaluators of its class, and its modes where it has not both."""
        if "broken" in metafunc.fixturenames:
            metafunc.parametrize("broken", self.broken)
        if metafunc.function.__name__ in self.only_guarded:
            metafunc.parametrize("mode", [Mode.GUARDED], ids=lambda mode: str(mode.value))

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        raise NotImplementedError

    @pytest.fixture(params=list(Mode), ids=lambda mode: str(mode.value))
    def mode(self, request: pytest.FixtureRequest) -> Mode:
        mode: Mode = request.param
        return mode

    def job(
        self,
        mode: Mode,
        *sources: bytes,
        function: str = "evaluate",
        limits: Limits = LIMITS,
        suffixes: Sequence[str] = (".py", ".py"),
        evaluator: Evaluator | None = None,
        seed: int = 0,
    ) -> Job:
        programs = tuple(zip(suffixes, sources, strict=False))
        return Job(
            problem() if evaluator is None else evaluator, function, programs, limits, mode, seed
        )

    # What is not wanted any more.

    def test_a_withdrawn_job_stops_and_gives_its_place_back(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        """It would run until its time-out, which is a failure, if nothing stopped it."""
        endless = self.job(mode, b"def solve(x):\n    while True: pass\n")
        withdrawal = Withdrawal()
        timer = threading.Timer(0.2, withdrawal.ask)
        timer.start()
        with pytest.raises(Stopped):
            sandbox.run(endless, withdrawal)
        timer.join()
        with pytest.raises(Stopped):
            sandbox.run(endless, withdrawal)
        assert metrics(sandbox.run(self.job(mode, SQUARE))) == {"combined_score": 25}

    # What a result is.

    def test_a_program_is_scored(self, sandbox: Sandbox, mode: Mode) -> None:
        outcome = sandbox.run(self.job(mode, SQUARE))
        assert metrics(outcome) == {"combined_score": 25}
        assert outcome.wall_seconds > 0.0
        assert outcome.cpu_seconds > 0.0
        assert outcome.peak_memory_mib is not None
        assert outcome.peak_memory_mib > 1.0

    def test_artifacts_are_returned_as_texts(self, sandbox: Sandbox, mode: Mode) -> None:
        outcome = sandbox.run(self.job(mode, SQUARE, function="evaluate_result"))
        assert outcome.result is not None
        artifacts = json.loads(outcome.result)["artifacts"]
        assert artifacts["text"] == "caf\u00e9\ufffd"
        assert artifacts["raw"] == "\ufffd\ufffd"
        assert json.loads(artifacts["table"]) == {"a": [1, 2]}

    def test_an_evaluator_receives_two_programs(self, sandbox: Sandbox, mode: Mode) -> None:
        other = b"def solve(x):\n    return -x\n"
        outcome = sandbox.run(self.job(mode, SQUARE, other, function="duel"))
        assert metrics(outcome) == {"first": 1, "second": -2}

    def test_a_function_is_given_the_cases_of_the_job(self, sandbox: Sandbox, mode: Mode) -> None:
        job = replace(self.job(mode, SQUARE, function="of_cases"), cases=("2", "-3"))
        assert metrics(sandbox.run(job)) == {"2": 4, "-3": 9}

    def test_an_evaluator_may_be_a_coroutine(self, sandbox: Sandbox, mode: Mode) -> None:
        outcome = sandbox.run(self.job(mode, SQUARE, function="evaluate_later"))
        assert metrics(outcome) == {"combined_score": 25}

    def test_an_evaluator_finds_the_files_beside_it(self, sandbox: Sandbox, mode: Mode) -> None:
        found = metrics(sandbox.run(self.job(mode, SQUARE, function="beside")))
        assert found == {"combined_score": 1.0, "word": "marmot", "name": "evaluation_module"}

    def test_the_real_source_text_can_be_read(self, sandbox: Sandbox, mode: Mode) -> None:
        found = metrics(sandbox.run(self.job(mode, SQUARE, function="source")))
        assert found == {"length": len(SQUARE)}

    def test_a_program_that_is_not_python_is_a_file(self, sandbox: Sandbox, mode: Mode) -> None:
        job = self.job(mode, b"a prompt", function="size", suffixes=(".txt",))
        assert metrics(sandbox.run(job)) == {"size": 8, "name": ".txt"}

    def test_arrays_cross_with_shape_and_kind(self, sandbox: Sandbox, mode: Mode) -> None:
        program = b"import numpy\ndef solve(a):\n    return a.T * 2\n"
        job = self.job(mode, program, function="arrays", evaluator=numerical())
        found = metrics(sandbox.run(job))
        assert found == {
            "sum": 30.0, "rows": 3, "kind": "float32", "all": [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]
        }  # fmt: skip

    def test_a_program_may_call_functions_of_the_evaluator(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        program = b"def solve(f):\n    return f(f(40))\n"
        found = metrics(sandbox.run(self.job(mode, program, function="callbacks")))
        assert found == {"combined_score": 42}

    def test_an_evaluator_may_import_the_program_elsewhere(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        found = metrics(sandbox.run(self.job(mode, SQUARE, function="spawn")))
        assert found == {"combined_score": 25.0}

    def test_the_evaluator_sees_its_own_environment_variables_only(
        self, sandbox: Sandbox, mode: Mode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WORKER_SECRET", "hunter2")
        found = metrics(sandbox.run(self.job(mode, SQUARE, function="settings")))
        assert found == {"RICH_FEEDBACK": "1", "WORKER_SECRET": ""}

    def test_numbers_json_cannot_hold_stay_recognisable(self, sandbox: Sandbox, mode: Mode) -> None:
        program = b"import numpy\n" + SQUARE
        job = self.job(mode, program, function="odd", evaluator=numerical())
        found = metrics(sandbox.run(job))
        assert found == {
            "nan": {"__nonfinite__": "nan"}, "inf": {"__nonfinite__": "inf"}, "flag": True,
            "text": "x", "np": 3, "huge": 10**400, "nested": {"a": [1.5, None]},
            "low": {"__nonfinite__": "-inf"},
        }  # fmt: skip

    @pytest.mark.parametrize(
        "value", ["float('nan')", "float('-inf')", "'12'", "True", "None"], ids=str
    )
    def test_a_score_that_is_not_a_number_is_kept_as_it_is(
        self, sandbox: Sandbox, mode: Mode, value: str
    ) -> None:
        program = f"def solve(x):\n    return {value}\n".encode()
        score = metrics(sandbox.run(self.job(mode, program)))["combined_score"]
        assert isinstance(score, bool) or not isinstance(score, int | float)

    @pytest.mark.parametrize("function", ["nothing", "number", "cyclic"])
    def test_a_return_value_of_the_wrong_shape_is_an_invalid_result(
        self, sandbox: Sandbox, mode: Mode, function: str
    ) -> None:
        outcome = sandbox.run(self.job(mode, SQUARE, function=function))
        assert kind(outcome) is FailureKind.INVALID_RESULT

    def test_the_type_of_a_wrong_return_value_is_named(self, sandbox: Sandbox, mode: Mode) -> None:
        outcome = sandbox.run(self.job(mode, SQUARE, function="number"))
        assert outcome.failure is not None
        assert "float" in outcome.failure.detail

    # How a program fails.

    @pytest.mark.parametrize(
        ("program", "expected"),
        [
            (b"def solve(x:\n", FailureKind.SYNTAX),
            (b"def solve(x):\n    return '\x00'\n", FailureKind.SYNTAX),
            (b"def solve(x):\n    raise KeyError('lost')\n", FailureKind.RUNTIME),
            (b"import sys\ndef solve(x):\n    sys.exit(0)\n", FailureKind.RUNTIME),
            (b"import os\ndef solve(x):\n    os._exit(0)\n", FailureKind.RUNTIME),
            (b"import os\ndef solve(x):\n    os.kill(os.getpid(), 11)\n", FailureKind.RUNTIME),
            (b"def other(x):\n    return 1\n", FailureKind.INVALID_SIGNATURE),
            (b"import mmap\ndef solve(x):\n    mmap.mmap(-1, 1 << 47)\n", FailureKind.MEMORY),
            (b"def solve(x):\n    return 'a' * (1 << 40)\n", FailureKind.MEMORY),
            (
                b"def solve(x):\n    while True:\n        print('x' * 10000)\n",
                FailureKind.OUTPUT_LIMIT,
            ),
        ],
        ids=lambda value: value.value if isinstance(value, FailureKind) else "",
    )
    def test_each_way_to_fail_has_its_kind(
        self, sandbox: Sandbox, mode: Mode, program: bytes, expected: FailureKind
    ) -> None:
        assert kind(sandbox.run(self.job(mode, program))) is expected

    def test_a_missing_package_has_its_kind_of_failure(self, sandbox: Sandbox, mode: Mode) -> None:
        job = self.job(mode, b"import nowhere_to_be_found\n", evaluator=numerical())
        assert kind(sandbox.run(job)) is FailureKind.IMPORT_BLOCKED

    @pytest.mark.parametrize(
        "program",
        [
            b"while True:\n    pass\n",
            b"import time\ndef solve(x):\n    time.sleep(600)\n",
            b"import signal\nsignal.pthread_sigmask(0, range(1, 64))\nwhile True:\n    pass\n",
        ],
        ids=["spin", "sleep", "signals blocked"],
    )
    def test_a_program_that_does_not_end_is_timed_out(
        self, sandbox: Sandbox, mode: Mode, program: bytes
    ) -> None:
        outcome = last_outcome(sandbox, self.job(mode, program, limits=IMPATIENT))
        assert kind(outcome) is FailureKind.TIMEOUT
        assert outcome.wall_seconds < LIMITS.wall_seconds / 2, "by its own limit"

    def test_cpu_time_is_limited_apart_from_wall_time(self, sandbox: Sandbox, mode: Mode) -> None:
        outcome = last_outcome(sandbox, self.job(mode, b"while True:\n    pass\n", limits=FRUGAL))
        assert kind(outcome) is FailureKind.TIMEOUT
        assert outcome.cpu_seconds < 4.0

    def test_memory_of_many_processes_is_limited_together(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        program = b"""
import os, time
def solve(x):
    for _ in range(20):
        if os.fork() == 0:
            block = bytearray(30 << 20)
            time.sleep(60)
    time.sleep(60)
"""
        job = self.job(mode, program, limits=NARROW)
        assert kind(sandbox.run(job)) is FailureKind.MEMORY

    def test_the_head_and_the_tail_of_the_output_are_kept(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        program = b"""
import sys
print('the beginning')
sys.stderr.write('a warning\\n')
for _ in range(1000):
    print('y' * 99)
print('the end')
def solve(x):
    return 1
"""
        outcome = sandbox.run(self.job(mode, program))
        assert metrics(outcome) == {"combined_score": 1}
        assert b"the beginning" in outcome.stdout
        assert b"the end" in outcome.stdout
        assert b"cut" in outcome.stdout
        assert len(outcome.stdout) < 50_000
        assert b"a warning" in outcome.stderr

    def test_the_traceback_of_a_failure_names_the_line(self, sandbox: Sandbox, mode: Mode) -> None:
        outcome = sandbox.run(self.job(mode, b"def solve(x):\n    return 1 / 0\n"))
        assert outcome.failure is not None
        assert "ZeroDivisionError" in outcome.failure.detail
        assert "line 2" in outcome.failure.detail

    # What is nobody's fault but the problem's.

    def test_a_broken_evaluator_is_reported_as_broken(
        self, sandbox: Sandbox, mode: Mode, broken: str
    ) -> None:
        text, words = BROKEN[broken]
        with pytest.raises(EvaluatorBroken) as caught:
            sandbox.run(self.job(mode, SQUARE, evaluator=problem(text, f"broken {text!r}")))
        assert all(word in str(caught.value) for word in words), caught.value
        assert caught.value.where.startswith("evaluator.py"), caught.value.where
        assert "evaluator.py" not in caught.value.what
        assert caught.value.remedy

    # What a trial leaves to the next.

    def test_the_evaluator_is_fresh_for_every_trial(self, sandbox: Sandbox, mode: Mode) -> None:
        for _ in range(3):
            found = metrics(sandbox.run(self.job(mode, SQUARE, function="counted")))
            assert found == {"calls": 1}

    def test_temporary_files_do_not_outlive_a_trial(self, sandbox: Sandbox, mode: Mode) -> None:
        first = metrics(sandbox.run(self.job(mode, SQUARE, function="scratch")))
        second = metrics(sandbox.run(self.job(mode, SQUARE, function="scratch")))
        assert first == second

    def test_temporary_files_of_the_import_stay_as_they_were(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        change = b"""
import contextlib, os, sys
def solve(x):
    frame = sys._getframe()
    while frame is not None:
        path = frame.f_globals.get("NOTES", "/sandbox/eval/tmp/notes")
        for action in (os.unlink, lambda path: os.chmod(path, 0o777), lambda path: open(path, "w")):
            with contextlib.suppress(OSError):
                action(path)
        frame = frame.f_back
    return x * x
"""
        for program in (change, SQUARE):
            found = metrics(sandbox.run(self.job(mode, program, function="noted")))
            assert found == {"solved": 25, "read": 6, "apart": True}

    def test_files_of_a_program_do_not_outlive_it(self, sandbox: Sandbox, mode: Mode) -> None:
        plant = b"""
import os, tempfile
for place in (tempfile.gettempdir(), "/dev/shm", "."):
    try:
        os.makedirs(place + "/planted/deep/er")
        open(place + "/planted/deep/er/file", "w").write("hello")
        os.chmod(place + "/planted", 0)
    except OSError:
        pass
def solve(x):
    return 0
"""
        probe = b"""
import os, tempfile
def solve(x):
    places = (tempfile.gettempdir(), "/dev/shm", ".")
    return sum(os.path.exists(place + "/planted") for place in places)
"""
        assert metrics(sandbox.run(self.job(mode, plant))) == {"combined_score": 0}
        assert metrics(sandbox.run(self.job(mode, probe))) == {"combined_score": 0}

    def test_libraries_find_a_user_and_places_to_write(self, sandbox: Sandbox, mode: Mode) -> None:
        program = EVALUATOR[EVALUATOR.index(b"def lacks") : EVALUATOR.index(b"def machine")]
        program = b"import os\n" + program + b"\ndef solve(x):\n    return lacks()\n"
        found = metrics(sandbox.run(self.job(mode, program, function="machine")))
        assert found == {"evaluator": [], "program": []}

    def test_what_is_written_beside_the_evaluator_ends_with_the_trial(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        for _ in range(2):
            found = metrics(sandbox.run(self.job(mode, SQUARE, function="build")))
            assert found == {"tool": 7, "fresh": True, "word": "marmotade", "x": 25}

    @pytest.mark.parametrize(
        ("function", "words"),
        [
            ("tool", ("No tool `no-such-compiler`", "sandbox.image")),
            ("relative", ("lies beside the evaluator", "'fixtures/word.txt'")),
        ],
    )
    def test_what_an_evaluator_does_not_find_comes_with_a_remedy(
        self, sandbox: Sandbox, mode: Mode, function: str, words: tuple[str, ...]
    ) -> None:
        failure = sandbox.run(self.job(mode, SQUARE, function=function)).failure
        assert failure is not None
        assert all(word in failure.detail for word in words), failure.detail

    def test_a_program_changes_no_file_of_the_evaluator_for_the_next(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        change = b"""
import contextlib, mmap, os, sys
here = sys.modules.get("evaluation_module")
here = here.HERE if here else "/sandbox/eval/files"
def solve(x):
    with contextlib.suppress(OSError), open(here + "/fixtures/word.txt", "r+b") as file:
        with mmap.mmap(file.fileno(), 6) as mapped:
            mapped[:6] = b"secret"
    module = here + "/evaluator.py"
    for action in (lambda: os.mkdir(here + "/build", 0o700), lambda: os.mkfifo(here + "/fifo"),
                   lambda: os.chmod(here + "/fixtures", 0), lambda: os.unlink(module),
                   lambda: os.symlink("/dev/zero", module)):
        with contextlib.suppress(OSError):
            action()
    return x * x
"""
        assert metrics(sandbox.run(self.job(mode, change))) == {"combined_score": 25}
        found = metrics(sandbox.run(self.job(mode, SQUARE, function="build")))
        assert found == {"tool": 7, "fresh": True, "word": "marmotade", "x": 25}

    def test_data_of_any_size_is_read_where_it_lies(
        self, sandbox: Sandbox, mode: Mode, tmp_path: Path
    ) -> None:
        data = tmp_path / "set"
        data.mkdir(mode=0o755)
        (data / "words.txt").write_text("marmot")
        evaluator = replace(problem(DATA, digest=str(data)), mounts={"train": str(data)})
        program = f"""
import glob, os
def solve(x):
    found = []
    for path in ("/sandbox/data/train", "/sandbox/eval/files/data/train", {str(data)!r}):
        for action in (os.listdir, lambda path: open(path + "/words.txt").read(),
                       lambda path: open(path + "/new", "w")):
            try:
                action(path)
            except OSError:
                continue
            found.append(path)
    return found
""".encode()
        found = metrics(sandbox.run(self.job(mode, program, evaluator=evaluator)))
        assert found["imported"] == found["measured"] == "marmot"
        if mode is Mode.GUARDED:
            assert found["program"] == []
        assert not (data / "new").exists()

    def test_a_library_may_lock_its_own_files(self, sandbox: Sandbox, mode: Mode) -> None:
        program = b"""
import fcntl
def solve(x):
    with open("lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)
    return x * x
"""
        assert metrics(sandbox.run(self.job(mode, program))) == {"combined_score": 25}

    def test_a_program_changes_the_modes_of_its_own_files(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        program = b"""
import os, pathlib, shutil, stat
def solve(x):
    pathlib.Path("script").write_text("#!/bin/sh\\nexit 7\\n")
    os.mkdir("folder")
    os.chmod("script", 0o750)
    shutil.copy2("script", "folder/copy")
    pathlib.Path("folder/copy").touch()
    seen = [stat.S_IMODE(os.stat("folder/copy").st_mode)]
    folder = os.open("folder", os.O_RDONLY)
    os.chmod("copy", 0o711, dir_fd=folder)
    copy = os.open("folder/copy", os.O_RDONLY)
    seen.append(stat.S_IMODE(os.fstat(copy).st_mode))
    os.fchmod(copy, 0o700)
    seen.append(stat.S_IMODE(os.fstat(copy).st_mode))
    try: os.chmod("none", 0o700)
    except FileNotFoundError: seen.append(os.spawnv(0, os.path.abspath("script"), ["script"]))
    return x * x if seen == [0o750, 0o711, 0o700, 7] else seen
"""
        assert metrics(sandbox.run(self.job(mode, program))) == {"combined_score": 25}

    def test_a_daemon_does_not_outlive_its_trial(self, sandbox: Sandbox, mode: Mode) -> None:
        daemon = b"""
import os, time
def solve(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(3, 100):
                try: os.close(fd)
                except OSError: pass
            while True:
                try: open("/tmp/alive", "w").write("yes")
                except OSError: pass
                time.sleep(0.01)
        os._exit(0)
    return 0
"""
        probe = b"""
import os, time
def solve(x):
    time.sleep(0.3)
    return int(os.path.exists("/tmp/alive"))
"""
        assert metrics(sandbox.run(self.job(mode, daemon))) == {"combined_score": 0}
        assert metrics(sandbox.run(self.job(mode, probe))) == {"combined_score": 0}

    def test_processes_of_one_program_are_not_counted_to_its_neighbour(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        program = b"""
import os, time
def solve(x):
    children = []
    for _ in range(20):
        children.append(os.fork())
        if not children[-1]:
            time.sleep(1.0)
            os._exit(0)
    for child in children:
        os.waitpid(child, 0)
    return x * x
"""
        job = self.job(mode, program, limits=NARROW)
        with ThreadPoolExecutor() as neighbours:
            for outcome in neighbours.map(sandbox.run, [job] * 2):
                assert metrics(outcome) == {"combined_score": 25}

    def test_a_forked_child_returns_no_result(self, sandbox: Sandbox, mode: Mode) -> None:
        program = b"""
import os
def solve(x):
    for number in range(2):
        child = os.fork()
        if child == 0:
            if number == 0:
                raise ValueError("of a child")
            return 99
        os.waitpid(child, 0)
    return x * x
"""
        assert metrics(sandbox.run(self.job(mode, program))) == {"combined_score": 25}

    def test_trials_are_seeded_alike_and_not_shared(self, sandbox: Sandbox, mode: Mode) -> None:
        program = b"import random\nimport numpy\ndef solve(x):\n    return random.random() + numpy.random.rand()\n"  # noqa: E501
        one, again, other = (
            metrics(sandbox.run(self.job(mode, program, evaluator=numerical(), seed=seed)))
            for seed in (1, 1, 2)
        )
        assert one == again
        assert one != other

    def test_a_later_trial_pays_no_boot(self, sandbox: Sandbox, mode: Mode) -> None:
        sandbox.run(self.job(mode, SQUARE))
        assert sandbox.run(self.job(mode, SQUARE)).boot_seconds == 0.0


def require_a_name(sandbox: Sandbox, mode: Mode) -> None:
    """Requires that a tool, which asks no Python, knows the name of a sandbox's identity."""
    job = Job(problem(), "named", ((".py", SQUARE),), LIMITS, mode)
    found = metrics(sandbox.run(job))
    if not found["known"]:
        pytest.skip("the default image is an old one: docker build evoqueue-sandbox:1 anew")
    assert found["name"] == "evoq"


class SampledSandboxContract(SandboxContract):
    """The contract behind a further kind of isolation, as a push tries it.

    How a value of the evaluator is read and judged, and how it fails to be imported, is the same
    behind any isolation.  What takes a second of a processor runs in guarded mode alone: in which
    mode a trial uses too much makes a difference to the harness, which is tried behind others.
    """

    if not WHOLE_CORPUS:
        only_guarded = (
            "test_a_program_that_does_not_end_is_timed_out",
            "test_cpu_time_is_limited_apart_from_wall_time",
            "test_memory_of_many_processes_is_limited_together",
            "test_processes_of_one_program_are_not_counted_to_its_neighbour",
        )
        broken = SAMPLE_OF_BROKEN
        test_artifacts_are_returned_as_texts = None
        test_a_function_is_given_the_cases_of_the_job = None
        test_arrays_cross_with_shape_and_kind = None
        test_numbers_json_cannot_hold_stay_recognisable = None
        test_a_score_that_is_not_a_number_is_kept_as_it_is = None
        test_a_return_value_of_the_wrong_shape_is_an_invalid_result = None
        test_the_type_of_a_wrong_return_value_is_named = None
        test_a_missing_package_has_its_kind_of_failure = None
        test_what_an_evaluator_does_not_find_comes_with_a_remedy = None
        test_trials_are_seeded_alike_and_not_shared = None
