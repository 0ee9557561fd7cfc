"""A Docker engine of a test's own, which it may stop and freeze."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from app.adapters.sandbox.engine import DEFAULT_IMAGE

# Since Linux 6.8 gVisor of 2022 takes any network namespace for the machine's own.
RUNSC_ARGUMENTS = ["--platform=ptrace", "--network=none"]


class OwnEngine:
    """A second dockerd in network and mount namespaces of its own.

    In the machine's network namespace it would take down the first one's bridge.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = folder / "docker.sock"
        self._daemon: subprocess.Popen[bytes] | None = None
        runsc = shutil.which("runsc")
        runtimes = {"runsc": {"path": runsc, "runtimeArgs": RUNSC_ARGUMENTS}} if runsc else {}
        (folder / "daemon.json").write_text(json.dumps({"runtimes": runtimes}))

    @property
    def address(self) -> str:
        return f"unix://{self._socket}"

    def start(self) -> None:
        """Starts the daemon and waits for its answer, or skips the test with its last words."""
        command = ["unshare", "--net", "--mount", "dockerd", "--bridge=none", "--iptables=false"]
        command += ["--ip-forward=false", "--ip-masq=false", "--host", self.address]
        for option, name in (
            ("config-file", "daemon.json"),
            ("data-root", "data"),
            ("exec-root", "exec"),
            ("pidfile", "pid"),
        ):
            command.append(f"--{option}={self._folder / name}")
        with open(self._folder / "log", "ab") as log:
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + 60.0
        while self.docker("info").returncode != 0:
            if time.monotonic() > until or self._daemon.poll() is not None:
                words = (self._folder / "log").read_text()[-300:]
                self.stop()
                pytest.skip(f"no second Docker engine can be started here: {words}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends the daemon as a restart of the service does: its containers end with it."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        self._wait()

    def _wait(self) -> None:
        assert self._daemon is not None
        self._daemon.wait(60.0)

    def signal(self, number: signal.Signals) -> None:
        assert self._daemon is not None
        if self._daemon.poll() is None:
            os.kill(self._daemon.pid, number)  # `unshare` has become dockerd

    def docker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["docker", "--host", self.address, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)


def own_engine(folder: Path) -> OwnEngine:
    """Returns a started engine with the default image, or skips with the reason."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a second Docker engine")
    for program in ("dockerd", "unshare", "docker"):
        if shutil.which(program) is None:
            pytest.skip(f"a second Docker engine needs {program}")
    engine = OwnEngine(folder)
    engine.start()
    copy = f"docker save {DEFAULT_IMAGE} | docker --host {engine.address} load"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", copy], capture_output=True, text=True)
    if done.returncode != 0:
        engine.stop()
        pytest.skip(f"the image {DEFAULT_IMAGE} cannot be copied: {done.stderr}")
    return engine
