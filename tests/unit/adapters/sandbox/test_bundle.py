"""What a sandbox is sent at its boot."""

import pytest

from app.adapters.sandbox.bundle import compiled_elsewhere, frame_of, preloads


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        (b"import json\nimport os.path\n", []),
        (b"async def evaluate(path):\n    return {}\n", ["asyncio"]),
        (b"from scipy import stats\n", ["numpy", "numpy.random", "scipy", "scipy.stats"]),
        (b"import numpy, torch\n", ["numpy", "numpy.random"]),
        (b"def evaluate(path)\n", []),
    ],
    ids=["standard library", "coroutine", "part of a package", "unsafe package", "no Python"],
)
def test_what_forks_would_import_one_by_one_is_imported_before_them(
    text: bytes, modules: list[str]
) -> None:
    assert preloads({"evaluator.py": text, "notes.txt": b"async"}, numpy=False) == modules


def test_a_harness_compiled_elsewhere_keeps_its_texts() -> None:
    texts = {"zygote.py": "x = 1\n", "shinka/core.py": "y = 2\n"}
    frame = frame_of(texts)
    again = compiled_elsewhere(compiled_elsewhere(frame, b"of another"), b"0000" + bytes(4))
    size = len(again) - 8
    assert again[:size] == frame[:size]
    assert again[size:] == b"0000" + bytes(4)
