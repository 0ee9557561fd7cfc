"""What every format builds alike: digests, the evaluator, the job of a trial."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypedDict

from app.adapters.problems.files import DATA_FOLDER
from app.adapters.problems.options import Options
from app.domain.evaluation import CaseId, Trial
from app.domain.problem import Axis, Evaluator, Folder, Job, Limits, Mode, ProblemDigest
from app.domain.program import Program, ProgramId
from app.domain.search.features import COMPLEXITY, DIVERSITY

PYTHON_SUFFIX = ".py"

MOST_TRIALS = 8
"""Cases up to which each has a trial of its own by default."""

DEFAULT_AXES = (Axis(COMPLEXITY, scaled=True), Axis(DIVERSITY, scaled=True))
"""The grid of a problem that declares none."""

DATA_VARIABLE = "EVOQ_PROBLEM_DATA"
"""Variable of the evaluator: paths of the data files relative to its own folder, joined by ":"."""


def default_mode(suffix: str) -> Mode:
    """Returns the mode of a problem whose options choose none.

    Only a Python program has a stand-in.  A program that the evaluator compiles or starts itself
    has the evaluator's rights, and in compatible mode those are a throw-away identity's.
    """
    return Mode.GUARDED if suffix == PYTHON_SUFFIX else Mode.COMPATIBLE


class Origin(TypedDict):
    """The fields of a `Problem` that say what it was built from."""

    name: str
    digest: ProblemDigest
    format: str
    files: Mapping[str, bytes]
    options: Mapping[str, object]


def origin(format: str, name: str, files: Mapping[str, bytes], options: Options) -> Origin:
    """Returns what a problem was built from, with the digest of all that shapes its evaluations."""
    values = options.values
    digest = _digest({"format": format, "options": values, "files": _hashes(files)})
    return Origin(name=name, digest=digest, format=format, files=files, options=values)


def evaluator_of(
    files: Mapping[str, bytes],
    entry: str,
    options: Options,
    fixed: Mapping[str, bytes] = MappingProxyType({}),
) -> Evaluator:
    """Returns the evaluator whose module is `entry`, with all files beside it.

    Args:
      files: The files beside it.
      entry: The path of its module.
      options: Those of the problem.
      fixed: The files around those of programs of several files.
    """
    environment, mounts = dict(options.environment), dict(options.mounts)
    data = [*options.data, *(f"{DATA_FOLDER}/{name}" for name in mounts)]
    if data:
        environment[DATA_VARIABLE] = ":".join(data)
    image = options.image
    digested = {"files": _hashes(files), "entry": entry, "env": environment, "image": image}
    if mounts:
        digested["mounts"] = mounts
    if fixed:
        digested["fixed"] = _hashes(fixed)
    return Evaluator(_digest(digested), files, entry, environment, image, mounts, fixed)


def case_groups(
    cases: Sequence[CaseId], *, together: bool | None = None
) -> tuple[tuple[CaseId, ...], ...]:
    """Returns the cases of each trial of a stage.

    Args:
      cases: All of them.
      together: Whether they are one trial; None: if they are more than `MOST_TRIALS`.
    """
    if len(cases) > MOST_TRIALS if together is None else together:
        return (tuple(cases),)
    return tuple((case,) for case in cases)


def _as_it_is(source: str) -> str:
    return source


@dataclass(frozen=True, slots=True)
class Jobs:
    """Makes the jobs of a problem's trials.

    Attributes:
      limits: The limits of each stage.
      runnable: Turns the source of a program into what the sandbox imports.
      others: The evaluators of stages that have one of their own.
      entry: Of programs of several files, the one whose functions are called; "" for none.
      copied: Whether the fixed files around those of a program are copies.
    """

    evaluator: Evaluator
    suffix: str
    mode: Mode
    limits: Mapping[str, Limits]
    runnable: Callable[[str], str] = _as_it_is
    others: Mapping[str, Evaluator] = field(default_factory=dict)
    entry: str = ""
    copied: bool = False

    def prepare(self, trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
        """Returns the job of one trial.

        Raises:
          ValueError: There is not exactly one player, or no such stage.
        """
        if len(trial.players) != 1:
            raise ValueError(f"a trial of this problem has one player, not {len(trial.players)}")
        if trial.stage not in self.limits:
            raise ValueError(f"no stage {trial.stage!r} among {tuple(self.limits)}")
        program = programs[trial.players[0]]
        texts = [_bytes(self.runnable(file.source)) for file in program.files]
        folder = None
        if program.path:
            paths = tuple(file.path for file in program.files)
            folder = Folder(paths, tuple(map(len, texts)), self.entry, self.copied)
        return Job(
            evaluator=self.others.get(trial.stage, self.evaluator),
            function=trial.stage,
            programs=((self.suffix, b"".join(texts)),),
            limits=self.limits[trial.stage],
            mode=self.mode,
            seed=int(program.id[:8], 16),
            cases=tuple(case for case in trial.cases if case),
            folder=folder,
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def _digest(value: Mapping[str, object]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
