"""Briefing: what an operator is told, read from the ledger."""

from dataclasses import replace

from app.domain.operator import Ancestry, Brief, Draft, Operator
from app.domain.problem import Problem
from app.domain.run import Run
from app.ledger import Transaction


def brief_of(
    tx: Transaction, run: Run, problem: Problem, operator: Operator, drafts: tuple[Draft, ...]
) -> Brief:
    """Returns the brief of a cohort's drafts."""
    parents = sorted({p for draft in drafts for p in draft.parents})
    others = sorted({p for draft in drafts for p in draft.inspirations} - set(parents))
    first = drafts[0].parents[0]
    siblings = tx.children(run.id, first, operator.siblings) if operator.siblings else ()
    ancestry = Ancestry()
    if operator.ancestors or operator.failures:
        ancestry = tx.ancestry(
            run.id, first, ancestors=operator.ancestors, failures=operator.failures
        )
    search = run.settings["search"]
    shown = {
        "num_top_programs": search["top_programs"],
        "num_diverse_programs": search["inspirations"],
    }
    enforce = search.get("enforce_blocks")  # runs of before the setting have none
    return Brief(
        instructions=problem.instructions,
        language=problem.language,
        drafts=drafts,
        known=tx.known(run.id, [*parents, *others], measured=operator.asks_model),
        edit=problem.edit if enforce is None else replace(problem.edit, enforce_blocks=enforce),
        siblings=siblings,
        ancestry=ancestry,
        prompts=shown | run.settings["prompts"],
        repair_turns=run.settings["llm"].get("repair_turns", 0),
        seed=f"{run.seed}/{drafts[0].ordinal}",
    )
