# ruff: noqa: E501  # program texts are lines of their own
"""Programs that want a score they have not earned, a secret, or the next program's trial.

Each defines `solve` or fails.  An honest one earns 0.5 from the evaluator in `sandbox_attacks`, so
that any other score, but 0, is forged.  The results are in `attack_outcomes`.
"""

from dataclasses import dataclass

HONEST = "\ndef solve(x):\n    return x * x\n"


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile program.

    Attributes:
      guarded_only: Whether it forges in a shared process, which compatible mode cannot prevent.
    """

    name: str
    source: str
    guarded_only: bool = False


def _forgery(name: str, source: str) -> Attack:
    return Attack(name, source + HONEST, guarded_only=True)


def _attack(name: str, source: str) -> Attack:
    return Attack(name, source)


_FAKE = '{"result": {"metrics": {"combined_score": 99.0}, "artifacts": {}}}'
_LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"

FORGERIES = (
    _forgery("json on stdout", f"print('{_FAKE}', flush=True)"),
    _forgery("json on stderr", f"import sys\nsys.stderr.write('{_FAKE}\\n')"),
    _forgery(
        "result files",
        "for n in ('result.json', 'metrics.json', 'out.json', '/tmp/result.json'):\n"
        f"    try: open(n, 'w').write('{_FAKE}')\n    except OSError: pass",
    ),
    _forgery(
        "frames on every descriptor",
        f"import os\nfor fd in range(256):\n    try: os.write(fd, b'''{_FAKE}''')\n"
        "    except OSError: pass",
    ),
    _forgery(
        "exit after writing everywhere",
        f"import os\nfor fd in range(256):\n    try: os.write(fd, b'''{_FAKE}''')\n"
        "    except OSError: pass\nos._exit(0)",
    ),
    _forgery(
        "a late thread",
        "import threading, time, os\ndef late():\n    time.sleep(0.05)\n    for fd in range(256):\n"
        f"        try: os.write(fd, b'''{_FAKE}''')\n        except OSError: pass\n"
        "threading.Thread(target=late, daemon=True).start()",
    ),
    _forgery("atexit", f"import atexit\natexit.register(print, '{_FAKE}')"),
    _forgery("patched json", "import json\njson.dumps = lambda *a, **k: '{\"combined_score\": 99}'"),
    _forgery(
        "patched builtins",
        "import builtins\nbuiltins.sum = lambda *a: 99\nbuiltins.len = lambda *a: 1\n"
        "builtins.type = lambda *a: int",
    ),
    _forgery("patched clock", "import time\ntime.time = time.perf_counter = lambda: 0.0"),
    _forgery(
        "frame walking",
        "import sys\nframe = sys._getframe()\nwhile frame is not None:\n"
        "    for name, value in list(frame.f_globals.items()):\n"
        "        if name in ('CASES', 'HIDDEN'):\n            print(repr(value))\n"
        "            frame.f_globals['CASES'] = ()\n    frame = frame.f_back",
    ),
    _forgery(
        "garbage collector scan",
        "import gc\nfor o in gc.get_objects():\n    try:\n"
        "        if isinstance(o, dict) and 'HIDDEN' in o: print(o['HIDDEN']); o['HIDDEN'] = 0\n"
        "    except Exception: pass",
    ),
    _forgery(
        "import the evaluator",
        "import sys\nm = sys.modules.get('evaluation_module')\nif m is not None:\n"
        "    m.evaluate = lambda p: {'combined_score': 99.0}\n    print(m.HIDDEN)",
    ),
    _forgery(
        "read hidden files",
        "import os, glob\nfor p in glob.glob('/sandbox/**', recursive=True) + glob.glob('../**',"
        " recursive=True):\n    try: print(open(p).read())\n    except OSError: pass",
    ),
    _forgery(
        "roots in proc",
        "import os\nfor pid in range(1, 200):\n    for n in ('root/sandbox/eval/files/hidden.txt',"
        " 'cwd/hidden.txt', 'environ', 'mem', 'maps', 'fd/0', 'fd/3'):\n"
        "        try: print(open(f'/proc/{pid}/{n}', 'rb').read(10000))\n"
        "        except (OSError, OverflowError, ValueError): pass",
    ),
    _forgery(
        "own memory scan",
        "import ctypes, re\nctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\nfound = 0\n"
        "with open('/proc/self/maps') as f: maps = [l.split() for l in f if ' rw' in l]\n"
        "with open('/proc/self/mem', 'rb') as mem:\n    for l in maps:\n"
        "        a, b = (int(v, 16) for v in l[0].split('-'))\n        try:\n"
        "            mem.seek(a); block = mem.read(b - a)\n"
        "        except (OSError, ValueError, OverflowError): continue\n"
        "        for m in re.finditer(b'mar' + b'mot-7431', block):\n"
        "            found += block[m.end():m.end() + 7][::-1] == b'neddih-'\n"
        "print('scanned', len(maps), 'leaked' + '!' * found if found else '')",
    ),
    _forgery("settrace", "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)"),
    _forgery(
        "interval timer",
        "import signal\nimport os\nsignal.signal(signal.SIGALRM, lambda *a: os.write(1, b'tick '))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)",
    ),
    _forgery("import hook", "import sys\nsys.meta_path.insert(0, object())"),
    _forgery(
        "rewritten protocol",
        "import sys\nfor name, m in list(sys.modules.items()):\n"
        "    if name.startswith('evoq_harness'):\n        for k, v in list(vars(m).items()):\n"
        "            if callable(v): setattr(m, k, lambda *a, **k: b'')",
    ),
    _forgery(
        "forged answers on the socket",
        "import os, struct\nfor fd in range(3, 64):\n    try: os.write(fd, struct.pack('>I', 40) +"
        " b'\\0' * 40)\n    except OSError: pass",
    ),
    _forgery(
        "huge frame length",
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 64)\n"
        "    except OSError: pass",
    ),
)  # fmt: skip

VALUES = (
    Attack("always equal", "class E:\n    def __eq__(s, o): return True\n    __hash__ = None\n"
           "    def __float__(s): return 99.0\ndef solve(x): return E()", True),
    Attack("float subclass", "class F(float):\n    def __eq__(s, o): return True\n    __hash__ = None\n"
           "def solve(x): return F(1)", True),
    Attack("int subclass", "class I(int):\n    def __eq__(s, o): return True\n    __hash__ = None\n"
           "def solve(x): return I(1)", True),
    _attack("NaN", "def solve(x): return float('nan')"),
    _attack("infinity", "def solve(x): return float('inf')"),
    _attack("complex", "def solve(x): return 1j"),
    _attack("big integer", "def solve(x): return 1 << 100000"),
    _attack("deep list", "def solve(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a"),
    _attack("cyclic list", "def solve(x):\n    a = []\n    a.append(a)\n    return a"),
    _attack("giant value", "def solve(x): return b'x' * (100 << 20)"),
    _attack("generator without end", "def solve(x):\n    while True: yield 1"),
    _attack("coroutine", "async def solve(x): return 9"),
    _attack("pickle payload", "class P:\n    def __reduce__(s): return (print, ('owned',))\n"
            "def solve(x): return P()"),
    _attack("not callable", "solve = 7"),
    _attack("wrong arity", "def solve(): return 1"),
    _attack("a class that takes nothing", "class solve:\n    def __init__(self): pass"),
    _attack("lone surrogates", "def solve(x): return '\\ud800\\x00'"),
    _attack("exception that cannot be printed", "class B(Exception):\n    def __str__(s): raise s\n"
            "def solve(x): raise B()"),
    _attack("giant exception", "def solve(x): raise ValueError('x' * (50 << 20))"),
    _attack("base exception", "class B(BaseException): pass\ndef solve(x): raise B()"),
    _attack("recursion", "def solve(x): return solve(x)"),
    _attack("parser bomb", "x = " + "(" * 5000 + ")" * 5000),
    _attack("bad encoding", "# -*- coding: no-such -*-\ndef solve(x): return 1"),
)  # fmt: skip

CONTAINMENT = (
    _attack("fork bomb", "import os\ndef solve(x):\n    while True:\n        try: os.fork()\n"
            "        except OSError: pass"),
    _attack("fork bomb that leaves its session", "import os\ndef solve(x):\n    while True:\n        try:\n"
            "            if os.fork() == 0:\n                os.setsid()\n                if os.fork(): os._exit(0)\n"
            "        except OSError: pass"),
    _attack("fork bomb of another program", "import os\nTEXT = 'while :; do setsid sh -c \"$0\" \"$0\" & done'\ndef solve(x):\n    while True:\n"
            "        try: os.posix_spawn('/bin/sh', ['sh', '-c', TEXT, TEXT], os.environ)\n        except OSError: pass"),
    _attack("thread bomb", "import threading, time\ndef solve(x):\n    while True:\n"
            "        threading.Thread(target=time.sleep, args=(99,)).start()"),
    _attack("descriptor exhaustion", "import os\ndef solve(x):\n    while True: os.dup(0)"),
    _attack("disk fill", "import tempfile\ndef solve(x):\n    n, place = 0, tempfile.mkdtemp()\n    while True:\n"
            "        with open(f'{place}/f{n}', 'wb') as f: f.write(b'x' * (1 << 20))\n        n += 1"),
    _attack("giant file", "def solve(x):\n    with open('big', 'wb') as f:\n"
            "        for _ in range(1000): f.write(b'x' * (1 << 20))"),
    _attack("inode fill", "def solve(x):\n    n = 0\n    while True:\n"
            "        open(f'i{n}', 'w').close()\n        n += 1"),
    _attack("deep directories", "import os\ndef solve(x):\n    for _ in range(1500):\n"
            "        os.mkdir('d')\n        os.chdir('d')\n    return x * x"),
    _attack("kill everything", "import os\ndef solve(x):\n    for p in (-1, 0, 1, os.getppid()):\n"
            "        try: os.kill(p, 9)\n        except OSError: pass\n    return x * x"),
    _attack("stop the parent", "import os, signal\ndef solve(x):\n"
            "    for p in (1, os.getppid()):\n        try: os.kill(p, signal.SIGSTOP)\n"
            "        except OSError: pass\n    return x * x"),
    _attack("stop itself", "import os, signal\ndef solve(x): os.kill(os.getpid(), signal.SIGSTOP)"),
    _attack("fork double return", "import os\ndef solve(x):\n    os.fork()\n    return x * x"),
    _attack("parent leaves, child returns", "import os\ndef solve(x):\n    if os.fork(): os._exit(0)\n"
            "    return x * x"),
    _attack("exec of a shell", "import os\ndef solve(x): os.execv('/bin/sh', ['sh', '-c', 'exit 0'])"),
    _attack("tiny prints for ever", "import os\ndef solve(x):\n    while True: os.write(1, b'x')"),
    _attack("no newline flood", "import os\ndef solve(x):\n    while True: os.write(2, b'x' * 65536)"),
    _attack("catastrophic regex", "import re\ndef solve(x): re.match('(a+)+$', 'a' * 60 + 'b')"),
    _attack(
        "memory block by block",
        "def solve(x):\n    blocks = []\n    while True:\n        blocks.append(bytearray(1 << 24))",
    ),
    _attack("raise the limits", "import resource\ndef solve(x):\n"
            "    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n"
            "    resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))\n    return x * x"),
    _attack("become root", "import os\ndef solve(x):\n    os.setuid(0)\n    return x * x"),
)  # fmt: skip

SYSTEM_CALLS = tuple(
    _attack(
        name,
        f"{_LIBC}def solve(x):\n    r = {call}\n"
        "    if r >= 0: raise SystemExit('it worked')\n    return x * x",
    )
    for name, call in (
        ("ptrace", "libc.ptrace(16, 1, 0, 0)"),
        ("read another's memory", "libc.process_vm_readv(1, 0, 0, 0, 0, 0)"),
        ("mount", "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)"),
        ("unshare", "libc.unshare(0x10000000)"),
        ("chroot", "libc.chroot(b'/tmp')"),
        ("keyring", "libc.syscall(250, 0, -4, 0, 0, 0)"),
        ("io_uring", "libc.syscall(425, 8, None)"),
        ("bpf", "libc.syscall(321, 0, 0, 0)"),
        ("perf", "libc.syscall(298, 0, 0, -1, -1, 0)"),
        ("userfaultfd", "libc.syscall(323, 0)"),
        ("shared memory segment", "libc.shmget(1234, 4096, 0o1666)"),
        ("message queue", "libc.msgget(1234, 0o1666)"),
        ("raw socket", "libc.socket(17, 3, 0)"),
        ("vsock", "libc.socket(40, 1, 0)"),
        ("kernel crypto socket", "libc.socket(38, 5, 0)"),
        ("set the clock", "libc.settimeofday(0, 0)"),
    )
)  # fmt: skip

NETWORK = (
    _attack("resolve a name", "import socket\ndef solve(x):\n    socket.getaddrinfo('example.com', 80)\n"
            "    raise SystemExit('it worked')"),
    _attack("connect out", "import socket\ndef solve(x):\n    s = socket.socket()\n    s.settimeout(1)\n"
            "    s.connect(('1.1.1.1', 53))\n    raise SystemExit('it worked')"),
    _attack("the engine's socket", "import socket\ndef solve(x):\n    s = socket.socket(1)\n"
            "    s.connect('/var/run/docker.sock')\n    raise SystemExit('it worked')"),
)  # fmt: skip

ATTACKS = FORGERIES + VALUES + CONTAINMENT + SYSTEM_CALLS + NETWORK
