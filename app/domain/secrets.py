"""A filter for artifacts: what programs print, without what nobody should be told."""

import re

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)|\x1b[@-_]")
_LONG_TOKEN = re.compile(r"[A-Za-z0-9]{32,}")
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
    text = _ANSI.sub("", text)
    text = _PRIVATE_KEY.sub("<REDACTED_PRIVATE_KEY>", text)
    text = _KEY.sub("<REDACTED_KEY>", text)
    text = _ASSIGNED.sub(r"\1\2<REDACTED>", text)
    text = _HEADER.sub(r"\1<REDACTED>", text)
    text = _CREDENTIALS.sub("<REDACTED>@", text)
    return _LONG_TOKEN.sub("<REDACTED_TOKEN>", text)
