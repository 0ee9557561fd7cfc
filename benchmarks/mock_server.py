"""The SIMULATED model of a benchmark: `evoq mock-llm` in a separate process, and its metrics."""

import json
import random
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.simulated import SOURCE

MOCK = (sys.executable, "-c", "from app.cli import main; main()", "mock-llm", "--port", "0")
TOKENS, FIRST_TOKEN = 100, 0.125
REPLIES = 50_000
"""Number of replies, all different, so that no proposal is a duplicate before they repeat."""


@contextmanager
def simulated_model(
    seconds: float, slots: int, faults: Mapping[str, float] | None = None
) -> Iterator[str]:
    """Runs a simulated model during the block and yields its address.

    Args:
      seconds: Duration of a completion.
      slots: Concurrent completions; further ones wait.
      faults: Options of `evoq mock-llm` to their rates.
    """
    rng = random.Random(1)
    sources = (SOURCE.format(x=rng.uniform(-5, 5), y=rng.uniform(-5, 5)) for _ in range(REPLIES))
    options = [text for name, rate in (faults or {}).items() for text in (name, str(rate))]
    with tempfile.TemporaryDirectory(prefix="evoq-bench-") as folder:
        script = Path(folder) / "replies.jsonl"
        replies = (json.dumps(f"```python\n{source}```\n") + "\n" for source in sources)
        script.write_text("".join(replies))
        with editing_model(seconds, slots, ["--replies", str(script), *options]) as base_url:
            yield base_url


@contextmanager
def editing_model(seconds: float, slots: int, options: Sequence[str] = ()) -> Iterator[str]:
    """Runs a simulated model that edits the program in its prompt, and yields its address.

    A reply takes the same time whatever else runs: its first token an eighth of it, and its further
    tokens, whose number is fixed, the rest.

    Args:
      seconds, slots: See `simulated_model`.
      options: Further options of `evoq mock-llm`.
    """
    speed = {
        "--latency": FIRST_TOKEN * seconds,
        "--tokens-per-second": TOKENS / ((1 - FIRST_TOKEN) * seconds),
        "--completion-tokens": TOKENS,
        "--batch-slowdown": 0,
        "--max-num-seqs": slots,
    }
    command = [*MOCK, "--json", *(str(word) for option in speed.items() for word in option)]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    document = ""
    for line in process.stdout:
        document += line
        if line.startswith("}"):
            break
    try:
        yield json.loads(document)["base_url"]
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def metric(base_url: str, name: str) -> float:
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))


def latencies(base_url: str) -> tuple[float, float]:
    """Returns the total seconds of all completions, and their number."""
    name = "vllm:e2e_request_latency_seconds"
    return metric(base_url, name + "_sum"), metric(base_url, name + "_count")
