"""What a process waited for a processor, which decides whether the machine denied it one."""

import os
import signal
import time

import pytest

from workers.harness.processes import processor_times


@pytest.mark.parametrize(("niceness", "waits"), [(0, True), (1, False)])
def test_a_process_of_lower_priority_waits_by_its_own_doing(niceness: int, waits: bool) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    child = os.fork()
    if child == 0:
        os.nice(niceness)
        while True:
            pass
    try:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
        times = processor_times([child])[child]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.sched_setaffinity(0, before)

    assert times.used > 0.0
    assert (times.waited > 0.0) == waits
