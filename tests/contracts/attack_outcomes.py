"""The permitted results of each attack in guarded mode, and in compatible mode where it applies.

More than one outcome is right only where two processes race, or where backends bound a thing
differently: memory in files is counted by a container's cgroup and refused without one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from app.domain.evaluation import FailureKind as Kind

AttackResult: TypeAlias = Kind | Literal["honest", "wrong"]

HONEST: frozenset[AttackResult] = frozenset({"honest"})
"""The score of what the program really does."""
WRONG: frozenset[AttackResult] = frozenset({"wrong"})
"""No case is right."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Of one attack; without `compatible` it is made in guarded mode only."""

    guarded: frozenset[AttackResult] | set[Kind]
    compatible: frozenset[AttackResult] | set[Kind] = frozenset()


def same(outcomes: frozenset[AttackResult] | set[Kind]) -> Outcomes:
    """Returns the outcomes of an attack that comes to the same in both modes."""
    return Outcomes(outcomes, outcomes)


OVERCOMMITTED = Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1"
"""Whether the kernel grants any address space, as it does on each machine with a kubelet."""
UNTOUCHED = WRONG if OVERCOMMITTED else {Kind.MEMORY}
"""Of address space that no memory is ever needed for."""
OUTCOMES: dict[str, Outcomes] = {
    "json on stdout": Outcomes(HONEST),
    "json on stderr": Outcomes(HONEST),
    "result files": Outcomes(HONEST),
    "frames on every descriptor": Outcomes({Kind.INVALID_RESULT}),
    "exit after writing everywhere": Outcomes({Kind.INVALID_RESULT}),
    "a late thread": Outcomes(HONEST | {Kind.INVALID_RESULT}),
    "atexit": Outcomes(HONEST),
    "patched json": Outcomes(HONEST),
    "patched builtins": Outcomes({Kind.RUNTIME}),
    "patched clock": Outcomes(HONEST),
    "frame walking": Outcomes(HONEST),
    "garbage collector scan": Outcomes(HONEST),
    "import the evaluator": Outcomes(HONEST),
    "read hidden files": Outcomes(HONEST),
    "roots in proc": Outcomes(HONEST),
    "own memory scan": Outcomes(HONEST),
    "settrace": Outcomes(HONEST),
    "interval timer": Outcomes(HONEST),
    "import hook": Outcomes(HONEST),
    "rewritten protocol": Outcomes({Kind.RUNTIME}),
    "forged answers on the socket": Outcomes({Kind.INVALID_RESULT}),
    "huge frame length": Outcomes({Kind.INVALID_RESULT}),
    "always equal": Outcomes(WRONG),
    "float subclass": Outcomes(WRONG),
    "int subclass": Outcomes(WRONG),
    "NaN": same(WRONG),
    "infinity": same(WRONG),
    "complex": same(WRONG),
    "big integer": Outcomes({Kind.INVALID_RESULT}, WRONG),
    "deep list": Outcomes({Kind.INVALID_RESULT}, WRONG),
    "cyclic list": Outcomes({Kind.INVALID_RESULT}, WRONG),
    "giant value": Outcomes({Kind.INVALID_RESULT}, WRONG),
    "generator without end": same(WRONG),
    "coroutine": same(WRONG),
    "pickle payload": same(WRONG),
    "not callable": same({Kind.INVALID_SIGNATURE}),
    "wrong arity": same({Kind.INVALID_SIGNATURE}),
    "a class that takes nothing": same({Kind.INVALID_SIGNATURE}),
    "lone surrogates": same(WRONG),
    "exception that cannot be printed": same({Kind.RUNTIME}),
    "giant exception": same({Kind.RUNTIME}),
    "base exception": same({Kind.RUNTIME}),
    "recursion": same({Kind.RUNTIME}),
    "parser bomb": same({Kind.SYNTAX}),
    "bad encoding": same({Kind.SYNTAX}),
    "fork bomb": same({Kind.TIMEOUT, Kind.MEMORY}),
    "fork bomb that leaves its session": same({Kind.TIMEOUT, Kind.MEMORY}),
    "fork bomb of another program": same({Kind.TIMEOUT, Kind.MEMORY}),
    "thread bomb": same({Kind.RUNTIME}),
    "descriptor exhaustion": same({Kind.RUNTIME}),
    "disk fill": same({Kind.OUTPUT_LIMIT}),
    "giant file": same({Kind.OUTPUT_LIMIT}),
    "inode fill": same({Kind.OUTPUT_LIMIT}),
    "deep directories": same(HONEST),
    "kill everything": same({Kind.RUNTIME}),
    "stop the parent": same(HONEST),
    "stop itself": same({Kind.TIMEOUT}),
    "fork double return": same(HONEST | {Kind.INVALID_RESULT}),
    "parent leaves, child returns": same(HONEST | {Kind.RUNTIME}),
    "exec of a shell": same({Kind.RUNTIME}),
    "tiny prints for ever": same({Kind.OUTPUT_LIMIT}),
    "no newline flood": same({Kind.OUTPUT_LIMIT}),
    "catastrophic regex": same({Kind.TIMEOUT}),
    "memory block by block": same({Kind.MEMORY}),
    "raise the limits": same({Kind.RUNTIME}),
    "become root": same({Kind.RUNTIME}),
    "ptrace": same({Kind.SANDBOX_VIOLATION}),
    "read another's memory": same({Kind.SANDBOX_VIOLATION}),
    "mount": same({Kind.SANDBOX_VIOLATION}),
    "unshare": same({Kind.SANDBOX_VIOLATION}),
    "chroot": same({Kind.SANDBOX_VIOLATION}),
    "keyring": same({Kind.SANDBOX_VIOLATION}),
    "io_uring": same(HONEST),
    "bpf": same({Kind.SANDBOX_VIOLATION}),
    "perf": same(HONEST),
    "userfaultfd": same(HONEST),
    "shared memory segment": same(HONEST),
    "message queue": same(HONEST),
    "raw socket": same(HONEST),
    "vsock": same(HONEST),
    "kernel crypto socket": same(HONEST),
    "set the clock": same({Kind.RUNTIME}),
    "resolve a name": same({Kind.RUNTIME}),
    "connect out": same({Kind.RUNTIME}),
    "the engine's socket": same({Kind.RUNTIME}),
    "millions of empty lists": Outcomes({Kind.INVALID_RESULT}),
    "millions of empty tables": Outcomes({Kind.INVALID_RESULT}),
    "nested without end": Outcomes({Kind.INVALID_RESULT}),
    "an integer of millions of digits": Outcomes({Kind.INVALID_RESULT}),
    "an array of objects": Outcomes({Kind.INVALID_RESULT}),
    "an array larger than its bytes": Outcomes({Kind.INVALID_RESULT}),
    "an array of many dimensions": Outcomes({Kind.INVALID_RESULT}),
    "texts of no characters": Outcomes({Kind.INVALID_RESULT}),
    "a handle nobody gave": Outcomes({Kind.INVALID_RESULT}),
    "a handle of another kind": Outcomes({Kind.INVALID_RESULT}),
    "an end of iteration": Outcomes({Kind.INVALID_RESULT}),
    "an answer to the next request": Outcomes({Kind.INVALID_RESULT}),
    "a callback nobody passed": Outcomes({Kind.TIMEOUT}),
    "a callback that is no number": Outcomes({Kind.TIMEOUT}),
    "an unknown kind of failure": Outcomes({Kind.INVALID_RESULT}),
    "a failure of the machinery": Outcomes({Kind.INVALID_RESULT}),
    "a frame that never comes whole": Outcomes({Kind.TIMEOUT}),
    "keys that collide": Outcomes({Kind.TIMEOUT}),
    "the same answer for ever": Outcomes({Kind.INVALID_RESULT}),
    "descriptors left open": same(HONEST),
    "the evaluator's sockets": same(HONEST),
    "limits and priorities of others": same(HONEST),
    "links to what is hidden": Outcomes(HONEST),
    "links and pipes left behind": same(HONEST),
    "memory in files of memory": same(HONEST | {Kind.MEMORY}),
    "a module of the evaluator's name": Outcomes(HONEST),
    "a priority of nothing": same(HONEST),
    "a terminal's writing": same(HONEST),
    "closed and replaced streams": Outcomes(HONEST),
    "a module in place of the program's": same(HONEST),
    "objects that compute": Outcomes(WRONG),
    "an array that equals": Outcomes(WRONG),
    "an array of one object": Outcomes(WRONG),
    "a generator that ends the loop": same({Kind.RUNTIME}),
    "a generator that is closed": same({Kind.RUNTIME}),
    "a text of many commas": same(WRONG),
    "a legal value of 60 MB": same(WRONG | {Kind.TIMEOUT}),  # a crowded machine is slower
    "a NumPy number": same(HONEST),
    "an exception with a nameless class": same({Kind.RUNTIME}),
    "an exception that says it is another": same({Kind.MEMORY}),
    "a timer during a call": same({Kind.RUNTIME}),
    "timers that outlive a call": same(HONEST),
    "a socket put in place of its own": Outcomes({Kind.RUNTIME}, HONEST),
    "half of a line closed": Outcomes({Kind.RUNTIME}, HONEST),
    "descriptors sent along": Outcomes({Kind.INVALID_RESULT}, HONEST),
    "every descriptor closed": same({Kind.RUNTIME}),
    "descriptors in flight": same(HONEST),
    "a chain of 100,000 exceptions": same({Kind.RUNTIME}),
    "an exception class without a name": same({Kind.RUNTIME}),
    "an exception whose parts raise": same({Kind.RUNTIME}),
    "a file name that ends the program": same({Kind.RUNTIME}),
    "a traceback of 100,000 calls": same({Kind.RUNTIME}),
    "a docstring of its own class": Outcomes({Kind.RUNTIME}),
    "code of another place": same(HONEST),
    "names that are none": same(HONEST),
    "hundreds of thousands of names": Outcomes({Kind.MEMORY, Kind.TIMEOUT}),
    "hundreds of thousands of objects": Outcomes(WRONG | {Kind.MEMORY, Kind.TIMEOUT}),
    "objects without end": same(WRONG),
    "lines of a log": same(HONEST),
    "its own file replaced": same(HONEST),
    "the rank among the OOM killer's": same({Kind.RUNTIME}),
    "daemons": same(HONEST),
    "files in shared memory": same(HONEST),
    "CPU time of children": same({Kind.TIMEOUT}),
    "deaf to the end of its CPU time": same({Kind.TIMEOUT}),
    "a core dump": same({Kind.RUNTIME}),
    "another interpreter": same({Kind.TIMEOUT}),
    "address space": same(UNTOUCHED),
    "memory shared without a name": same({Kind.MEMORY, Kind.TIMEOUT}),
    "memory of sockets": same({Kind.MEMORY, Kind.TIMEOUT}),
    "memory of pipes": same({Kind.RUNTIME, Kind.MEMORY, Kind.TIMEOUT}),
    "modes of what is around it": same(HONEST),
    "attributes and owners of what is around it": same(HONEST),
    "messages beside it": same(HONEST),
    "blocks without a size": same(HONEST),
    "memory of a device": same({Kind.MEMORY, Kind.RUNTIME}),
    "locks of ranges": same(HONEST),
    "timers without end": same(HONEST),
    "watches without end": same(HONEST),
    "queues of messages": same(HONEST),
    "a key": same({Kind.SANDBOX_VIOLATION}),
    "writers beyond the deadline": same({Kind.TIMEOUT}),
    "empty files in every place": same(HONEST),
    "pipes in place of files": same(HONEST),
    "a traceback that reads a pipe": same({Kind.TIMEOUT}),
    "many small files": same({Kind.OUTPUT_LIMIT}),
    "one large file by parts": same({Kind.OUTPUT_LIMIT}),
    "files of many processes": same({Kind.OUTPUT_LIMIT, Kind.TIMEOUT}),
    "files without a name": same({Kind.OUTPUT_LIMIT}),
    "mapped files without a name": same({Kind.OUTPUT_LIMIT}),
    "files in flight": same({Kind.OUTPUT_LIMIT}),
    "a closed directory": same({Kind.OUTPUT_LIMIT}),
    "shared memory of many processes": same({Kind.MEMORY}),
    "shared memory of processes that have ended": same({Kind.MEMORY}),
    "shared memory unmapped but for a page": same({Kind.MEMORY}),
    "one large block of shared memory": same({Kind.MEMORY}),
    "tables of pages": same({Kind.MEMORY}),
    "asynchronous contexts": same(HONEST),
    "buffers of many processes": same({Kind.MEMORY, Kind.TIMEOUT}),
    "pages in pipes": same({Kind.MEMORY, Kind.TIMEOUT}),
    "data that nobody accepts": same({Kind.MEMORY, Kind.TIMEOUT}),
    "mappings of many processes": same({Kind.MEMORY, Kind.TIMEOUT}),
    "a process that cannot be read": same({Kind.TIMEOUT}),
}

IN_THE_ZYGOTE: dict[str, Outcomes] = {
    "files of many processes": same({Kind.OUTPUT_LIMIT}),
    "files in flight": same({Kind.RUNTIME}),
    "a closed directory": same({Kind.OUTPUT_LIMIT, Kind.SANDBOX_VIOLATION}),
    "buffers of many processes": same({Kind.MEMORY}),
    "pages in pipes": same({Kind.MEMORY}),
    "data that nobody accepts": same({Kind.RUNTIME}),
    "mappings of many processes": same({Kind.MEMORY, Kind.TIMEOUT}),
    "a process that cannot be read": same({Kind.TIMEOUT, Kind.SANDBOX_VIOLATION}),
    # Where the zygote has too little of the processors to look in time, the program ends first.
    "locks of ranges": same(HONEST | {Kind.MEMORY}),
    "empty files in every place": same({Kind.OUTPUT_LIMIT}),
    # 3,000 of them, which the zygote may find too many before the program ends.
    "deep directories": same(HONEST | {Kind.OUTPUT_LIMIT}),
    # Their buffers keep the machine's size, so that descriptors end first: 26 MiB a process.
    "memory of sockets": same({Kind.RUNTIME}),
    "descriptors sent along": Outcomes({Kind.RUNTIME}, HONEST),
    # Landlock hides /proc.
    "own memory scan": Outcomes({Kind.RUNTIME}),
    "descriptors left open": same({Kind.RUNTIME}),
    # The identity of a worker that is root, without its capabilities.
    "become root": same(HONEST | {Kind.RUNTIME}),
}
"""In "bare", where no cgroup and no file system of its own bounds a trial, and its zygote does.

A zygote with all rights of root can read any process, which then ends at its deadline.
"""
