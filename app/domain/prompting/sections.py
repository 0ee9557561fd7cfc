"""Sections of a prompt: which programs and texts of a brief it shows, and the text of each.

Each is a record, see `Section`, beside its templates, the function that reads its items and the
function that writes them.  A further one stands in `SECTIONS`, and its placeholder in `STATE`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from app.domain.digits import number_text
from app.domain.operator import Brief, Draft, FailedChild, ProgramRecord, Reads
from app.domain.prompting.feedback import failure_text, quotable_artifacts
from app.domain.prompting.filling import Filler, Template
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.section import Cut, Section, Shown
from app.domain.secrets import redacted
from app.domain.source.regions import bodies

PROMPTED = Reads(siblings=3, ancestors=3, failures=3)
"""The facts of the ledger that the sections of a prompt show."""
_CHANGES_CHARS = 800

STATE = """\
# Other programs, best first
{top_programs}
# The current program
```{language}
{current_program}
```
- Score: {fitness_score} (higher is better)
- Metrics: {metrics}
{artifacts}{ancestry}{inspirations_section}{previous_attempts}{failures}{left_out}
# Task
"""
"""The sections as most prompts show them: in the order in which they change least."""
EVOLUTION_HISTORY = Template(
    "evolution_history",
    "{ancestry}{previous_attempts}{failures}{top_programs}{inspirations_section}",
)
"""The text of OpenEvolve's placeholder for the history."""


class Artifact(NamedTuple):
    """A text from an evaluation."""

    name: str
    text: str


def cut_longest(artifacts: Sequence[Artifact]) -> Cut:
    """Returns the longest artifact, the first of several."""
    longest = max(range(len(artifacts)), key=lambda n: len(artifacts[n].text))
    return Cut(longest, artifacts[longest].name)


def everything(brief: Brief, draft: Draft) -> Shown:
    """Returns everything that a draft's prompt shows if its length is not limited."""
    shown = Shown(brief.parent(draft))
    for section in SECTIONS:
        shown = section.fill(shown, brief, draft)
    return shown


def with_one_fewer(shown: Shown) -> Shown | None:
    """Returns the same without the least useful item; None where only the parent is left."""
    for section in sorted(SECTIONS, key=lambda section: section.rank):
        if section.items(shown):
            return section.shorten(shown)
    return None


def _others(brief: Brief, draft: Draft) -> list[ProgramRecord]:
    """Returns the programs of a draft that differ from its parent in more than layout."""
    own = _without_layout(brief.parent(draft))
    programs = dict.fromkeys((*draft.parents[1:], *draft.inspirations))
    others = [brief.known[program] for program in programs]
    return [record for record in others if _without_layout(record) != own]


def _without_layout(record: ProgramRecord) -> str:
    return "".join(record.program.source.split())


def _reads_lineage(brief: Brief, draft: Draft) -> bool:
    """Returns whether the lineage in the brief is that of the draft's parent."""
    return draft.parents[0] == brief.drafts[0].parents[0]


def _fittest(brief: Brief, draft: Draft) -> list[ProgramRecord]:
    return _foremost(_others(brief, draft), brief.prompts)


def _foremost(others: Sequence[ProgramRecord], rules: PromptRules) -> list[ProgramRecord]:
    return sorted(others, key=rank, reverse=True)[: rules.num_top_programs]


def _write_fittest(filler: Filler, records: Sequence[ProgramRecord], _: ProgramRecord) -> str:
    texts = []
    for n, record in enumerate(records, 1):
        lines = [f"Features: {numbers(record.features)}"] if record.features else []
        lines += [f"Metrics: {numbers(record.metrics)}"] if record.metrics else []
        values = _program(filler, record, n) | {"score": score(record, *records)}
        texts.append(filler.fill(TOP_PROGRAM, **values, key_features="\n".join(lines)))
    return "".join(texts)


TOP_PROGRAM = Template(
    "top_program",
    """\
### Program {program_number}, score {score}
```{language}
{program_snippet}
```
""",
    also=frozenset(("key_features",)),
)
# They are the same for most parents of an island, so that the prompts of a run begin alike.
FITTEST = Section(
    "top_programs", "program", rank=3, read=_fittest, write=_write_fittest, templates=(TOP_PROGRAM,)
)


def _inspirations(brief: Brief, draft: Draft) -> list[ProgramRecord]:
    others = _others(brief, draft)
    fittest = _foremost(others, brief.prompts)
    rest = [record for record in others if record not in fittest]
    return rest[: brief.prompts.num_diverse_programs]


def _write_inspirations(filler: Filler, records: Sequence[ProgramRecord], _: ProgramRecord) -> str:
    texts = [
        filler.fill(
            INSPIRATION_PROGRAM,
            **_program(filler, record, n),
            program_type="of another kind",
            unique_features="\n".join(_labels(record, filler.rules)),
        )
        for n, record in enumerate(records, 1)
    ]
    return filler.fill(INSPIRATIONS_SECTION, inspiration_programs="".join(texts))


def _labels(record: ProgramRecord, rules: PromptRules) -> list[str]:
    """Returns the labels that OpenEvolve calls the unique features of an inspiration."""
    n = record.program.source.count("\n")
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


INSPIRATIONS_SECTION = Template(
    "inspirations_section",
    """\
## Programs of other kinds
{inspiration_programs}""",
)
INSPIRATION_PROGRAM = Template(
    "inspiration_program",
    """\
### Program {program_number} {program_type}, score {score}
{unique_features}
```{language}
{program_snippet}
```
""",
)
INSPIRATIONS = Section(
    "inspirations_section",
    "inspiration",
    rank=1,
    read=_inspirations,
    write=_write_inspirations,
    templates=(INSPIRATIONS_SECTION, INSPIRATION_PROGRAM),
)


def _attempts(brief: Brief, draft: Draft) -> Sequence[ProgramRecord]:
    """Returns earlier children of the parent, newest first."""
    return brief.siblings[: PROMPTED.siblings] if _reads_lineage(brief, draft) else ()


def _write_attempts(
    filler: Filler, children: Sequence[ProgramRecord], parent: ProgramRecord
) -> str:
    texts = [
        filler.fill(
            PREVIOUS_ATTEMPT,
            attempt_number=str(n),
            changes=_clipped(child.changes) or "unknown",
            performance=numbers(child.metrics) or score(child),
            outcome=_outcome(child, parent),
        )
        for n, child in enumerate(children, 1)
    ]
    return "".join(texts)


def _outcome(child: ProgramRecord, parent: ProgramRecord) -> str:
    if child.fitness is None or parent.fitness is None:
        return "not comparable"
    if child.fitness == parent.fitness:
        return "no difference in fitness"
    change = f"{score(parent, child)} to {score(child, parent)}"
    return f"{'better' if child.fitness > parent.fitness else 'worse'}: fitness {change}"


PREVIOUS_ATTEMPT = Template(
    "previous_attempt",
    """\
{attempt_number}. {changes}
   Result: {outcome}
""",
    also=frozenset(("performance",)),
)
ATTEMPTS = Section(
    "previous_attempts",
    "attempt",
    rank=4,
    read=_attempts,
    write=_write_attempts,
    templates=(PREVIOUS_ATTEMPT,),
    heading="## Changes that were tried already\n",
)


def _ancestors(brief: Brief, draft: Draft) -> Sequence[ProgramRecord]:
    ancestors = brief.ancestry.ancestors[: PROMPTED.ancestors]
    return ancestors if _reads_lineage(brief, draft) else ()


def _write_ancestry(
    filler: Filler, ancestors: Sequence[ProgramRecord], parent: ProgramRecord
) -> str:
    """Returns the changes that led to the parent, newest first; "" where none is known."""
    texts = [
        filler.fill(
            ANCESTOR,
            score=score(record),
            changes=_clipped(record.changes),
            performance=numbers(record.metrics),
        )
        for record in (parent, *ancestors)
        if record.changes
    ]
    return "".join(texts)


ANCESTOR = Template("ancestor", "- Score {score}: {changes}\n", also=frozenset(("performance",)))
ANCESTRY = Section(
    "ancestry",
    "ancestor",
    rank=2,
    read=_ancestors,
    write=_write_ancestry,
    templates=(ANCESTOR,),
    heading="## Changes that led to it, newest first\n",
)


def _failures(brief: Brief, draft: Draft) -> Sequence[FailedChild]:
    """Returns failed children of the lineage, newest first."""
    failures = brief.ancestry.failures[: PROMPTED.failures]
    return failures if _reads_lineage(brief, draft) else ()


def _write_failures(filler: Filler, children: Sequence[FailedChild], _: ProgramRecord) -> str:
    """Returns failed children; those with the same text are shown once."""
    rules = filler.rules
    distinct: dict[tuple[str, str, str], None] = {}
    for child in children:
        detail = failure_text(child, messages=rules.failure_messages)
        if rules.artifact_security_filter:
            detail = redacted(detail)
        artifacts = quotable_artifacts(child, messages=rules.failure_messages)
        if artifacts and rules.include_artifacts:
            detail += "\n" + _quoted(artifacts, rules)
        changes = _clipped(child.changes) or "unknown"
        distinct[child.failure.kind.value, changes, detail] = None
    texts = [
        filler.fill(FAILED_ATTEMPT, number=str(n), failure=kind, changes=changes, detail=detail)
        for n, (kind, changes, detail) in enumerate(distinct, 1)
    ]
    return "".join(texts)


FAILED_ATTEMPT = Template(
    "failed_attempt",
    """\
{number}. {changes}
   Failed ({failure}): {detail}
""",
)
FAILURES = Section(
    "failures",
    "failure",
    rank=5,
    read=_failures,
    write=_write_failures,
    templates=(FAILED_ATTEMPT,),
    heading="## Changes that failed\n",
)


def _artifacts(brief: Brief, draft: Draft) -> list[Artifact]:
    if not brief.prompts.include_artifacts:
        return []
    return [Artifact(name, text) for name, text in brief.parent(draft).artifacts.items()]


def _write_artifacts(filler: Filler, artifacts: Sequence[Artifact], _: ProgramRecord) -> str:
    return _quoted(dict(artifacts), filler.rules) + "\n"


def _quoted(artifacts: Mapping[str, str], rules: PromptRules) -> str:
    """Returns artifacts, redacted and bounded."""
    parts = []
    for name, value in artifacts.items():
        text = redacted(value) if rules.artifact_security_filter else value
        if len(text) > rules.max_artifact_bytes:
            text = text[: rules.max_artifact_bytes] + "\n... (cut)"
        parts.append(f"### {name}\n```\n{text}\n```")
    return "\n".join(parts)


ARTIFACTS = Section(
    "artifacts",
    "artifact",
    rank=6,
    read=_artifacts,
    write=_write_artifacts,
    heading="\n## Last execution output\n",
    cut=cut_longest,
)

AnySection: TypeAlias = Section[ProgramRecord] | Section[FailedChild] | Section[Artifact]
SECTIONS: tuple[AnySection, ...]
SECTIONS = (FITTEST, INSPIRATIONS, ATTEMPTS, ANCESTRY, FAILURES, ARTIFACTS)
"""All sections, in the order in which their variations are drawn."""
HISTORY: tuple[AnySection, ...] = tuple(
    section for section in SECTIONS if section.name in EVOLUTION_HISTORY.placeholders
)


def focus(shown: Shown, rules: PromptRules) -> str:
    """Returns the goal that the prompt sets."""
    parent, limit = shown.parent, rules.suggest_simplification_after_chars
    fitter = [other for other in FITTEST.items(shown) if rank(other) > rank(parent)]
    texts = []
    if parent.fitness is None:
        texts.append("The program has no score yet: make it run to the end.")
    elif fitter:
        texts.append(f"A score of {score(max(fitter, key=rank), parent)} is known to be possible.")
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


def _program(filler: Filler, record: ProgramRecord, number: int) -> dict[str, str]:
    return {
        "program_number": str(number),
        "score": score(record),
        "language": filler.language,
        "program_snippet": "\n".join(bodies(record.program.source)).strip("\n"),
    }


def _clipped(changes: str) -> str:
    return changes if len(changes) <= _CHANGES_CHARS else changes[:_CHANGES_CHARS] + " ..."
