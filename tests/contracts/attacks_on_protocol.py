# ruff: noqa: E501  # program texts are lines of their own
"""Attacks on the harness itself: its wire, its callbacks, its clock, what it leaves in reach."""

from tests.contracts.attacks import Attack

# Finds the program's socket among its descriptors and writes frames of its own.
_WIRE = """
import json, os, socket, stat, struct, threading, time
def line():
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode): return fd
        except OSError: pass
def frame(tree, *blobs):
    text = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    sizes = struct.pack('>%dQ' % len(blobs), *map(len, blobs))
    body = struct.pack('>II', len(text), len(blobs)) + sizes + text
    body += b''.join(b + b'\\0' * (-len(b) % 16) for b in blobs)
    return struct.pack('>I', len(body)) + body
def send(data):
    view = memoryview(data)
    while view: view = view[os.write(line(), view):]
"""


def _wire(name: str, body: str) -> Attack:
    return Attack(name, f"{_WIRE}def solve(x):\n    {body}\n    time.sleep(60)\n", True)


WIRE = (
    _wire("millions of empty lists", "send(frame(b'[' + b'[],' * 15000000 + b'0]'))"),
    _wire("millions of empty tables", "send(frame(b'[' + b'{},' * 15000000 + b'0]'))"),
    _wire("nested without end", "send(frame(b'[' * 1000000))"),
    _wire("an integer of millions of digits", "send(frame(b'[2,\"returned\",' + b'9' * 9000000 + b']'))"),
    _wire("an array of objects", "send(frame([2, 'returned', {'n': ['|O', [1], 0]}], b'0' * 8))"),
    _wire("an array larger than its bytes", "send(frame([2, 'returned', {'n': ['<f8', [1 << 60], 0]}], b''))"),
    _wire("an array of many dimensions", "send(frame([2, 'returned', {'n': ['<f8', [10 ** 18] * 100000, 0]}], b''))"),
    _wire("texts of no characters", "send(frame([2, 'returned', {'n': ['<U2', [1], 0]}], b'\\xff' * 8))"),
    _wire("a handle nobody gave", "send(frame([2, 'returned', {'h': ['callback', 1]}]))"),
    _wire("a handle of another kind", "send(frame([2, 'returned', {'h': ['own', {'d': []}]}]))"),
    _wire("an end of iteration", "send(frame([2, 'stopped']))"),
    _wire("an answer to the next request", "send(frame([3, 'returned', 9]))"),
    _wire("a callback nobody passed", "[send(frame(['call', n, [], {'d': []}])) for n in range(50)]"),
    _wire("a callback that is no number", "send(frame(['call', [1], 7, None]))"),
    _wire("an unknown kind of failure", "send(frame([2, 'raised', 'E' * 99, 'text', 'no_such_kind', '']))"),
    _wire("a failure of the machinery", "send(frame([2, 'raised', 'E', 'text', 'sandbox_violation', '']))"),
    _wire("a frame that never comes whole", "send(struct.pack('>I', 60 << 20) + b'x' * 1000)"),
    _wire("keys that collide", "send(frame([2, 'returned', {'d': [[n * ((1 << 61) - 1), 0] for n in range(150000)]}]))"),
    _wire("the same answer for ever", "[send(frame([2, 'returned', 9])) for _ in range(100000)]"),
)  # fmt: skip

IN_REACH = (
    Attack(
        "descriptors left open",
        "import os\ndef solve(x):\n    mine = [fd for fd in map(int, os.listdir('/proc/self/fd'))]\n"
        "    real = [fd for fd in mine if os.path.exists(f'/proc/self/fd/{fd}')]\n"
        "    kinds = [os.readlink(f'/proc/self/fd/{fd}') for fd in real if fd > 2]\n"
        "    others = [k for k in kinds if not k.startswith(('socket:', '/proc/', 'pipe:'))]\n"
        "    if others or len(kinds) > 2: raise SystemExit(f'it worked: {kinds}')\n    return x * x",
    ),
    Attack(
        "the evaluator's sockets",
        "import glob, os, socket\ndef solve(x):\n"
        "    for path in glob.glob('/sandbox/rpc/*') + glob.glob('/sandbox/rpc/../rpc/*.0'):\n"
        "        s = socket.socket(socket.AF_UNIX)\n        s.connect(path)\n"
        "        raise SystemExit('it worked')\n"
        "    for n in range(3000):\n        try:\n"
        "            with socket.socket(socket.AF_UNIX) as s: s.connect(f'/sandbox/rpc/{n}.0')\n"
        "        except OSError: continue\n"
        "        raise SystemExit('it worked')\n    return x * x",
    ),
    Attack(
        "limits and priorities of others",
        "import os, resource\ndef solve(x):\n    me = os.getpid()\n    for p in [1, os.getppid(), *range(2, 400)]:\n"
        "        if p == me: continue\n"
        "        try: resource.prlimit(p, resource.RLIMIT_NOFILE, (0, 0))\n        except (OSError, ValueError): continue\n"
        "        raise SystemExit(f'it worked: {p}')\n    return x * x",
    ),
    Attack(
        "links to what is hidden",
        "import os\nfor n, target in enumerate(('/sandbox/eval/files/hidden.txt', '/etc/shadow', '/proc/1/root/sandbox/eval/files/hidden.txt', '/root')):\n"
        "    for make in (os.symlink, os.link):\n        name = f'{make.__name__}{n}'\n        try:\n            make(target, name)\n"
        "            print(open(name).read())\n        except OSError: continue\n        raise SystemExit('it worked')\n"
        "def solve(x):\n    return x * x",
        True,
    ),
    Attack(
        "links and pipes left behind",
        "import os\nos.mkfifo('fifo')\nos.symlink('/', 'root')\nos.symlink('loop', 'loop')\n"
        "os.makedirs('a/b')\nos.symlink('../..', 'a/b/up')\n"
        "for name in ('\u202egnp.exe', 'x' * 255, 'new\\nline', '-rf', '\\udcff'):\n    open(name, 'w').close()\n"
        "os.chmod('a', 0)\ndef solve(x):\n    return x * x",
    ),
    Attack(
        "memory in files of memory",
        "import os\ndef solve(x):\n    kept = []\n    try:\n        while True:\n            fd = os.memfd_create('m')\n            kept.append(fd)\n"
        "            for _ in range(30): os.write(fd, bytearray(1 << 20))\n"
        "    except OSError: pass\n    return x * x",
    ),
    Attack(
        "a module of the evaluator's name",
        "import sys\nopen('evaluator.py', 'w').write('print(1)')\nopen('importlib.py', 'w').write('')\n"
        "sys.modules['evaluation_module'] = sys\ndef solve(x):\n    return x * x",
        True,
    ),
    Attack(
        "a priority of nothing",
        "import os\nos.nice(19)\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\ndef solve(x):\n    return x * x",
    ),
    Attack(
        "a terminal's writing",
        "import sys\nprint('\\x1b]0;owned\\x07\\x1b[2J\\u202e\\x00', file=sys.stderr)\nsys.stdout.buffer.write(b'\\xff\\xfe\\x00')\ndef solve(x):\n    return x * x",
    ),
    Attack(
        "closed and replaced streams",
        "import os, sys\nos.close(1)\nos.close(2)\nsys.stdout = sys.stderr = None\ndef solve(x):\n    return x * x",
        True,
    ),
    Attack(
        "a module in place of the program's",
        "import sys, types\nsys.modules[__name__] = types.SimpleNamespace(solve=lambda x: 99)\ndef solve(x):\n    return x * x",
    ),
)  # fmt: skip

VALUES = (
    Attack(
        "objects that compute",
        "class N:\n    def __getattr__(s, n): return s\n    def __call__(s, *a, **k): return s\n"
        "    def __sub__(s, o): return 0\n    def __eq__(s, o): return True\n    def __hash__(s): return 9\n"
        "    def __abs__(s): return 0\n    def __lt__(s, o): return True\n    def __rsub__(s, o): return 0\n"
        "def solve(x): return N()",
        True,
    ),
    Attack(
        "an array that equals",
        "import numpy\nclass A(numpy.ndarray):\n    def __eq__(s, o): return True\n    def __bool__(s): return True\n"
        "def solve(x): return numpy.zeros(3).view(A)[:1]",
        True,
    ),
    Attack(
        "an array of one object",
        "import numpy\nclass E:\n    def __eq__(s, o): return True\n    __hash__ = None\n"
        "def solve(x): return numpy.array(E(), dtype=object)[()]",
        True,
    ),
    Attack("a generator that ends the loop", "def solve(x): raise StopIteration"),
    Attack("a generator that is closed", "def solve(x): raise GeneratorExit"),
    Attack("a text of many commas", "def solve(x): return [',' * 1000] * 3000"),
    Attack("a legal value of 60 MB", "def solve(x): return b'x' * (60 << 20)"),
    Attack("a NumPy number", "import numpy\ndef solve(x): return numpy.float64(x * x)"),
    Attack("an exception with a nameless class", "def solve(x): raise type('\\x00' * 300, (Exception,), {})('\\ud800')"),
    Attack("an exception that says it is another", "class FailureKind(MemoryError):\n    pass\ndef solve(x): raise FailureKind('sandbox_violation')"),
    Attack("a timer during a call", "import os, signal\ndef solve(x):\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n    while True: pass"),
    Attack(
        "timers that outlive a call",
        "import signal\ndef solve(x):\n    def late(*a): raise RuntimeError('late')\n    signal.signal(signal.SIGALRM, late)\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.2)\n    return x * x",
    ),
)  # fmt: skip

HARNESS = (*WIRE, *IN_REACH, *VALUES)
