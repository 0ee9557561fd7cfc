"""Settings as they may be shown: whatever looks like a secret is left out."""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "<redacted>"

_SECRET_NAME = re.compile(r"(?i)(^|[_-])(api_?key|key|secret|password|passwd|token|credentials?)$")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_SECRET_TEXT = re.compile(r"\b(?:sk-|AIza|ghp_|github_pat_|hf_|xox[abp]-)[A-Za-z0-9_\-]{16,}")


def redacted(value: Any) -> Any:
    """Returns JSON values with secrets replaced: by the name they go by, and by their look.

    A password inside an address goes as well; the rest of the address stays.
    """
    if isinstance(value, Mapping):
        return {name: _entry(str(name), entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(part) for part in value]
    if isinstance(value, str):
        return _SECRET_TEXT.sub(REDACTED, _CREDENTIALS.sub(f"{REDACTED}@", value))
    return value


def _entry(name: str, value: Any) -> Any:
    if isinstance(value, str) and value and _SECRET_NAME.search(name):
        return REDACTED
    return redacted(value)
