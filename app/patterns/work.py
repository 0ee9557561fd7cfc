"""What a runner runs: a candidate in the folder of its branch, and what is said of its folder."""

import json
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from app.patterns.budget import INHERITED, CandidateBudget
from app.patterns.commands import SCORE, STANDARD_OUTPUT, Command, CommandEnd, RunCommand, run_here
from app.patterns.errors import ProcessBranchError
from app.patterns.outcomes import Answer, answer_of

Candidate: TypeAlias = Callable[[Path], Any] | Command
"""Works in the folder that it is given; returns what `answer_of` reads.

A command succeeds if it exits with 0; its score is the number that it writes on descriptor 3.
"""
Evaluate: TypeAlias = Callable[[Path], float] | Command
"""Returns the score of a folder; a command prints it."""
Critique: TypeAlias = Callable[[Path], str] | Command
"""Returns what to do better; a command prints it."""
Compare: TypeAlias = Callable[[Path, Path], int] | Command
"""Returns or prints which of two folders is better: 0 or 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One candidate, or one comparison, as a runner is given it.

    It is data where `is_data` says so.  Otherwise it holds callables, which a fork of this process
    has, and which another machine needs pickled.

    Attributes:
      folders: It may change all of them.  A command starts in the first; callables get the paths.
      home: A folder for what is not committed, which is removed with the branch; it may not exist.
      candidate: None for a comparison, which only evaluates.
      evaluate: Gives the score where the candidate succeeds.
      critique: Gives the error where it does not.
      seconds: After so many the pattern ends it; None for no limit.
      budget: What patterns inside the candidate may start, which only forks share; None for none.
    """

    folders: tuple[Path, ...]
    home: Path
    candidate: Candidate | None = None
    evaluate: Callable[..., float] | Command | None = None
    critique: Critique | None = None
    seconds: float | None = None
    budget: CandidateBudget | None = None

    @property
    def is_data(self) -> bool:
        """Whether all that it runs are commands."""
        parts = (self.candidate, self.evaluate, self.critique)
        return all(part is None or isinstance(part, Command) for part in parts)

    def answer(self, run: RunCommand = run_here) -> Answer:
        """Does the work in this process.

        Raises:
          ProcessBranchError: A command that evaluates or criticises fails.
          TypeError: A callable returns what nobody can read.
        """
        answer = Answer(True) if self.candidate is None else self._attempt(self.candidate, run)
        if answer.success and self.evaluate is not None:
            scored = answer_of((True, self._score(self.evaluate, run)))
            return replace(answer, score=scored.score)
        if not answer.success and self.critique is not None:
            if isinstance(self.critique, Command):
                return replace(answer, error=self._printed(self.critique, run))
            return replace(answer, error=self.critique(self.folders[0]))
        return answer

    def _attempt(self, candidate: Candidate, run: RunCommand) -> Answer:
        if not isinstance(candidate, Command):
            return answer_of(candidate(*self.folders))
        ended = run(candidate, self.folders, SCORE)
        scored, value = ended.written.strip(), {"exit_status": ended.status, "output": ended.output}
        if ended.status != 0:
            return Answer(False, None, _reason(ended), value)
        try:
            return Answer(True, float(scored) if scored else None, "", value)
        except ValueError:
            error = f"the score on descriptor {SCORE} is no number: {scored!r:.100}"
            return Answer(False, None, error, value)

    def _score(self, evaluate: Callable[..., float] | Command, run: RunCommand) -> float:
        if isinstance(evaluate, Command):
            return float(self._printed(evaluate, run))
        return evaluate(*self.folders)

    def _printed(self, command: Command, run: RunCommand) -> str:
        ended = run(command, self.folders, STANDARD_OUTPUT)
        if ended.status != 0:
            raise ProcessBranchError(f"{command.arguments[-1]!r:.200}: {_reason(ended)}")
        return ended.written.strip()


def _reason(ended: CommandEnd) -> str:
    return ended.output.strip() or f"exit status {ended.status}"


def perform(work: Work, run: RunCommand = run_here) -> str:
    """Does the work in this process; returns the document of its answer, or of what it raised.

    The caller receives every exception, whatever its class.
    """
    INHERITED.set(work.budget)
    try:
        answer = work.answer(run)
        return json.dumps({"answer": asdict(answer)})
    except BaseException as error:
        message, name = str(error), type(error).__name__
        raised = f"{name}: {message}" if message else name
        return json.dumps({"raised": raised, "traceback": traceback.format_exc()})


def read_answer(document: str | bytes) -> Answer:
    """Returns the answer in a document of `perform`.

    Raises:
      ProcessBranchError: The work raised, or left no document.
    """
    try:
        read = json.loads(document)
    except ValueError:
        raise ProcessBranchError("its process ended without a result") from None
    if "raised" in read:
        error = ProcessBranchError(read["raised"])
        error.add_note(read["traceback"])
        raise error
    return Answer(**read["answer"])
