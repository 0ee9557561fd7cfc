"""What an embedded stack costs while no run is running: CPU and wake-ups of each process.

    python -m benchmarks.idle [SECONDS]

Nothing is simulated: `evoq up` with its dashboard in an empty folder.  CPU is that of the kernel's
scheduler, in nanoseconds, with that of children that have ended.  Prints one JSON document.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import psutil

WARM_UP_SECONDS = 60.0
"""The first autovacuum of a new database is over by then."""
PARTS = {"-Q gpu": "worker gpu", "-Q cpu": "worker cpu", " beat": "beat", "valkey": "valkey",
         "postgres": "postgres", "supervisor": "supervisor", "evoq up": "evoq up"}  # fmt: skip


@dataclass(slots=True)
class Totals:
    """CPU seconds and voluntary switches of threads, by part, since each was started."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    switches: Counter[str] = field(default_factory=Counter)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory(prefix="evoq-bench-") as folder:
        command = [str(Path(sys.executable).with_name("evoq")), "up"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as stack:
            try:
                assert stack.stdout is not None
                # The line with Ctrl-C shows that the stack is up.
                next(line for line in stack.stdout if b"Ctrl-C" in line)
                time.sleep(WARM_UP_SECONDS)
                before, began = totals(stack.pid), time.monotonic()
                time.sleep(seconds)
                after, took = totals(stack.pid), time.monotonic() - began
            finally:
                stack.send_signal(signal.SIGTERM)
    used = {part: after.seconds[part] - before.seconds[part] for part in after.seconds}
    switches = after.switches - before.switches
    report = {
        "what": "an idle `evoq up`, per cent of a core; nothing simulated",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "seconds": round(took),
        "all": round(100 * sum(used.values()) / took, 2),
        "switches_per_second": round(switches.total() / took, 1),
        "per_cent": {part: round(100 * s / took, 2) for part, s in used.items()},
    }
    print(json.dumps(report, indent=2))


def totals(pid: int) -> Totals:
    """Returns what the stack of a process has used so far; its processes are all below that."""
    found = Totals()
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            line = " ".join(process.cmdline())
            part = next((part for word, part in PARTS.items() if word in line), process.name())
            ended = process.cpu_times()
            found.seconds[part] += ended.children_user + ended.children_system
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                found.seconds[part] += int((thread / "schedstat").read_text().split()[0]) / 1e9
                status = (thread / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2]
                found.switches[part] += int(status.split()[0])
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue
    return found


if __name__ == "__main__":
    main()
