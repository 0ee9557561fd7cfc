"""Judging: what models think of a program that was measured, as one more stage of its trial.

The opinion is a trial like any other: it is planned by the same promotion, recorded once, and
folded into the fitness by the same rule.  So a child that waits for an opinion holds no sandbox,
and a run without judges has no such stage.

Source: OpenEvolve 0.4.0's LLM feedback for the numbers: `llm_<name>` times the weight, and a
`combined_score` of 0.7 of the evaluator's and 0.3 of the judges' mean.  Departures: a value counts
by the weights of the judges that gave it, and truth values are no scores.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.evaluation import COMBINED, Evaluation, fitness
from app.domain.operator import Completion, Prompt, Role
from app.domain.program import Program
from app.domain.prompting.rules import PromptRules
from app.domain.replies.reply_text import without_thoughts

STAGE = "judged"
"""The stage of a trial that asks judges and runs nothing."""
OWN_SHARE = 0.7
_BEYOND = 1e9  # no score is as large
_CHARS = 20_480  # of one judge's text, as of any artifact
_FENCED = re.compile(r"```(?:json)?[ \t\r]*+\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that is asked its opinion of every program."""

    model: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Judges:
    """Who judges.

    Attributes:
      weight: What the metrics `llm_…` are multiplied by.
    """

    panel: tuple[Judge, ...]
    weight: float = 0.1


@dataclass(frozen=True, slots=True)
class Case:
    """What the judges are shown.

    Attributes:
      evaluations: The program's, of all stages before.
      sample: The proposal's ordinal.
    """

    program: Program
    evaluations: tuple[Evaluation, ...]
    sample: int = 0


def questions(judges: Judges, case: Case, rules: PromptRules, instructions: str) -> list[Prompt]:
    """Returns one prompt a judge, in the order of the panel."""
    measured = _measured(case)
    text = rules.template("evaluation").format(
        current_program=case.program.source.rstrip("\n"),
        language=case.program.language,
        metrics=", ".join(f"{name} {value:.6g}" for name, value in measured.items()) or "none",
    )
    system = rules.system(instructions)
    return [
        Prompt(system, text, case.sample, Role.JUDGE, model=judge.model) for judge in judges.panel
    ]


def opinion(judges: Judges, case: Case, replies: Sequence[Completion]) -> Evaluation:
    """Returns the judges' evaluation; without scores where none of them can be read."""
    values: dict[str, list[tuple[float, float]]] = {}
    texts: dict[str, str] = {}
    unread = []
    for judge, reply in zip(judges.panel, replies, strict=True):
        answer = _read(reply.text)
        if answer is None:
            unread.append(judge.model)
        for name, value in (answer or {}).items():
            if isinstance(value, str):
                key = f"{name} ({judge.model})" if name in texts else name
                texts[key] = value[:_CHARS]
            elif isinstance(value, int | float) and not isinstance(value, bool):
                score = float(max(-_BEYOND, min(_BEYOND, value)))
                if abs(score) < _BEYOND:  # false for NaN too, which JSON readers let through
                    values.setdefault(name, []).append((score, judge.weight))
    if unread:
        texts["judges"] = f"no JSON object in the reply of {', '.join(unread)}"
    return _evaluation(judges, case, {name: _mean(own) for name, own in values.items()}, texts)


def unheard(case: Case, reason: str) -> Evaluation:
    """Returns the evaluation of judges that were not asked: it changes nothing, and says why."""
    return Evaluation(
        metrics={case.program.id: {}},
        artifacts={"judges": reason},
        verified=all(one.verified for one in case.evaluations),
    )


def _evaluation(
    judges: Judges, case: Case, means: Mapping[str, float], texts: Mapping[str, str]
) -> Evaluation:
    player = case.program.id
    metrics: dict[str, float] = {}
    scores: dict[str, float] = {}
    if means:
        average = math.fsum(means.values()) / len(means)
        metrics = {f"llm_{name}": value * judges.weight for name, value in means.items()}
        metrics["llm_average"] = average * judges.weight
        scores = dict(metrics)
        if COMBINED in _cases(case):
            own = fitness(player, case.evaluations) or 0.0
            metrics[COMBINED] = own * OWN_SHARE + average * (1.0 - OWN_SHARE)
            scores = {COMBINED: metrics[COMBINED]}
    return Evaluation(
        scores={player: scores} if scores else {},
        metrics={player: metrics},
        artifacts=texts,
        verified=all(one.verified for one in case.evaluations),
    )


def _cases(case: Case) -> set[str]:
    return {name for one in case.evaluations for name in one.scores.get(case.program.id, ())}


def _measured(case: Case) -> dict[str, float]:
    player = case.program.id
    return {k: v for one in case.evaluations for k, v in one.metrics.get(player, {}).items()}


def _read(text: str) -> dict[str, Any] | None:
    """Returns the JSON object of a reply, fenced or bare; None where there is none to be read."""
    text = without_thoughts(text)
    fenced = _FENCED.search(text)
    bare = text[text.find("{") : text.rfind("}") + 1]
    for one in ([fenced.group(1)] if fenced else []) + [bare]:
        try:
            found = json.loads(one)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _mean(values: Sequence[tuple[float, float]]) -> float:
    weights = math.fsum(weight for _, weight in values)
    if weights <= 0:
        return math.fsum(value for value, _ in values) / len(values)
    return math.fsum(value * weight for value, weight in values) / weights
