"""Sections of a prompt: which programs and texts of a brief it shows, and the text of each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from app.domain.digits import number_text
from app.domain.operator import Brief, Draft, FailedChild, ProgramRecord
from app.domain.prompting.feedback import failure_text, quotable_artifacts
from app.domain.prompting.rules import PromptRules
from app.domain.secrets import redacted
from app.domain.source.regions import bodies

SIBLINGS = 3
"""Children of the parent that a prompt shows, newest first."""
ANCESTORS = 3
"""Ancestors of the parent whose changes a prompt shows."""
FAILURES = 3
"""Failed children of the lineage that a prompt shows, newest first."""
_CHANGES_CHARS = 800


@dataclass(frozen=True, slots=True)
class Sections:
    """What one prompt shows of a brief.

    Attributes:
      top: The fittest other programs, best first.  They are the same for most parents of an island,
        so that the prompts of a run begin alike.
      others: Programs that differ from the parent and are not among `top`.
      left_out: What has been cut, in the order of cutting.
    """

    parent: ProgramRecord
    top: tuple[ProgramRecord, ...] = ()
    others: tuple[ProgramRecord, ...] = ()
    attempts: tuple[ProgramRecord, ...] = ()
    ancestors: tuple[ProgramRecord, ...] = ()
    failures: tuple[FailedChild, ...] = ()
    artifacts: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()

    def shorter(self) -> "Sections | None":
        """Returns the same without the least useful item; None where only the parent is left.

        The order of cutting: inspirations, ancestors, the fittest programs, attempts, failures,
        each from the last; then artifacts from the longest.
        """
        if self.others:
            left_out = (*self.left_out, f"inspiration {len(self.others)}")
            return replace(self, others=self.others[:-1], left_out=left_out)
        if self.ancestors:
            left_out = (*self.left_out, f"ancestor {len(self.ancestors)}")
            return replace(self, ancestors=self.ancestors[:-1], left_out=left_out)
        if self.top:
            left_out = (*self.left_out, f"program {len(self.top)}")
            return replace(self, top=self.top[:-1], left_out=left_out)
        if self.attempts:
            left_out = (*self.left_out, f"attempt {len(self.attempts)}")
            return replace(self, attempts=self.attempts[:-1], left_out=left_out)
        if self.failures:
            left_out = (*self.left_out, f"failure {len(self.failures)}")
            return replace(self, failures=self.failures[:-1], left_out=left_out)
        if self.artifacts:
            longest = max(self.artifacts, key=lambda artifact: len(artifact[1]))
            rest = tuple(artifact for artifact in self.artifacts if artifact is not longest)
            left_out = (*self.left_out, f"artifact {longest[0]}")
            return replace(self, artifacts=rest, left_out=left_out)
        return None


def sections(brief: Brief, draft: Draft) -> Sections:
    """Returns everything that a draft's prompt shows if its length is not limited."""
    rules, parent = brief.prompts, brief.known[draft.parents[0]]
    own = _without_layout(parent)
    programs = dict.fromkeys((*draft.parents[1:], *draft.inspirations))
    others = [brief.known[program] for program in programs]
    others = [record for record in others if _without_layout(record) != own]
    top = sorted(others, key=rank, reverse=True)[: rules.num_top_programs]
    others = [record for record in others if record not in top]
    first = draft.parents[0] == brief.drafts[0].parents[0]
    return Sections(
        parent,
        tuple(top),
        tuple(others[: rules.num_diverse_programs]),
        brief.siblings[:SIBLINGS] if first else (),
        brief.ancestry.ancestors[:ANCESTORS] if first else (),
        brief.ancestry.failures[:FAILURES] if first else (),
        tuple(parent.artifacts.items()) if rules.include_artifacts else (),
    )


def _without_layout(record: ProgramRecord) -> str:
    return "".join(record.program.source.split())


@dataclass(frozen=True, slots=True)
class TemplateFiller:
    """Fills a run's templates; each prompt has its own, because variations are drawn in order."""

    rules: PromptRules
    rng: Random
    language: str

    def filled(self, name: str, values: Mapping[str, str]) -> str:
        """Returns a template's text with these values and a drawn text for every variation."""
        varied = {
            key: self.rng.choice(texts) if self.rules.use_template_stochasticity else texts[0]
            for key, texts in sorted(self.rules.template_variations.items())
        }
        return self.rules.template(name).format(**{**varied, **values})

    def top(self, records: Sequence[ProgramRecord]) -> str:
        """Returns the fittest programs; "" where there are none."""
        texts = [
            self.filled(
                "top_program",
                self._program(record, n, "key_features") | {"score": score(record, *records)},
            )
            for n, record in enumerate(records, 1)
        ]
        return "".join(texts)

    def inspirations(self, records: Iterable[ProgramRecord]) -> str:
        """Returns programs of other niches under their heading; "" where there are none."""
        texts = [
            self.filled(
                "inspiration_program",
                self._program(record, n, "unique_features") | {"program_type": "of another kind"},
            )
            for n, record in enumerate(records, 1)
        ]
        if not texts:
            return ""
        return self.filled("inspirations_section", {"inspiration_programs": "".join(texts)})

    def attempts(self, children: Iterable[ProgramRecord], parent: ProgramRecord) -> str:
        """Returns earlier children of the parent under their heading; "" where there are none."""
        texts = [
            self.filled(
                "previous_attempt",
                {
                    "attempt_number": str(n),
                    "changes": _clipped(child.changes) or "unknown",
                    "performance": numbers(child.metrics) or score(child),
                    "outcome": _outcome(child, parent),
                },
            )
            for n, child in enumerate(children, 1)
        ]
        return "## Changes that were tried already\n" + "".join(texts) if texts else ""

    def ancestry(self, parent: ProgramRecord, ancestors: Sequence[ProgramRecord]) -> str:
        """Returns the changes that led to the parent, newest first; "" where it is a seed."""
        lineage = [record for record in (parent, *ancestors) if record.changes]
        texts = [
            self.filled(
                "ancestor",
                {
                    "score": score(record),
                    "changes": _clipped(record.changes),
                    "performance": numbers(record.metrics),
                },
            )
            for record in (lineage if ancestors else ())
        ]
        heading = "## Changes that led to it, newest first\n"
        return heading + "".join(texts) if texts else ""

    def failures(self, children: Iterable[FailedChild]) -> str:
        """Returns failed children of this lineage under their heading; "" where there are none.

        Children with the same text are shown once.
        """
        distinct: dict[tuple[str, str, str], None] = {}
        for child in children:
            detail = failure_text(child, messages=self.rules.failure_messages)
            if self.rules.artifact_security_filter:
                detail = redacted(detail)
            artifacts = quotable_artifacts(child, messages=self.rules.failure_messages)
            if artifacts and self.rules.include_artifacts:
                detail += "\n" + self._quoted(tuple(artifacts.items()))
            changes = _clipped(child.changes) or "unknown"
            distinct[child.failure.kind.value, changes, detail] = None
        texts = [
            self.filled(
                "failed_attempt",
                {"number": str(n), "failure": kind, "changes": changes, "detail": detail},
            )
            for n, (kind, changes, detail) in enumerate(distinct, 1)
        ]
        return "## Changes that failed\n" + "".join(texts) if texts else ""

    def artifacts(self, artifacts: tuple[tuple[str, str], ...]) -> str:
        """Returns the artifacts of the parent, redacted and bounded; "" where there are none."""
        return f"\n## Last execution output\n{self._quoted(artifacts)}\n" if artifacts else ""

    def _quoted(self, artifacts: tuple[tuple[str, str], ...]) -> str:
        parts = []
        for name, value in artifacts:
            text = redacted(value) if self.rules.artifact_security_filter else value
            if len(text) > self.rules.max_artifact_bytes:
                text = text[: self.rules.max_artifact_bytes] + "\n... (cut)"
            parts.append(f"### {name}\n```\n{text}\n```")
        return "\n".join(parts)

    def _program(self, record: ProgramRecord, number: int, features: str) -> dict[str, str]:
        if features == "unique_features":
            lines = self._labels(record)
        else:
            lines = [f"Features: {numbers(record.features)}"] if record.features else []
            lines += [f"Metrics: {numbers(record.metrics)}"] if record.metrics else []
        return {
            "program_number": str(number),
            "score": score(record),
            "language": self.language,
            "program_snippet": "\n".join(bodies(record.program.source)).strip("\n"),
            features: "\n".join(lines),
        }

    def _labels(self, record: ProgramRecord) -> list[str]:
        """Returns the labels that OpenEvolve calls the unique features of an inspiration."""
        rules, n = self.rules, record.program.source.count("\n")
        most, few = rules.include_changes_under_chars, rules.concise_implementation_max_lines
        many = rules.comprehensive_implementation_min_lines
        labels = []
        if most is not None and 0 < len(record.changes) < most:
            labels.append(f"Modification: {record.changes}")
        if few is not None and n <= few:
            labels.append("Concise implementation")
        elif many is not None and n >= many:
            labels.append("Comprehensive implementation")
        return labels


def focus(shown: Sections, rules: PromptRules) -> str:
    """Returns the goal that the prompt sets."""
    parent, limit = shown.parent, rules.suggest_simplification_after_chars
    best = max((other for other in shown.top if rank(other) > rank(parent)), key=rank, default=None)
    texts = []
    if parent.fitness is None:
        texts.append("The program has no score yet: make it run to the end.")
    elif best is not None:
        texts.append(f"A score of {score(best, parent)} is known to be possible.")
    else:
        texts.append("No better program is known: try an idea that is not above.")
    if limit is not None and len(parent.program.source) > limit:
        texts.append("Consider simplifying the program.")
    return " ".join(texts)


def rank(record: ProgramRecord) -> float:
    """Returns the fitness, or minus infinity without one."""
    return float("-inf") if record.fitness is None else record.fitness


def score(record: ProgramRecord, *beside: ProgramRecord) -> str:
    """Returns the fitness as text, with the digits that tell it from those of other programs."""
    if record.fitness is None:
        return "none"
    return number_text(record.fitness, *(each.fitness for each in beside))


def numbers(values: Mapping[str, float]) -> str:
    """Returns named numbers on one line."""
    return ", ".join(f"{name} {value:.6g}" for name, value in values.items())


def _clipped(changes: str) -> str:
    return changes if len(changes) <= _CHANGES_CHARS else changes[:_CHANGES_CHARS] + " ..."


def _outcome(child: ProgramRecord, parent: ProgramRecord) -> str:
    if child.fitness is None or parent.fitness is None:
        return "not comparable"
    if child.fitness == parent.fitness:
        return "no difference in fitness"
    change = f"{score(parent, child)} to {score(child, parent)}"
    return f"{'better' if child.fitness > parent.fitness else 'worse'}: fitness {change}"
