"""Judging: models rate a measured program, as one more stage of its evaluation.

A judgement is a trial like any other: the same promotion plans it, it is recorded once, and the
same rule merges it into the fitness.  So a child that waits for its judges occupies no sandbox, and
a run without judges has no such stage.

Source: OpenEvolve 0.4.0's LLM feedback for the numbers: `llm_<name>` times the weight, and a
`combined_score` of 0.7 of the evaluator's and 0.3 of the judges' mean.  Departures: the mean of a
value is weighted by the weights of the judges that gave it, and truth values are no scores.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.evaluation import COMBINED, Evaluation, fitness, merged_metrics
from app.domain.operator import Completion, Prompt, Role
from app.domain.program import Program
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.sections import numbers
from app.domain.prompting.templates import EVALUATION, system_text
from app.domain.replies.reasoning import without_thoughts

STAGE = "judged"
"""The stage of a trial that asks judges and runs no program."""
OWN_SHARE = 0.7
_BEYOND = 1e9
"""Exclusive bound of the size of a score."""
_CHARS = 20_480
"""Longest text of one judge, in characters, as for any artifact."""
_FENCED = re.compile(r"```(?:json)?[ \t\r]*+\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that rates every program."""

    model: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Judges:
    """The judges of a run.

    Attributes:
      weight: Factor of the metrics `llm_…`.
    """

    panel: tuple[Judge, ...]
    weight: float = 0.1


@dataclass(frozen=True, slots=True)
class JudgedProgram:
    """A program with the facts that the judges see.

    Attributes:
      evaluations: The program's evaluations at all earlier stages.
      sample: The proposal's ordinal.
    """

    program: Program
    evaluations: tuple[Evaluation, ...]
    sample: int = 0


def judge_prompts(
    judges: Judges, judged: JudgedProgram, rules: PromptRules, instructions: str
) -> list[Prompt]:
    """Returns one prompt for each judge, in the order of the panel."""
    metrics = merged_metrics(judged.program.id, judged.evaluations)
    text = EVALUATION.current(rules).format(
        current_program=judged.program.source.rstrip("\n"),
        language=judged.program.language,
        metrics=numbers(metrics) or "none",
    )
    system = system_text(rules, instructions)
    return [
        Prompt(system, text, judged.sample, Role.JUDGE, model=judge.model) for judge in judges.panel
    ]


def judgement(judges: Judges, judged: JudgedProgram, replies: Sequence[Completion]) -> Evaluation:
    """Returns the evaluation by the judges; without scores if no reply can be read."""
    values: dict[str, list[tuple[float, float]]] = {}
    texts: dict[str, str] = {}
    unread = []
    for judge, reply in zip(judges.panel, replies, strict=True):
        values_given = _json_object(reply.text)
        if values_given is None:
            unread.append(judge.model)
        for name, value in (values_given or {}).items():
            if isinstance(value, str):
                key = f"{name} ({judge.model})" if name in texts else name
                texts[key] = value[:_CHARS]
            elif isinstance(value, int | float) and not isinstance(value, bool):
                score = float(max(-_BEYOND, min(_BEYOND, value)))
                # The comparison is false for NaN too, which JSON readers let through.
                if abs(score) < _BEYOND:
                    values.setdefault(name, []).append((score, judge.weight))
    if unread:
        texts["judges"] = f"no JSON object in the reply of {', '.join(unread)}"
    return _evaluation(
        judges, judged, {name: _mean(pairs) for name, pairs in values.items()}, texts
    )


def without_judgement(judged: JudgedProgram, reason: str) -> Evaluation:
    """Returns the evaluation by no judges: it leaves the fitness as it is and gives the reason."""
    return Evaluation(
        metrics={judged.program.id: {}},
        artifacts={"judges": reason},
        verified=all(evaluation.verified for evaluation in judged.evaluations),
    )


def _evaluation(
    judges: Judges, judged: JudgedProgram, means: Mapping[str, float], texts: Mapping[str, str]
) -> Evaluation:
    player = judged.program.id
    metrics: dict[str, float] = {}
    scores: dict[str, float] = {}
    if means:
        average = math.fsum(means.values()) / len(means)
        metrics = {f"llm_{name}": value * judges.weight for name, value in means.items()}
        metrics["llm_average"] = average * judges.weight
        scores = dict(metrics)
        if COMBINED in _cases(judged):
            own = fitness(player, judged.evaluations) or 0.0
            metrics[COMBINED] = own * OWN_SHARE + average * (1.0 - OWN_SHARE)
            scores = {COMBINED: metrics[COMBINED]}
    return Evaluation(
        scores={player: scores} if scores else {},
        metrics={player: metrics},
        artifacts=texts,
        verified=all(evaluation.verified for evaluation in judged.evaluations),
    )


def _cases(judged: JudgedProgram) -> set[str]:
    player = judged.program.id
    return {name for stage in judged.evaluations for name in stage.scores.get(player, ())}


def _json_object(text: str) -> dict[str, Any] | None:
    """Returns the JSON object in a reply, fenced or bare; None where there is none."""
    text = without_thoughts(text)
    fenced = _FENCED.search(text)
    bare = text[text.find("{") : text.rfind("}") + 1]
    for passage in (*([fenced.group(1)] if fenced else []), bare):
        try:
            value = json.loads(passage)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _mean(values: Sequence[tuple[float, float]]) -> float:
    weights = math.fsum(weight for _, weight in values)
    if weights <= 0:
        return math.fsum(value for value, _ in values) / len(values)
    return math.fsum(value * weight for value, weight in values) / weights
