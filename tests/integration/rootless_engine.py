"""A Docker engine of a user without privileges, which a test starts and ends."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.integration.own_engine import copy_image

_USER, _GROUP = "nobody", "nogroup"
_PROGRAMS = ("dockerd", "docker", "rootlesskit", "newuidmap", "unshare", "setpriv")

# The ranges of identities are the machine's to give: here they are given in a mount namespace only.
_START = """
set -e
folder=$1
mount --make-rprivate /
mount --bind "$folder/ranges" /etc/subuid
mount --bind "$folder/ranges" /etc/subgid
exec setpriv --reuid nobody --regid nogroup --clear-groups --inh-caps=-all \
    env -i "HOME=$folder/home" "XDG_RUNTIME_DIR=$folder/run" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    rootlesskit --net=host --copy-up=/etc --copy-up=/run "--state-dir=$folder/run/kit" \
    sh -c 'rm -f /run/docker /run/containerd /run/xtables.lock; exec "$@"' sh \
    dockerd --rootless --bridge=none --iptables=false --ip-forward=false --ip-masq=false \
    --host "unix://$folder/run/docker.sock" --data-root "$folder/data" \
    --exec-root "$folder/run/exec" --pidfile "$folder/run/docker.pid"
"""


class RootlessEngine:
    """A rootless dockerd under `nobody`, in a folder of its own outside everybody's home."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="evoq-rootless-", dir="/var/tmp"))
        self._daemon: subprocess.Popen[bytes] | None = None
        self.address = f"unix://{self._folder}/run/docker.sock"

    def start(self) -> None:
        """Starts the daemon and gives it an image, or skips with its last words."""
        (self._folder / "ranges").write_text(f"{_USER}:300000:65536\n")
        for name in ("", "home", "run", "data"):
            place = self._folder / name
            place.mkdir(exist_ok=True)
            shutil.chown(place, _USER, _GROUP)
        command = ["unshare", "--mount", "bash", "-c", _START, "bash", str(self._folder)]
        with open(self._folder / "log", "ab") as log:
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + 40.0
        while self._docker("info").returncode != 0:
            if time.monotonic() > until or self._daemon.poll() is not None:
                words = (self._folder / "log").read_text(errors="replace")[-300:]
                self.stop()
                pytest.skip(f"no rootless Docker engine can be started here: {words}")
            time.sleep(0.2)
        if error := copy_image(self.address):
            self.stop()
            pytest.skip(error)

    def _docker(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = ["docker", "--host", self.address, *arguments]
        return subprocess.run(command, capture_output=True, timeout=60)

    def stop(self) -> None:
        """Ends the daemon with all it started, and removes its folder."""
        if self._daemon is not None:
            self._daemon.terminate()
            try:
                self._daemon.wait(20.0)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._daemon.pid, signal.SIGKILL)
                self._daemon.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def rootless_engine() -> RootlessEngine:
    """Returns a started engine with an image for sandboxes, or skips with the reason."""
    if os.geteuid() != 0:
        pytest.skip("only root can become a user of its own to start a rootless engine")
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            pytest.skip(f"a rootless Docker engine needs {program}")
    engine = RootlessEngine()
    engine.start()
    return engine
