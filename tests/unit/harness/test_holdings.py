"""What a trial holds is looked at until its deadline, and no longer."""

import os
import time

import pytest

from workers.harness.holdings import MEMORY, HoldingsWatch
from workers.harness.sandbox_layout import ONE, SandboxLayout

LAYOUT = SandboxLayout("", "", "", "", (), ONE, own_processes=False, own_root=False,
                       network_closed=False)  # fmt: skip


@pytest.mark.parametrize(("seconds", "exceeded"), [(60.0, MEMORY), (0.0, "")])
def test_a_look_ends_at_the_deadline(seconds: float, exceeded: str) -> None:
    watch = HoldingsWatch(LAYOUT, 1, ())
    found, shared_bytes = watch.look([os.getpid()], 0, time.monotonic() + seconds)
    assert found == exceeded
    assert (shared_bytes > 0) == (exceeded == MEMORY)
