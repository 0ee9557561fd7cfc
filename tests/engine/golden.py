"""Documents that are compared with files: what a program that reads `--json` or `/api` relies on.

`EVOQ_WRITE_GOLDEN=1 pytest tests/engine/test_json_documents.py` writes the files anew.
"""

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "documents"
TIME, NUMBER, TEXT = "a time", "a number", "a text"


def normal(value: Any, key: str = "") -> Any:
    """Returns a document with a word for each value that differs from run to run of the test."""
    match value:
        case dict():
            return {name: normal(one, str(name)) for name, one in value.items()}
        case list():
            return [normal(one, key) for one in value]
        case float() | int() | None if key == "rate":
            return NUMBER
        case bool() | None:
            return value
        case float() | int() if "seconds" in key:
            return TIME
        case float() | int() if "bytes" in key:
            return NUMBER
        case int() if key in ("id", "run"):
            return NUMBER
        case str() if value and key in ("waiting", "fault"):
            return TEXT
        case _:
            return value


def require_golden(name: str, document: Any) -> None:
    """Fails where a document is not the one of the file."""
    path = FOLDER / f"{name}.json"
    read = json.loads(json.dumps(document, allow_nan=False))
    text = json.dumps(normal(read), indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("EVOQ_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} is another document"
