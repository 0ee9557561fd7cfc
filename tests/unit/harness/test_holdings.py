"""What a trial holds is looked at until its deadline, and no longer."""

import math
import mmap
import os
import time
from collections.abc import Iterator

import pytest

from workers.harness.holdings import MEMORY, HoldingsWatch
from workers.harness.sandbox_layout import ONE, SandboxLayout
from workers.harness.syscall_filter import LARGEST_SHARED_BYTES

LAYOUT = SandboxLayout("", "", "", "", (), ONE, own_processes=False, own_root=False,
                       network_closed=False)  # fmt: skip


@pytest.mark.parametrize(("seconds", "exceeded"), [(60.0, MEMORY), (0.0, "")])
def test_a_look_ends_at_the_deadline(seconds: float, exceeded: str) -> None:
    watch = HoldingsWatch(LAYOUT, 1, ())
    found, shared_bytes = watch.look([os.getpid()], 0, time.monotonic() + seconds)
    assert found == exceeded
    assert (shared_bytes > 0) == (exceeded == MEMORY)


def test_a_look_ends_at_the_process_that_exceeds_the_bound() -> None:
    def processes() -> Iterator[int]:
        yield os.getpid()
        raise AssertionError("another process was looked at")

    found, shared_bytes = HoldingsWatch(LAYOUT, 1, ()).look(processes(), 0, math.inf)
    assert (found, shared_bytes > 0) == (MEMORY, True)


def test_shared_memory_without_a_name_is_found_among_many_mappings() -> None:
    def held() -> int:
        return HoldingsWatch(LAYOUT, 1, ()).look([os.getpid()], 1 << 40, math.inf)[1]

    many = [mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(100)]
    before = held()
    with mmap.mmap(-1, 4096):
        assert held() - before >= LARGEST_SHARED_BYTES
    del many
