"""The filter of secrets, for artifacts, logs, reports and stored configurations alike.

Texts that are only shown lose whatever may be a secret: `redacted`.  Texts that are used
afterwards, such as a problem's config.yaml, lose what is certainly one: `without_keys` and
`KEY_NAME`.
"""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "<REDACTED>"

KEY_NAME = re.compile(r"(?i)(api_?key|secret|password|access_token|auth_token)$")
"""Names of configuration entries whose values are certainly secret."""

_SECRET_NAME = re.compile(r"(?i)(^|[_-])(api_?key|key|secret|password|passwd|token|credentials?)$")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)|\x1b[@-_]")
_LONG_TOKEN = re.compile(r"(?<![A-Za-z0-9])(?<!sha256:)[A-Za-z0-9]{32,}")
"""A long run of letters and digits; the digest of a container image is public."""

_ASSIGNED = re.compile(
    r"""(?ix)\b((?:\w*_)? (?:password|passwd|token|secret|(?:api|access|private)[_-]?key))
        (["']?\s*[=:]\s*) (?:"[^"\n]*" | '[^'\n]*' | [^\s,;}]+)"""
)
_HEADER = re.compile(
    r"""(?ix)\b(authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|token)\s+)?)[^\s"',;]+"""
)
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]{1,200}@")
_PRIVATE_KEY = re.compile(
    r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
)
_KEY = re.compile(
    r"\b(?:(?:sk|pk|ghp|github_pat|hf|xox[abp])[-_][\w-]{8,}|AKIA[A-Z0-9]{16}|AIza[\w-]{16,})"
)


def redacted(text: str) -> str:
    """Returns a text without terminal codes and without what looks like a secret.

    Source: OpenEvolve 0.4.0's artifact filter; common forms of API keys, private keys (RFC 7468,
    also one that is cut off), names that end like a secret's, quoted or not, and credentials of
    requests and addresses are added.
    """
    text = without_keys(_ANSI.sub("", text))
    text = _ASSIGNED.sub(rf"\1\2{REDACTED}", text)
    text = _HEADER.sub(rf"\1{REDACTED}", text)
    return _LONG_TOKEN.sub("<REDACTED_TOKEN>", text)


def without_keys(text: str) -> str:
    """Returns a text without private keys, API keys of known forms, and credentials of addresses.

    The rest of an address stays.
    """
    text = _PRIVATE_KEY.sub("<REDACTED_PRIVATE_KEY>", text)
    text = _KEY.sub("<REDACTED_KEY>", text)
    return _CREDENTIALS.sub(f"{REDACTED}@", text)


def redacted_values(value: Any) -> Any:
    """Returns JSON values without secrets, which are known by the name of their entry or by form.

    Entries keep their names; numbers, booleans and null stay as they are.
    """
    match value:
        case str():
            return redacted(value)
        case Mapping():
            return {name: _redacted_entry(str(name), entry) for name, entry in value.items()}
        case list() | tuple():
            return [redacted_values(part) for part in value]
        case _:
            return value


def _redacted_entry(name: str, value: Any) -> Any:
    if isinstance(value, str) and value and _SECRET_NAME.search(name):
        return REDACTED
    return redacted_values(value)
