"""Proxies of the environment: which addresses are asked through one, and what a proxy answers."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies

from app.adapters.model.providers import error_body
from app.ports.protocols import Misconfigured

_PROTOCOLS = ("http", "https")
_SIGNS = frozenset(("proxy-authenticate", "proxy-status", "x-squid-error"))
"""Headers that proxies alone send, in lower case."""
_NEEDS_PASSWORD = 407


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that the environment names.

    Attributes:
      url: With its password, if it has one.
      variable: The variable that names it, as `HTTPS_PROXY`.
    """

    url: str
    variable: str

    @property
    def shown(self) -> str:
        """Its address without name and password, and the variable that names it."""
        parts = urlsplit(self.url)
        address = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))
        return f"the proxy {address} of {self.variable}"


def environment_proxy(url: str) -> Proxy | None:
    """Returns the proxy that the environment names for an address; None for a direct connection.

    It reads HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case.  An address of this
    machine is never asked through a proxy.

    Raises:
      Misconfigured: It is a proxy of another protocol than HTTP.
    """
    parts, proxies = urlsplit(url), getproxies()
    scheme = parts.scheme if proxies.get(parts.scheme) else "all"
    named = proxies.get(scheme)
    host = (parts.hostname or "").rstrip(".")
    if not named or is_loopback(host) or _excluded(host, parts.port, proxies.get("no", "")):
        return None
    protocol, separator, _ = named.partition("://")
    variable = f"{scheme.upper()}_PROXY"
    if separator and protocol.lower() not in _PROTOCOLS:
        raise Misconfigured(
            f"the environment names a proxy of the protocol {protocol!r} for {host}, and a "
            f"model is asked through http and https proxies only: change {variable}, or add the "
            "host to NO_PROXY"
        )
    return Proxy(named if separator else f"http://{named}", variable)


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine, whatever the environment's proxies are."""
    name = host.lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(name)
    return address is not None and (address.is_loopback or address.is_unspecified)


def answered_by_proxy(status: int, headers: Mapping[str, str], body: str) -> bool:
    """Returns whether a refusal through a proxy is the proxy's own, and not the endpoint's.

    An endpoint refuses with an error in JSON; a proxy with a page, or with headers of its own.
    """
    signs = {name.lower() for name in headers}
    if status == _NEEDS_PASSWORD or not _SIGNS.isdisjoint(signs):
        return True
    return error_body.document(body) is None


def proxy_refusal(proxy: Proxy, url: str, status: int) -> str:
    """Returns the message about a refusal by a proxy, with its remedy."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    remedy = f"add {urlsplit(url).hostname} to NO_PROXY, or correct {proxy.variable}"
    if status == _NEEDS_PASSWORD:
        remedy = f"put a name and a password into {proxy.variable}, as http://NAME:WORD@HOST:PORT"
    return f"{proxy.shown} refused to connect to {host} with HTTP {status}; {remedy}"


def _excluded(host: str, port: int | None, no_proxy: str) -> bool:
    """Returns whether NO_PROXY names a host.

    An entry is `*`, a host, the end of a host with or without a dot or `*.` before it, an address,
    or a network as `10.0.0.0/8`; each of the first kinds may end in a port.
    """
    return any(
        _matches(entry.strip().lower(), host.lower(), port)
        for entry in no_proxy.replace(" ", ",").split(",")
        if entry.strip()
    )


def _matches(entry: str, host: str, port: int | None) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            pass
    name, separator, number = entry.rpartition(":")
    if separator and number.isdigit():
        if int(number) != port:
            return False
        entry = name.strip("[]")
        if address is not None:
            return _address(entry) == address
    end = entry.removeprefix("*").lstrip(".")
    return bool(end) and (host == end or host.endswith(f".{end}"))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
