"""What a candidate returns, and what a pattern returns of all its candidates."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What a candidate says of its work.

    Attributes:
      score: Higher is better; None leaves it to the pattern.
      error: Why it failed, for the candidate that tries next; "" where there is nothing to say.
      value: Anything that JSON can hold.
    """

    success: bool
    score: float | None = None
    error: str = ""
    value: Any = None


@dataclass(frozen=True, slots=True)
class SpeculationResult:
    """What became of one candidate.

    Attributes:
      branch_index: Its number in the order in which the pattern was given or made candidates.
      success: Whether it said that it succeeded.
      return_value: What it returned, as JSON holds it.
      exception: Why there is no success, or no commit; None where it simply did not succeed.
      branch_path: The folder it worked in, which no longer exists if the branch has ended.
      score: Higher is better; 0 for a candidate that did not succeed.
      error: What it said of its failure.
    """

    branch_index: int
    success: bool
    return_value: Any
    exception: Exception | None
    branch_path: Path | None
    score: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class SpeculationOutcome:
    """What a pattern returns.

    Attributes:
      winner: The candidate that was chosen; None if there is none.
      all_results: Those that ended, in the order of their numbers.
      committed: Whether the winner's files are now the base's.
    """

    winner: SpeculationResult | None
    all_results: tuple[SpeculationResult, ...] = field(default=())
    committed: bool = False


def answer_of(returned: Any) -> Answer:
    """Reads what a candidate returned.

    Accepted are a bool, a pair of a bool and a score or of a bool and an error, an `Answer`, and
    the outcome of a pattern inside the candidate, which succeeds if it committed.

    Raises:
      TypeError: It is none of these, or the score is no finite number.
    """
    match returned:
        case Answer():
            answer = returned
        case SpeculationOutcome(winner=winner, committed=committed):
            answer = Answer(committed, winner.score if winner else None)
        case bool():
            answer = Answer(returned, value=returned)
        case (bool() as success, bool()):
            raise TypeError(f"a candidate returned {returned!r}: a score is a number, no bool")
        case (bool() as success, int() | float() as score):
            answer = Answer(success, float(score), value=[success, score])
        case (bool() as success, str() as error):
            answer = Answer(success, None, error, [success, error])
        case _:
            raise TypeError(
                f"a candidate returned {returned!r:.200}; return a bool, (bool, score) or "
                "(bool, error)"
            )
    if answer.score is not None and not math.isfinite(answer.score):
        raise TypeError(f"a candidate returned the score {answer.score}, which is not finite")
    return answer
