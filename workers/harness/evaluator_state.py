"""Decides whether the process of an evaluator that measured one program may measure the next.

It may if the next program finds what it would find in a fresh process.  What a trial is expected to
change is put back: environment, search path, streams, modules and texts of the trial.  Everything
else that can be read is compared with what it was after the import: the evaluator's modules with
all values in them, the names of the modules that it uses, signals, limits.  A process in which
anything differs, or that has threads, children or descriptors left, ends.

What only compiled code holds, or a module that the evaluator does not name, is not seen here; see
`library_state` for what libraries are asked.
"""

from __future__ import annotations

import contextlib
import decimal
import functools
import gc
import hashlib
import linecache
import operator
import os
import random
import re
import resource
import signal
import sys
import types
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import limits

_MOST_LEAVES = 5000
_MOST_HASHED_BYTES = 1 << 20
_DEEPEST = 60
_STAND_INS = frozenset({"openevolve", "funsearch", "shinka"})
_GROWTH_KIB = 32 << 10
"""Memory beyond which a trial ends its process, so that no garbage of it is left to the next."""

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(...)})
_UNCHANGING = (
    types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType, types.GenericAlias,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.MethodWrapperType, types.UnionType, weakref.ReferenceType, re.Pattern, range, slice,
)  # fmt: skip
_UNCHANGING_MODULES = frozenset({"typing", "_abc", "_thread"})
_NOT_STATE = frozenset({"__builtins__", "__spec__", "__loader__", "__cached__", "__slotnames__"})
"""Names that the interpreter sets; the last one when an object of a class is first taken apart."""
# `_signal` makes no enumerations, which take longer than the call.
_handler = vars(signal)["_signal"].getsignal
_SIGNALS = sorted(map(int, signal.valid_signals()))
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = (
    resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE,
    resource.RLIMIT_NPROC, resource.RLIMIT_STACK, resource.RLIMIT_CORE,
)  # fmt: skip


class Unreadable(Exception):
    """Holds a value whose state cannot be compared, or more of it than is worth comparing."""


class ModuleState:
    """The values that an evaluator's modules held after their import.

    Args:
      root: The evaluator's directory: modules of files in it are its own.
      others: Other packages that it may import; those of the standard library, too.  Any other may
        have a state that is neither read nor seeded, such as the generator of a tensor library.

    Raises:
      Unreadable: They cannot be compared.
    """

    def __init__(self, root: str, others: frozenset[str]) -> None:
        self._root = root + os.sep
        self._others = others | sys.stdlib_module_names | _STAND_INS
        self._modules = dict(sys.modules)
        self._own = _modules_below(self._root, {})
        self._check_packages(sys.modules.keys() - set(self._own))
        self._leaves = self._read(self._own)

    def unchanged(self) -> bool:
        """Returns whether the same values are there now; equal ones count as the same."""
        found = map(sys.modules.get, self._modules)
        if not all(map(operator.is_, found, self._modules.values())):
            return False
        new = _modules_below(self._root, self._modules)
        try:
            self._check_packages(sys.modules.keys() - self._modules.keys() - set(new))
            now = self._read([*self._own, *new])
        except Unreadable:
            return False
        if len(now) != len(self._leaves):
            return False
        others = [pair for pair in zip(self._leaves, now, strict=True) if pair[0] is not pair[1]]
        return all(type(a) is type(b) and type(a) in _PLAIN and a == b for a, b in others)

    def _check_packages(self, modules: Iterable[str]) -> None:
        """Raises Unreadable if modules of others belong to a package that may not be imported."""
        if not packages(modules) <= self._others:
            raise Unreadable

    def _read(self, own: list[str]) -> list[Any]:
        walk = _Walk(frozenset(own))
        for name in own:
            walk.leaves.append(name)
            walk.read(sys.modules[name], 0)
        walk.read(list(warnings.filters), 0)
        for module in (*walk.used, sys.modules["builtins"]):
            for name, value in vars(module).items():
                if not name.startswith("_") and not isinstance(value, types.ModuleType):
                    walk.leaves += (name, value)
        return walk.leaves


def packages(modules: Iterable[str]) -> frozenset[str]:
    """Returns the names of the packages that modules belong to."""
    return frozenset(name.partition(".")[0] for name in modules)


def _modules_below(folder: str, known: Mapping[str, types.ModuleType]) -> list[str]:
    """Returns the names of the modules whose files are in a folder, without those of `known`."""
    found = [pair for pair in list(sys.modules.items()) if known.get(pair[0]) is not pair[1]]
    return [name for name, module in found if _is_below(folder, module)]


def _is_below(folder: str, module: types.ModuleType) -> bool:
    of_package = vars(module).get("__path__") or ()
    places = [vars(module).get("__file__"), *map(str, of_package)]
    return any(str(place).startswith(folder) for place in places)


class _Walk:
    """Flattens values to leaves: two walks with the same leaves have read equal values.

    A leaf is compared by identity, or by value if it is plain.

    Attributes:
      used: Modules of others that the values name.
    """

    def __init__(self, own_modules: frozenset[str]) -> None:
        self.leaves: list[Any] = []
        self.used: list[types.ModuleType] = []
        self._own = own_modules
        self._numbers: dict[int, int] = {}
        # An object numbered by its address has to stay alive.
        self._kept: list[Any] = []
        self._hashed_bytes = 0
        self._seeded = _seeded_before_each_trial()

    def read(self, value: Any, depth: int) -> None:
        kind = type(value)
        self.leaves.append(kind)
        if kind in _PLAIN:
            self.leaves.append(value)
            return
        if len(self.leaves) > _MOST_LEAVES or depth > _DEEPEST:
            raise Unreadable
        if id(value) in self._numbers:
            self.leaves.append(self._numbers[id(value)])
            return
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        if kind is dict:
            self._all([part for pair in value.items() for part in pair], len(value), depth)
        elif kind in (list, tuple, set, frozenset):
            self._all(value, len(value), depth)
        elif kind is bytearray:
            self._hash(value)
        elif isinstance(value, types.ModuleType):
            self._module(value, depth)
        elif isinstance(value, type):
            self._class(value, depth)
        elif self._unchanging(value, kind):
            self.leaves.append(value)
        elif kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            self._array(value, depth)
        else:
            self._all(_parts(value, kind), 0, depth)

    def _all(self, values: Iterable[Any], count: int, depth: int) -> None:
        self.leaves.append(count)
        for value in values:
            self.read(value, depth + 1)

    def _module(self, module: types.ModuleType, depth: int) -> None:
        self.leaves.append(module)
        if module.__name__ in self._own:
            self._all(_names(module), 0, depth)
        else:
            self.used.append(module)

    def _class(self, made: type[Any], depth: int) -> None:
        self.leaves.append(made)
        if made.__module__ in self._own:
            self._all(_names(made), 0, depth)
            self._all(made.__bases__, 0, depth)

    def _unchanging(self, value: Any, kind: type[Any]) -> bool:
        return (
            isinstance(value, _UNCHANGING)
            or kind.__module__ in _UNCHANGING_MODULES
            or any(value is seeded for seeded in self._seeded)
        )

    def _array(self, array: Any, depth: int) -> None:
        self._all((array.shape, str(array.dtype)), 0, depth)
        if array.dtype.hasobject:
            self.read(array.tolist(), depth + 1)
        elif self._hashed_bytes + array.nbytes > _MOST_HASHED_BYTES:
            raise Unreadable
        else:
            self._hash(array.tobytes())

    def _hash(self, contents: bytes | bytearray) -> None:
        self._hashed_bytes += len(contents)
        if self._hashed_bytes > _MOST_HASHED_BYTES:
            raise Unreadable
        self.leaves.append(hashlib.blake2b(contents, digest_size=16).digest())


def _names(place: Any) -> list[Any]:
    """Returns the names of a module or class, each followed by its value."""
    return [
        part for pair in list(vars(place).items()) if pair[0] not in _NOT_STATE for part in pair
    ]


def _parts(value: Any, kind: type[Any]) -> tuple[Any, ...]:
    """Returns what a value that is not a container consists of."""
    if kind is types.FunctionType:
        closed = list(value.__closure__ or ())
        return value.__code__, value.__defaults__, value.__kwdefaults__, value.__dict__, closed
    if kind is types.CellType:
        try:
            return (value.cell_contents,)
        except ValueError:
            # The cell has no value yet.
            return ()
    if kind is types.MethodType:
        return value.__func__, value.__self__
    if kind in (staticmethod, classmethod):
        return (value.__func__,)
    if kind is property:
        return value.fget, value.fset, value.fdel
    if kind is functools._lru_cache_wrapper:
        return value.cache_info().currsize, value.__wrapped__
    if kind is types.MappingProxyType:
        return (dict(value),)
    if kind is types.BuiltinFunctionType:
        return value.__name__, value.__self__
    # Asked for first, which makes it: `__reduce__` of a class may leave it out.
    attributes = getattr(value, "__dict__", None)
    try:
        reduced = value.__reduce_ex__(2)
    except Exception:
        # The value is a file, a generator or of a class that forbids copies.
        raise Unreadable from None
    # A string names an object of which there is only one.
    if isinstance(reduced, str):
        return reduced, attributes
    return attributes, *(list(part) if isinstance(part, Iterator) else part for part in reduced)


def _seeded_before_each_trial() -> tuple[Any, ...]:
    """Returns the generators that `confine.reseed` puts into a known state."""
    of_module = vars(random)["_inst"]
    legacy = sys.modules.get("numpy.random.mtrand")
    return (of_module,) if legacy is None else (of_module, vars(legacy)["_rand"])


@dataclass(frozen=True)
class CpuAndMemory:
    """What this process and the children that it waited for have used."""

    cpu_seconds: float
    peak_kib: int

    @staticmethod
    def now() -> CpuAndMemory:
        own = resource.getrusage(resource.RUSAGE_SELF)
        of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = (own.ru_utime, own.ru_stime, of_children.ru_utime, of_children.ru_stime)
        return CpuAndMemory(sum(used), max(own.ru_maxrss, of_children.ru_maxrss))


class ProcessState:
    """What a process of an evaluator has outside its modules, before its first trial.

    Args:
      work: Directory of all trials.

    Raises:
      OSError: `/proc` cannot be read.
    """

    def __init__(self, work: str) -> None:
        self._work = work + os.sep
        self._modules = dict(sys.modules)
        self._environment = dict(os.environ)
        self._path, self._arguments = list(sys.path), list(sys.argv)
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._arithmetic = decimal.getcontext().copy()
        self._of_process = _of_process()
        self._peak_kib = CpuAndMemory.now().peak_kib

    def unchanged_but_for_the_trial(self) -> bool:
        """Puts back what each trial changes; returns whether nothing else has changed."""
        limits.set_environment(self._environment)
        sys.path[:], sys.argv[:] = self._path, self._arguments
        sys.stdin, sys.stdout, sys.stderr = self._streams
        decimal.setcontext(self._arithmetic.copy())
        for name in _modules_below(self._work, self._modules):
            del sys.modules[name]
        for path in [path for path in linecache.cache if path.startswith(self._work)]:
            del linecache.cache[path]
        forget_temporary_directory(self._work)
        if any(stream.closed for stream in self._streams) or _has_children():
            return False
        if CpuAndMemory.now().peak_kib > self._peak_kib + _GROWTH_KIB:
            return False
        with contextlib.suppress(OSError):
            if _of_process() == self._of_process:
                return True
            # A cycle may still hold a file open.
            gc.collect()
            return _of_process() == self._of_process
        return False


def forget_temporary_directory(within: str) -> None:
    """Has `tempfile` look for its directory again if it has settled on one under `within`."""
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None and str(vars(tempfile).get("tempdir")).startswith(within):
        vars(tempfile)["tempdir"] = None


def _has_children() -> bool:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
        return True
    return False


def _of_process() -> tuple[Any, ...]:
    """Returns the numbers of descriptors and threads, signals, limits and settings of this process.

    Raises:
      OSError: `/proc` cannot be read.
    """
    return (
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        list(map(_handler, _SIGNALS)),
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        [signal.getitimer(timer) for timer in _TIMERS],
        [resource.getrlimit(limit) for limit in _LIMITS],
        resource.getrlimit(resource.RLIMIT_CPU)[1],
        os.getpriority(os.PRIO_PROCESS, 0),
        (sys.getrecursionlimit(), sys.gettrace(), sys.getprofile(), gc.isenabled()),
    )
