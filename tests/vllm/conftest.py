"""The real vLLM, its CPU build, with a tiny model of random weights.

These tests run with the Python of an environment that has vLLM, and skip, saying so, in any other:
`docs/models-internals.md`, "Tests with the real vLLM".
"""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

MODEL_VARIABLE = "EVOQ_TEST_VLLM_MODEL"
_FOLDER = "tests/vllm/"
"""How the names of these tests begin."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the tests that load an engine in this process last: the others fork from it."""
    reason = _missing()
    for item in (item for item in items if item.nodeid.startswith(_FOLDER)):
        item.add_marker(pytest.mark.vllm)
        item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.timeout(1200))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
    items.sort(key=lambda item: item.nodeid.startswith(f"{_FOLDER}test_engine.py"))


def _missing() -> str:
    """Returns what these tests lack; "" where they can run."""
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed in this environment (see docs/models-internals.md)"
    folder = os.environ.get(MODEL_VARIABLE, "")
    if not (Path(folder) / "config.json").exists():
        return f"{MODEL_VARIABLE} names no folder of a model: {folder!r}"
    return ""


@pytest.fixture(scope="session")
def model() -> str:
    """The folder of the tiny model."""
    return os.environ[MODEL_VARIABLE]


@pytest.fixture(scope="session", autouse=True)
def on_a_cpu() -> None:
    """What vLLM needs on a CPU, and for every process started from here."""
    os.environ.update(
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1",
        DO_NOT_TRACK="1",
        OMP_NUM_THREADS="1",  # more of them spin: thirty times slower on a busy machine
        VLLM_ENABLE_V1_MULTIPROCESSING="0",  # lets the CPU platform keep one process fewer
    )
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # would override --kv-cache-memory-bytes


@pytest.fixture(scope="session")
def imported_once(on_a_cpu: None) -> Iterator[None]:
    """vLLM, imported for this process and for those that it forks."""
    from tests.vllm.processes import import_once

    with pytest.MonkeyPatch.context() as patched:
        import_once(patched)
        yield
