"""One installation of Python packages into a virtual environment, apart from this process.

Packages may run any code while they are built, so the installation sees none of the worker's
processes, files, environment and network but the package index.
"""

import ast
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from app.adapters.isolated import (
    NAMESPACES,
    SYSTEM_PATH,
    CommandLimits,
    IsolatedCommand,
    NotIsolated,
    Overdue,
)
from app.adapters.sandbox.bundle import ENVIRONMENT
from app.adapters.sandbox.isolated_command import run_isolated
from app.adapters.sandbox.relay import CERTIFICATES, PROXIES, Place, Relay, place_of
from app.domain.secrets import redacted
from app.ports.protocols import Misconfigured, Unavailable

_ALWAYS = ("numpy", "scipy")
"""Packages that the default image has, too."""
_LIMITS = CommandLimits(8192, 8 << 30, 20 << 30, 1024, 512)
_LINES_KEPT, _LOG_BYTES = 100, 32 << 20
_DEFAULT_INDEX = (
    "from pip._internal.models.index import PyPI as i; print(i.simple_url, i.file_storage_domain)"
)
_FROM_ENVIRONMENT = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE")
_PREFIXES = ("PIP_", "XDG_", "REQUESTS_")
_PASSED_ON = ("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
_SETTING = re.compile(r"(?P<section>[\w:-]+)\.(?P<key>[\w.-]+?)=(?P<value>.*)", re.DOTALL)
_SECTIONS = ("global", "install", ":env:")
"""Of pip's configuration, each before those that override it."""
_NOT_PASSED_ON = ("cache_dir", "client_cert", "log", "prefix", "proxy", "root", "target", "user")
_REMEDY = (
    "Use the docker sandbox (in a deployment with DOCKER_GID, that of worker-cpu: `docker compose "
    f"exec worker-cpu evoq check PROBLEM`), {NAMESPACES.format('the worker')}, "
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

    def run(self, wanted: tuple[str, ...], output: Output) -> None:
        """Installs what `wanted` names as arguments of `pip install`.

        Raises:
          InstallationFailed: pip said no; the reason is in the output.
          Misconfigured: This machine isolates no installation.
          Unavailable: It takes too long.
        """
        temporary = self._home / "temporary"
        temporary.mkdir()
        installer = self._home / "bin" / "python"
        pip = pip_settings(self._python, str(installer))
        known = places(pip, default_index(str(installer)), self._hosts)
        relay = Relay(known, "the package index", output.add)
        try:
            status = run_isolated(self._command(wanted, pip, temporary, relay, output))
        except NotIsolated as error:
            raise not_isolated(str(error)) from error
        except Overdue as error:
            raise Unavailable(f"the installation (sandbox.build_minutes): {error}") from error
        shutil.rmtree(temporary, ignore_errors=True)
        if status != 0:
            raise InstallationFailed(f"pip ended with status {status}")

    def _command(
        self,
        wanted: tuple[str, ...],
        pip: Mapping[str, str],
        temporary: Path,
        relay: Relay,
        output: Output,
    ) -> IsolatedCommand:
        return IsolatedCommand(
            python=self._python,
            command=(
                *(str(self._home / "bin" / "python"), "-m", "pip", "install"),
                *("--disable-pip-version-check", "--progress-bar", "off", "--no-cache-dir"),
                *(*_ALWAYS, *wanted),
            ),
            writable=(self._home,),
            folder=self._home / "source",
            deadline=self._deadline,
            environment={
                **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                **{f"PIP_{key.upper()}": value for key, value in pip.items()},
                **{"PIP_CONFIG_FILE": os.devnull, "LANG": ENVIRONMENT["LANG"]},
                **{"PATH": f"{self._home / 'bin'}:{SYSTEM_PATH}"},
                **dict.fromkeys(("HOME", "TMPDIR"), str(temporary)),
            },
            addresses=dict.fromkeys(PROXIES, "{address}"),
            serve=relay.serve,
            show=output.add,
            readable=(*CERTIFICATES, *_local_paths(pip)),
            limits=_LIMITS,
            unisolated=self._unisolated,
        )


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
