"""`branching-worker`: does the work of one candidate on another machine, and exits.

Reads the task, does it in the folders that are mounted for it, and prints the result as the last
line of its output, framed by the word in `EVOQ_NONCE`; the process of the pattern reads the log.
It makes, commits and aborts no branch.
"""

import base64
import json
import os
import signal
import sys
from pathlib import Path

from app.patterns import shipping

TASK = "/etc/branching/task.pkl"
"""Where the task is mounted."""
NONCE = "EVOQ_NONCE"
_USAGE = f"usage: branching-worker [TASK]\nTASK is the file of a candidate; {TASK} by default."


def main() -> int:
    """Does the task that the command line names."""
    arguments = sys.argv[1:]
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return 0 if len(arguments) == 1 else 2
    path = Path(arguments[0] if arguments else TASK)
    try:
        document = json.loads(path.read_bytes())
        folders = tuple(map(Path, document["folders"]))
    except (OSError, ValueError, KeyError) as error:
        print(f"branching-worker: {path}: no task can be read there: {error}", file=sys.stderr)
        return 2
    # The first process of a container has no default for a signal: all of it ends with it.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    nonce = os.environ.pop(NONCE, "")
    said = shipping.do(document, folders)
    if len(said) > shipping.MOST_SAID:
        said = shipping.failed(f"an answer of {len(said)} bytes; the most is {shipping.MOST_SAID}")
    # What the candidate started may have made the descriptor one that takes what there is room for.
    os.set_blocking(1, True)
    sys.stdout.flush()
    sys.stderr.flush()
    line = f"\n@@EVOQ {nonce} {base64.b64encode(said.encode()).decode()}\n"
    # The candidate may have closed or replaced Python's own stream.
    os.write(1, line.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
