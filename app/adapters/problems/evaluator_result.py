"""Results of an evaluator: strict about numbers, tolerant about everything else.

Artifacts become safe to store, to show and to put into a prompt.
"""

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.adapters.problems.reported_error import ERROR, TIMEOUT, Report, reported_error
from app.domain.evaluation import COMBINED, Evaluation, Failure, FailureKind, Trial, fitness
from app.domain.problem import Outcome
from app.domain.program import Program, ProgramId
from app.domain.search.features import BUILT_IN, COMPLEXITY, DIVERSITY
from app.domain.secrets import redacted

MAX_METRICS = 1_000

MAX_ARTIFACTS = 64
MAX_TOTAL_CHARS = 262_144
MAX_NAME_CHARS = 100
OUTPUT_CHARS = 4_096
ARTIFACT_CHARS = 20_480

_NONFINITE = "__nonfinite__"
_OBJECT = "__object__"
_NOT_KNOWN = frozenset(("", "-", "n/a", "na", "none", "null", "undefined"))
"""Texts, in lower case, that stand for a number that is not known."""
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Reader:
    """How the outcomes of one problem become evaluations.

    Attributes:
      stages: Names of the stages; features are required of the last one only.  A trial of another
        stage, but the validation, is a probe.
      axes: Names of the grid's axes.
      flags_count: Whether booleans are the numbers 1 and 0, as OpenEvolve's cascades have it.
      artifact_chars: Longest artifact that is kept.
      redact: Whether artifacts are searched for secrets.
      keep_artifacts: Whether artifacts of a success are kept at all.
      verified: Whether evaluator and program are separate processes.
      validation: Name of the stage that validates; "" for none.
    """

    seeds: tuple[Program, ...]
    verified: bool
    stages: tuple[str, ...] = ("evaluate",)
    axes: tuple[str, ...] = (COMPLEXITY, DIVERSITY)
    validation: str = ""
    flags_count: bool = True
    artifact_chars: int = ARTIFACT_CHARS
    redact: bool = True
    keep_artifacts: bool = True

    def interpret(
        self, trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome
    ) -> Evaluation:
        """Returns what a job measured, or why it measured nothing.

        Raises:
          ValueError: The trial does not have exactly one player.
        """
        if len(trial.players) != 1:
            raise ValueError(f"a trial of this problem has one player, not {len(trial.players)}")
        measures = trial.stage in (*self.stages, self.validation)
        of_probe = "" if measures else f"in {trial.stage}: "
        if outcome.failure is not None:
            return self._failed(outcome, outcome.failure, {}, of_probe)
        try:
            returned = _returned(outcome.result)
            measured = _by_kind(returned.metrics, flags_count=self.flags_count)
            if measures or ERROR in returned.metrics:
                failure = _declared_failure(measured, returned.artifacts, self.axes)
                if failure is not None:
                    texts = returned.artifacts | measured.texts
                    return self._reported(outcome, failure, texts, of_probe)
            if not measures:
                return replace(self.unscored(outcome, {}), behaviour=_digest(returned.metrics))
            _require_a_number(measured)
            scores = _scores(returned.metrics, measured, self.axes, trial.cases)
            player = trial.players[0]
            value = fitness(player, [Evaluation(scores={player: scores})])
            final = trial.stage == self.stages[-1]
            features = self._features(measured, programs[player], value or 0.0, required=final)
        except _Invalid as invalid:
            failure = Failure(FailureKind.INVALID_RESULT, str(invalid))
            return self._failed(outcome, failure, {}, of_probe)
        texts = returned.artifacts | measured.texts
        return replace(
            self.unscored(outcome, texts),
            scores={player: scores},
            metrics={player: measured.numbers},
            features={player: features},
        )

    def _reported(
        self, outcome: Outcome, failure: Failure, texts: Mapping[str, str], of_probe: str
    ) -> Evaluation:
        """Returns the failure that the evaluator reports, with its text as an artifact.

        The evaluator chose that text, so a prompt may quote it, as it may any artifact.
        """
        if failure.detail not in texts.get(ERROR, ""):
            texts = {**texts, ERROR: failure.detail}
        return self._failed(outcome, failure, texts, of_probe)

    def _failed(
        self, outcome: Outcome, failure: Failure, texts: Mapping[str, str], of_probe: str
    ) -> Evaluation:
        chars = OUTPUT_CHARS
        printed = {
            name: clipped(stream.decode("utf-8", "replace"), chars)
            for name, stream in (("stderr", outcome.stderr), ("stdout", outcome.stdout))
        }
        detail = clipped(clean(f"{of_probe}{failure.detail}"), chars)
        if self.redact:
            detail = redacted(detail)
        return replace(
            self.unscored(outcome, {**printed, **texts}),
            failure=Failure(failure.kind, detail, failure.culprit),
        )

    def unscored(self, outcome: Outcome, texts: Mapping[str, str]) -> Evaluation:
        """Returns what a job cost and its texts, bounded; without a score."""
        return Evaluation(
            artifacts=bounded_artifacts(
                texts if self.keep_artifacts else {}, chars=self.artifact_chars, redact=self.redact
            ),
            wall_seconds=outcome.wall_seconds,
            cpu_seconds=outcome.cpu_seconds,
            peak_memory_mib=outcome.peak_memory_mib,
            boot_seconds=outcome.boot_seconds,
            verified=self.verified,
        )

    def _features(
        self, measured: "_Measured", program: Program, value: float, *, required: bool
    ) -> dict[str, float]:
        features: dict[str, float] = {}
        for axis in self.axes:
            number = measured.numbers.get(axis)
            if number is None and axis in measured.unusable:
                raise _Invalid(f"axis `{axis}` is not a finite number: {measured.texts[axis]}")
            if number is None and axis in measured.flags:
                number = float(measured.flags[axis])
            if number is None and axis in measured.texts:
                text = measured.texts[axis]
                raise _Invalid(f"axis `{axis}` is not a number: {text[:200]}")
            if number is None and axis in BUILT_IN:
                number = BUILT_IN[axis](program, value, self.seeds)
            if number is not None:
                features[axis] = number
            elif required:
                names = ", ".join(sorted(measured.numbers)) or "none"
                raise _Invalid(
                    f"axis `{axis}` was not measured: the evaluator must return a metric of that "
                    f"name (it returned {names}), or the axis must be one of {sorted(BUILT_IN)}"
                )
        return features


def _digest(reported: Mapping[str, object]) -> str:
    """Returns a digest of what a probe reported, to the last bit."""
    return hashlib.sha256(json.dumps(reported, sort_keys=True).encode()).hexdigest()


class _Invalid(Exception):
    """The result of the evaluator cannot be a score; the message says why."""


@dataclass(frozen=True, slots=True)
class _Returned:
    metrics: Mapping[str, object]
    artifacts: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Measured:
    """Metrics by kind.

    Attributes:
      numbers: Finite numbers.
      flags: Booleans; in `texts` or in `numbers` too.
      texts: Every value that is no number, as text.
      unusable: Numbers that are NaN, infinite or out of range; in `texts` too.
      not_understood: What was meant as a number and is none; in `texts` too.
    """

    numbers: dict[str, float]
    flags: dict[str, bool]
    texts: dict[str, str]
    unusable: Collection[str]
    not_understood: Collection[str]


def _returned(result: bytes | None) -> _Returned:
    try:
        loaded = json.loads(
            result or b"", parse_constant=_refused, object_pairs_hook=_without_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise _Invalid(f"the result is not strict JSON: {error}") from error
    if not isinstance(loaded, dict) or not isinstance(loaded.get("metrics"), dict):
        raise _Invalid("the evaluator must return a dict of metrics")
    texts = loaded.get("artifacts", {})
    if not isinstance(texts, dict):
        raise _Invalid("artifacts must be a dict of texts")
    if len(loaded["metrics"]) > MAX_METRICS:
        raise _Invalid(f"{len(loaded['metrics'])} metrics, of at most {MAX_METRICS}")
    return _Returned(loaded["metrics"], {name: _as_text(text) for name, text in texts.items()})


def _refused(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _without_duplicates(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _by_kind(metrics: Mapping[str, object], *, flags_count: bool) -> _Measured:
    measured = _Measured({}, {}, {}, set(), set())
    unusable: set[str] = set()
    not_understood: set[str] = set()
    for raw, value in metrics.items():
        name = clean(raw)
        if isinstance(value, bool):
            measured.flags[name] = value
        if isinstance(value, bool) and not flags_count and name != COMBINED:
            measured.texts[name] = _as_text(value)
        elif isinstance(value, int | float):
            number = _as_float(value)
            if math.isfinite(number):
                measured.numbers[name] = number
            else:
                unusable.add(name)
                measured.texts[name] = _as_text(value)
        else:
            measured.texts[name] = _as_text(value)
            if isinstance(value, dict) and _NONFINITE in value:
                unusable.add(name)
            elif _meant_as_a_number(value):
                not_understood.add(name)
    return replace(measured, unusable=unusable, not_understood=not_understood)


def _meant_as_a_number(value: object) -> bool:
    """Returns whether a value that is no number stands where one was meant.

    Other texts, lists and dicts are notes on a program.
    """
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return value.strip().lower() in _NOT_KNOWN
        return True
    return value is None or (isinstance(value, dict) and _OBJECT in value)


def _as_float(value: int | float) -> float:
    """Returns the number as a float, of which the ledger stores one zero: -0.0 + 0.0 is 0.0."""
    try:
        return float(value) + 0.0
    except OverflowError:
        return math.inf


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and set(value) == {_NONFINITE}:
        return str(value[_NONFINITE])
    if isinstance(value, dict) and _OBJECT in value:
        return str(value[_OBJECT])
    return json.dumps(value, ensure_ascii=False)


def _declared_failure(
    measured: _Measured, artifacts: Mapping[str, str], axes: Sequence[str]
) -> Failure | None:
    """Returns the failure that an evaluator reports, or an error without any score; else None."""
    scores = {name: number for name, number in measured.numbers.items() if name not in axes}
    report = Report(
        scores or measured.numbers, measured.flags, measured.texts, measured.unusable, artifacts
    )
    if failure := reported_error(report):
        return failure
    if measured.unusable or set(measured.numbers) != {ERROR} or COMBINED in measured.texts:
        return None
    return Failure(FailureKind.RUNTIME, "the evaluator reports an error and no score")


def _require_a_number(measured: _Measured) -> None:
    """Raises `_Invalid` where there is no number to select by, nor one that is not usable."""
    if measured.unusable or measured.numbers or COMBINED in measured.texts:
        return
    names = ", ".join(f"`{name}`" for name in sorted(measured.texts)) or "nothing"
    raise _Invalid(
        f"the evaluator returned no number: there is nothing to select by (it returned {names}; "
        f"numbers inside a list or a dict do not count)"
    )


def _scores(
    metrics: Mapping[str, object],
    measured: _Measured,
    axes: Sequence[str],
    cases: Sequence[str],
) -> dict[str, float]:
    """Returns the numbers that the fitness is made of: of a trial with named cases, theirs.

    Raises:
      _Invalid: One of them is not a finite number.
    """
    names = {*measured.numbers, *measured.unusable}
    meant = {COMBINED} & measured.texts.keys() - names
    if any(cases):
        meant |= set(cases) & measured.texts.keys() - names
    elif COMBINED not in names:
        meant |= {*measured.not_understood} - {*axes, ERROR, TIMEOUT}
    for name in sorted(meant):
        raise _Invalid(_not_a_number(name, metrics, measured.texts[name]))
    if any(cases):
        contributing = names & {*cases, COMBINED}
        if not contributing:
            raise _Invalid(f"the evaluator scored none of the cases {', '.join(cases)}")
    elif COMBINED in names:
        contributing = {COMBINED}
    else:
        contributing = names - {*axes, ERROR} or names - {ERROR} or names
    for name in sorted(contributing & set(measured.unusable)):
        raise _Invalid(f"metric `{name}` is not a finite number: {measured.texts[name][:200]}")
    return {name: measured.numbers[name] for name in sorted(contributing)}


def _not_a_number(name: str, metrics: Mapping[str, object], text: str) -> str:
    value = metrics.get(name)
    kind = type(value).__name__
    if isinstance(value, dict) and _OBJECT in value:
        kind = value["type"]
    remedy = "Return a number, or what `float` makes one"
    if name != COMBINED:
        remedy += f"; or return `{COMBINED}`, beside which any value may stand"
    return f"metric `{name}` is not a number but of type {kind}: {text[:200]}. {remedy}"


def clean(text: str) -> str:
    """Returns text that any database, terminal and JSON document takes: no escapes, no NUL."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ANSI.sub("", text.replace("\r\n", "\n")))


def clipped(text: str, chars: int) -> str:
    """Returns a text, of which a note replaces the middle where it is too long."""
    if len(text) <= chars:
        return text
    half = chars // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def bounded_artifacts(texts: Mapping[str, str], *, chars: int, redact: bool) -> dict[str, str]:
    """Returns artifacts within bounds: 64 of them, `chars` each, 262,144 characters in all.

    Those that do not fit are left out, and an artifact `left_out` names them.
    """
    artifacts: dict[str, str] = {}
    left_out: list[str] = []
    remaining = MAX_TOTAL_CHARS
    for raw, text in texts.items():
        name = clean(raw)[:MAX_NAME_CHARS]
        # Clipping first bounds the time of the filter.
        shown = clean(clipped(text, 4 * chars + OUTPUT_CHARS))
        shown = clipped(redacted(shown) if redact else shown, chars)
        if not shown:
            continue
        if len(artifacts) == MAX_ARTIFACTS or len(shown) > remaining:
            left_out.append(name)
            continue
        artifacts[name] = shown
        remaining -= len(shown)
    if left_out:
        artifacts["left_out"] = clipped(", ".join(left_out), OUTPUT_CHARS)
    return artifacts
