"""Briefing: the brief of an operator, from the ledger or from a problem alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.domain.operator import Ancestry, Brief, Draft, Operator, ProgramRecord, Prompt
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.run import Rules, Run
from app.ports.ledger import Transaction


def brief_of(
    tx: Transaction, run: Run, problem: Problem, operator: Operator, drafts: tuple[Draft, ...]
) -> Brief:
    """Returns the brief of a cohort's drafts."""
    parents = sorted({p for draft in drafts for p in draft.parents})
    others = sorted({p for draft in drafts for p in draft.inspirations} - set(parents))
    first = drafts[0].parents[0]
    siblings = tx.programs.children(run.id, first, operator.siblings) if operator.siblings else ()
    ancestry = Ancestry()
    if operator.ancestors or operator.failures:
        ancestry = tx.programs.ancestry(
            run.id, first, ancestors=operator.ancestors, failures=operator.failures
        )
    records = tx.programs.records(run.id, [*parents, *others], measured=operator.asks_model)
    brief = _brief(problem, run.rules, drafts, records, f"{run.seed}/{drafts[0].ordinal}")
    return replace(brief, siblings=siblings, ancestry=ancestry)


def unmeasured_brief(
    problem: Problem, rules: Rules, seed: int, parent: Program, others: Sequence[Program]
) -> Brief:
    """Returns the brief of a run's first draft if nothing had been measured yet."""
    records = {program.id: ProgramRecord(program) for program in (parent, *others)}
    inspirations = tuple(program for program in records if program != parent.id)
    draft = Draft(0, 0, 0, 1, (parent.id,), inspirations)
    return _brief(problem, rules, (draft,), records, f"{seed}/0")


def first_prompts(operator: Operator, brief: Brief) -> list[Prompt]:
    """Returns the first prompts of an operator; [] where it asks no model."""
    try:
        return next(operator.converse(brief))
    except StopIteration:
        return []


def _brief(
    problem: Problem,
    rules: Rules,
    drafts: tuple[Draft, ...],
    records: Mapping[str, ProgramRecord],
    seed: str,
) -> Brief:
    enforce = rules.search.enforce_blocks
    return Brief(
        instructions=problem.instructions,
        language=problem.language,
        drafts=drafts,
        known=records,
        edit=problem.edit if enforce is None else replace(problem.edit, enforce_blocks=enforce),
        prompts=rules.prompts,
        repair_turns=rules.asking.repair_turns,
        seed=seed,
    )
