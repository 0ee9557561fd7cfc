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
    r"""(?ix)\b(\w* (?:password|passwd|token|secret|(?:api|access|private)[_-]?key))
        (["']?\s*[=:]\s*) (?:"[^"\n]*" | '[^'\n]*' | [^\s,;}]+)"""
)
_HEADER = re.compile(
    r"""(?ix)\b(authorization["']?\s*[:=]\s*(?:b?["'])?(?:(?:bearer|basic|token)\s+)?)[^\s"',;]+"""
)
_BEARER = re.compile(r"(?i)\b(bearer\s+)(?=[^\s\d]{0,80}\d)[\w.~+/-]{8,}=*")
_CREDENTIALS = re.compile(r"(?<=://)(?:[^/@\s]{1,200}@)+")
_PRIVATE_KEY = re.compile(
    r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
)
_KEY_WITHOUT_A_BEGINNING = re.compile(
    r"(?m)(?:^[ \t|>│]{0,8}[A-Za-z0-9+/]{16,76}={0,2}[ \t\r]*\n)++"
    r"[ \t|>│]{0,8}-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
)
_KEY = re.compile(
    r"\b(?:(?:sk|pk|gh[oprsu]|github_pat|glpat|hf|xox[abep])[-_][\w-]{8,}|A[KS]IA[A-Z0-9]{16}"
    r"|AIza[\w-]{16,}|npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"
)
_QUERY = re.compile(
    r"""(?ix)([?&\#](?:key|auth|jwt|sig|signature|x-(?:amz|goog)-[\w-]+
        |[\w-]*(?:token|secret|password|api[_-]?key))=)[^&\s"'<>\#]+"""
)
"""A parameter of an address that is a secret, or signs the address."""
_KEY_LINE = re.compile(
    r"(?m)^([ \t|>│]{0,8})(?=[^\n]*[0-9])(?=[^\n]*[A-Z])(?=[^\n]*[a-z])[A-Za-z0-9+/]{60,76}={0,2}"
    r"(?=[ \t\r]*$)"
)
"""A whole line of base64, as private keys have: what prints one by lines is filtered by lines."""


def redacted(text: str) -> str:
    """Returns a text without terminal codes and without what looks like a secret.

    Source: OpenEvolve 0.4.0's artifact filter; common forms of API keys, private keys (RFC 7468,
    also one that is cut off at either end, or printed by lines), parameters of addresses, names
    that end like a secret's, quoted or not, and credentials of requests and addresses are added.
    """
    text = without_keys(_ANSI.sub("", text))
    text = _QUERY.sub(rf"\1{REDACTED}", text)
    text = _ASSIGNED.sub(rf"\1\2{REDACTED}", text)
    text = _HEADER.sub(rf"\1{REDACTED}", text)
    text = _BEARER.sub(rf"\1{REDACTED}", text)
    text = _KEY_LINE.sub(r"\1<REDACTED_TOKEN>", text)
    return _LONG_TOKEN.sub("<REDACTED_TOKEN>", text)


def without_keys(text: str) -> str:
    """Returns a text without private keys, API keys of known forms, and credentials of addresses.

    The rest of an address stays.
    """
    text = _PRIVATE_KEY.sub("<REDACTED_PRIVATE_KEY>", text)
    text = _KEY_WITHOUT_A_BEGINNING.sub("<REDACTED_PRIVATE_KEY>", text)
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
