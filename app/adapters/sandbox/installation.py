"""One installation of Python packages into a virtual environment, apart from this process.

Packages may run any code while they are built, so the installation sees none of the worker's
processes, files, environment and network but the package index.
"""

import ast
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from app.adapters.sandbox import cgroup
from app.adapters.sandbox.bundle import BUILD_BOOTSTRAP, ENVIRONMENT, harness_frame
from app.adapters.sandbox.relay import Place, Relay, place_of
from app.domain.secrets import redacted
from app.ports.protocols import Misconfigured, Unavailable

_ALWAYS = ("numpy", "scipy")
"""Packages that the default image has, too."""
_LEVELS = ("privileged", "unprivileged")
_LIMITS = {"memory_mib": 8192, "file_bytes": 8 << 30, "open_files": 1024, "processes": 512}
_MOST_BYTES = 20 << 30
_LEAST_FREE_BYTES = 256 << 20
_LOOKING_SECONDS = 1.0
_LINES_KEPT, _LINE_BYTES, _LOG_BYTES = 100, 4096, 32 << 20
_PATH = "/usr/local/bin:/usr/bin:/bin"

_DEFAULT_INDEX = (
    "from pip._internal.models.index import PyPI as i; print(i.simple_url, i.file_storage_domain)"
)
_CERTIFICATES = ("/etc/ssl", "/etc/pki")
_FROM_ENVIRONMENT = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE")
_PREFIXES = ("PIP_", "XDG_", "REQUESTS_")
_PASSED_ON = ("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
_SETTING = re.compile(r"(?P<section>[\w:-]+)\.(?P<key>[\w.-]+?)=(?P<value>.*)", re.DOTALL)
_SECTIONS = ("global", "install", ":env:")
"""Of pip's configuration, each before those that override it."""
_NOT_PASSED_ON = ("cache_dir", "client_cert", "log", "prefix", "proxy", "root", "target", "user")
_REMEDY = (
    "Use the docker sandbox (in a deployment with DOCKER_GID, that of worker-cpu: `docker compose "
    "exec worker-cpu evoq check PROBLEM`), start the worker as root, permit user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), "
    "or name an image that has the packages with sandbox.image; sandbox.unisolated_builds=true (or "
    "EVOQ_SANDBOX__UNISOLATED_BUILDS=true for a worker) accepts that what is installed may reach "
    "this user's files, processes and network"
)


class InstallationFailed(Exception):
    """A step of the installation ended with an error, which is in its output."""


def not_isolated(reason: str) -> Misconfigured:
    """Returns the error of a machine that isolates no installation."""
    return Misconfigured(
        f"nothing here isolates what the problem's dependencies run while they are installed: "
        f"{reason}. {_REMEDY}"
    )


class Output:
    """What an installation prints: in a log, and its last lines.

    Args:
      log: Gets all of it, up to 32 MiB.
    """

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self._left = _LOG_BYTES
        self.last_lines: list[str] = []

    def add(self, line: str | bytes) -> None:
        text = redacted(line.decode("utf-8", "replace") if isinstance(line, bytes) else line)
        self.last_lines.append(text.rstrip())
        del self.last_lines[:-_LINES_KEPT]
        written = f"{self.last_lines[-1]}\n".encode("utf-8", "replace")
        if self._left >= len(written):
            self._left -= len(written)
            self._log.write(written)
            self._log.flush()


class Installation:
    """Packages to be installed into a virtual environment that exists.

    Args:
      python: The interpreter that the environment was made with.
      home: The environment; in `source` there are the problem's files.
      deadline: In `time.monotonic` seconds.
      hosts: Names of hosts beside the package index that may be reached, with their ports or as
        HTTPS.
      unisolated: Whether to install also where this machine gives no isolation.
    """

    def __init__(
        self,
        python: str,
        home: Path,
        deadline: float,
        *,
        hosts: tuple[str, ...] = (),
        unisolated: bool = False,
    ) -> None:
        self._python = python
        self._home = home
        self._deadline = deadline
        self._hosts = hosts
        self._unisolated = unisolated
        self._refused = ""
        self._overdue = ""

    def run(self, wanted: tuple[str, ...], output: Output) -> None:
        """Installs what `wanted` names as arguments of `pip install`.

        Raises:
          InstallationFailed: pip said no; the reason is in the output.
          Misconfigured: This machine isolates no installation.
          Unavailable: It takes too long.
        """
        temporary = self._home / "temporary"
        temporary.mkdir()
        scratch = tempfile.mkdtemp(prefix="evoq-build-")
        ours, theirs = socket.socketpair()
        try:
            with ours, theirs:
                header = self._header(wanted, temporary, scratch, theirs.fileno())
                status = self._run_command(header, ours, theirs, output)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(temporary, ignore_errors=True)
        if self._refused:
            raise not_isolated(self._refused)
        if self._overdue:
            raise Unavailable(self._overdue)
        if status != 0:
            raise InstallationFailed(f"pip ended with status {status}")

    def _header(
        self, wanted: tuple[str, ...], temporary: Path, scratch: str, channel: int
    ) -> dict[str, object]:
        pip = pip_settings(self._python, str(self._home / "bin" / "python"))
        left = max(1.0, self._deadline - time.monotonic())
        self._places = places(pip, default_index(str(self._home / "bin" / "python")), self._hosts)
        return {
            "channel": channel,
            "home": str(self._home),
            "readable": [*_CERTIFICATES, *_local_paths(pip)],
            "command": [
                *(str(self._home / "bin" / "python"), "-m", "pip", "install"),
                *("--disable-pip-version-check", "--progress-bar", "off", "--no-cache-dir"),
                *(*_ALWAYS, *wanted),
            ],
            "environment": {
                **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                **{f"PIP_{key.upper()}": value for key, value in pip.items()},
                **{"PIP_CONFIG_FILE": os.devnull, "LANG": ENVIRONMENT["LANG"]},
                **{"PATH": f"{self._home / 'bin'}:{_PATH}"},
                **dict.fromkeys(("HOME", "TMPDIR"), str(temporary)),
            },
            "limits": {**_LIMITS, "cpu_seconds": left * (os.cpu_count() or 1)},
            "scratch": scratch,
            "levels": _LEVELS,
            "offset": random.randrange(200_000),
            "unisolated": self._unisolated,
        }

    def _run_command(
        self,
        header: Mapping[str, object],
        ours: socket.socket,
        theirs: socket.socket,
        output: Output,
    ) -> int:
        """Runs the command of a header; returns its exit status."""
        parent = cgroup.parent()
        group = None if parent is None else cgroup.make(parent, _LIMITS["memory_mib"] << 20)
        try:
            with subprocess.Popen(
                [self._python, "-B", "-s", "-c", BUILD_BOOTSTRAP],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**ENVIRONMENT, "PATH": _PATH},
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            ) as build:
                theirs.close()
                if group is not None:
                    group.take(build.pid)
                assert build.stdin is not None
                assert build.stdout is not None
                text = json.dumps(header).encode()
                with contextlib.suppress(BrokenPipeError), build.stdin:
                    build.stdin.write(harness_frame() + struct.pack(">IQ", len(text), 0) + text)
                over = threading.Event()
                helpers = [
                    threading.Thread(target=self._answer, args=(ours, output, over)),
                    threading.Thread(target=self._watch, args=(build.pid, over)),
                ]
                for helper in helpers:
                    helper.start()
                try:
                    while line := build.stdout.readline(_LINE_BYTES):
                        output.add(line)
                    return build.wait()
                finally:
                    over.set()
                    _end(build.pid)
                    for helper in helpers:
                        helper.join()
        finally:
            if group is not None:
                group.remove()

    def _answer(self, ours: socket.socket, output: Output, over: threading.Event) -> None:
        """Serves the installation's way to the index, or keeps the reason of its refusal."""
        data, descriptors, _, _ = socket.recv_fds(ours, _LINE_BYTES, 1)
        if not descriptors:
            self._refused = data.decode("utf-8", "replace")
            return
        listener = socket.socket(fileno=descriptors[0])
        relay = Relay(self._places, output.add)
        server = threading.Thread(target=relay.serve, args=(listener,), daemon=True)
        server.start()
        over.wait()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        server.join()

    def _watch(self, group: int, over: threading.Event) -> None:
        """Ends the installation at its deadline, or when it has written too much."""
        while not over.wait(_LOOKING_SECONDS):
            if time.monotonic() > self._deadline:
                self._overdue = "the installation takes longer than sandbox.build_minutes"
            elif shutil.disk_usage(self._home).free < _LEAST_FREE_BYTES:
                self._overdue = f"the disk of {self._home} is full"
            elif _bytes_below(self._home) > _MOST_BYTES:
                self._overdue = f"the installation wrote more than {_MOST_BYTES >> 30} GiB"
            if self._overdue:
                _end(group)
                return


def pip_settings(python: str, *others: str) -> dict[str, str]:
    """Returns the configuration of pip that an installation needs, by names such as `index_url`.

    Args:
      python: The interpreter whose pip is configured.
      others: What to ask in turn where that one has no pip.

    Raises:
      Unavailable: pip does not start.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _FROM_ENVIRONMENT or name.startswith(_PREFIXES)
    }
    command = [python, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=60, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        if others:
            return pip_settings(*others)
        raise Unavailable(f"pip of {python} did not list its settings: {error}") from error
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        match = _SETTING.fullmatch(line.strip())
        if match is None or match["section"] not in found:
            continue
        with contextlib.suppress(ValueError, SyntaxError):
            value = str(ast.literal_eval(match["value"]))
            found[match["section"]][match["key"].replace("-", "_")] = value
    merged = {key: value for section in _SECTIONS for key, value in found[section].items()}
    return {key: value for key, value in merged.items() if key not in _NOT_PASSED_ON}


def default_index(python: str) -> tuple[str, str]:
    """Returns the address of pip's own default index, and the host of that index's files.

    Raises:
      Unavailable: The interpreter's pip does not say.
    """
    try:
        done = subprocess.run(
            [python, "-c", _DEFAULT_INDEX], capture_output=True, check=True, timeout=60, env={}
        )
        address, files = done.stdout.decode().split()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Unavailable(f"pip of {python} did not name its default index: {error}") from error
    return address, files


def places(
    pip: Mapping[str, str], default: tuple[str, str], hosts: tuple[str, ...] = ()
) -> frozenset[Place]:
    """Returns where an installation may connect to.

    Args:
      pip: Its settings.
      default: As from `default_index`.
      hosts: More hosts, as `name` or `name:port`.
    """
    index = "" if pip.get("no_index") else pip.get("index_url", default[0])
    named = [index, *(pip.get(key, "") for key in ("extra_index_url", "find_links"))]
    urls = [word for text in named for word in text.split()]
    if default[0] in (url.rstrip("/") for url in urls):
        urls.append(f"https://{default[1]}")
    urls += [f"https://{host}" for host in hosts]
    return frozenset(place for url in urls if (place := place_of(url)) is not None)


def _local_paths(pip: Mapping[str, str]) -> list[str]:
    """Returns the files and folders that settings of pip name.

    Of an index in a folder, the folder above: its files usually lie beside its pages.
    """
    found = []
    for key, text in pip.items():
        for word in text.split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.exists():
                index = key in ("index_url", "extra_index_url") and path.parents[1:]
                found.append(str(path.parent if index else path))
    return found


def _bytes_below(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
