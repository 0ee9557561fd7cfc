"""What a short run costs from its command to its end: seconds and processor time.

    python -m benchmarks.start [RUNS]

Nothing is simulated: `evoq run` of an example with eight proposals and no model, embedded, in child
processes, one run after the other in one folder, whose first run creates the database.  Prints a
JSON document for each run.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg

EXAMPLE = Path(__file__).parents[1] / "examples" / "function_minimization"
LOOK_SECONDS = 0.1
_FIRST = """
    SELECT extract(epoch FROM min(settled_at))::float8 FROM proposals
    WHERE NOT seed AND settled_at > to_timestamp(%s)
"""


class FirstSettled:
    """Watches the ledger of a folder, on one connection, for a run's first settled proposal."""

    def __init__(self, home: Path, began: float) -> None:
        """Begins to watch; `began` is the start of the command."""
        self.seconds: float | None = None
        self._home, self._began = home, began
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def end(self) -> None:
        """Ends the watch."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                with self._connected() as connection:
                    self._look(connection)
                    return
            except (psycopg.Error, OSError):
                # The server is not up yet, or the schema does not exist.
                continue

    def _connected(self) -> psycopg.Connection[tuple[float | None]]:
        server = self._home / "postgres"
        # This file names the socket's folder where the server's user cannot enter the home.
        far = server / "run.at"
        return psycopg.connect(
            host=far.read_text() if far.exists() else str(server / "run"),
            user="evoqueue",
            dbname="evoqueue",
            password=(server / "password").read_text(),
            autocommit=True,
        )

    def _look(self, connection: psycopg.Connection[tuple[float | None]]) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            found = connection.execute(_FIRST, (self._began,)).fetchone()
            if found and found[0] is not None:
                self.seconds = found[0] - self._began
                return


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    command = [str(Path(sys.executable).with_name("evoq")), "run", str(EXAMPLE)]
    environment = {**os.environ, "EVOQ_SANDBOX__BACKEND": "process"}
    with tempfile.TemporaryDirectory(prefix="evoq-bench-", dir="/tmp") as folder:
        for number in range(runs):
            began, before = time.time(), os.times()
            watch = FirstSettled(Path(folder) / ".evoq", began)
            subprocess.run(
                [*command, "--iterations", "8", "--no-model"],
                cwd=folder,
                env=environment,
                capture_output=True,
                check=True,
            )
            whole, after = time.time() - began, os.times()
            watch.end()
            user = after.children_user - before.children_user
            system = after.children_system - before.children_system
            document = {
                "what": "`evoq run`, 8 proposals without a model; nothing simulated",
                "first_in_folder": number == 0,
                "load": round(os.getloadavg()[0], 1),
                "seconds_to_first_settled": watch.seconds and round(watch.seconds, 2),
                "seconds": round(whole, 2),
                "cpu_seconds": round(user + system, 2),
            }
            print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
