"""Compare: which children are too similar to the fittest programs of their island."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from app.domain.operator import Offspring
from app.domain.program import Program, fingerprint
from app.domain.run import Run
from app.domain.source.similarity import cosine, similarity
from app.engine.context import Context
from app.engine.enter import GeneratedChildren, Near

COMPARED = 64
"""The fittest programs of its island that a child is compared with."""

Similarity: TypeAlias = Callable[[str, str], float]
"""How alike two source texts are, up to 1."""


def compare(ctx: Context, run: Run, generated: GeneratedChildren) -> GeneratedChildren:
    """Returns children with the programs that they are too similar to; nothing is locked meanwhile.

    Raises:
      Unavailable: The model that makes embeddings does not answer.
    """
    least, cohort = run.rules.search.similarity, generated.leased.cohort
    if least is None or cohort.seeding:
        return generated
    with ctx.store.begin() as tx:
        fittest = tx.archive.island(run.id, cohort.island).best(COMPARED)
        others = list(tx.programs.get([elite.program for elite in fittest]).values())
    programs = [one.child.program for one in generated.children if isinstance(one.child, Offspring)]
    if not others or not programs:
        return generated
    measure = _measure(ctx, run, [program.text for program in (*programs, *others)])
    children = []
    for one in generated.children:
        if isinstance(one.child, Offspring):
            near = _nearest(one.child.program, others, measure)
            one = replace(one, near=near if near and near.similarity >= least else None)
        children.append(one)
    return replace(generated, children=children)


def _measure(ctx: Context, run: Run, texts: Sequence[str]) -> Similarity:
    """Returns how alike two of these texts are: by their embeddings, where a model makes some."""
    embedder = None if ctx.embedder is None else ctx.embedder(run)
    if embedder is None:
        return similarity
    vectors = dict(zip(texts, embedder.embed(texts), strict=True))
    return lambda one, other: cosine(vectors[one], vectors[other])


def _nearest(child: Program, others: Sequence[Program], measure: Similarity) -> Near | None:
    """Returns the program that a child is most similar to; one of equal fingerprint is none."""
    own = fingerprint(child)
    similar = (
        Near(other.id, measure(child.text, other.text))
        for other in others
        if fingerprint(other) != own
    )
    return max(similar, key=lambda near: near.similarity, default=None)
