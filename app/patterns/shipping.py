"""Work as a document for another machine, and the module that does it there.

Commands are written as they are.  Callables are pickled by `cloudpickle`, and where they are no
names of importable modules, the other machine needs the same version of Python.  What reads the
document there is sent with it as an archive that Python runs: the modules that `MODULES` names,
which need the standard library alone, and `cloudpickle` where it is installed here.
"""

import base64
import importlib.util
import io
import json
import pickle
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from app.patterns.budget import CandidateBudget
from app.patterns.commands import Command
from app.patterns.errors import ProcessBranchError
from app.patterns.work import Work, perform

MODULES: Mapping[str, tuple[str, ...]] = {
    "app": ("__init__",),
    "app.adapters": ("__init__", "locked_folders", "snapshots"),
    "app.patterns": (
        *("__init__", "budget", "commands", "errors", "group", "levels", "outcomes", "patch"),
        *("racing", "running", "sandboxed", "shipping", "storage", "work", "worker"),
        "workspace",
    ),
    "workers": ("__init__",),
    "workers.harness": (
        "__init__",
        "file_modes",
        "forks",
        "kernel",
        "limits",
        "processes",
        "sandbox_layout",
    ),
}
"""What reads and does the work elsewhere, patterns inside candidates included."""
_MAIN = b"""import sys
sys.path.append(sys.path.pop(0))
from app.patterns.worker import main
sys.exit(main())
"""
MOST_SAID = 512 << 10
"""Characters of a document of `do`."""
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def write(work: Work) -> dict[str, Any]:
    """Returns work as JSON values, without its folders.

    Raises:
      ProcessBranchError: It holds a callable, and `cloudpickle` is not installed or cannot pickle
        it.
    """
    document: dict[str, Any] = {
        "seconds": work.seconds,
        "budget": None if work.budget is None else work.budget.left,
    }
    parts = {"candidate": work.candidate, "evaluate": work.evaluate, "critique": work.critique}
    if work.is_data:
        places = {str(folder): number for number, folder in enumerate(work.folders)}
        commands = {n: _command(part, places) for n, part in parts.items() if part is not None}
        return document | {"commands": commands}
    pickled = _pickled(parts)
    # Without a name of cloudpickle, the callables are names of modules, which any version reads.
    version = _VERSION if b"cloudpickle" in pickled else ""
    return document | {"pickle": base64.b64encode(pickled).decode(), "python": version}


def _command(part: object, places: Mapping[str, int]) -> dict[str, Any]:
    """Returns a command as JSON values, with the numbers of the folders that it names."""
    assert isinstance(part, Command)
    named = {name: places[text] for name, text in part.variables.items() if text in places}
    texts = {name: text for name, text in part.variables.items() if name not in named}
    return {"arguments": list(part.arguments), "variables": texts, "folders": named}


def _pickled(parts: Mapping[str, object]) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        raise ProcessBranchError(
            "a callable goes to another machine by cloudpickle, which is not installed: "
            "pip install 'evoqueue[kubernetes]', or give a command"
        ) from error
    try:
        return bytes(cloudpickle.dumps(parts))
    except Exception as error:
        # Any object of the caller may refuse, with any exception.
        raise ProcessBranchError(
            f"a candidate cannot be pickled: {type(error).__name__}: {error}. Leave out what "
            f"belongs to this process (locks, connections, open files), or give a command"
        ) from error


def read(document: Mapping[str, Any], folders: tuple[Path, ...]) -> Work:
    """Returns the work that a document describes, in folders of this machine.

    Raises:
      ProcessBranchError: Its callables cannot be read here.
    """
    budget = document["budget"]
    parts: dict[str, Any]
    if "commands" in document:
        parts = {
            name: Command(
                part["arguments"],
                part["variables"] | {n: str(folders[k]) for n, k in part["folders"].items()},
            )
            for name, part in document["commands"].items()
        }
    else:
        parts = _unpickled(document)
    return Work(
        folders=folders,
        home=folders[0].parent / "home",
        seconds=document["seconds"],
        budget=None if budget is None else CandidateBudget(budget),
        **parts,
    )


def _unpickled(document: Mapping[str, Any]) -> dict[str, Any]:
    if document["python"] not in ("", _VERSION):
        raise ProcessBranchError(
            f"a callable was pickled by Python {document['python']}, and this machine has "
            f"{_VERSION}: use the same version at both ends, or give a command"
        )
    try:
        return dict(pickle.loads(base64.b64decode(document["pickle"])))
    except ImportError as error:
        raise ProcessBranchError(
            f"a callable needs a module that is not here: {error}. Install it in the image, or "
            f"send its text along: cloudpickle.register_pickle_by_value(MODULE)"
        ) from error
    except Exception as error:
        # The objects of the caller may raise anything while they are made.
        raise ProcessBranchError(
            f"a callable cannot be read here: {type(error).__name__}: {error}"
        ) from error


def do(document: Mapping[str, Any], folders: tuple[Path, ...]) -> str:
    """Does the work of a document; returns a document for `Shipped.finish`."""
    try:
        work = read(document, folders)
    except ProcessBranchError as error:
        return failed(str(error))
    said = perform(work)
    return json.dumps({"said": said, "left": None if work.budget is None else work.budget.left})


def failed(reason: str) -> str:
    """Returns the document of work that failed for a reason of its surroundings."""
    return json.dumps({"said": json.dumps({"raised": reason, "traceback": ""})})


@dataclass(slots=True)
class Shipped:
    """The budget of work that is elsewhere: what it may start is taken until it says what is left.

    Where it never does, all of it counts as spent.
    """

    budget: CandidateBudget | None
    held: CandidateBudget | None = None

    def __post_init__(self) -> None:
        if self.budget is not None:
            self.held = self.budget.reserve(self.budget.left)

    def finish(self, document: str) -> str:
        """Gives the rest of the budget back; returns the document for `read_answer`.

        Raises:
          ProcessBranchError: It is no document of `do`.
        """
        try:
            read = json.loads(document)
            said, left = str(read["said"]), read.get("left")
        except (ValueError, KeyError, TypeError) as error:
            raise ProcessBranchError(f"its result cannot be read: {document[:200]!r}") from error
        if self.budget is not None and self.held is not None and isinstance(left, int):
            self.held.reserve(self.held.left - max(0, min(left, self.held.left)))
            self.budget.give_back(self.held)
        return said


def archive() -> bytes:
    """Returns an archive of modules, which `python ARCHIVE TASK` runs; equal modules, equal bytes.

    A package of the same name that the other machine has is used in its place.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path, text in _texts().items():
            # The earliest time that the format can hold.
            zipped.writestr(zipfile.ZipInfo(path), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _texts() -> dict[str, bytes]:
    texts = {"__main__.py": _MAIN}
    for package, names in MODULES.items():
        folder = resources.files(package)
        for name in names:
            path = f"{package.replace('.', '/')}/{name}.py"
            texts[path] = folder.joinpath(f"{name}.py").read_bytes()
    found = importlib.util.find_spec("cloudpickle")
    if found is not None and found.origin is not None:
        for file in sorted(Path(found.origin).parent.glob("*.py")):
            texts[f"cloudpickle/{file.name}"] = file.read_bytes()
    return texts
