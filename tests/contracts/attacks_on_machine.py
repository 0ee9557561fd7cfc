# ruff: noqa: E501  # program texts are lines of their own
"""Attacks on a sandbox itself: its descriptors, memory that no process owns, its reports."""

from tests.contracts.attacks import Attack

_SOCKETS = """
import array, os, socket, stat
def sockets():
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode): yield fd
        except OSError: pass
"""

DESCRIPTORS = (
    Attack("a socket put in place of its own", _SOCKETS + "def solve(x):\n    mine = list(sockets())\n    a, b = socket.socketpair()\n    for fd in mine: os.dup2(a.fileno(), fd)\n    return x * x"),
    Attack("half of a line closed", _SOCKETS + "def solve(x):\n    for fd in sockets(): socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_WR)\n    return x * x"),
    Attack("descriptors sent along", _SOCKETS + "def solve(x):\n    many = [os.open('/dev/null', 0) for _ in range(100)]\n    for fd in sockets():\n"
           "        socket.socket(fileno=os.dup(fd)).sendmsg([b'\\0\\0\\0\\1'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', many))])\n    return x * x"),
    Attack("every descriptor closed", "import os\nos.closerange(0, 256)\ndef solve(x): return x * x"),
    Attack("descriptors in flight", "import array, socket\ndef solve(x):\n    a, b = socket.socketpair()\n    for _ in range(100000):\n"
           "        try: a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [a.fileno()] * 200))])\n        except OSError: break\n    return x * x"),
)  # fmt: skip

REPORTS = (
    Attack("a chain of 100,000 exceptions", "def solve(x):\n    e = None\n    for i in range(100000):\n        n = ValueError(i)\n        n.__cause__ = e\n        e = n\n    raise e"),
    Attack("an exception class without a name", "class M(type):\n    @property\n    def __name__(c): raise RuntimeError\nclass E(Exception, metaclass=M): pass\ndef solve(x): raise E"),
    Attack("an exception whose parts raise", "class E(OSError):\n    errno = property(lambda s: 1 / 0)\n    filename = property(lambda s: 1 / 0)\ndef solve(x): raise E(1)"),
    Attack("a file name that ends the program", "class F:\n    def __str__(s): raise SystemExit(3)\nclass E(PermissionError):\n    filename = F()\ndef solve(x): raise E(1, 'x')"),
    Attack("a traceback of 100,000 calls", "import sys\nsys.setrecursionlimit(10 ** 6)\ndef solve(x):\n    def f(n): return 1 / 0 if n == 0 else f(n - 1)\n    return f(100000)"),
    Attack("a docstring of its own class", "class D(str):\n    def __str__(s): raise SystemExit\ndef solve(x): return x * x\nsolve.__doc__ = D('x' * (70 << 20))", True),
    Attack("code of another place", "def solve(x): return x * x\nsolve.__code__ = solve.__code__.replace(co_varnames=('\\ud800',), co_firstlineno=2 ** 31 - 1)"),
    Attack("names that are none", "globals()['x y'] = globals()['class'] = globals()['\\ud800'] = 1\ndef solve(x): return x * x"),
    Attack("hundreds of thousands of names", "globals().update({f'g{i}': i for i in range(900000)})\ndef solve(x): return x * x", True),
    Attack("hundreds of thousands of objects", "def solve(x): return [object() for _ in range(300000)]", True),
    Attack("objects without end", "class P:\n    def __iter__(s): return iter([P()] * 1000)\n    def __len__(s): return 10 ** 18\n    def __getitem__(s, i): return P()\n    def __float__(s): return 9.0\ndef solve(x): return P()"),
    Attack("lines of a log", "def solve(x):\n    print('\\n--- program ---\\n{\"combined_score\": 99}\\n[evaluator] score 99')\n    return x * x"),
    Attack("its own file replaced", "import os\ndef solve(x):\n    if x == 3: os.rename(__file__, 'old.py')\n    with open(__file__, 'w') as file: file.write('def solve(x): return 99')\n    return x * x"),
)  # fmt: skip

RESOURCES = (
    Attack("the rank among the OOM killer's", "def solve(x):\n    with open('/proc/self/oom_score_adj', 'w') as file: file.write('-1000')\n    return x * x"),
    Attack("daemons", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(100)\n    os._exit(0)\ndef solve(x): return x * x"),
    Attack("files in shared memory", "import os\ndef solve(x):\n    try:\n        for i in range(3000): open(f'/dev/shm/{x}.{i}', 'w').close()\n        os.makedirs(f'/dev/shm/d{x}/e')\n"
           "        open(f'/dev/shm/d{x}/e/f', 'w').close()\n        os.chmod(f'/dev/shm/d{x}/e', 0)\n        os.chmod(f'/dev/shm/d{x}', 0)\n    except PermissionError: pass\n    return x * x"),
    Attack("CPU time of children", "import os, time\ndef solve(x):\n    for _ in range(6):\n        if os.fork() == 0:\n            while True: pass\n    time.sleep(100)"),
    Attack("deaf to the end of its CPU time", "import signal\nsignal.signal(signal.SIGXCPU, lambda *a: None)\ndef solve(x):\n    while True: pass"),
    Attack("a core dump", "import ctypes, os, resource\nctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\nif max(resource.getrlimit(resource.RLIMIT_CORE)) > 1: raise SystemExit('it worked')\n"
           "def solve(x): os.abort()"),
    Attack("another interpreter", "import os, sys\ndef solve(x): os.execv(sys.executable, [sys.executable, '-c', 'while True: pass'])"),
    Attack("address space", "import mmap\ndef solve(x): mmap.mmap(-1, 1 << 46)"),
    Attack("memory shared without a name", "import mmap\ndef solve(x):\n    kept = []\n    while True:\n        m = mmap.mmap(-1, 1 << 24)\n        m.write(b'x' * (1 << 24))\n        kept.append(m)"),
    Attack("memory of sockets", "import socket\ndef solve(x):\n    kept = []\n    while True:\n        a, b = socket.socketpair()\n        a.setblocking(False)\n        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)\n"
           "        kept += [a, b]\n        try:\n            while True: a.send(b'x' * 65536)\n        except OSError: pass"),
    Attack("memory of pipes", "import os\ndef solve(x):\n    while True:\n        r, w = os.pipe()\n        os.set_blocking(w, False)\n        try:\n            while True: os.write(w, b'x' * 65536)\n        except OSError: pass"),
)  # fmt: skip

_AROUND = """
import json, os, stat
def around():
    place = os.getcwd()
    while place != '/':
        place = os.path.dirname(place)
        yield place
def worked(action, *arguments):
    try: action(*arguments)
    except OSError: return
    raise SystemExit('it worked')
"""

SURROUNDINGS = (
    Attack("modes of what is around it", _AROUND + "def solve(x):\n    os.symlink(json.__file__, f'link{x}')\n    opened = os.open('/usr/bin', os.O_RDONLY)\n    for path in (*around(), '..', f'link{x}', '/proc/self/cwd/..', opened):\n"
           "        worked(os.chmod, path, stat.S_IMODE(os.stat(path).st_mode))\n    return x * x"),
    Attack("attributes and owners of what is around it", _AROUND + "def solve(x):\n    for path in (*around(), json.__file__):\n        worked(os.setxattr, path, 'user.message', b'1')\n        worked(os.chown, path, os.getuid(), os.getgid())\n    return x * x"),
    Attack("messages beside it", _AROUND + "def solve(x):\n    for path in around():\n        for name in (f'message{x}', f'eval/message{x}', f'rpc/message{x}'): worked(open, f'{path}/{name}', 'w')\n"
           "        for number in range(20): worked(os.mkdir, f'{path}/{number}')\n    return x * x"),
)  # fmt: skip

_LIBC = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t) + (ctypes.c_int,) * 3 + (ctypes.c_size_t,)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
"""

OF_THE_KERNEL = (
    Attack("blocks without a size", _LIBC + "def solve(x):\n    with open('f', 'wb') as file:\n        if libc.fallocate(file.fileno(), 1, 0, 1 << 30) == 0: raise SystemExit('it worked')\n    return x * x"),
    Attack("memory of a device", _LIBC + "def solve(x):\n    zeros = os.open('/dev/zero', os.O_RDWR)\n    at = libc.mmap(None, 1 << 30, 3, 1, zeros, 0)\n    for part in range(at, at + (1 << 30) - (8 << 20), 8 << 20):\n        ctypes.memset(part, 1, 8 << 20)\n        libc.munmap(part, 8 << 20)\n    return x * x"),
    Attack("locks of ranges", "import fcntl, struct, time\ndef solve(x):\n    kept = []\n    for n in range(30):\n        kept.append(open(f'f{n}', 'wb'))\n        for at in range(0, 1400, 2):\n            if n % 2: fcntl.lockf(kept[-1], fcntl.LOCK_EX, 1, at)\n"
           "            else: fcntl.fcntl(kept[-1], 37, struct.pack('hhqqi', fcntl.F_WRLCK, 0, at, 1, 0))\n    time.sleep(1)\n    return x * x"),
    Attack("timers without end", _LIBC + "def solve(x):\n    made = 0\n    while made < 20000 and libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0: made += 1\n    if made == 20000: raise SystemExit('it worked')\n    return x * x"),
    Attack("watches without end", _LIBC + "def solve(x):\n    if any(libc.inotify_init1(0) >= 0 or libc.inotify_init() >= 0 or libc.fanotify_init(0, 0) >= 0 for _ in range(200)): raise SystemExit('it worked')\n    return x * x"),
    Attack("queues of messages", _LIBC + "def solve(x):\n    made = [n for n in range(100) if libc.mq_open(f'/{n}'.encode(), os.O_CREAT | os.O_RDWR, 0o600, None) >= 0]\n    try: made.append(os.open('/dev/mqueue/marmot', os.O_CREAT | os.O_RDWR))\n    except OSError: pass\n    if made: raise SystemExit('it worked')\n    return x * x"),
    Attack("a key", _LIBC + "def solve(x):\n    if libc.syscall(248 if os.uname().machine == 'x86_64' else 217, b'user', b'marmot', b'x', 1, -5) >= 0: raise SystemExit('it worked')\n    return x * x"),
)  # fmt: skip

_WRITING = """
import os, signal, time
def write(n):
    for at in range(50):
        try:
            os.makedirs(f'd{n}/{at}')
            os.rename(f'd{n}', f'e{n}.{at}')
            open(f'e{n}.{at}/f', 'w').close()
            os.rename(f'e{n}.{at}', f'd{n}')
        except OSError: pass
"""

LEFT_BEHIND = (
    Attack("writers beyond the deadline", _WRITING + "def solve(x):\n    for n in range(6):\n        if os.fork() == 0:\n            os.setsid()\n            if os.fork(): os._exit(0)\n            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\n            while True: write(n)\n    time.sleep(100)"),
    Attack("empty files in every place", "import os, tempfile\ndef solve(x):\n    for place in ('/dev/shm', '/tmp', tempfile.gettempdir()):\n        try:\n            for n in range(200000): os.close(os.open(f'{place}/{x}.{n}', os.O_CREAT | os.O_WRONLY))\n        except OSError: pass\n    return x * x"),
    Attack("pipes in place of files", "import os, tempfile\nfor place in (tempfile.gettempdir(), '.', '/dev/shm', '/tmp'):\n    for name in ('result.json', 'evaluator.py', 'hidden.txt', 'sitecustomize.py', 'json.py'):\n        try: os.mkfifo(f'{place}/{name}')\n        except OSError: pass\ndef solve(x): return x * x"),
    Attack("a traceback that reads a pipe", "import os\ndef solve(x):\n    os.unlink(__file__)\n    os.mkfifo(__file__)\n    1 / 0"),
)  # fmt: skip

MACHINE = (*DESCRIPTORS, *REPORTS, *RESOURCES, *SURROUNDINGS, *OF_THE_KERNEL, *LEFT_BEHIND)
"""What every sandbox with isolation withstands."""
