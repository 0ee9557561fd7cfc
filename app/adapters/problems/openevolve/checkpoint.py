"""Programs of an OpenEvolve checkpoint, as further seeds of a problem."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.adapters.problems import options as option
from app.adapters.problems.files import content, decoded
from app.domain.evaluation import COMBINED
from app.domain.finite import LARGEST, mean
from app.domain.problem import ProblemError

MOST = 64
"""Programs that are taken: each is measured once more, on every island, before a run begins."""


def programs(folder: Path, suffix: str) -> dict[str, bytes]:
    """Returns the fittest programs that are in the checkpoint's archive or grid, as seed files.

    Args:
      folder: A checkpoint; or the output of OpenEvolve, of which the last checkpoint counts.
      suffix: Of the files.

    Raises:
      ProblemError: There is no checkpoint, or one of its files is not as OpenEvolve writes it.
    """
    place = _checkpoint(folder)
    metadata = _read(place / "metadata.json")
    maps = metadata.get("island_feature_maps") or []
    kept = [*(metadata.get("archive") or []), *(p for cells in maps for p in cells.values())]
    found = [
        _read(path)
        for program in sorted({str(name) for name in kept})
        if (path := place / "programs" / f"{program}.json").is_file()
    ]
    ranked = sorted(found, key=_fitness, reverse=True)
    texts = list(dict.fromkeys(str(one["code"]) for one in ranked if one.get("code")))[:MOST]
    if not texts:
        raise _wrong("the checkpoint holds no program", place)
    return {f"seeds/checkpoint_{n:02}{suffix}": text.encode() for n, text in enumerate(texts, 1)}


def _checkpoint(folder: Path) -> Path:
    if (folder / "metadata.json").is_file():
        return folder
    found = [
        path
        for path in [*folder.glob("checkpoint_*"), *folder.glob("checkpoints/checkpoint_*")]
        if path.name.rpartition("_")[2].isdigit() and (path / "metadata.json").is_file()
    ]
    if not found:
        raise _wrong("there is no checkpoint", folder)
    return max(found, key=lambda path: int(path.name.rpartition("_")[2]))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        loaded = json.loads(decoded(content(path), str(path)))
    except ValueError as error:
        raise _wrong(f"not JSON: {error}", path) from error
    if not isinstance(loaded, dict):
        raise _wrong("not an object of JSON", path)
    return loaded


def _fitness(program: Mapping[str, Any]) -> float:
    """Returns OpenEvolve's fitness: `combined_score`, else the mean of the numbers."""
    numbers = {
        name: float(value)
        for name, value in (program.get("metrics") or {}).items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and -LARGEST <= value <= LARGEST
    }
    if COMBINED in numbers:
        return numbers[COMBINED]
    return mean(numbers.values()) if numbers else 0.0


def _wrong(what: str, path: Path) -> ProblemError:
    return ProblemError(
        what,
        where=option.CHECKPOINT,
        value=str(path),
        remedy="Name a folder with metadata.json and programs/, or one that holds such.",
    )
