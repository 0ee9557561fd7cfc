"""Redis addresses in the form of redis-py, and in that of kombu and Flower."""

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kombu.utils.url import parse_url

SCHEMES = ("redis", "rediss", "redis+socket", "unix")


def broker_url(redis_url: str) -> str:
    """Returns kombu's form of an address.

    The two forms differ for Unix sockets only: `unix://:password@/path?db=0` is redis-py's,
    `redis+socket://:password@/path?virtual_host=0` is kombu's.

    Raises:
      ValueError: The text is no address of a Redis, or names a file of authorities that is not
        there.
    """
    parts = urlsplit(redis_url)
    if parts.scheme not in SCHEMES:
        shown = f"{parts.scheme}://…" if parts.scheme else "an address without a scheme"
        raise ValueError(
            f"the queue's address must start with one of {', '.join(f'{s}://' for s in SCHEMES)}, "
            f"not {shown}"
        )
    authorities = parse_qs(parts.query).get("ssl_ca_certs", [""])[0]
    if authorities and not Path(authorities).is_file():
        raise ValueError(f"its ssl_ca_certs names {authorities!r}, and there is no such file")
    if parts.scheme != "unix":
        return redis_url
    if not parts.path:
        raise ValueError(
            "a unix:// address must hold the path of a socket, as unix:///run/redis.sock"
        )
    credentials = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    database = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{credentials}{parts.path}?virtual_host={database}"


def tls_options(redis_url: str) -> dict[str, Any] | None:
    """Returns how kombu and Flower are to check the certificate of a server; None without TLS.

    Without these kombu accepts any certificate, unlike redis-py.
    """
    if urlsplit(redis_url).scheme != "rediss":
        return None
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **parse_url(redis_url).get("ssl", {})}


def client_url(redis_url: str) -> str:
    """Returns redis-py's form of an address that has either form.

    Raises:
      ValueError: The text is no address of a Redis.
    """
    broker_url(redis_url)
    parts = urlsplit(redis_url)
    if parts.scheme != "redis+socket":
        return redis_url
    credentials = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    database = parse_qs(parts.query).get("virtual_host", ["0"])[0]
    return f"unix://{credentials}{parts.path}?db={database}"
