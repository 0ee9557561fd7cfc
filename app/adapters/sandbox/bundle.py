"""The source texts of the harness, sent to a sandbox over standard input, and their loader."""

import ast
import functools
import hashlib
import importlib.util
import json
import marshal
import re
import struct
import sys
from collections.abc import Iterable, Mapping
from importlib import resources

from app.domain.source.syntax import syntax_tree

_PACKAGE = "workers.harness"
_LIBRARIES = ("openevolve", "funsearch", "shinka")
"""Packages that evaluators and programs may import: stand-ins with what they need of them."""

# Small, imported by evaluators and programs alike, and safe to fork after importing.
_SAFE_TO_PRELOAD = frozenset(
    {"asyncio", "numpy", "scipy", "pandas", "networkx", "sympy", "sklearn"}
)

_LENGTH = struct.Struct(">I")
_DYNAMIC = (b"numpy", b"__import__", b"importlib.import_module")
_TEXT_OF_A_PROGRAM = b"EVOQ_PROGRAM_SOURCE", b"getsource"
_IMPORT = re.compile(rb"^[ \t]*(?:import[ \t]+([^\n#;]+)|from[ \t]+([\w.]+)[ \t]+import)", re.M)

ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""A zygote's environment: nothing of the worker's, which may hold keys."""

_LOADER = """\
import gc
gc.disable()  # what is imported stays
import builtins, importlib.util, json, marshal, os, struct, sys
sys.path[:] = [p for p in sys.path if p]
def take(n):
    b = b""
    while len(b) < n:
        x = os.read(0, n - len(b))
        if not x:
            os._exit(0)
        b += x
    return b
texts = json.loads(take(struct.unpack(">I", take(4))[0]))
version, compiled = take(4), take(struct.unpack(">I", take(4))[0])
known = version == importlib.util.MAGIC_NUMBER
codes = marshal.loads(compiled) if known else {}
class Finder:  # without the bases in importlib.abc, whose import takes a tenth of a boot
    def find_spec(self, name, path=None, target=None):
        if name == "evoq_harness":
            return importlib.util.spec_from_loader(name, self, is_package=True)
        if name.startswith("evoq_harness."):
            return importlib.util.spec_from_loader(name, self)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = (module.__name__.partition(".")[2] or "__init__") + ".py"
        module.__dict__["__builtins__"] = dict(vars(builtins))
        if name not in codes:
            codes[name] = compile(texts[name], "<harness>/" + name, "exec")
        exec(codes[name], module.__dict__)
sys.meta_path.insert(0, Finder())
"""
BOOTSTRAP = f"{_LOADER}from evoq_harness.zygote import main\nmain(texts, codes, known)\n"
"""The program for `python3 -c`: it reads the harness from standard input and becomes the zygote.

The harness has its own copy of the built-ins: a program that replaces `len` breaks only itself.
"""
_FROM_A_FILE = """\
import os, sys, zlib
fd = os.memfd_create("input")
# What is decompressed stays in the memory of this child.
if not os.fork():
    with open(sys.argv[1], "rb") as packed, open(fd, "wb") as file:
        file.write(zlib.decompress(packed.read()))
    os._exit(0)
if os.wait()[1]:
    sys.exit("the input cannot be read")
for place, mode in zip(sys.argv[2::2], sys.argv[3::2]):
    os.chmod(place, int(mode, 8))
os.lseek(fd, 0, os.SEEK_SET)
os.dup2(fd, 0, inheritable=False)
os.close(fd)
mark = os.environ.pop("EVOQ_NONCE")
"""
LOGGED_BOOTSTRAP = (
    f"{_FROM_A_FILE}{_LOADER}"
    "from evoq_harness.zygote import main\nmain(texts, codes, known, mark)\n"
)
"""The program for `python3 -c` that boots and runs one trial for a log.

Its arguments are a file with all that a zygote reads, compressed, then pairs of a directory and the
access rights that it is to have; the variable EVOQ_NONCE is the mark of its lines.
"""
COMMAND_BOOTSTRAP = f"{_LOADER}from evoq_harness.command import main\nmain()\n"
"""The program for `python3 -c` that reads the harness and runs one command in isolation."""


UNCOMPILED = bytes(8)
"""In place of compiled modules, for `compiled_elsewhere`: the frame is a third as long."""


@functools.cache
def harness_texts() -> Mapping[str, str]:
    """Returns the harness's source texts, by their paths below its package."""
    texts: dict[str, str] = {}
    root = resources.files(_PACKAGE)
    for folder, prefix in ((root, ""), *((root / name, f"{name}/") for name in _LIBRARIES)):
        for file in folder.iterdir():
            if file.name.endswith(".py"):
                texts[prefix + file.name] = file.read_text(encoding="utf-8")
    return texts


@functools.cache
def harness_digest() -> str:
    """Returns a digest of the harness."""
    return hashlib.sha256(json.dumps(harness_texts(), sort_keys=True).encode()).hexdigest()


@functools.cache
def harness_frame() -> bytes:
    """Returns what a zygote reads first."""
    return frame_of(harness_texts())


def frame_of(texts: Mapping[str, str]) -> bytes:
    """Returns the frame of a harness: its texts, and its modules as this interpreter compiles them.

    A zygote of another version of Python compiles them itself, which takes a third of its boot.
    """
    codes = {
        name: compile(text, f"<harness>/{name}", "exec", dont_inherit=True, optimize=0)
        for name, text in texts.items()
        if "/" not in name
    }
    return (
        _sized(json.dumps(texts).encode())
        + importlib.util.MAGIC_NUMBER
        + _sized(marshal.dumps(codes))
    )


def compiled_elsewhere(frame: bytes, compiled: bytes) -> bytes:
    """Returns a harness's frame with what a zygote of the same interpreter has compiled.

    Args:
      frame: The harness's, as `frame_of` makes it.
      compiled: The raw bytes of that zygote's answer to its boot, which are not read here.
    """
    (size,) = _LENGTH.unpack_from(frame)
    return frame[: _LENGTH.size + size] + compiled


def _sized(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


def beyond_the_library(sources: Iterable[bytes], own: Iterable[str] = ()) -> bool:
    """Returns whether Python texts may import more than the standard library.

    Such an import may import NumPy, whose generator is seeded for every trial if it is there.

    Args:
      sources: The texts.
      own: Names of modules that they may import all the same.
    """
    known = {*sys.stdlib_module_names, *_LIBRARIES, *own}
    for source in sources:
        if any(word in source for word in _DYNAMIC):
            return True
        for whole, name in _IMPORT.findall(source):
            names = [name] if name else whole.split(b",")
            if any(_package(part) not in known for part in names):
                return True
    return False


def may_execute_a_programs_text(files: Mapping[str, bytes]) -> bool:
    """Returns whether a guarded evaluator's files name what leads to the text of a program.

    An evaluator that executes it runs the program with its own rights, in its own process.
    """
    return any(word in text for text in files.values() for word in _TEXT_OF_A_PROGRAM)


def _package(imported: bytes) -> str:
    return imported.strip().partition(b" ")[0].partition(b".")[0].decode("ascii", "replace")


def preloads(files: Mapping[str, bytes], numpy: bool) -> list[str]:
    """Returns the modules to import before the fork: those a problem's files need, if safe.

    Args:
      files: The problem's.
      numpy: Whether its programs may import NumPy.
    """
    texts = {name: contents for name, contents in files.items() if name.endswith(".py")}
    own = {part.removesuffix(".py") for name in texts for part in name.split("/")}
    wanted = set()
    if numpy or beyond_the_library(texts.values(), own):
        # numpy imports `numpy.random` only at its first use.
        wanted = {"numpy", "numpy.random"}
    if any(b"async" in contents for contents in texts.values()):
        # The harness runs awaitables with asyncio, and imports no other loop.
        wanted.add("asyncio")
    for contents in texts.values():
        try:
            tree = syntax_tree(contents)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # The sandbox reports the error with its place.
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                # An imported name may be a module too, whose import takes the time.
                wanted |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return sorted(name for name in wanted if name.partition(".")[0] in _SAFE_TO_PRELOAD)
