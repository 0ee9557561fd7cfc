"""A real vLLM server, on the CPU build."""

import os
import shlex
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.vllm import processes
from tests.vllm.engine_arguments import SOUND


@contextmanager
def vllm_server(model: str, log: Path) -> Iterator[str]:
    """Starts one that calls its model `tiny`; gives its address, and ends it.

    By the module that `vllm serve` runs, because the command imports all other commands too.
    """
    port = free_port()
    arguments = ["--model", model, "--served-model-name", "tiny", *shlex.split(SOUND)]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--shutdown-timeout", "20"]
    arguments += ["--disable-uvicorn-access-log"]
    process = processes.start("vllm.entrypoints.openai.api_server", arguments, os.environ, log)
    try:
        deadline = time.monotonic() + 600
        while not healthy(f"http://127.0.0.1:{port}/health"):
            assert process.is_alive(), log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(1.0)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        processes.end(process)


def healthy(url: str) -> bool:
    """Returns whether an address answers."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def gauge(url: str, name: str) -> float:
    """Returns one of vLLM's own metrics, summed over its labels; 0.0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except (OSError, urllib.error.URLError):
        return 0.0
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))
