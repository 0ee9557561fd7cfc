"""The smallest real model, served by llama.cpp on this machine."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_HOME = Path(os.environ.get("REAL_MODEL_HOME", Path.home() / ".cache" / "real-model"))
_MODEL, _PYTHON = _HOME / "small.gguf", _HOME / "engine" / "bin" / "python"
_SERVE = """
import os, sys, time, xllamacpp
try:
    os.nice(-10)
except PermissionError:
    pass
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.model_alias = sys.argv[1], {"small"}
parameters.hostnames, parameters.port = ["127.0.0.1"], int(sys.argv[2])
parameters.n_parallel, parameters.n_ctx = 2, 8192
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.cont_batching, parameters.endpoint_metrics = True, True
server = xllamacpp.Server(parameters)
while True:
    time.sleep(60)
"""
"""One thread: beside other tests two would wait for each other.  It goes before other tests."""


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def served_model() -> Iterator[str]:
    """Yields the address of a llama.cpp server with the smallest model, two requests at once.

    The test skips where the model is not to be had.
    """
    for part in (_MODEL, _PYTHON):
        if not part.exists():
            pytest.skip(f"no real model: {part} is missing; `real-model/prepare small` fetches it")
    port = free_port()
    server = subprocess.Popen(
        [_PYTHON, "-c", _SERVE, _MODEL, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        for _ in range(600):
            assert server.poll() is None, "the server of the real model ended"
            try:
                urllib.request.urlopen(f"{url}/models", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail("the server of the real model does not answer")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
