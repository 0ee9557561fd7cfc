import subprocess
from pathlib import Path

import pytest

COMMITS = 50
"""The last of them: more than a branch has, and what was pushed before them cannot be changed."""
LONGEST = 72


def subjects(repository: Path) -> list[str]:
    """Returns the number and the subject of the last commits, merges apart."""
    log = ["git", "log", "--no-merges", f"--max-count={COMMITS}", "--format=%h %s"]
    try:
        done = subprocess.run(log, cwd=repository, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"there is no history to read: {getattr(error, 'stderr', '') or error}")
    return done.stdout.splitlines()


def test_the_subjects_of_commits_are_short(repository: Path) -> None:
    long = [line for line in subjects(repository) if len(line.partition(" ")[2]) > LONGEST]

    assert long == []


def test_a_folder_without_history_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="there is no history to read"):
        subjects(tmp_path)
