"""The proxy through which an address is reached, by the environment's variables.  No I/O."""

import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

_STATUSES = frozenset((407,))
"""Statuses that only a proxy sends."""
_SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that the environment names.

    Attributes:
      url: With user and password, where it has them.
      variable: The environment variable that names it; "" where the system's settings do.
    """

    url: str = field(repr=False)
    variable: str = ""

    @property
    def scheme(self) -> str:
        return urlsplit(self.url).scheme.lower()

    @property
    def address(self) -> str:
        """Its address without user and password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def credentials(self) -> dict[str, str]:
        """The header that holds its user and password; none without a user."""
        parts = urlsplit(self.url)
        if not parts.username:
            return {}
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}

    def __str__(self) -> str:
        return f"the proxy {self.address}" + (f" of {self.variable}" if self.variable else "")


def proxy_of(url: str) -> Proxy | None:
    """Returns the proxy that the environment names for an address; None for a direct connection.

    It reads HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case, and then the system's
    settings.  The addresses of this machine's loopback interface are reached directly.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    proxies = getproxies()
    named = next((name for name in (parts.scheme, "all") if proxies.get(name)), None)
    if named is None or _loopback(host) or _excepted(host, parts.port, proxies.get("no", "")):
        return None
    address = proxies[named]
    return Proxy(address if "://" in address else f"http://{address}", _variable(named))


def answered_by_proxy(url: str, status: int, headers: Mapping[str, str], body: str) -> bool:
    """Returns whether a proxy, and not the endpoint behind it, refused a request.

    Args:
      url: Of the request, which went through a proxy.
      status: Of the answer.
      headers: Of the answer; names in any case that `headers` finds.
      body: Of the answer.
    """
    if status in _STATUSES or "proxy-authenticate" in headers:
        return True
    page = body.lstrip()[:1] == "<" or "html" in headers.get("content-type", "")
    # Through a tunnel the proxy sees no answer, so that a page is the endpoint's own.
    tunnel = urlsplit(url).scheme == "https"
    return status >= 400 and not tunnel and (page or "proxy" in headers.get("server", "").lower())


def _variable(name: str) -> str:
    """Returns the variable that names a proxy; as `getproxies`, small letters come first."""
    variable = f"{name}_proxy"
    return next((each for each in (variable, variable.upper()) if os.environ.get(each)), "")


def _loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address).is_loopback or address.is_unspecified


def _excepted(host: str, port: int | None, exceptions: str) -> bool:
    """Returns whether NO_PROXY names a host: by name, suffix, address, network, or as `*`."""
    entries = exceptions.replace(",", " ").lower().split()
    return any(_matches(host, port, entry) for entry in entries)


def _matches(host: str, port: int | None, entry: str) -> bool:
    if entry == "*":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    try:
        network = ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        network = None
    if address is not None and network is not None:
        return address in network
    name, separator, only = entry.rpartition(":")
    if separator and only.isdigit() and (name.startswith("[") or ":" not in name):
        return str(port or "") == only and _matches(host, None, name)
    name = entry.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))
