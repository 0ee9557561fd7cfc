"""Briefing: the brief of an operator, from the ledger or from a problem alone."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.evaluation import FailureKind
from app.domain.operator import (
    Aim,
    Ancestry,
    Brief,
    Child,
    Draft,
    Operator,
    ProgramRecord,
    Prompt,
)
from app.domain.operators.focus import in_focus
from app.domain.problem import Problem
from app.domain.program import Program, ProgramId
from app.domain.run import Rules, Run
from app.domain.search.archive import IslandView
from app.domain.search.strategy import Barrier, Strategy
from app.ports.ledger import Transaction
from app.ports.programs import Programs


@dataclass(frozen=True, slots=True)
class LedgerPopulation:
    """An island and its run, as the ledger holds them; see `Population`."""

    tx: Transaction
    run: int
    island: IslandView

    def programs(self, ids: Sequence[ProgramId]) -> Mapping[ProgramId, Program]:
        return self.tx.programs.get(ids)

    def failures(self, kinds: Collection[FailureKind], most: int) -> Sequence[Aim]:
        island = self.island
        return self.tx.programs.failed(
            self.run, island.index, epoch=island.epoch, kinds=kinds, limit=most
        )

    def born_since(self, family: str, program: ProgramId, most: int) -> int:
        return self.tx.programs.born_since(self.run, family, program, most)


def draft_of(
    tx: Transaction,
    run: Run,
    strategy: Strategy,
    operator: Operator,
    island: IslandView,
    ordinal: int,
) -> Draft:
    """Draws the parents of a proposal: the operator's choice, else the strategy's selection."""
    rng = run.rng(ordinal, "selection")
    aim = None
    if operator.aim is not None and strategy.operators_aim:
        aim = operator.aim(LedgerPopulation(tx, run.id, island), rng)
    if aim is None:
        # Without generations the islands take turns: each has every phase.
        phase = strategy.phase(ordinal // (run.islands if strategy.barrier is Barrier.NONE else 1))
        draft = phase.selection(island, rng).draft(ordinal, island)
        return replace(draft, role=phase.role) if operator.asks_model else draft
    parents = (aim.parent,)
    return Draft(ordinal, island.index, island.epoch, aim.generation, parents, aim.inspirations)


def brief_of(
    programs: Programs, run: Run, problem: Problem, operator: Operator, drafts: tuple[Draft, ...]
) -> Brief:
    """Returns the brief of a cohort's drafts."""
    parents = sorted({p for draft in drafts for p in draft.parents})
    others = sorted({p for draft in drafts for p in draft.inspirations} - set(parents))
    first, reads = drafts[0].parents[0], operator.reads
    siblings: tuple[ProgramRecord, ...] = ()
    if reads.siblings:
        siblings = programs.children(run.id, first, reads.siblings)
    ancestry = Ancestry()
    if reads.ancestors or reads.failures:
        ancestry = programs.ancestry(
            run.id, first, ancestors=reads.ancestors, failures=reads.failures
        )
    records = programs.records(run.id, [*parents, *others], measured=operator.prompts)
    brief = _brief(problem, run.rules, drafts, records, f"{run.seed}/{drafts[0].ordinal}")
    failed = None
    if reads.mended and drafts[0].inspirations:
        failed = programs.failed_child(run.id, drafts[0].inspirations[0])
    tried = programs.directions(run.id, reads.directions) if reads.directions else ()
    brief = replace(brief, siblings=siblings, ancestry=ancestry, failed=failed, tried=tried)
    brief = in_focus(brief, operator.language, of_function=operator.of_function)
    if reads.points and (family := operator.family(brief.known[first].program)):
        brief = replace(brief, points=programs.points(run.id, family, reads.points))
    return brief


def unmeasured_brief(
    problem: Problem,
    rules: Rules,
    seed: int,
    parent: Program,
    others: Sequence[Program],
    language: str = "",
) -> Brief:
    """Returns the brief of a run's first draft if nothing had been measured yet.

    Args:
      problem: The problem.
      rules: Those of the run.
      seed: Of its random choices.
      parent: The parent of the draft.
      others: Its inspirations.
      language: The only language of which the operator edits a file; "" for any.
    """
    records = {program.id: ProgramRecord(program) for program in (parent, *others)}
    inspirations = tuple(program for program in records if program != parent.id)
    draft = Draft(0, 0, 0, 1, (parent.id,), inspirations)
    return in_focus(_brief(problem, rules, (draft,), records, f"{seed}/0"), language)


def first_prompts(operator: Operator, brief: Brief) -> list[Prompt]:
    """Returns the first prompts of an operator; [] where it sends none."""
    return next(operator.converse(brief), [])


def own_children(operator: Operator, brief: Brief) -> list[Child]:
    """Returns the children that an operator makes without a model.

    Raises:
      ValueError: It asks one.
    """
    try:
        next(operator.converse(brief))
    except StopIteration as ended:
        children: list[Child] = ended.value
        return children
    raise ValueError(f"the operator {operator.name!r} asks a model")


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
        by_task=rules.by_task,
        roles=rules.asking.roles,
        repair_turns=rules.asking.repair_turns,
        context=problem.context,
        seed=seed,
    )
