"""The ledger of one run as a file: a header, a line for each row, and a digest of them all.

The file is gzip of JSON lines.  Whatever of a text may be a secret is left out when it is written;
the sources of programs and the files of the problem stay as they are, because their digests name
them.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from app.domain.problem import Problem
from app.domain.run import Run
from app.domain.secrets import redacted, redacted_values, without_keys
from app.ports.copies import BadCopy, Row
from app.ports.protocols import Store
from app.reports.documents import Json

FORMAT = "evoqueue ledger"
VERSION = 1
"""Rises with each change of the schema or of the events."""

_DAMAGED = (OSError, EOFError, zlib.error, UnicodeDecodeError)
_LONGEST_LINE = 256 * 1024 * 1024

ProblemOf: TypeAlias = Callable[[str, str, Mapping[str, bytes], Mapping[str, object]], Problem]


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A file that was read once and is whole.

    Attributes:
      name: The run's, in the ledger that it comes from.
      rows: Of all tables together.
    """

    path: Path
    name: str
    rows: int


def write_ledger(store: Store, run: Run, file: BinaryIO) -> int:
    """Writes a run's ledger as it is at one moment; returns the number of rows."""
    digest, rows = hashlib.sha256(), 0
    with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:

        def put(value: object) -> None:
            line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
            digest.update(line)
            packed.write(line)

        put({"format": FORMAT, "version": VERSION, "run": run.name})
        with store.begin(snapshot=True) as tx:
            for row in tx.copies.rows(run.id):
                put([row.table, _without_secrets(row)])
                rows += 1
        put({"rows": rows, "sha256": digest.hexdigest()})
    return rows


def verified(path: Path, problem_of: ProblemOf) -> LedgerFile:
    """Reads a file of `write_ledger` without adding it to a ledger.

    Args:
      path: The file.
      problem_of: Builds a problem from format, name, files and options.

    Raises:
      BadCopy: The file is damaged, changed, or of another version.
      ProblemError: This version cannot read the problem.
      OSError: The file cannot be opened.
    """
    digest, rows = hashlib.sha256(), -1
    header: Json = {}
    for number, line in _lines(path):
        value = _parsed(number, line)
        match value:
            case {"format": str(format), "version": int(version), "run": str()} if number == 1:
                _require_version(format, version)
                header = value
            case [str(), dict()] if header:
                pass
            case {"rows": int(stated), "sha256": str(sha256)} if header:
                if (stated, sha256) != (rows, digest.hexdigest()):
                    raise BadCopy("its lines are not those that were written: the digest differs")
                _require_problem(path, problem_of)
                return LedgerFile(path, header["run"], rows)
            case _ if not header:
                raise BadCopy("it is no ledger of a run, as `evoq export` writes it")
            case _:
                raise BadCopy(f"line {number} is neither a row nor the end")
        digest.update(line)
        rows += 1
    raise BadCopy("it ends too early: the rest of it is missing")


def read_ledger(store: Store, file: LedgerFile, name: str) -> Run:
    """Adds the run of a file to a ledger under a name, or nothing at all.

    Raises:
      BadCopy: Its rows are not those of a run.
      ValueError: The name is taken.
    """
    with store.begin() as tx:
        return tx.runs.get(tx.copies.add(_rows(file.path), name))


def _require_version(format: str, version: int) -> None:
    if format != FORMAT:
        raise BadCopy(f"it is of the format {format[:80]!r}, not {FORMAT!r}")
    if version != VERSION:
        age = "a newer" if version > VERSION else "an older"
        raise BadCopy(
            f"it is of version {version}, and this `evoq` reads version {VERSION}: use {age} one"
        )


def _require_problem(path: Path, problem_of: ProblemOf) -> None:
    """Raises unless the problem of a file is the one whose digest it has."""
    problem: Json = {}
    files: dict[str, bytes] = {}
    for row in _rows(path):
        if row.table == "problems" and not problem:
            problem = dict(row.values)
        elif row.table == "problem_files":
            files[row.values["path"]] = bytes.fromhex(row.values["content"].removeprefix("\\x"))
        else:
            break
    if not problem:
        raise BadCopy("it has no problem")
    built = problem_of(problem["format"], problem["name"], files, problem["options"])
    if built.digest != problem["digest"]:
        raise BadCopy("the files of its problem do not have the digest that it names")


def _rows(path: Path) -> Iterator[Row]:
    for number, line in _lines(path):
        value = _parsed(number, line)
        if isinstance(value, list):
            yield Row(*value)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields the lines with their numbers, from 1."""
    with path.open("rb") as raw:
        try:
            with gzip.GzipFile(fileobj=raw) as file:
                number = 0
                while line := file.readline(_LONGEST_LINE):
                    number += 1
                    yield number, line
        except _DAMAGED as error:
            raise BadCopy(f"it is damaged, or no file of `evoq export`: {error}") from error


def _parsed(number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadCopy(f"line {number} is no JSON: {error}") from error


def _without_secrets(row: Row) -> Json:
    """Returns a row's values without what may be a secret in its texts and settings."""
    values = dict(row.values)
    match row.table:
        case "runs":
            values["settings"] = redacted_values(values["settings"])
            values["reason"] = redacted(values["reason"])
        case "workers":
            values["settings"] = redacted_values(values["settings"])
            values["fault"] = redacted(values["fault"])
        case "proposals":
            values["changes"] = redacted(values["changes"])
            values["failure_detail"] = _redacted(values["failure_detail"])
            values["direction"] = redacted_values(values["direction"])
        case "trials" if values["evaluation"]:
            values["evaluation"] = _shown(values["evaluation"])
        case "completions":
            # Only keys are removed from the text, because `llm.cache` may read it again.
            values["text"] = without_keys(values["text"])
            values |= {name: _redacted(values[name]) for name in ("system_text", "user_text")}
        case "events":
            texts = {n: redacted(values["data"][n]) for n in _TEXTS if n in values["data"]}
            values["data"] = values["data"] | texts
    return values


_TEXTS = ("reason", "text")


def _redacted(text: str | None) -> str | None:
    return None if text is None else redacted(text)


def _shown(evaluation: Json) -> Json:
    """Returns an evaluation whose artifacts and failure are without secrets."""
    shown = dict(evaluation)
    if "artifacts" in shown:
        shown["artifacts"] = {name: redacted(text) for name, text in shown["artifacts"].items()}
    if shown.get("failure"):
        shown["failure"] = shown["failure"] | {"detail": redacted(shown["failure"]["detail"])}
    return shown
