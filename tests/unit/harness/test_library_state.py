"""Which changes of the state of libraries are seen after a trial."""

import json
import subprocess
import sys
from types import ModuleType

import pytest

from workers.harness.library_state import LibraryState

CHANGES = {
    "treatment of errors": "numpy.seterr(all='raise')",
    "handler of errors": "numpy.seterrcall(lambda *a: None)",
    "print options": "numpy.set_printoptions(precision=2)",
    "formatter": "numpy.set_printoptions(formatter={'int': str})",
    "buffers": "numpy.setbufsize(16384)",
    "locale": "locale.setlocale(locale.LC_ALL, 'C.UTF-8' if plain else 'C')",
    "root logger": "logging.basicConfig(level=logging.DEBUG)",
    "handler of the root logger": "logging.getLogger().addHandler(logging.NullHandler())",
    "new logger": "logging.getLogger('own').setLevel(logging.DEBUG)",
    "name of a level": "logging.addLevelName(35, 'ODD')",
    "all loggers": "logging.disable(logging.ERROR)",
    "digits of an integer": "sys.set_int_max_str_digits(5000)",
    "time of a thread": "sys.setswitchinterval(0.5)",
    "collector": "gc.set_threshold(1)",
    "callback of the collector": "gc.callbacks.append(print)",
    "finder": "sys.meta_path.insert(0, print)",
    "hook": "sys.excepthook = print",
    "time zone": "os.environ['TZ'] = 'X-9'; time.tzset()",
    "time-out of sockets": "socket.setdefaulttimeout(1.0)",
    "context variable": "contextvars.ContextVar('own').set(1)",
    "decimal numbers of threads": "decimal.DefaultContext.prec = 5",
    "end of the process": "atexit.register(print)",
    "library that is imported": "import tracemalloc, faulthandler",
}
HARMLESS = {
    "nothing": "pass",
    "a time with other errors": "with numpy.errstate(all='raise'): pass",
    "a logger as it is made": "logging.getLogger('own.child').debug('text')",
    "the decimal context, which is put back": "decimal.getcontext().prec = 5",
}
SCRIPT = """
import atexit, contextvars, decimal, gc, json, locale, logging, os, socket, sys, time
import numpy
from workers.harness.library_state import LibraryState
plain = locale.setlocale(locale.LC_ALL) == 'C'
seen = {}
for what, change in json.loads(sys.argv[1]).items():
    child = os.fork()
    if child == 0:
        state = LibraryState()
        assert state.unchanged()
        exec(change)
        os._exit(not state.unchanged())
    seen[what] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, int]:
    """Returns, for each change, 1 where it is seen; each is made in a process of its own."""
    changes = json.dumps({**CHANGES, **HARMLESS})
    done = subprocess.run([sys.executable, "-c", SCRIPT, changes], capture_output=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_a_library_is_seen(seen: dict[str, int], what: str) -> None:
    assert seen[what] == 1


@pytest.mark.parametrize("what", HARMLESS)
def test_what_leaves_no_trace_is_no_change(seen: dict[str, int], what: str) -> None:
    assert seen[what] == 0


def test_a_library_that_says_nothing_keeps_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", ModuleType("networkx"))

    assert not LibraryState().unchanged()
