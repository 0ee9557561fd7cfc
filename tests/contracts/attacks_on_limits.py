# ruff: noqa: E501  # program texts are lines of their own
"""Attacks on the sum of what a trial holds, where each part is within the limits of a process.

What is held without a name is held for a while, so that also a zygote that gets few of the
processors looks at it before the program ends and it is gone.
"""

from tests.contracts.attacks import Attack

_CHILDREN = """
import mmap, os, time
def children(n, work):
    for _ in range(n):
        if os.fork() == 0:
            os.setsid()
            try: work()
            finally:
                time.sleep(100)
                os._exit(0)
    time.sleep(100)
"""

_LIBC = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t) + (ctypes.c_int,) * 3 + (ctypes.c_size_t,)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
"""

FILES = (
    Attack("many small files", "def solve(x):\n    for n in range(40000):\n        with open(f'f{n}', 'w') as file: file.write('x')\n    return x * x"),
    Attack("one large file by parts", "def solve(x):\n    for n in range(20):\n        with open(f'part{n}', 'wb') as file:\n            for _ in range(20): file.write(b'x' * (1 << 20))\n    return x * x"),
    Attack("files of many processes", _CHILDREN + "def work():\n    for n in range(100):\n        with open(f'{os.getpid()}.{n}', 'wb') as file: file.write(b'x' * (1 << 20))\ndef solve(x): children(8, work)"),
    Attack("files without a name", "import os, time\ndef solve(x):\n    kept = []\n    for n in range(40):\n        kept.append(open('f', 'wb'))\n        os.unlink('f')\n        for _ in range(10): kept[-1].write(b'x' * (1 << 20))\n    time.sleep(2)\n    return x * x"),
    Attack("mapped files without a name", "import mmap, os, time\ndef solve(x):\n    kept = []\n    for n in range(40):\n        with open('f', 'wb+') as file:\n            for _ in range(10): file.write(b'x' * (1 << 20))\n            file.flush()\n            kept.append(mmap.mmap(file.fileno(), 4096))\n        os.unlink('f')\n    time.sleep(2)\n    return x * x"),
    Attack("files in flight", "import array, os, socket\ndef solve(x):\n    pairs = []\n    for n in range(40):\n        a, b = socket.socketpair()\n        pairs += [a, b]\n        with open('f', 'wb') as file:\n            os.unlink('f')\n            for _ in range(10): file.write(b'x' * (1 << 20))\n"
           "            file.flush()\n            a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [file.fileno()]))])\n    return x * x"),
    Attack("a closed directory", "import os\ndef solve(x):\n    os.mkdir('d')\n    while True:\n        os.chmod('d', 0o700)\n        for n in range(10):\n            with open(f'd/{os.urandom(8).hex()}', 'wb') as file: file.write(b'x' * (1 << 20))\n        os.chmod('d', 0)\n        for n in range(10 ** 6): pass"),
)  # fmt: skip

MEMORY = (
    Attack("shared memory of many processes", _CHILDREN + "kept = []\ndef work():\n    for _ in range(6):\n        kept.append(mmap.mmap(-1, 10 << 20))\n        kept[-1].write(b'x' * (10 << 20))\ndef solve(x): children(14, work)"),
    Attack("shared memory of processes that have ended", "import mmap, os\nkept = []\ndef solve(x):\n    while True:\n        kept.append(mmap.mmap(-1, 16 << 20))\n        pid = os.fork()\n        if pid == 0:\n            kept[-1].write(b'x' * (16 << 20))\n            os._exit(0)\n        os.waitpid(pid, 0)"),
    Attack("shared memory unmapped but for a page", _LIBC + "def solve(x):\n    while True:\n        at = libc.mmap(None, 16 << 20, 3, 33, -1, 0)\n        if at == ctypes.c_void_p(-1).value: raise MemoryError\n        ctypes.memset(at, 1, 16 << 20)\n        libc.munmap(at + 4096, (16 << 20) - 4096)"),
    Attack("one large block of shared memory", "import mmap\ndef solve(x):\n    m = mmap.mmap(-1, 1 << 30)\n    for n in range(1024): m.write(b'x' * (1 << 20))\n    return x * x"),
    Attack("tables of pages", _LIBC + "def solve(x):\n    while True:\n        at = libc.mmap(None, 1 << 36, 1, 0x4022, -1, 0)\n        if at == ctypes.c_void_p(-1).value: raise MemoryError\n        libc.madvise(at, 1 << 36, 15)\n        for p in range(at, at + (1 << 36), 1 << 21): ctypes.string_at(p, 1)"),
    Attack("asynchronous contexts", "import ctypes\nlibc = ctypes.CDLL(None)\ndef solve(x):\n    made = 0\n    while libc.syscall(206, 1000, ctypes.byref(ctypes.c_ulong())) == 0: made += 1\n    assert made == 0, 'it worked'\n    return x * x"),
    Attack("buffers of many processes", _CHILDREN + "import socket\nkept = []\ndef work():\n    for _ in range(100):\n        kept.extend(socket.socketpair())\n        kept[-1].setblocking(False)\n        try:\n            while True: kept[-1].send(b'x' * 65536)\n        except OSError: pass\ndef solve(x): children(8, work)"),
    Attack("pages in pipes", _LIBC + "import os, struct, time\nlibc.vmsplice.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)\ndef solve(x):\n    kept = []\n    while True:\n        try: kept += os.pipe()\n        except OSError: time.sleep(100)\n        for _ in range(16):\n"
           "            at = libc.mmap(None, 4 << 20, 3, 0x22, -1, 0)\n            whole = (at + (2 << 20) - 1) & -(2 << 20)\n            libc.madvise(whole, 2 << 20, 14)\n            ctypes.memset(whole, 1, 2 << 20)\n            part = ctypes.create_string_buffer(struct.pack('PN', whole, 1))\n"
           "            if libc.vmsplice(kept[-1], part, 1, 0) < 0: raise MemoryError\n            libc.munmap(at, 4 << 20)"),
    Attack("data that nobody accepts", "import socket, time\ndef solve(x):\n    listening = socket.socket(socket.AF_UNIX)\n    listening.bind(f'{x}')\n    listening.listen(4096)\n    while True:\n        one = socket.socket(socket.AF_UNIX)\n        one.setblocking(False)\n        try:\n            one.connect(f'{x}')\n"
           "            while True: one.send(b'x' * 65536)\n        except OSError: one.close()"),
    Attack("mappings of many processes", _CHILDREN + _LIBC + "libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)\ndef work():\n    at = libc.mmap(None, 4096 * 65000, 1, 0x4022, -1, 0)\n    for page in range(at, at + 4096 * 65000, 8192): libc.mprotect(page, 4096, 0)\ndef solve(x): children(24, work)"),
    Attack("a process that cannot be read", "import os, shutil, sys\ndef solve(x):\n    shutil.copy(os.path.realpath('/bin/sleep'), 'asleep')\n    os.chmod('asleep', 0o111)\n    os.execv('asleep', ['asleep', '100'])"),
)  # fmt: skip

ON_LIMITS = (*FILES, *MEMORY)
