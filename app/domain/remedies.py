"""Remedies: the commonest failure of a run, its reason, and what an operator can do about it.

One place knows them.  Lines, JSON and pages show the same text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

from app.domain.evaluation import BEGINS, FailureKind
from app.domain.search.cohort import CutReason

LEAST = 3
"""Proposals that end alike from which on they are explained."""
_REASON_CHARS = 240
_TOKENS = 4
"""Factor by which a limit of tokens is raised: reasoning takes several times an answer."""
_UNEVALUATED = (CutReason.DUPLICATE, CutReason.SIMILAR, CutReason.SAME_BEHAVIOUR)
_CUT_OFF = "cut off at its token limit"
_NO_ANSWER = ("nothing but reasoning", "The reply is empty")
"""What a detail says of a reply whose tokens were all spent on reasoning."""
_OUTSIDE = "outside the EVOLVE-BLOCK regions"
_MODULE = re.compile(r"No module named '([\w.]+)'|allow `([\w.]+)` to be imported")
_NUMBER = re.compile(r"(?:more than|within) ([\d.]+)")


@dataclass(frozen=True, slots=True)
class Commonest:
    """The commonest end of a run's proposals without a new program in the archive.

    Attributes:
      kind: A failure kind, or the reason of a cut before the evaluation.
      count: Proposals that ended so.
    """

    kind: FailureKind | CutReason
    count: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The commonest end of a run's proposals, explained.

    Attributes:
      kind: A failure kind, or the reason of a cut before the evaluation.
      count: Proposals that ended so.
      settled: Proposals that have ended.
      alike: Those of them, among the newest, that the reason holds for; `count` where it is one.
      reason: The commonest detail.
      remedy: One or more sentences.
    """

    kind: str
    count: int
    settled: int
    alike: int
    reason: str
    remedy: str

    @property
    def text(self) -> str:
        """The explanation as one line."""
        reason = self.reason if self.reason.endswith((".", "!", "?")) else f"{self.reason}."
        part = f", {self.alike} of them" if self.alike < self.count else ""
        ended = f"{self.count} of {self.settled} proposals ended as {self.kind}{part}"
        return f"{ended}: {reason} {self.remedy}"


def commonest(failures: Mapping[str, int], cuts: Mapping[str, int]) -> Commonest | None:
    """Returns the commonest end of proposals; None below `LEAST` of a kind.

    Args:
      failures: Failed proposals by kind.
      cuts: Cut proposals by reason; those that were measured, and those withdrawn, do not count.
    """
    ends: list[Commonest] = [Commonest(FailureKind(kind), n) for kind, n in failures.items()]
    ends += [Commonest(reason, cuts[reason]) for reason in _UNEVALUATED if reason in cuts]
    most = max(ends, key=lambda end: end.count, default=None)
    return most if most is not None and most.count >= LEAST else None


def explained(
    most: Commonest, settled: int, detail: str, *, max_tokens: int | None, alike: int | None = None
) -> Explanation:
    """Returns the explanation of the commonest end.

    Args:
      most: The commonest end.
      settled: Proposals that have ended.
      detail: The commonest detail of its failures, of which the first line is shown, and how a
        reply begins; "" where there is none.
      max_tokens: `llm.max_tokens`; None where it is not set.
      alike: Failures that have the detail; None for all.
    """
    kind = most.kind
    first, *others = detail.strip().split("\n")
    shown = [first, *(line for line in others if line.startswith(BEGINS))]
    reason = " ".join(shown)[:_REASON_CHARS].strip()
    if isinstance(kind, CutReason):
        reason, remedy = _of_cut(kind)
    elif _CUT_OFF in detail:
        remedy = _more_tokens(max_tokens, reasoning=any(words in detail for words in _NO_ANSWER))
    else:
        remedy = _of_failure(kind, detail)
    number = most.count if alike is None else min(alike, most.count)
    return Explanation(
        kind.value, most.count, settled, number, reason or "without a detail", remedy
    )


def _of_cut(kind: CutReason) -> tuple[str, str]:
    if kind is CutReason.DUPLICATE:
        return "the program was measured before in this run", _OTHERWISE
    if kind is CutReason.SIMILAR:
        return (
            "the program is too similar to one of the fittest",
            "Raise search.similarity, or `--set search.similarity=null`.",
        )
    return "the probe gave what that of another program gave", _OTHERWISE


_OTHERWISE = (
    "Raise llm.temperature, or name a stronger model in llm.model; without a model, give `mutate` "
    "more weight in search.operators."
)
_ANOTHER_RUN = "A run keeps the problem that it began with: a changed problem takes another run."
_WHOLE = "`--set 'search.operators={rewrite: 1}'` asks for whole programs instead of edits"


def _more_tokens(max_tokens: int | None, *, reasoning: bool) -> str:
    raised = (
        f"--set llm.max_tokens={max_tokens * _TOKENS}" if max_tokens else "--set llm.max_tokens=N"
    )
    now = f"{max_tokens} now" if max_tokens else "not set now, so the endpoint's own limit holds"
    less = "; or lower llm.reasoning_effort, as a reasoning model spends them on its thoughts"
    return f"Raise llm.max_tokens ({now}), as `{raised}`{less if reasoning else ''}."


def _of_failure(kind: FailureKind, detail: str) -> str:
    match kind:
        case FailureKind.NO_CODE:
            return (
                "Name a stronger model in llm.model, or ask in another form, as `--set "
                "'search.operators={rewrite: 1}'` or `{complete: 1}`; `evoq prompt` shows the "
                "prompt."
            )
        case FailureKind.BAD_EDIT if _OUTSIDE in detail:
            return (
                "Start another run with the EVOLVE-BLOCK markers around the lines that may "
                "change, or with `--set search.enforce_blocks=false`."
            )
        case FailureKind.BAD_EDIT:
            return f"{_WHOLE}."
        case FailureKind.UNCHANGED:
            return _OTHERWISE
        case FailureKind.REFUSED:
            return (
                "Name another model in llm.model, or state in the problem's instructions "
                "(`prompt.system_message` of config.yaml, `instructions` of problem.yaml) what "
                f"the program is for. {_ANOTHER_RUN}"
            )
        case FailureKind.TOO_LONG:
            return (
                "Raise `max_code_length` in config.yaml, or `max_code_chars` in problem.yaml; "
                f"without either the limit is twice the initial program. {_ANOTHER_RUN}"
            )
        case FailureKind.SYNTAX:
            return f"{_WHOLE}; or name a stronger model in llm.model."
        case FailureKind.IMPORT_BLOCKED:
            return _of_import(detail)
        case FailureKind.RUNTIME if _MODULE.search(detail):
            return _of_import(detail)
        case FailureKind.RUNTIME if "processes and threads at once" in detail:
            return f"Raise sandbox.processes{_twice(detail, 'processes')} if programs need more."
        case FailureKind.RUNTIME | FailureKind.INVALID_SIGNATURE:
            return (
                "`evoq metrics RUN` lists the failed programs and `evoq show RUN --program ID` "
                "shows one with its error; `mend` in search.operators lets a model correct them."
            )
        case FailureKind.TIMEOUT | FailureKind.MEMORY | FailureKind.OUTPUT_LIMIT:
            return _of_limit(kind, detail)
        case FailureKind.INVALID_RESULT:
            return (
                "`evoq show RUN --program ID` shows the result; state in the instructions what "
                f"the program returns, or let the evaluator reject it with a score. {_ANOTHER_RUN}"
            )
        case FailureKind.SANDBOX_VIOLATION:
            return (
                "State in the instructions what a program may not do; the sandbox stops it. "
                f"{_ANOTHER_RUN}"
            )
        case _:
            assert_never(kind)


def _of_limit(
    kind: Literal[FailureKind.TIMEOUT, FailureKind.MEMORY, FailureKind.OUTPUT_LIMIT], detail: str
) -> str:
    match kind:
        case FailureKind.TIMEOUT:
            name = "cpu_seconds" if "CPU time" in detail else "wall_seconds"
            return f"Raise sandbox.{name}{_twice(detail, name)} if programs need longer."
        case FailureKind.MEMORY:
            return f"Raise sandbox.memory_mib{_twice(detail, 'memory_mib')} if programs need more."
        case FailureKind.OUTPUT_LIMIT:
            return (
                "Raise sandbox.output_bytes if programs print so much, or state in the "
                f"instructions that they print nothing and write no files. {_ANOTHER_RUN}"
            )
        case _:
            assert_never(kind)


def _of_import(detail: str) -> str:
    found = _MODULE.search(detail)
    missing, refused = found.groups() if found else (None, None)
    if refused:
        return (
            f"Allow `{refused}`: `allow_imports` in config.yaml, `imports.allow` in problem.yaml, "
            f"or problem.allow_imports; and take it out of the denied ones. {_ANOTHER_RUN}"
        )
    return (
        f"`{missing or 'the module'}` is not installed in the sandbox: name its package in a "
        f"requirements.txt beside the evaluator, or in the instructions the modules that are "
        f"there. {_ANOTHER_RUN}"
    )


def _twice(detail: str, name: str) -> str:
    """Returns how to set a limit to twice the one that the detail names; "" where it names none."""
    limit = _NUMBER.search(detail)
    return f", as `--set sandbox.{name}={2 * float(limit[1]):g}`," if limit else ""
