"""Copies of the examples of games, which tests change."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.domain.evaluation import Trial
from app.domain.problem import Job, Problem
from app.domain.program import Program

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REQUIREMENT = "chess==1.11.2"


def fetched_chess(folder: Path) -> Path:
    """Returns the folder of the package `chess`; skips the test where pip cannot fetch it.

    Args:
      folder: An empty folder to unpack it into.
    """
    found = find_spec("chess")
    if found is not None and found.origin is not None:
        return Path(found.origin).parent
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    with suppress(PackageNotFoundError):
        if int(version("setuptools").partition(".")[0]) > 70:  # which brings `bdist_wheel`
            # pip asks a source archive for its metadata, and would install setuptools for that.
            command.append("--no-build-isolation")
    try:
        done = subprocess.run([*command, REQUIREMENT], capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip fetches no {REQUIREMENT} within 120 s")
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        pytest.skip(f"pip fetches no {REQUIREMENT}: {last}")
    [archive] = folder.iterdir()
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder / "unpacked")
    else:
        with tarfile.open(archive) as source:
            source.extractall(folder / "unpacked", filter="data")
    [init] = (folder / "unpacked").rglob("chess/__init__.py")
    return init.parent


def unhurried(game: Problem) -> Problem:
    """Returns a game of whose time a player may use all for one move.

    A machine that stands still for a second takes it from the player that is to move.
    """

    def prepare(trial: Trial, programs: Mapping[str, Program]) -> Job:
        job = game.prepare(trial, programs)
        if job.game is None:
            return job
        return replace(job, game=replace(job.game, move_seconds=job.game.game_seconds))

    return replace(game, prepare=prepare)


def copied(name: str, folder: Path) -> Path:
    """Copies an example to a folder, which it returns."""
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def copied_chess(package: Path, folder: Path) -> Path:
    """Copies the example chess, with the package beside it: no environment is made for it."""
    copied("chess", folder)
    (folder / "chess").mkdir()
    shutil.copy(package / "__init__.py", folder / "chess" / "__init__.py")
    described = (folder / "problem.yaml").read_text()
    required = f"requirements:\n  - {REQUIREMENT}\n"
    assert required in described
    (folder / "problem.yaml").write_text(described.replace(required, ""))
    return folder
