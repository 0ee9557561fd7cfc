"""Processes of a deployment, forked from this one after it has imported vLLM.

The imports take 16 s of a processor; without this each worker, each server and each engine would
repeat them.  With an accelerator vLLM forks its engine from the process that asks for it; its CPU
build starts a new interpreter by default.
"""

import gc
import importlib
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

FORK = multiprocessing.get_context("fork")
_MODULES = (
    *("vllm.entrypoints.openai.api_server", "vllm.v1.engine.async_llm", "vllm.v1.engine.core"),
    "vllm.v1.worker.cpu_worker",
    *("celery.__main__", "celery.bin.celery", "app.bootstrap.worker", "app.celery"),
)
"""What the processes import before their work begins.

Not the tasks: vLLM looks at each value of each module, and a task cannot be looked at without the
address of a queue.
"""


def import_once(patched: pytest.MonkeyPatch) -> None:
    """Imports what the processes need, and lets vLLM fork its engines."""
    gc.disable()  # a fifth of the time
    for name in _MODULES:
        importlib.import_module(name)
    gc.enable()
    engines = importlib.import_module("vllm.v1.engine.utils")
    patched.setattr(engines, "get_mp_context", lambda: FORK)
    gc.collect()
    gc.freeze()  # no collection of a child looks at what was imported


def start(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> Any:  # the class that `fork` makes has no public name
    """Starts `python -m MODULE ARGUMENT...` in the folder of its log, in a session of its own.

    Returns:
      A process of `multiprocessing`.
    """
    # What a thread holds at a fork stays locked in the child.
    assert threading.active_count() == 1, threading.enumerate()
    process = FORK.Process(target=_run, args=(module, arguments, dict(environment), log))
    process.start()
    return process


def end(process: Any) -> None:
    """Ends a process, by force after a minute."""
    process.terminate()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()


def _run(module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    os.chdir(log.parent)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    warnings.simplefilter("ignore")
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
