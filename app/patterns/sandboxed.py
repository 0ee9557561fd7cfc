"""Runs a candidate in a sandbox; its text is the evaluator's module there.

Beside it are the folder that candidates begin with, and the archive of `app.patterns.shipping`.
"""

import importlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

BASE, ARCHIVE = "base.tar", "worker.pyz"
if (_archive := Path(__file__).with_name(ARCHIVE)).exists():
    sys.path.append(str(_archive))

from app.patterns import patch, shipping  # noqa: E402  found in the archive


def candidate(path: str) -> object:
    """Returns what a candidate says, and what it changed in its first folder, as artifacts.

    Args:
      path: The document of the work, with the patch that each of its folders begins with.
    """
    # The harness stands in for the package of this name.
    stand_in = importlib.import_module("openevolve.evaluation_result")
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    base = Path(__file__).with_name(BASE).read_bytes()
    home = tempfile.mkdtemp(prefix="candidate-")
    folders = []
    for number, start in enumerate(document["starts"]):
        folder = os.path.join(home, str(number), "tree")
        os.makedirs(folder)
        patch.unpack(base, folder)
        patch.apply(start, folder)
        folders.append(Path(folder))
    before = patch.manifest(str(folders[0]))
    said = shipping.do(document, tuple(folders))
    try:
        changes = patch.make(before, str(folders[0])) if document["changes"] else ""
    except patch.PatchError as error:
        said, changes = shipping.failed(str(error)), ""
    if len(said) > shipping.MOST_SAID:
        said = shipping.failed(f"an answer of {len(said)} bytes; the most is {shipping.MOST_SAID}")
    shutil.rmtree(home, ignore_errors=True)
    return stand_in.EvaluationResult(
        metrics={}, artifacts={"said": said, **({"patch": changes} if changes else {})}
    )
