# ruff: noqa: E501  # program texts are lines of their own
"""What a program may find of an evaluator that is careless with what two processes could share.

The evaluator leaves its secret wherever another process might look, readable for all, and believes
whatever it finds where a program might have put it.  Nothing may be found on either side.
"""

import json

import pytest

from app.domain.problem import Evaluator, Job, Limits, Mode
from app.ports.protocols import Sandbox

SECRET = b"okapi-2205-hidden"
LIMITS = Limits(
    wall_seconds=60.0, cpu_seconds=30.0, memory_mib=256, output_bytes=500_000, processes=32
)

EVALUATOR = b"""
import glob, importlib.util, json, os, socket, subprocess, sys, tempfile, threading, time
from multiprocessing import shared_memory, resource_tracker

SECRET = "".join(["okapi", "-2205-", "hidden"])
NOTES = tempfile.mkdtemp()
with open(os.path.join(NOTES, "notes"), "w") as file:
    file.write(SECRET)
os.chmod(NOTES, 0o777)
os.chmod(os.path.join(NOTES, "notes"), 0o666)

def answering(address, family):
    server = socket.socket(family)
    server.bind(address)
    server.listen(8)
    def serve():
        while True:
            client, _ = server.accept()
            client.sendall(SECRET.encode())
            client.close()
    threading.Thread(target=serve, daemon=True).start()

def careless():
    for path in ("/tmp/evaluator.txt", os.path.join(tempfile.gettempdir(), "evaluator.txt")):
        with open(path, "w") as file:
            file.write(SECRET)
        os.chmod(path, 0o666)
    try:
        os.chmod(tempfile.gettempdir(), 0o777)
    except PermissionError:  # the directory itself is not the evaluator's
        pass
    memory = shared_memory.SharedMemory("evaluator", create=True, size=64)
    memory.buf[:len(SECRET)] = SECRET.encode()
    os.chmod("/dev/shm/evaluator", 0o600)  # as it was made
    answering(("127.0.0.1", 40404), socket.AF_INET)
    answering("\\0evaluator", socket.AF_UNIX)
    answering(os.path.join(tempfile.gettempdir(), "line"), socket.AF_UNIX)
    os.chmod(os.path.join(tempfile.gettempdir(), "line"), 0o777)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(90)", SECRET],
                             env={"HIDDEN": SECRET}, stdin=subprocess.DEVNULL)
    return memory, child

def believed():
    found = []
    for path in ("/tmp/answer", os.path.join(tempfile.gettempdir(), "answer"), "answer",
                 os.path.join(NOTES, "answer")):
        if os.path.exists(path):
            found.append(path)
    for path in glob.glob("/tmp/*"):
        interpreter = sys.prefix.startswith(path + "/")  # of a checkout under /tmp
        ours = ("/tmp/evaluator.txt", NOTES)
        if path not in ours and not interpreter and not path.startswith("/tmp/kept"):
            found.append(path)
    try:
        found.append(bytes(shared_memory.SharedMemory("answer").buf[:6]).decode())
    except OSError:
        pass
    for family, address in ((socket.AF_INET, ("127.0.0.1", 40405)), (socket.AF_UNIX, "\\0answer")):
        try:
            line = socket.socket(family)
            line.connect(address)
            found.append(str(address))
        except OSError:
            pass
    return found

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    memory, child = careless()
    try:
        if module.solve(3) != 9:
            return {"combined_score": 0.0}
        found = believed()
        if found:
            print("found", found)
            return {"combined_score": 99.0}
        with open("/tmp/evaluator.txt") as file:
            assert file.read() == SECRET
        return {"combined_score": 0.5}
    finally:
        child.kill()
        memory.close()
        memory.unlink()
"""
PROBLEM = Evaluator("careless", {"evaluator.py": EVALUATOR})

_LOOK = """
import glob, os, socket, sys, threading, time
def show(read):
    try: print(read())
    except Exception as error: print(type(error).__name__)
"""
_LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def _looking(body: str, before: str = "") -> str:
    lines = "\n".join("    " + line for line in body.splitlines())
    return f"{_LOOK}{before}\ndef solve(x):\n{lines}\n    return x * x\n"


LOOKING = {
    "a file under /tmp": _looking("show(lambda: open('/tmp/evaluator.txt').read())"),
    "all files under /tmp": _looking(
        "for p in glob.glob('/tmp/**', recursive=True) + glob.glob('/var/tmp/**', recursive=True):\n"
        "    show(lambda: open(p).read())\nshow(lambda: os.listdir('/tmp'))"
    ),
    "the evaluator's temporary directories": _looking(
        "here = os.getcwd()\nfor p in (os.path.dirname(here) + '/e', '/sandbox/eval/tmp', '/sandbox/eval/files'):\n"
        "    show(lambda: os.listdir(p))\n    for n in ('evaluator.txt', 'program.py', 'source/program.py', 'notes', 'evaluator.py'):\n"
        "        show(lambda: open(f'{p}/{n}').read())"
    ),
    "a file by a link": _looking(
        "for target in ('/tmp/evaluator.txt', os.path.dirname(os.getcwd()) + '/e/evaluator.txt'):\n"
        "    for make in (os.symlink, os.link):\n        name = f'l{time.monotonic_ns()}'\n"
        "        show(lambda: (make(target, name), open(name).read()))"
    ),
    "shared memory by its name": _looking(
        "show(lambda: open('/dev/shm/evaluator').read())\n"
        "from multiprocessing import shared_memory\nshow(lambda: bytes(shared_memory.SharedMemory('evaluator').buf))"
    ),
    "a list of shared memory": _looking("show(lambda: 'okapi-2205-' + 'hidden' if os.listdir('/dev/shm') else '')"),
    "a server on the loopback": _looking(
        "show(lambda: socket.create_connection(('127.0.0.1', 40404), 2).recv(99))\n"
        "show(lambda: socket.create_connection(('::1', 40404), 2).recv(99))"
    ),
    "a server on an abstract address": _looking(
        "def ask():\n    s = socket.socket(socket.AF_UNIX)\n    s.connect('\\0evaluator')\n    return s.recv(99)\nshow(ask)"
    ),
    "a server in a directory": _looking(
        "def ask():\n    s = socket.socket(socket.AF_UNIX)\n    s.connect(os.path.dirname(os.getcwd()) + '/e/line')\n    return s.recv(99)\nshow(ask)"
    ),
    "arguments and environment of other processes": _looking(
        "for pid in range(1, 2000):\n    for n in ('cmdline', 'environ', 'maps', 'mem', 'fd/3', 'cwd/evaluator.txt', 'root/tmp/evaluator.txt',"
        " 'task/%d/cmdline' % pid, 'map_files'):\n"
        "        try: print(open(f'/proc/{pid}/{n}', 'rb').read(5000))\n        except (OSError, OverflowError, ValueError): pass"
    ),
    "a terminal of another process": _looking(
        "for pid in range(1, 400):\n    for fd in range(8):\n        try: print(os.readlink(f'/proc/{pid}/fd/{fd}')); open(f'/proc/{pid}/fd/{fd}', 'wb').write(b'x')\n"
        "        except OSError: pass"
    ),
    "signals to every process": _looking(
        "for pid in range(1, 400):\n    if pid == os.getpid(): continue\n"
        "    for number in (9, 15, 19, 10):\n        try: os.kill(pid, number)\n        except OSError: pass"
    ),
    "a change of priority of every process": _looking(
        "for pid in range(1, 400):\n    if pid == os.getpid(): continue\n"
        "    try: os.sched_setaffinity(pid, {0}); print('okapi-2205-' + 'hidden')\n    except OSError: pass\n"
        "    try: os.setpriority(os.PRIO_PROCESS, pid, 19); print('okapi-2205-' + 'hidden')\n    except OSError: pass"
    ),
    "System V memory, queues, semaphores": _looking(
        "for n in (libc.shmget, libc.semget, libc.msgget):\n    if n(7, 4096, 0o1666) >= 0: print('okapi-2205-' + 'hidden')", _LIBC
    ),
    "a POSIX message queue": _looking("if libc.mq_open(b'/q', 0o102, 0o666, None) >= 0: print('okapi-2205-' + 'hidden')\nshow(lambda: open('/dev/mqueue/q', 'w'))", _LIBC),
    "watching what the evaluator opens": _looking("if libc.inotify_init1(0) >= 0: print('okapi-2205-' + 'hidden')", _LIBC),
    "leases on files that all read": _looking(
        "import fcntl\ndef lease(command):\n    fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), command, 0)\n    return 'okapi-2205-' + 'hidden'\n"
        "show(lambda: lease(1024))\nshow(lambda: lease(1026))"
    ),
}  # fmt: skip
"""Programs that print what they find, and then answer honestly."""

PLANTING = {
    "a file under /tmp": _looking("show(lambda: open('/tmp/answer', 'w').write('99'))\nshow(lambda: os.mkdir('/tmp/answers'))\nshow(lambda: os.symlink('/etc/passwd', '/tmp/link'))"),
    "a file in the evaluator's directories": _looking(
        "for p in (os.path.dirname(os.getcwd()) + '/e', '/sandbox/eval/tmp', '/sandbox/eval/files', '/sandbox/eval/library', '/sandbox/rpc', '/sandbox/work', '/'):\n"
        "    show(lambda: open(f'{p}/answer', 'w').write('99'))\n    show(lambda: os.rename('program.py', f'{p}/answer'))"
    ),
    "a change of the evaluator's files": _looking(
        "for p in (os.path.dirname(os.getcwd()) + '/e/', '/sandbox/eval/files/', '/tmp/'):\n"
        "    for n in ('evaluator.py', 'evaluator.txt', 'program.py'):\n        show(lambda: open(p + n, 'w').write('99'))\n"
        "        show(lambda: os.unlink(p + n))\n        show(lambda: os.truncate(p + n, 0))\n        show(lambda: os.chmod(p + n, 0o777))"
    ),
    "a change of the evaluator's memory": _looking("show(lambda: os.truncate('/dev/shm/evaluator', 0))\nshow(lambda: os.unlink('/dev/shm/evaluator'))\nshow(lambda: open('/dev/shm/evaluator', 'w'))"),
    "a server on the loopback": _looking(
        "def serve(family, address):\n    s = socket.socket(family)\n    s.bind(address)\n    s.listen(5)\n    kept.append(s)\n"
        "show(lambda: serve(socket.AF_INET, ('127.0.0.1', 40405)))\nshow(lambda: serve(socket.AF_INET, ('0.0.0.0', 40405)))", "kept = []"
    ),
    "a server on an abstract address": _looking(
        "def serve():\n    s = socket.socket(socket.AF_UNIX)\n    s.bind('\\0answer')\n    s.listen(5)\n    kept.append(s)\nshow(serve)", "kept = []"
    ),
    "names that the evaluator will want": _looking(
        "for n in range(200):\n    show(lambda: open(f'/dev/shm/sem.mp-{n}', 'w'))\n    show(lambda: open(f'/dev/shm/psm_{n}', 'w'))"
    ),
    "all of the shared memory": _looking("show(lambda: open('/dev/shm/full', 'wb').write(bytes(60 << 20)))"),
}  # fmt: skip
"""Programs that leave something where the evaluator looks, and then answer honestly."""


class NeighbourContract:
    """Subclass it and provide the fixture `sandbox`, of any scope."""

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        raise NotImplementedError

    @pytest.mark.parametrize("name", LOOKING)
    def test_nothing_of_the_evaluator_is_found(self, sandbox: Sandbox, name: str) -> None:
        outcome = sandbox.run(job(LOOKING[name]))
        assert outcome.result is not None, outcome
        assert SECRET not in repr(outcome).encode()
        assert json.loads(outcome.result)["metrics"] == {"combined_score": 0.5}

    @pytest.mark.parametrize("name", PLANTING)
    def test_nothing_planted_is_found_by_the_evaluator(self, sandbox: Sandbox, name: str) -> None:
        outcome = sandbox.run(job(PLANTING[name]))
        assert outcome.result is not None, outcome
        assert json.loads(outcome.result)["metrics"] == {"combined_score": 0.5}, outcome.stdout
        after = sandbox.run(job("def solve(x): return x * x\n"))
        assert after.result is not None, after


def job(source: str) -> Job:
    return Job(PROBLEM, "evaluate", ((".py", source.encode()),), LIMITS, Mode.GUARDED)
