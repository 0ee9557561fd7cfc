"""Rows to values and back.  Text is made fit for Postgres here: no NUL, no lone surrogate."""

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

from app.adapters.store.driver import Json, Record
from app.domain.evaluation import Evaluation, Failure, FailureKind, Trial
from app.domain.operator import Draft, Role
from app.domain.problem import Axis, axis_of
from app.domain.program import Program
from app.domain.run import Rules, Run, RunState
from app.domain.search.archive import Elite
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.cohort import CutReason, Member, State
from app.domain.search.strategy import Ranking
from app.ports.history import Settled


def program_of(source: str, language: str, files: Mapping[str, str] | None) -> Program:
    """Returns a program from its text and language, or from the texts of its files by path."""
    return Program(source, language) if files is None else Program.of_files(files)


def clean(text: str) -> str:
    """Returns the text with NUL and lone surrogates replaced; Postgres stores neither."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def as_json(value: object) -> str:
    """Returns compact JSON text, for parameters that are cast to jsonb."""
    return json.dumps(value, separators=(",", ":"))


def built(row: Record, founded: Record, rules: Rules) -> Run:
    """Builds a run from a row of what changes of it, and one of what does not."""
    return Run(
        id=row.id,
        name=founded.name,
        problem=founded.problem,
        problem_name=founded.problem_name,
        strategy=founded.strategy,
        settings=founded.settings,
        rules=rules,
        operators=_operators(row.operators),
        axes=_axes(row.axes),
        seed=founded.seed,
        islands=founded.islands,
        budget=Budget(row.budget, row.budget_wall_seconds, row.budget_tokens, row.budget_cost_usd),
        limits=InFlightLimits(
            row.generating,
            row.evaluating,
            row.generate_batch,
            row.evaluate_batch,
            row.unplaced,
            row.held,
        ),
        state=RunState(row.state),
        reason=row.reason,
        cohorts=row.cohorts,
        ordinals=row.ordinals,
        proposals=row.proposals,
        events=row.events,
        tokens=row.tokens,
        cost_usd=row.cost_usd,
        longest_prompt_tokens=row.longest_prompt_tokens,
        elapsed_seconds=row.elapsed_seconds,
        revision=row.revision,
        ranking=Ranking(row.ranking),
        parent=founded.parent,
        in_process=founded.in_process,
    )


@functools.lru_cache(maxsize=256)
def _axes(text: str) -> tuple[Axis, ...]:
    return tuple(map(axis_of, json.loads(text)))


@functools.lru_cache(maxsize=256)
def _operators(text: str) -> Mapping[str, float]:
    return MappingProxyType(json.loads(text))


def member_of(row: Json) -> Member:
    """Builds a member from a JSON object with the columns of `proposals` and a `length`."""
    draft = None
    if row["parents"] is not None:
        draft = Draft(
            row["ordinal"],
            row["island"],
            row["epoch"],
            row["generation"],
            tuple(row["parents"]),
            tuple(row["inspirations"]),
            Role(row["role"] or Role.GENERATOR),
        )
    state, length = State(row["state"]), row["length"] or 0
    return Member(
        *(row["id"], row["ordinal"], state, draft, row["program"], length, row["seed"]),
        begun=row["begun"],
        reserved=row["reserved"],
    )


def trial_of(row: Json) -> Trial:
    return Trial(row["stage"], tuple(row["players"]), tuple(row["cases"]))


def evaluation_json(evaluation: Evaluation) -> dict[str, object]:
    """Returns the evaluation as JSON values; default values are left out to keep rows small."""
    stored: dict[str, object] = {
        "scores": {p: dict(row) for p, row in evaluation.scores.items()},
        "metrics": {p: dict(row) for p, row in evaluation.metrics.items()},
        "features": {p: dict(row) for p, row in evaluation.features.items()},
        "verified": evaluation.verified,
        "wall_seconds": evaluation.wall_seconds,
        "cpu_seconds": evaluation.cpu_seconds,
        "peak_memory_mib": evaluation.peak_memory_mib,
    }
    if evaluation.behaviour:
        stored["behaviour"] = evaluation.behaviour
    if evaluation.saved_seconds is not None:
        stored["saved_seconds"] = evaluation.saved_seconds
    if evaluation.boot_seconds:
        stored["boot_seconds"] = evaluation.boot_seconds
    if evaluation.artifacts:
        stored["artifacts"] = {clean(k): clean(v) for k, v in evaluation.artifacts.items()}
    if evaluation.failure is not None:
        detail = clean(evaluation.failure.detail)
        stored["failure"] = {**asdict(evaluation.failure), "detail": detail}
    return stored


def evaluation_of(stored: Json | None) -> Evaluation | None:
    if stored is None:
        return None
    failure = stored.get("failure")
    return Evaluation(
        scores=_floats(stored["scores"]),
        metrics=_floats(stored["metrics"]),
        features=_floats(stored["features"]),
        artifacts=stored.get("artifacts", {}),
        failure=failure
        and Failure(FailureKind(failure["kind"]), failure["detail"], failure["culprit"]),
        wall_seconds=stored["wall_seconds"],
        cpu_seconds=stored["cpu_seconds"],
        peak_memory_mib=stored["peak_memory_mib"],
        boot_seconds=stored.get("boot_seconds", 0.0),
        verified=stored["verified"],
        behaviour=stored.get("behaviour", ""),
        saved_seconds=stored.get("saved_seconds"),
    )


def _floats(table: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Returns numbers as they were stored: JSON of Postgres has 1e300 as an integer."""
    return {player: floats(row) for player, row in table.items()}


def floats(row: Mapping[str, float]) -> dict[str, float]:
    """Returns named numbers of JSON as they were stored."""
    return {name: float(value) for name, value in row.items()}


def elite_of(row: Record) -> Elite:
    return Elite(
        row.program,
        row.fitness,
        row.length,
        row.generation,
        tuple(row.cell),
        row.stages_left,
        row.behaviour,
    )


def settled_of(row: Record) -> Settled:
    failure = None
    if row.failure_kind is not None:
        failure = Failure(FailureKind(row.failure_kind), row.failure_detail or "")
    return Settled(
        ordinal=row.ordinal,
        state=State(row.state),
        island=row.island,
        operator=row.operator,
        generation=row.generation or 0,
        program=row.program,
        parents=tuple(row.parents or ()),
        fitness=row.fitness,
        verified=row.verified,
        failure=failure,
        cut=CutReason(row.cut_reason) if row.cut_reason else None,
        seconds=row.seconds,
        wall_seconds=row.wall_seconds,
        cpu_seconds=row.cpu_seconds,
        peak_memory_mib=row.peak_memory_mib,
        boot_seconds=row.boot_seconds,
        stages_left=row.stages_left,
        tokens=row.tokens,
        cost_usd=row.cost_usd,
        changes=row.changes,
        role=Role(row.role or Role.GENERATOR),
        epoch=row.epoch or 0,
        seed=row.seed,
        cohort=row.cohort,
        metrics=metrics_of(row.metrics or {}),
    )


def metrics_of(stored: Json) -> dict[str, float]:
    """Returns metrics as floats: Postgres writes 1e300 as a whole number."""
    return {name: float(value) for name, value in stored.items()}
