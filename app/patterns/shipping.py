"""Work as a document for another machine, and the module that does it there.

Commands are written as they are.  Callables are pickled by `cloudpickle`, which the other machine
needs, with the same version of Python.  What reads the document there needs the standard library
and the modules of `MODULES`, whose texts can be sent with it.
"""

import base64
import json
import pickle
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from app.patterns.budget import CandidateBudget
from app.patterns.commands import Command
from app.patterns.errors import ProcessBranchError
from app.patterns.work import Work, perform

MODULES = ("budget", "commands", "errors", "outcomes", "patch", "shipping", "work")
"""Of this package: what reads and does the work elsewhere."""
MOST_SAID = 512 << 10
"""Characters of a document of `do`."""
_PARTS = ("candidate", "evaluate", "critique")
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
    if work.is_data:
        parts = {name: getattr(work, name) for name in _PARTS}  # noqa: B009
        commands = {name: asdict(part) for name, part in parts.items() if part is not None}
        return document | {"commands": commands}
    pickled = _pickled({name: getattr(work, name) for name in _PARTS})
    return document | {"pickle": base64.b64encode(pickled).decode(), "python": _VERSION}


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
        parts = {name: Command(**part) for name, part in document["commands"].items()}
    else:
        parts = _unpickled(document)
    return Work(
        folders=folders,
        seconds=document["seconds"],
        budget=None if budget is None else CandidateBudget(budget),
        **parts,
    )


def _unpickled(document: Mapping[str, Any]) -> dict[str, Any]:
    if document["python"] != _VERSION:
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


def module_texts() -> dict[str, bytes]:
    """Returns the texts of `MODULES` by path, as a folder that can be imported from."""
    here = resources.files(__package__)
    texts = {f"app/patterns/{name}.py": here.joinpath(f"{name}.py").read_bytes() for name in MODULES}
    return {"app/__init__.py": b"", "app/patterns/__init__.py": b"", **texts}
