"""The operator `mutate`: random edits of the syntax tree, without a model.

Every child is valid Python, differs from its parent in more than layout, and equals it outside the
EVOLVE-BLOCK regions.  Values keep their kinds, sizes and positions stay, and edits and places that
made children of the same lineage crash are drawn less often.
"""

from collections.abc import Sequence
from random import Random

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import (
    Brief,
    Child,
    Conversation,
    Draft,
    Offspring,
    Operator,
    ProgramRecord,
)
from app.domain.operators import data_edits, expression_edits, statement_edits
from app.domain.operators.experience import EXPERIENCE, Experience, experience
from app.domain.operators.expression_edits import donors
from app.domain.operators.tree_edits import Change, Donor, EditTarget, TreeEdit
from app.domain.program import Program, fingerprint, parses
from app.domain.source.regions import enforce
from app.domain.source.sites import SourceTree, sites
from app.domain.source.syntax import UNPARSABLE, remembered, syntax_fault, unbound_names

_ATTEMPTS = 30
_EDITS: tuple[tuple[TreeEdit, float], ...] = (
    (expression_edits.perturb_number, 3.0),
    (expression_edits.swap_numbers, 0.5),
    (expression_edits.swap_operator, 1.5),
    (expression_edits.graft, 2.0),
    (expression_edits.add_term, 3.0),
    (expression_edits.add_threshold, 3.0),
    (expression_edits.add_profile, 1.5),
    (expression_edits.simplify, 1.5),
    (expression_edits.move_position, 1.0),
    (statement_edits.delete, 0.7),
    (statement_edits.duplicate, 0.4),
    (statement_edits.reorder, 0.4),
    (statement_edits.swap_augmented, 0.4),
)
_OF_DATA = 12.0
"""Weight of edits of texts or lists where a program is made of nothing else."""
_INSPIRATIONS = 2
"""Most inspirations that offer expressions to one child; more would each be drawn too rarely."""
_DONORS = 200
"""Most expressions from inspirations; more would crowd out those of the program."""


def converse(brief: Brief) -> Conversation:
    """Returns the mutated first parent of each draft."""
    yield from ()
    return [mutated(brief, draft) for draft in brief.drafts]


def mutated(brief: Brief, draft: Draft) -> Child:
    """Returns a draft's parent after one to three edits; equal briefs give equal children."""
    parent = brief.parent(draft).program
    failure = unreadable(parent, "The operator 'mutate' edits")
    if failure is not None:
        return failure
    rng = brief.rng(f"mutate/{draft.ordinal}")
    inspirations = rng.sample(draft.inspirations, min(_INSPIRATIONS, len(draft.inspirations)))
    foreign = [donor for program in inspirations for donor in _donors(brief.known[program])]
    before, suspected = fingerprint(parent), unbound_names(parent.source)
    edits = [*_EDITS, *_edits_of_data(parent.source)]
    known = experience(brief, parent)
    for _ in range(_ATTEMPTS):
        changes = _edited(parent, edits, foreign, known, rng)
        if not changes:
            break
        child = parent.changed(changes[-1].text)
        if _sound(parent, child, brief, suspected) and fingerprint(child) != before:
            return Offspring(child, "; ".join(change.note for change in changes))
    return Failure(
        FailureKind.UNCHANGED, f"No edit made a new program of its parent in {_ATTEMPTS} attempts."
    )


def unreadable(parent: Program, reader: str) -> Failure | None:
    """Returns the failure of an operator that reads Python with another parent; None for Python."""
    if parent.language != "python":
        text = f"{reader} Python, and this program is {parent.language!r}."
        return Failure(FailureKind.NO_CODE, text)
    fault = syntax_fault(parent.source)
    if fault is None:
        return None
    return Failure(FailureKind.SYNTAX, f"The parent does not parse: {fault}")


def _edited(
    parent: Program,
    edits: Sequence[tuple[TreeEdit, float]],
    foreign: list[Donor],
    known: Experience,
    rng: Random,
) -> list[Change]:
    """Returns one to three edits, each of the text that the edit before it left; [] for none."""
    kinds, weights = [edit for edit, _ in edits], [weight for _, weight in edits]
    changes: list[Change] = []
    # The next edit makes its own target, because each change leaves another text.
    target = None
    for _ in range(_ATTEMPTS):
        for _ in range(1 if known.poor else rng.choices((1, 2, 3), (6, 3, 1))[0]):
            drawn = rng.choices(kinds, weights, k=known.draws)
            text = changes[-1].text if changes else parent.source
            if target is None:
                target = _target(text, foreign, rng)
            change = known.choose(text, [one for edit in drawn if (one := edit(target, rng))], rng)
            if change is None:
                continue
            if syntax_fault(change.text) is None:
                changes.append(change)
            target = None
        if changes:
            break
    return changes


@remembered
def _edits_of_data(text: str) -> list[tuple[TreeEdit, float]]:
    """Returns the edits of texts and lists, each with the weight of its share of the program.

    A program that is made of them is edited there; the name of a mode in a long program hardly is.
    """
    source = SourceTree.of(text)
    kinds = (
        (data_edits.edit_text, data_edits.texts(source)),
        (data_edits.edit_list, data_edits.lists(source)),
    )
    return [(edit, _OF_DATA * data_edits.share(source, places)) for edit, places in kinds if places]


def _target(text: str, foreign: list[Donor], rng: Random) -> EditTarget:
    source = SourceTree.of(text)
    places = sites(source)
    drawn = foreign if len(foreign) <= _DONORS else rng.sample(foreign, _DONORS)
    return EditTarget(source, places, drawn)


def _donors(record: ProgramRecord) -> list[Donor]:
    program = record.program
    return donors(sites(SourceTree.of(program.source))) if parses(program) else []


def _sound(parent: Program, child: Program, brief: Brief, suspected: frozenset[str]) -> bool:
    """Returns whether a child compiles, respects the regions and reads no newly unbound name."""
    if len(child.source) > brief.edit.max_code_chars:
        return False
    try:
        compile(child.source, "<child>", "exec", dont_inherit=True)
    except UNPARSABLE:
        return False
    if enforce(parent.source, child.source) != child.source:
        return False
    return unbound_names(child.source) <= suspected


MUTATE = Operator("mutate", converse, asks_model=False, reads=EXPERIENCE, language="python")
