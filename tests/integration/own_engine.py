"""A Docker engine of a test's own, which it may stop and freeze."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from app.adapters.sandbox.engine import DEFAULT_IMAGE
from tests.contracts.sandbox import WHOLE_CORPUS

_BASE_IMAGE = "python:3.13-slim"
"""As in app/adapters/sandbox/image/Dockerfile."""

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
        if number == signal.SIGSTOP:
            self._wait_until_stopped()

    def _wait_until_stopped(self) -> None:
        """Waits for each thread: the others serve until one of them has taken the signal."""
        assert self._daemon is not None
        tasks = Path(f"/proc/{self._daemon.pid}/task")
        until = time.monotonic() + 60.0
        while any("\nState:\tT" not in (one / "status").read_text() for one in tasks.iterdir()):
            assert time.monotonic() < until, "the engine goes on"
            time.sleep(0.01)

    def docker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["docker", "--host", self.address, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)


def own_engine(folder: Path) -> OwnEngine:
    """Returns a started engine with an image for sandboxes, or skips with the reason."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a second Docker engine")
    for program in ("dockerd", "unshare", "docker"):
        if shutil.which(program) is None:
            pytest.skip(f"a second Docker engine needs {program}")
    engine = OwnEngine(folder)
    engine.start()
    if error := copy_image(engine.address):
        engine.stop()
        pytest.skip(error)
    return engine


def copy_image(address: str) -> str:
    """Gives an engine an image for sandboxes, and returns what went wrong.

    It is the interpreter of what the default image is made from, where that is there: a third of
    what two engines have to pack and unpack otherwise, and less than a tenth with NumPy and SciPy.
    """
    with tempfile.TemporaryDirectory() as folder:
        far = f"docker --host {address}"
        found = subprocess.run(["docker", "image", "inspect", _BASE_IMAGE], capture_output=True)
        if WHOLE_CORPUS or found.returncode:
            copy = f"docker save {DEFAULT_IMAGE} | {far} load"
        else:
            run = ("docker", "run", "--rm", "--network=none", f"--volume={folder}:/packed")
            pack = shlex.join([*run, _BASE_IMAGE, "python3", "-c", _PACK])
            copy = f"{pack} && {far} import {folder}/image.tar {DEFAULT_IMAGE}"
        command = ["bash", "-o", "pipefail", "-c", copy]
        done = subprocess.run(command, capture_output=True, text=True)
    return f"no image can be copied: {done.stderr}" if done.returncode else ""


_PACK = r"""
import glob, os, re, subprocess, sys, sysconfig, tarfile

LEFT_OUT = {"test", "site-packages", "dist-packages", "ensurepip", "idlelib", "pydoc_data"}
packed = set()

def part(entry):
    return None if os.path.basename(entry.name) in LEFT_OUT else entry

def pack(path):
    # Adds a file or a folder, and what leads to it: folders and links.
    names = path.strip("/").split("/")
    for n in range(len(names)):
        above = "/" + "/".join(names[: n + 1])
        whole = above == path and not os.path.islink(above)
        if above not in packed and os.path.lexists(above):
            packed.add(above)
            archive.add(above, recursive=whole, filter=part)
        if os.path.islink(above):
            target = os.path.join(os.path.dirname(above), os.readlink(above))
            return pack(os.path.normpath(os.path.join(target, *names[n + 1 :])))

library = sysconfig.get_paths()["stdlib"]
programs = [sys.executable, "/bin/sh", "/usr/bin/setsid", "/usr/bin/true"]
compiled = [*programs, *glob.glob(f"{library}/lib-dynload/*.so")]
needed = subprocess.run(["ldd", *compiled], capture_output=True, text=True).stdout
with tarfile.open("/packed/image.tar", "w") as archive:
    for path in (*programs, *re.findall(r"(/\S+) \(0x", needed), library):
        pack(path)
    for path in ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.cache"):
        pack(path)
"""
"""Run in a container: packs its interpreter, what that needs, and a shell.  (To pass a file through
the output of a container takes the engine as long as to unpack it.)"""
