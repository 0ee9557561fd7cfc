"""The last steps before a program runs: its identity, its limits, its system call filter."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from . import kernel, landlock, limits
from .accounts import NAME
from .sandbox_layout import LIMIT, NESTED, SHARED_MEMORY, UIDS, SandboxLayout, become
from .syscall_filter import SyscallFilter
from .user_namespaces import enter_namespaces

RUNTIME = ".runtime"
"""The folder that every process makes where it works; nobody else may look into it."""


@dataclass(frozen=True)
class Confinement:
    """The identity, directory and restrictions of one program of a trial.

    Attributes:
      uid: Its identity, where the sandbox has several.
      directory: Its working and temporary directory.
      hidden: Directories it must not see.
      read_only: Directories it must not change.
      writable: Directories that it may change beside its own.
      apart: Whether the evaluator is another process, which must be invisible to the program.
    """

    uid: int
    directory: str
    hidden: tuple[str, ...]
    read_only: tuple[str, ...]
    apart: bool
    writable: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """All directories that it may change."""
        return (self.directory, *self.writable)


def of_evaluator(layout: SandboxLayout, uid: int, directory: str) -> Confinement:
    """Returns the confinement of an evaluator that shares its process with the program."""
    files = (layout.temporary, layout.library)
    return Confinement(uid, directory, (), files, apart=False, writable=(layout.evaluator,))


def program_environment(layout: SandboxLayout, directory: str) -> dict[str, str]:
    """Returns the environment variables of a program; none is inherited from the machine.

    Without a root of its own, a program can make none of the locks that Joblib's processes need;
    Joblib, which may be imported where they can be made, calculates in one process then.
    """
    home = os.path.dirname(os.path.realpath(sys.executable))
    return {
        "PATH": f"{os.path.dirname(sys.executable)}:{home}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "USER": NAME,
        "LOGNAME": NAME,
        **places_of(directory),
        "JOBLIB_MULTIPROCESSING": "1" if layout.own_root else "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        # `torch.compile` would compile headers of its own into one file beyond the largest that a
        # trial may write, for a cache that ends with the trial.
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }


def places_of(directory: str) -> dict[str, str]:
    """Returns the variables by which libraries find where to write: in one directory.

    Matplotlib, Numba, PyTorch, Triton, JAX and Hugging Face derive their own from these.  Joblib
    would take shared memory, which holds no more than a fraction of what it takes.
    """
    return {
        "HOME": directory,
        "TMPDIR": directory,
        "XDG_CACHE_HOME": f"{directory}/.cache",
        "XDG_CONFIG_HOME": f"{directory}/.config",
        "XDG_DATA_HOME": f"{directory}/.local/share",
        "XDG_STATE_HOME": f"{directory}/.local/state",
        "XDG_RUNTIME_DIR": f"{directory}/{RUNTIME}",
        "JOBLIB_TEMP_FOLDER": directory,
    }


def move_into(directory: str, given: Collection[str] = ()) -> None:
    """Makes a directory the one in which this process works, and its libraries write.

    Args:
      directory: A directory in which this process may write.
      given: Names of variables that keep their values.
    """
    os.chdir(directory)
    for name, value in places_of(directory).items():
        if name not in given:
            os.environ[name] = value
    # It alone has to be there, with this mode; the others are made by those who use them.
    with contextlib.suppress(FileExistsError):
        os.mkdir(RUNTIME, 0o700)


def confine(
    layout: SandboxLayout,
    confinement: Confinement,
    bounds: dict[str, Any],
    program_filter: SyscallFilter | None,
    answer_forks: Callable[[], None],
) -> None:
    """Makes this process the program's own, irrevocably.

    `program_filter` is None where it holds already.  `answer_forks` sends a descriptor, if
    anything, which the filter may forbid.
    """
    if layout.identities == UIDS and os.geteuid() != 0:
        os.seteuid(0)
        os.setegid(0)
    # This process's /proc files belong to root, so this precedes the change of identity.
    limits.offer_to_the_oom_killer()
    if layout.identities == UIDS:
        become(confinement.uid)
        kernel.die_with_parent()
    elif layout.identities == NESTED:
        # Programs have one user, so nothing but this keeps what surrounds a program from it.
        around = (layout.work, layout.rpc, os.path.dirname(layout.evaluator))
        read_only = (*around, *confinement.read_only)
        enter_namespaces(
            confinement.places, confinement.hidden, read_only, layout.shared_places, layout.kept
        )
    else:
        # The worker may be root.
        kernel.keep_capabilities()
        kernel.die_with_parent()
    limits.apply(bounds, int(bounds["processes"]) if layout.bounded_by == LIMIT else 0)
    os.umask(0o077)
    os.chdir(confinement.directory)
    kernel.no_new_privileges()
    # To the zygote, that is: Landlock or namespaces hide it from all others.
    kernel.show_memory() if layout.measured else kernel.hide_memory()
    readable = (*layout.readable, *confinement.read_only)
    if not layout.own_root:
        landlock.restrict(landlock.ruleset_of_paths(readable, confinement.places))
    elif confinement.apart and layout.ruleset >= 0:
        landlock.restrict(layout.ruleset)
    elif confinement.apart and layout.identities == UIDS:
        writable = (confinement.directory, SHARED_MEMORY)
        landlock.restrict(landlock.ruleset_of_paths(readable, writable))
    elif confinement.apart:
        landlock.scope_sockets()
    elif not layout.counted_memory:
        landlock.keep_from_devices()
    answer_forks()
    if program_filter is not None:
        program_filter.install()


def reseed(seed: int) -> None:
    """Seeds the random generators of this process, which the zygote's forks would share."""
    random.seed(seed)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(seed)
