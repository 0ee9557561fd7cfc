"""The parts of a prompt: which of a brief's programs and texts are shown, and each as text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

from app.domain.operator import Brief, Draft, FailedChild, ProgramRecord
from app.domain.prompting.feedback import shown_artifacts, told
from app.domain.prompting.rules import PromptRules
from app.domain.secrets import redacted

ATTEMPTS = 3
"""Children of the parent that are shown, newest first."""
ANCESTORS = 3
"""Programs on the way to the parent whose changes are told."""
FAILURES = 3
"""Failed children of the lineage that are shown, newest first."""

CUT_FIRST = ("inspiration", "ancestor", "program", "attempt", "failure", "artifact")
"""What is left out of a prompt that is too long: all of the first kind before any of the next."""

_CHANGES_CHARS = 800


@dataclass(frozen=True, slots=True)
class Shown:
    """What of a brief goes into one prompt.

    Attributes:
      top: The fittest others, best first, whatever the parent: prompts of a run begin alike.
      left_out: What was cut, in the order of cutting.
    """

    parent: ProgramRecord
    top: tuple[ProgramRecord, ...] = ()
    others: tuple[ProgramRecord, ...] = ()
    attempts: tuple[ProgramRecord, ...] = ()
    ancestors: tuple[ProgramRecord, ...] = ()
    failures: tuple[FailedChild, ...] = ()
    artifacts: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()

    def shorter(self) -> "Shown | None":
        """Returns the same without its least useful part; None where only the parent is left."""
        held: Mapping[str, str] = {
            "inspiration": "others",
            "ancestor": "ancestors",
            "program": "top",
            "attempt": "attempts",
            "failure": "failures",
        }
        sizes = {
            "others": len(self.others),
            "ancestors": len(self.ancestors),
            "top": len(self.top),
            "attempts": len(self.attempts),
            "failures": len(self.failures),
        }
        for kind in CUT_FIRST:
            if kind == "artifact" and self.artifacts:
                longest = max(self.artifacts, key=lambda pair: len(pair[1]))
                kept = tuple(pair for pair in self.artifacts if pair is not longest)
                return replace(
                    self, artifacts=kept, left_out=(*self.left_out, f"artifact {longest[0]}")
                )
            if kind != "artifact" and (n := sizes[held[kind]]):
                return self._without(held[kind], f"{kind} {n}")
        return None

    def _without(self, part: str, name: str) -> "Shown":
        out = (*self.left_out, name)
        match part:
            case "others":
                return replace(self, others=self.others[:-1], left_out=out)
            case "ancestors":
                return replace(self, ancestors=self.ancestors[:-1], left_out=out)
            case "top":
                return replace(self, top=self.top[:-1], left_out=out)
            case "attempts":
                return replace(self, attempts=self.attempts[:-1], left_out=out)
            case _:
                return replace(self, failures=self.failures[:-1], left_out=out)


def shown(brief: Brief, draft: Draft, rules: PromptRules) -> Shown:
    """Returns everything a draft's prompt would hold if it might be as long as it likes."""
    parent = brief.known[draft.parents[0]]
    own = _plain(parent)
    beside = dict.fromkeys((*draft.parents[1:], *draft.inspirations))
    known = [brief.known[one] for one in beside if _plain(brief.known[one]) != own]
    ranked = sorted(known, key=rank, reverse=True)
    top = ranked[: rules.num_top_programs]
    others = [one for one in known if one not in top]
    first = draft.parents[0] == brief.drafts[0].parents[0]
    return Shown(
        parent,
        tuple(top),
        tuple(others[: rules.num_diverse_programs]),
        brief.siblings[:ATTEMPTS] if first else (),
        brief.ancestry.ancestors[:ANCESTORS] if first else (),
        brief.ancestry.failures[:FAILURES] if first else (),
        tuple(parent.artifacts.items()) if rules.include_artifacts else (),
    )


def _plain(known: ProgramRecord) -> str:
    return "".join(known.program.source.split())


@dataclass(frozen=True, slots=True)
class TemplateFiller:
    """Fills a run's templates; one for each text, because variations are drawn in order."""

    rules: PromptRules
    rng: Random
    language: str

    def filled(self, name: str, values: Mapping[str, str]) -> str:
        """Returns a template's text with these values and a draw of every variation."""
        varied = {
            key: self.rng.choice(texts) if self.rules.use_template_stochasticity else texts[0]
            for key, texts in sorted(self.rules.template_variations.items())
        }
        return self.rules.template(name).format(**{**varied, **values})

    def top(self, known: Iterable[ProgramRecord]) -> str:
        """Returns the fittest programs under their heading; "" where there are none."""
        texts = [
            self.filled("top_program", self._program(one, n, "key_features"))
            for n, one in enumerate(known, 1)
        ]
        return "## Top performing programs\n" + "".join(texts) if texts else ""

    def inspirations(self, known: Iterable[ProgramRecord]) -> str:
        """Returns programs of other niches under their heading; "" where there are none."""
        texts = [
            self.filled(
                "inspiration_program",
                self._program(one, n, "unique_features") | {"program_type": "of another niche"},
            )
            for n, one in enumerate(known, 1)
        ]
        if not texts:
            return ""
        return self.filled("inspirations_section", {"inspiration_programs": "".join(texts)})

    def attempts(self, known: Iterable[ProgramRecord], parent: ProgramRecord) -> str:
        """Returns what was tried from the parent, under its heading; "" where nothing was."""
        texts = [
            self.filled(
                "previous_attempt",
                {
                    "attempt_number": str(n),
                    "changes": brief_changes(one.changes) or "unknown",
                    "performance": numbers(one.metrics) or score(one),
                    "outcome": _outcome(one, parent),
                },
            )
            for n, one in enumerate(known, 1)
        ]
        return "## What was tried from it, newest first\n" + "".join(texts) if texts else ""

    def ancestry(self, parent: ProgramRecord, ancestors: tuple[ProgramRecord, ...]) -> str:
        """Returns the changes that led to the parent, newest first; "" where it is a seed."""
        told_of = [one for one in (parent, *ancestors) if one.changes] if ancestors else []
        texts = [
            self.filled(
                "ancestor",
                {
                    "score": score(one),
                    "changes": brief_changes(one.changes),
                    "performance": numbers(one.metrics),
                },
            )
            for one in told_of
        ]
        heading = "## How it came to be, newest change first\n"
        return heading + "".join(texts) if texts else ""

    def failures(self, failed: Iterable[FailedChild]) -> str:
        """Returns what failed of this lineage, under its heading; "" where nothing did."""
        told_once: dict[tuple[str, str, str], None] = {}
        for one in failed:
            detail = told(one, messages=self.rules.failure_messages)
            given = shown_artifacts(one, messages=self.rules.failure_messages)
            if given and self.rules.include_artifacts:
                detail += "\n" + self._quoted(tuple(given.items()))
            changes = brief_changes(one.changes) or "unknown"
            told_once[one.failure.kind.value, changes, detail] = None
        texts = [
            self.filled(
                "failed_attempt",
                {"number": str(n), "failure": kind, "changes": changes, "detail": detail},
            )
            for n, (kind, changes, detail) in enumerate(told_once, 1)
        ]
        return "## What failed lately, here or before\n" + "".join(texts) if texts else ""

    def artifacts(self, artifacts: tuple[tuple[str, str], ...]) -> str:
        """Returns what the parent's evaluation left, redacted and bounded; "" for nothing."""
        return f"\n## Last execution output\n{self._quoted(artifacts)}\n" if artifacts else ""

    def _quoted(self, artifacts: tuple[tuple[str, str], ...]) -> str:
        parts = []
        for name, value in artifacts:
            text = redacted(value) if self.rules.artifact_security_filter else value
            if len(text) > self.rules.max_artifact_bytes:
                text = text[: self.rules.max_artifact_bytes] + "\n... (cut)"
            parts.append(f"### {name}\n```\n{text}\n```")
        return "\n".join(parts)

    def _program(self, known: ProgramRecord, number: int, features: str) -> dict[str, str]:
        described = [f"Features: {numbers(known.features)}"] if known.features else []
        described += [f"Metrics: {numbers(known.metrics)}"] if known.metrics else []
        described += self._labels(known) if features == "unique_features" else []
        return {
            "program_number": str(number),
            "score": score(known),
            "language": self.language,
            "program_snippet": known.program.source.rstrip("\n"),
            features: "\n".join(described),
        }

    def _labels(self, known: ProgramRecord) -> list[str]:
        """Returns what OpenEvolve calls an inspiration's unique features."""
        rules, n = self.rules, known.program.source.count("\n")
        most, few = rules.include_changes_under_chars, rules.concise_implementation_max_lines
        many = rules.comprehensive_implementation_min_lines
        labels = []
        if most is not None and 0 < len(known.changes) < most:
            labels.append(f"Modification: {known.changes}")
        if few is not None and n <= few:
            labels.append("Concise implementation")
        elif many is not None and n >= many:
            labels.append("Comprehensive implementation")
        return labels


def focus(parts: Shown, rules: PromptRules) -> str:
    """Returns what a child should aim at."""
    parent, limit = parts.parent, rules.suggest_simplification_after_chars
    best = max((one for one in parts.top if rank(one) > rank(parent)), key=rank, default=None)
    texts = []
    if parent.fitness is None:
        texts.append("the program has no fitness yet: make it run to the end.")
    elif best is not None:
        texts.append(f"a fitness of {score(best)} is known to be possible.")
    else:
        texts.append("no better program is known here: find what none of these tries.")
    if limit is not None and len(parent.program.source) > limit:
        texts.append("Consider simplifying the program.")
    return " ".join(texts)


def rank(known: ProgramRecord) -> float:
    """Returns the fitness, or what is below all fitness."""
    return float("-inf") if known.fitness is None else known.fitness


def score(known: ProgramRecord) -> str:
    """Returns the fitness in words."""
    return "none" if known.fitness is None else f"{known.fitness:.6g}"


def numbers(values: Mapping[str, float]) -> str:
    """Returns named numbers in a line."""
    return ", ".join(f"{name} {value:.6g}" for name, value in values.items())


def brief_changes(changes: str) -> str:
    """Returns changes in prose, cut at a bound."""
    return changes if len(changes) <= _CHANGES_CHARS else changes[:_CHANGES_CHARS] + " ..."


def _outcome(child: ProgramRecord, parent: ProgramRecord) -> str:
    if child.fitness is None or parent.fitness is None:
        return "not comparable"
    if child.fitness == parent.fitness:
        return "no difference in fitness"
    change = f"{parent.fitness:.6g} to {child.fitness:.6g}"
    return f"{'better' if child.fitness > parent.fitness else 'worse'}: fitness {change}"
