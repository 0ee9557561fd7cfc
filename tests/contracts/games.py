"""What every sandbox promises of a game: the blame is the attacker's, and its opponent plays on."""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace

import pytest

from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, GameLimits, Job, Limits, Outcome
from app.ports.protocols import Sandbox

REFEREE = b'''
"""Six moves, each from 1 to 9; the larger sum wins.  The referee keeps a secret."""
import importlib.util
import os

SECRET = "the referee's secret"

def load(path):
    spec = importlib.util.spec_from_file_location("player", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def match(first, second, cases=None):
    players, sums = [load(first), load(second)], [0, 0]
    with open(os.path.join(os.environ["TMPDIR"], "secret"), "w") as file:
        file.write(SECRET)
    for ply in range(6):
        value = players[ply % 2].move(ply)
        if type(value) is not int or not 1 <= value <= 9:
            loser = ("first", "second")[ply % 2]
            scores = {"first": float(ply % 2), "second": float(1 - ply % 2)}
            yield f"?{str(value)[:10]}"
            return {**scores, "termination": "illegal_move", "culprit": loser}
        sums[ply % 2] += value
        yield f"{value}"
    score = 0.5 if sums[0] == sums[1] else float(sums[0] > sums[1])
    return {"first": score, "second": 1.0 - score, "termination": "sum"}
'''

MARATHON = b"""
import time

def match(first, second, cases=None):
    for ply in range(2000):
        yield f"{ply} \\u202e" + "\\u2603" * 20
    time.sleep(0.6)
    return {"first": 0.5, "second": 0.5, "termination": "distance"}
"""

HONEST = b"def move(ply):\n    return 5\n"
LIMITS = Limits(
    wall_seconds=120.0, cpu_seconds=60.0, memory_mib=640, output_bytes=100_000, file_bytes=1 << 22
)
PLAYER = GameLimits(move_seconds=20.0, game_seconds=40.0, memory_mib=160)
HURRIED = GameLimits(move_seconds=0.7, game_seconds=40.0, memory_mib=160)

PRE = b"import os, signal, socket, sys, time, threading\n"


@dataclass(frozen=True)
class Attack:
    """A player that does not play by the rules.

    Attributes:
      kinds: How it may fail; empty where the attack is without effect and the game goes on.
      limits: The limits of the players.
      opponent: Who plays against it, and moves 5.
      illegal: Whether the referee is to judge the first move illegal, whatever it is.
    """

    source: bytes
    kinds: tuple[FailureKind, ...] = ()
    limits: GameLimits = PLAYER
    opponent: bytes = HONEST
    illegal: bool = False


def tried(body: str) -> bytes:
    """Returns a player that attacks at each move, whatever comes of it, and moves 4."""
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    text = f"def attack(ply):\n    try:\n{lines}\n    except OSError:\n        pass\n"
    return PRE + text.encode() + b"def move(ply):\n    attack(ply)\n    return 4\n"


FORGING = (
    PRE
    + b"""
def harness(name="serve"):
    frame = sys._getframe()
    while frame.f_code.co_name != name:
        frame = frame.f_back
    return frame.f_locals

def answer(*parts):
    server = harness()["self"]
    wire = sys.modules[type(server).__module__].wire
    number = harness("_answer")["number"]
    wire.send_frame(server._sock, wire.encode([number, *parts], server._export))
    return server
"""
)
"""A player that has found the harness in its own process, and answers in its place."""

THREADED = PRE + (
    b"def move(ply):\n    thread = threading.Thread(target=len, args=([],))\n"
    b"    thread.start()\n    thread.join()\n    return 5\n"
)
WRITING = PRE + (
    b"import tempfile\ndef move(ply):\n    with tempfile.TemporaryFile() as file:\n"
    b"        file.write(bytes(100_000))\n    with open(f'mine{ply}', 'w'): pass\n    return 5\n"
)
HOLDING = (
    b"kept = []\ndef move(ply):\n    kept.append(bytearray(b'x') * (30 << 20))\n    return 5\n"
)

RUNTIME, TIMEOUT = FailureKind.RUNTIME, FailureKind.TIMEOUT
VIOLATION, INVALID = FailureKind.SANDBOX_VIOLATION, FailureKind.INVALID_RESULT

ATTACKS = {
    "raises": Attack(b"def move(ply):\n    raise ValueError('no')\n", (RUNTIME,)),
    "exits": Attack(PRE + b"def move(ply):\n    os._exit(0)\n", (RUNTIME,)),
    "aborts": Attack(PRE + b"def move(ply):\n    os.abort()\n", (RUNTIME,)),
    "does not import": Attack(b"1 / 0\ndef move(ply):\n    return 5\n", (RUNTIME,)),
    "is no Python": Attack(b"def move(\n", (FailureKind.SYNTAX,)),
    "has no move": Attack(b"def other(ply):\n    return 5\n", (FailureKind.INVALID_SIGNATURE,)),
    "hangs": Attack(b"def move(ply):\n    while True: pass\n", (TIMEOUT,), HURRIED),
    "sleeps": Attack(PRE + b"def move(ply):\n    time.sleep(1e6)\n", (TIMEOUT,), HURRIED),
    "uses the time of the game": Attack(
        PRE + b"def move(ply):\n    time.sleep(1.2)\n    return 9\n", (TIMEOUT,),
        GameLimits(20.0, 2.0, 160),
    ),
    "hangs on import": Attack(
        PRE + b"time.sleep(1e6)\n", (TIMEOUT,), GameLimits(20.0, 2.0, 160)
    ),
    "fills the memory": Attack(
        b"kept = []\ndef move(ply):\n    while True: kept.append(bytearray(1 << 20))\n",
        (FailureKind.MEMORY,),
    ),
    "fills the memory in children": Attack(
        PRE + b"def move(ply):\n    for _ in range(8):\n        if os.fork() == 0:\n"
        b"            kept = bytearray(b'x') * (60 << 20)\n            time.sleep(1e6)\n"
        b"    time.sleep(1e6)\n",
        (FailureKind.MEMORY,),
    ),
    "floods its output": Attack(
        b"def move(ply):\n    while True: print('x' * 1000)\n", (FailureKind.OUTPUT_LIMIT,)
    ),
    "fills the disk": Attack(
        PRE + b"def move(ply):\n    with open('f', 'wb') as file:\n"
        b"        while True: file.write(bytes(1 << 20))\n",
        (FailureKind.OUTPUT_LIMIT,),
    ),
    "traces a process": Attack(
        PRE + b"import ctypes\ndef move(ply):\n    ctypes.CDLL(None).ptrace(0, 0, 0, 0)\n"
        b"    return 9\n",
        (VIOLATION, RUNTIME),
    ),
    "answers twice": Attack(
        PRE + b"def move(ply):\n    for fd in range(3, 64):\n        try:\n"
        b"            s = socket.socket(fileno=os.dup(fd))\n"
        b"            s.send(b'\\0\\0\\0\\4true')\n        except OSError: pass\n    return 9\n",
        (INVALID, RUNTIME),
    ),
    "claims a forged kind of failure": Attack(
        PRE + b"import sys\ndef move(ply):\n"
        b"    frame = sys._getframe()\n    while frame:\n"
        b"        if 'kind_of' in frame.f_globals:\n"
        b"            frame.f_globals['kind_of'] = lambda *a: 'sandbox_violation'\n"
        b"        frame = frame.f_back\n    raise ValueError('no')\n",
        (RUNTIME,),
    ),
    "returns an object that is every number": Attack(
        b"class Any(int):\n    def __le__(self, o): return True\n    __ge__ = __le__\n"
        b"class Other:\n    def __eq__(self, o): return True\n"
        b"def move(ply):\n    return 4 if ply < 4 else Any(4)\n"
    ),
    "signals every process": Attack(
        tried("for pid in range(2, 5000):\n    if pid not in (os.getpid(), os.getppid()):\n"
              "        try: os.kill(pid, signal.SIGKILL)\n        except OSError: pass"),
    ),
    "stops its opponent": Attack(
        tried("for pid in range(2, 5000):\n    if pid not in (os.getpid(), os.getppid()):\n"
              "        try: os.kill(pid, signal.SIGSTOP)\n        except OSError: pass"),
    ),
    "writes over its opponent": Attack(
        tried("here = os.getcwd()\nfor name in ('p0', 'p1', 'e'):\n"
              "    for file in ('program.py', 'program_0.py', 'program_1.py'):\n"
              "        path = os.path.join(here, '..', name, file)\n"
              "        if os.path.realpath(path).startswith(os.path.realpath(here) + '/'):\n"
              "            continue\n"
              "        try:\n"
              "            os.chmod(path, 0o666)\n        except OSError: pass\n"
              "        try:\n"
              "            open(path, 'w').write('def move(ply): return 1')\n"
              "        except OSError: pass"),
    ),
    "reads its opponent and the referee": Attack(
        tried("found = []\nfor place, folders, files in os.walk('/'):\n"
              "    known = place.startswith(('/proc', '/sys', '/usr', '/lib'))\n"
              "    if known or place.count('/') > 5:\n"
              "        folders.clear()\n        continue\n"
              "    for file in files:\n"
              "        if file in ('program_0.py', 'program_1.py', 'secret', 'evaluator.py'):\n"
              "            try: found.append(open(os.path.join(place, file)).read())\n"
              "            except OSError: pass\n"
              "if any('secret' in text or 'bind(' in text for text in found):\n"
              "    sys.modules['program'].__dict__['attack'] = lambda ply: os._exit(3)"),
    ),
    "connects to its opponent": Attack(
        tried("import glob\nfor path in glob.glob('/**/rpc/*', recursive=False) + "
              "[f'/sandbox/rpc/{n}.{s}' for n in range(50) for s in ('0', '1', 'turns')]:\n"
              "    try:\n        s = socket.socket(socket.AF_UNIX)\n        s.connect(path)\n"
              "        s.send(b'\\0')\n        os._exit(3)\n    except OSError: pass"),
    ),
    "leaves a child that answers for it": Attack(
        PRE + b"def move(ply):\n    if os.fork() == 0:\n        return 9\n    os.wait()\n"
        b"    return 4\n",
    ),
    "exits with status 0 in the middle": Attack(
        b"import sys\ndef move(ply):\n    sys.exit(0)\n", (RUNTIME,)
    ),
    "ends the referee's game": Attack(b"def move(ply):\n    raise StopIteration\n", (RUNTIME,)),
    "interrupts the referee": Attack(b"def move(ply):\n    raise KeyboardInterrupt\n", (RUNTIME,)),
    "stops itself": Attack(
        PRE + b"def move(ply):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return 9\n",
        (TIMEOUT,), HURRIED,
    ),
    "closes its descriptors": Attack(
        PRE + b"def move(ply):\n    os.closerange(0, 200)\n    return 9\n", (RUNTIME,)
    ),
    "moves by an integer too long to print": Attack(
        b"def move(ply):\n    return 10 ** 6000\n", (INVALID,)
    ),
    "moves by no number": Attack(b"def move(ply):\n    return float('nan')\n", illegal=True),
    "moves by half a character": Attack(b"def move(ply):\n    return '\\udcff\\0'\n", illegal=True),
    "moves by an object that sleeps when printed": Attack(
        PRE + b"class Move:\n    def __str__(self):\n        time.sleep(1e6)\n"
        b"def move(ply):\n    return Move()\n", (TIMEOUT,), HURRIED,
    ),
    "moves by a deep value": Attack(
        b"def move(ply):\n    value = []\n    for _ in range(100_000): value = [value]\n"
        b"    return value\n", (INVALID,),
    ),
    "moves by much": Attack(b"def move(ply):\n    return b'x' * (63 << 20)\n", illegal=True),
    "answers with a state too long to print": Attack(
        FORGING + b"def move(ply):\n    answer(10 ** 6000, 5)\n", (INVALID,)
    ),
    "raises what cannot be printed": Attack(
        FORGING + b"def move(ply):\n    answer('raised', 10 ** 6000, '', '', '')\n", (INVALID,)
    ),
    "forges a kind of failure": Attack(
        FORGING + b"def move(ply):\n    answer('raised', 'ValueError', '', 'timeout', '')\n",
        (RUNTIME,),
    ),
    "ends an iteration that is none": Attack(
        FORGING + b"def move(ply):\n    answer('stopped')\n", (INVALID,)
    ),
    "is asked again within each answer": Attack(
        FORGING + b"class State:\n    def __str__(self):\n        time.sleep(0.5)\n"
        b"        move(0)\n        return 'returned'\n"
        b"def move(ply):\n    server = answer(State(), 5)\n    server._answer(server._receive())\n",
        (INVALID,),
    ),
    "draws itself wrongly": Attack(
        FORGING + b"harness()['self']._sketch = lambda value: "
        b"['function', '', 1, [], [0, 0, 0, 4], [0]]\ndef move(ply):\n    return 4\n",
    ),
    "answers for moves to come": Attack(
        FORGING + b"def move(ply):\n    if os.fork() == 0:\n        server = harness()['self']\n"
        b"        wire = sys.modules[type(server).__module__].wire\n"
        b"        for number in range(1, 40):\n"
        b"            wire.send_frame(server._sock, wire.encode([number, 'returned', 9]))\n"
        b"        os._exit(0)\n    os.wait()\n    return 9\n", (INVALID,),
    ),
    "leaves nothing on the disk": Attack(
        tried("for place in (os.getcwd(), '/dev/shm'):\n    try:\n"
              "        for number in range(200):\n"
              "            with open(f'{place}/{number}', 'wb') as file:\n"
              "                file.write(bytes(2 << 20))\n    except OSError: pass"),
        (FailureKind.OUTPUT_LIMIT,), opponent=WRITING,
    ),
    "leaves no file to be made": Attack(
        tried("for number in range(9000): open(f'{number}', 'wb').close()"),
        (FailureKind.OUTPUT_LIMIT,), opponent=WRITING,
    ),
    "takes every process": Attack(
        tried("while True:\n    if os.fork() == 0: time.sleep(1e6)"),
        limits=GameLimits(20.0, 40.0, 500), opponent=THREADED,
    ),
    "holds memory while its opponent needs some": Attack(
        PRE + b"kept = []\ndef move(ply):\n"
        b"    kept[:] = kept or [bytearray(b'x') * (120 << 20)]\n    return 4\n",
        opponent=HOLDING,
    ),
    "computes in the turn of its opponent": Attack(
        tried("if ply < 2 and os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
              "        while True: pass\n    os._exit(0)"),
        opponent=HONEST,
    ),
}  # fmt: skip

SAMPLE = (
    "aborts",
    "hangs",
    "fills the memory in children",
    "floods its output",
    "traces a process",
    "answers twice",
    "signals every process",
    "writes over its opponent",
    "reads its opponent and the referee",
    "leaves nothing on the disk",
    "takes every process",
    "is asked again within each answer",
)
"""An attack on each mechanism, for the kinds of isolation that are tested with fewer."""

DICE = b"""
import importlib.util
import random

def load(path):
    spec = importlib.util.spec_from_file_location("player", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def match(first, second, cases=None):
    drawn = [load(path).move(0) for path in (first, second)]
    dice = random.random()
    yield str(drawn)
    yield str(dice)
    foretold = [any(abs(dice - one) < 1e-12 for one in player) for player in drawn]
    alike = drawn[0][0] == drawn[1][0]
    return {"first": 0.5, "second": 0.5, "foretold": any(foretold), "alike": alike}
"""
FORETELLING = b"""
import gc
import random
import sys

own = random.random()

def move(ply):
    seeds, frame = set(), sys._getframe()
    found = [value for value in gc.get_objects() if type(value) in (dict, list)]
    while frame:
        found.append(frame.f_locals)
        frame = frame.f_back
    for value in found:
        parts = value.get("seed") if isinstance(value, dict) else value
        parts = parts if isinstance(parts, list) else [parts]
        seeds |= {part for part in parts[:9] if type(part) is int}
    return [own, random.random(), *(random.Random(seed).random() for seed in seeds)]
"""

WATCHING = (
    PRE
    + b"""
stamps = []
def watch():
    while True:
        stamps.append(time.monotonic())
        time.sleep(0.005)
def move(ply):
    if ply < 2:
        threading.Thread(target=watch, daemon=True).start()
        time.sleep(0.1)
        return 4
    seen = len(stamps)
    while len(stamps) == seen:  # until the watcher has run again
        time.sleep(0.005)
    gap = max(b - a for a, b in zip(stamps, stamps[1:]))
    return 9 if gap > 0.8 else 1
"""
)
SLOW = PRE + b"def move(ply):\n    if ply < 4:\n        time.sleep(1.0)\n    return 1\n"


def game(first: bytes, second: bytes, limits: GameLimits = PLAYER) -> Job:
    evaluator = Evaluator("referee", {"evaluator.py": REFEREE})
    return Job(evaluator, "match", ((".py", first), (".py", second)), LIMITS, game=limits)


def result(outcome: Outcome) -> dict[str, object]:
    assert outcome.failure is None, outcome.failure
    assert outcome.result is not None
    return dict(json.loads(outcome.result)["metrics"])


class GameContract:
    """Each backend offers `sandbox`, in which programs have identities or namespaces."""

    harmless: Collection[str] = ()
    """Attacks without an effect here, so that the game goes on."""

    def test_an_honest_game_has_its_moves_and_its_result(self, sandbox: Sandbox) -> None:
        ended = result(sandbox.run(game(HONEST, b"def move(ply):\n    return 3\n")))
        assert ended["moves"] == ["5", "3"] * 3
        assert (ended["first"], ended["second"]) == (1.0, 0.0)

    @pytest.mark.parametrize("name", ATTACKS)
    def test_only_the_attacker_is_blamed(self, sandbox: Sandbox, name: str) -> None:
        attack, seat = ATTACKS[name], len(name) % 2
        players = (attack.source, attack.opponent)
        players = players if seat == 0 else players[::-1]
        outcome = sandbox.run(game(*players, attack.limits))
        if attack.kinds and name not in self.harmless:
            assert outcome.failure is not None
            assert (outcome.failure.kind in attack.kinds, outcome.culprit) == (True, seat), outcome
        elif attack.illegal:
            assert result(outcome)["culprit"] == ("first", "second")[seat]
        else:
            ended = result(outcome)
            assert ended["moves"] == (["4", "5"] if seat == 0 else ["5", "4"]) * 3
            assert ended["second" if seat == 0 else "first"] == 1.0

    def test_an_illegal_move_is_a_result_of_the_referee(self, sandbox: Sandbox) -> None:
        ended = result(sandbox.run(game(HONEST, b"def move(ply):\n    return 99\n")))
        assert (ended["first"], ended["culprit"]) == (1.0, "second")
        assert ended["moves"] == ["5", "?99"]

    def test_the_moves_until_a_failure_are_kept(self, sandbox: Sandbox) -> None:
        late = b"def move(ply):\n    return 7 if ply < 4 else 1 / 0\n"
        outcome = sandbox.run(game(late, HONEST))
        assert outcome.culprit == 0
        assert outcome.result is not None
        moves = json.loads(outcome.result)["metrics"]["moves"]
        assert moves == ["7", "5", "7", "5"]

    def test_the_moves_are_shown_while_a_game_goes_on(self, sandbox: Sandbox) -> None:
        seen: list[list[str]] = []
        slow = b"import time\ndef move(ply):\n    time.sleep(0.5)\n    return 4\n"
        ended = result(sandbox.run(replace(game(slow, HONEST), watch=lambda m: seen.append([*m]))))
        assert ended["moves"] == ["4", "5"] * 3
        assert seen[0] in (["4"], ["4", "5"])
        assert all(moves == ["4", "5", "4", "5", "4", "5"][: len(moves)] for moves in seen)
        assert [len(moves) for moves in seen] == sorted({len(moves) for moves in seen})

    def test_moves_that_are_too_many_to_be_shown_are_played_all_the_same(
        self, sandbox: Sandbox
    ) -> None:
        evaluator = Evaluator("marathon", {"evaluator.py": MARATHON})
        seen: list[list[str]] = []
        job = Job(evaluator, "match", ((".py", HONEST), (".py", HONEST)), LIMITS, game=PLAYER)
        ended = result(sandbox.run(replace(job, watch=lambda moves: seen.append([*moves]))))
        assert ended["moves"] == [f"{ply} \u202e" + "\u2603" * 20 for ply in range(2000)]
        assert 10 < len(seen[-1]) < 1000
        assert seen[-1] == ended["moves"][: len(seen[-1])]

    def test_a_player_foretells_no_random_number(self, sandbox: Sandbox) -> None:
        evaluator = Evaluator("dice", {"evaluator.py": DICE})
        players = ((".py", FORETELLING), (".py", FORETELLING + b"# the other\n"))
        job = Job(evaluator, "match", players, LIMITS, game=PLAYER, seed=20_261_125)
        ended, again = result(sandbox.run(job)), result(sandbox.run(job))
        assert (ended["foretold"], ended["alike"]) == (False, False)
        assert ended["moves"][1] == again["moves"][1]  # type: ignore[index]

    def test_a_player_does_not_run_while_its_opponent_moves(self, sandbox: Sandbox) -> None:
        ended = result(sandbox.run(game(WATCHING, SLOW)))
        assert ended["moves"][2] == "9"  # type: ignore[index]

    def test_a_sandbox_serves_the_next_game_after_an_attack(self, sandbox: Sandbox) -> None:
        sandbox.run(game(ATTACKS["hangs"].source, HONEST, HURRIED))
        assert result(sandbox.run(game(HONEST, HONEST)))["first"] == 0.5
