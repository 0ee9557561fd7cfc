"""Which changes of an evaluator's modules are seen after a trial."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from workers.harness.evaluator_state import ModuleState, Unreadable, packages

TEXT = """
import collections, dataclasses, enum, functools, itertools, math, random, re, threading
from fractions import Fraction
from pathlib import Path
from typing import Optional

@dataclasses.dataclass
class Point:
    x: float = 0.0
    seen: dict = dataclasses.field(default_factory=dict)
class Colour(enum.Enum):
    RED = 1
class Node:
    def __init__(self): self.next = self
class Scorer:
    weights = [1, 2]
    @property
    def total(self): return sum(self.weights)
    @staticmethod
    def of(parts, memo={}): memo[len(parts)] = 1

POINT, NODE, HERE, HALF = Point(), Node(), Path(__file__), Fraction(1, 2)
GENERATOR, COUNT, LOCK = random.Random(3), itertools.count(), threading.Lock()
WORDS, GROUPS = collections.deque(["a"]), collections.defaultdict(list)
PATTERN, MAYBE, NAN = re.compile("a"), Optional[int], math.nan
HALVED = functools.partial(pow, 0.5)
@functools.lru_cache
def squared(x): return x * x
"""


def read(folder: Path) -> ModuleState:
    """Returns the state of modules in a folder; all other packages but one are known."""
    return ModuleState(str(folder), packages(sys.modules) - {"tensors"})


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "measured_by.py"
    path.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("measured_by", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["measured_by"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["measured_by"]


def test_reading_values_changes_none_of_them(module: ModuleType, tmp_path: Path) -> None:
    state = read(tmp_path)
    assert state.unchanged()
    exec("POINT.x = 0.0; GENERATOR.setstate(GENERATOR.getstate()); Scorer().total", vars(module))
    assert state.unchanged()


@pytest.mark.parametrize(
    "change",
    [
        "POINT.x = 1.0", "POINT.seen['a'] = 1", "Scorer.weights.append(3)", "Scorer.of([])",
        "NODE.next = None", "GENERATOR.random()", "next(COUNT)", "WORDS.append('b')",
        "GROUPS['a']", "squared(2)", "Colour.RED.remark = 1", "LATEST = 1", "del HALF",
        "squared = abs", "POINT.x = False", "import json; math.floor = json.dumps",
        "Point.__init__ = lambda self: None", "GENERATOR = random.Random(4)",
    ],
)  # fmt: skip
def test_a_change_of_any_value_is_seen(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr("math.floor", vars(module)["math"].floor)  # put back after the test
    state = read(tmp_path)
    exec(change, vars(module))
    assert not state.unchanged()


@pytest.mark.parametrize(
    "value", ["open(__file__)", "(x for x in [])", "bytearray(2 << 20)", "list(range(9000))"]
)
def test_what_cannot_be_compared_is_refused(module: ModuleType, tmp_path: Path, value: str) -> None:
    exec(f"HELD = {value}", vars(module))
    with pytest.raises(Unreadable):
        read(tmp_path)
    held = vars(module).pop("HELD")
    if hasattr(held, "close"):
        held.close()


def test_a_module_that_is_replaced_is_seen(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = read(tmp_path)
    monkeypatch.setitem(sys.modules, "json", module)
    assert not state.unchanged()


def test_a_package_with_a_state_that_nobody_knows_is_refused(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = read(tmp_path)
    monkeypatch.setitem(sys.modules, "tensors.random", ModuleType("tensors.random"))
    assert not state.unchanged()
    with pytest.raises(Unreadable):
        read(tmp_path)
