"""Forks of a process with one thread, and of one with several."""

import subprocess
import sys

SCRIPT = """
import os, threading
from workers.harness import kernel

os.register_at_fork(after_in_child=lambda: print("renewed", flush=True))
if THREADS:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if (pid := kernel.fork()) == 0:
    print("child", threading.active_count(), flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
os._exit(0)
"""


def forked(threads: bool) -> list[str]:
    script = SCRIPT.replace("THREADS", str(threads))
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    return ended.stdout.splitlines()


def test_a_process_with_one_thread_is_forked_without_renewal() -> None:
    assert forked(threads=False) == ["child 1"]


def test_locks_that_another_thread_may_hold_are_renewed() -> None:
    assert forked(threads=True) == ["renewed", "child 1"]
