"""What the address of a model's endpoint may look like."""

from urllib.parse import urlsplit


def sound_address(address: str) -> str:
    """Returns the address of an endpoint.

    Raises:
      ValueError: It cannot be asked, or holds a secret: settings are kept and shown.
    """
    try:
        parts = urlsplit(address)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        whole = False
    if not whole or any(one.isspace() for one in address):
        raise ValueError("it is no address: write http://HOST:PORT/v1 or https://HOST/v1")
    if "@" in parts.netloc:
        raise ValueError("no user or password: give a key, in the variable of api_key_variable")
    if parts.query or parts.fragment or parts.path.rstrip("/").endswith("/chat/completions"):
        raise ValueError("it must end where /chat/completions is appended, usually with /v1")
    return address
