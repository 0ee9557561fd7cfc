"""The operator that edits the syntax tree and asks nobody.

Every child is valid Python, differs from its parent in more than layout, and equals it outside the
EVOLVE-BLOCK regions.
"""

import ast
import builtins
import functools
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
from app.domain.operators import expression_edits as expressions
from app.domain.operators import statement_edits as statements
from app.domain.operators.edit_sites import Source, argument_names, bound_names, sites
from app.domain.operators.edit_target import Change, Edit, EditTarget, graftable
from app.domain.program import Program, fingerprint
from app.domain.replies.interpretation import syntax_fault
from app.domain.source.regions import enforce
from app.domain.source.syntax import syntax_tree

_ATTEMPTS = 30
_BUILTINS = frozenset(dir(builtins))
_EDITS: tuple[tuple[Edit, float], ...] = (
    (expressions.perturb_number, 3.0),
    (expressions.swap_numbers, 0.5),
    (expressions.swap_operator, 1.5),
    (expressions.graft, 2.0),
    (expressions.add_term, 3.0),
    (expressions.add_threshold, 3.0),
    (expressions.add_profile, 1.5),
    (expressions.simplify, 1.5),
    (statements.delete, 0.7),
    (statements.duplicate, 0.4),
    (statements.reorder, 0.4),
    (statements.swap_augmented, 0.4),
)
_MUSES = 2  # inspirations read for one child; more would cost time and dilute each other
_DONORS = 200  # expressions offered for grafting; more would only dilute


def converse(brief: Brief) -> Conversation:
    """Returns one mutated first parent a draft."""
    yield from ()
    return [mutated(brief, draft) for draft in brief.drafts]


def mutated(brief: Brief, draft: Draft) -> Child:
    """Returns a draft's parent after one to three edits, the same for the same brief."""
    parent = brief.known[draft.parents[0]].program
    if parent.language != "python":
        return Failure(
            FailureKind.NO_CODE,
            f"The operator 'mutate' edits Python, and this program is {parent.language!r}.",
        )
    fault = syntax_fault(parent)
    if fault is not None:
        return Failure(FailureKind.SYNTAX, f"The parent does not parse: {fault}")
    rng = brief.rng(f"mutate/{draft.ordinal}")
    inspirations = rng.sample(draft.inspirations, min(_MUSES, len(draft.inspirations)))
    donors = [node for one in inspirations for node in _donors(brief.known[one])]
    before, suspected = _of_parent(parent)
    for _ in range(_ATTEMPTS):
        changes = _edited(parent, donors, rng)
        if not changes:
            continue
        child = Program(changes[-1].text, "python")
        if _sound(parent, child, brief, suspected) and fingerprint(child) != before:
            return Offspring(child, "; ".join(change.note for change in changes))
    return Failure(
        FailureKind.UNCHANGED, f"No edit made a new program of its parent in {_ATTEMPTS} attempts."
    )


@functools.lru_cache(maxsize=64)  # the same few elites are parents again and again
def _of_parent(parent: Program) -> tuple[str, frozenset[str]]:
    """Returns a parent's fingerprint, and the names it is suspected to read unbound."""
    return fingerprint(parent), unbound(syntax_tree(parent.source))


def _edited(parent: Program, donors: list[ast.expr], rng: Random) -> list[Change]:
    """Returns one to three edits, each of the text the one before left."""
    kinds, weights = [edit for edit, _ in _EDITS], [weight for _, weight in _EDITS]
    changes: list[Change] = []
    text = parent.source
    for _ in range(rng.choices((1, 2, 3), (6, 3, 1))[0]):
        [edit] = rng.choices(kinds, weights)
        change = edit(_workpiece(text, donors, rng), rng)
        if change is not None and syntax_fault(Program(change.text)) is None:
            changes.append(change)
            text = change.text
    return changes


def _workpiece(text: str, donors: list[ast.expr], rng: Random) -> EditTarget:
    source = Source.of(text)
    places = sites(source)
    own = [site.node for site in places]
    foreign = donors if len(donors) <= _DONORS else rng.sample(donors, _DONORS)
    return EditTarget(source, places, [*own, *foreign], _numpy(source.tree))


def _donors(known: ProgramRecord) -> list[ast.expr]:
    if syntax_fault(known.program) is not None or known.program.language != "python":
        return []
    source = Source.of(known.program.source)
    return [site.node for site in sites(source) if graftable(site.node)]


def _numpy(tree: ast.Module) -> str:
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name == "numpy":
                    return alias.asname or alias.name
    return ""


def _sound(parent: Program, child: Program, brief: Brief, suspected: frozenset[str]) -> bool:
    """Says whether a child compiles, keeps to the regions and reads no name it made unbound."""
    if len(child.source) > brief.edit.max_code_chars:
        return False
    try:
        compile(child.source, "<child>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if enforce(parent.source, child.source) != child.source:
        return False
    return unbound(syntax_tree(child.source)) <= suspected


def unbound(tree: ast.Module) -> frozenset[str]:
    """Returns names that a function reads on a line before the first that binds them.

    The order of the text is taken for the order of execution, so a loop that binds for its next
    round is suspected too, and a closure of what is around it: compare with what the parent is
    suspected of.
    """
    known = bound_names(tree.body) | _BUILTINS
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= _unbound_in(node, known)
    return frozenset(found)


def _unbound_in(
    function: ast.FunctionDef | ast.AsyncFunctionDef, known: frozenset[str]
) -> set[str]:
    first_bound: dict[str, int] = dict.fromkeys(argument_names(function.args), 0)
    reads: list[ast.Name] = []
    for node in ast.walk(function):
        match node:
            case ast.Name(ctx=ast.Load()):
                reads.append(node)
            case ast.Name(id=name, lineno=line) | ast.ExceptHandler(name=str(name), lineno=line):
                first_bound[name] = min(first_bound.get(name, line), line)
            case (
                ast.Import(names=aliases, lineno=line) | ast.ImportFrom(names=aliases, lineno=line)
            ):
                for alias in aliases:
                    name = (alias.asname or alias.name).split(".")[0]
                    first_bound[name] = min(first_bound.get(name, line), line)
            case ast.FunctionDef(name=name, lineno=line) if node is not function:
                first_bound[name] = min(first_bound.get(name, line), line)
            case ast.arg(arg=name):  # of lambdas and inner functions
                first_bound.setdefault(name, 0)
    return {
        read.id
        for read in reads
        if (
            read.id not in known
            if read.id not in first_bound
            else first_bound[read.id] > read.lineno
        )
    }


MUTATE = Operator("mutate", converse, asks_model=False)
