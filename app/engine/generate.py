"""Generate: parents are drawn, the operator makes children of them, and they enter the ledger."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from app.domain.evaluation import Failure, FailureKind
from app.domain.events import Directed
from app.domain.operator import TOO_LONG, Brief, Child, Completion, Draft, Offspring, Prompt
from app.domain.program import ProgramId, fingerprint
from app.domain.run import Run
from app.domain.search.budget import Charge
from app.domain.search.cohort import Cohort, ProposalId
from app.domain.search.model_mix import WINDOW, addressed, answered_by
from app.domain.search.refining import assigned, scheduled
from app.domain.search.strategy import Strategy
from app.engine.ask import Unaffordable, ask
from app.engine.briefing import brief_of, draft_of
from app.engine.compare import compare
from app.engine.context import Context, Pace
from app.engine.enter import GeneratedChildren, Unasked, enter_children
from app.engine.inside import search_inside
from app.engine.lease import Postponed, Work, lease, leased
from app.engine.process import ALONE
from app.ports.completions import Asker, Turn
from app.ports.ledger import Transaction
from app.ports.proposals import LeasedProposals
from app.ports.protocols import NEVER, Misconfigured, PromptTooLong, Stop


def generate(ctx: Context, *proposals: ProposalId) -> None:
    """Generates children for proposals of one run, one after the other, and enters them together.

    Parents that are not drawn yet are drawn once the model has a place for their prompts.
    Idempotent, and harmless when another worker does the same.

    Raises:
      Unavailable: See `app.engine.lease.leased`.
    """
    claimed = lease(ctx, "proposal", proposals, claim_proposals)
    if not claimed:
        return
    with leased(ctx, "proposal", claimed) as work:
        run, strategy = work.run, ctx.strategy(work.run)
        asking = any(ctx.operators[one.cohort.operator].asks_model for one in work.subjects)
        place = (ctx.process if asking else ALONE).take_place(run)
        children: list[GeneratedChildren] = []
        with place as answered, ctx.drawn.counting(run.id) as count:
            briefed = brief_proposals(ctx, work, strategy, count)
            for subject, stop in work:
                with work.attempt(subject, stop):
                    asked = replace(briefed[subject.id], answered=answered, stop=stop)
                    children.append(generate_children(ctx, asked))
        if children:
            enter_children(ctx, run, children)


def claim_proposals(
    tx: Transaction, proposals: Sequence[ProposalId], pace: Pace
) -> list[tuple[Run, LeasedProposals]]:
    """Leases proposals."""
    return tx.proposals.claim(proposals, pace.lease_seconds, attempts=pace.attempts)


OVERLONG = 3
"""Proposals that fail because of their prompts before a run that knows no other is paused."""

_Replies: TypeAlias = dict[int, dict[int, Completion]]
"""Replies by turn and by the ordinal of the prompt's proposal."""


@dataclass(frozen=True, slots=True)
class Briefed:
    """Leased proposals with all that their operator may look at.

    Attributes:
      answers: What a model answered when this step ran before, by turn and place.
      models: The model that was drawn for each proposal, by ordinal; {} where the adapter draws.
      answered: Gives the place at the model back.
      stop: Asks the conversation to end.
    """

    run: Run
    leased: LeasedProposals
    brief: Brief
    answers: Mapping[int, Mapping[int, Completion]]
    models: Mapping[int, str]
    answered: Callable[[], None] = lambda: None
    stop: Stop = NEVER

    @property
    def drafted(self) -> LeasedProposals:
        """The proposals with the drafts of the brief; `leased` has those that are stored."""
        cohort = self.leased.cohort
        drawn = zip(cohort.members, self.brief.drafts, strict=True)
        members = tuple(replace(member, draft=draft) for member, draft in drawn)
        return replace(self.leased, cohort=replace(cohort, members=members))


def brief_proposals(
    ctx: Context,
    work: Work[LeasedProposals],
    strategy: Strategy,
    count: Callable[[ProgramId], None],
) -> dict[ProposalId, Briefed]:
    """Draws parents where none were drawn before, counts them, and returns the briefs by lease."""
    run, briefed = work.run, {}
    problem = ctx.problem(run.problem)
    with ctx.store.begin() as tx:
        for leased in work.subjects:
            cohort, operator = leased.cohort, ctx.operators[leased.cohort.operator]
            again = all(member.draft is not None for member in cohort.members)
            drafts = _draw_drafts(ctx, tx, run, strategy, cohort, count)
            brief = brief_of(tx.programs, run, problem, operator, drafts)
            if operator.asks_model and not again and not strategy.phases:
                brief = scheduled(brief, run.rules.asking.refining)
            answers = tx.completions.of_conversation(leased.id, Asker.OPERATOR) if again else {}
            models = _draw_models(tx, run, brief.drafts) if operator.asks_model else {}
            briefed[leased.id] = Briefed(run, leased, brief, answers, models)
    return briefed


def generate_children(ctx: Context, work: Briefed) -> GeneratedChildren:
    """Lets the operator make the children of proposals, and compares them with their island.

    Raises:
      Postponed: The proposals wait for a run inside, or another worker saved replies first.
      Stopped: They were withdrawn.
    """
    cohort = work.leased.cohort
    proposals = [member.id for member in cohort.members]
    try:
        with ctx.tracing.span("generate", work.run, proposals=proposals, operator=cohort.operator):
            child, searches = None, ctx.operators[cohort.operator].searches
            if searches:
                child = search_inside(ctx, work.run, work.leased, work.brief.drafts[0])
                work = replace(work, brief=replace(work.brief, found=child))
            if child is not None or not searches:
                children = _check_imports(ctx, work, converse(ctx, work))
                return compare(ctx, work.run, GeneratedChildren.of(work.drafted, children))
    except Unaffordable as error:
        return GeneratedChildren.of(work.drafted, [Unasked(str(error)) for _ in work.brief.drafts])
    raise Postponed(f"proposal {work.leased.id} has no child of its nested search yet")


def _check_imports(ctx: Context, briefed: Briefed, children: Sequence[Child]) -> list[Child]:
    """Returns children with a failure for each that the import policy refuses."""
    if briefed.leased.cohort.seeding:
        return list(children)
    problem = ctx.problem(briefed.run.problem)
    return [
        child
        if isinstance(child, Failure)
        else problem.imports.refusal_of_child(child.program, problem.seeds) or child
        for child in children
    ]


def _draw_models(tx: Transaction, run: Run, drafts: Sequence[Draft]) -> dict[int, str]:
    """Returns the model that is drawn for each draft whose role has a mix to draw from."""
    drawn = not run.rules.fleets.islands
    mixes = {
        role: mix.within(run.fleet, drawn=drawn) for role, mix in run.rules.asking.mixes.items()
    }
    roles = mixes.keys() & {draft.role for draft in drafts}
    written = {role: tx.completions.written(run.id, role, WINDOW) for role in roles}
    return {
        draft.ordinal: mixes[draft.role].draw(written[draft.role], run.rng(draft.ordinal, "model"))
        for draft in drafts
        if draft.role in roles
    }


def _draw_drafts(
    ctx: Context,
    tx: Transaction,
    run: Run,
    strategy: Strategy,
    cohort: Cohort,
    count: Callable[[ProgramId], None],
) -> tuple[Draft, ...]:
    drawn = tuple(member.draft for member in cohort.members if member.draft is not None)
    if len(drawn) == len(cohort.members):
        return drawn
    making = partial(ctx.drawn.children, run.id)
    island = tx.archive.island(run.id, cohort.island, making=making)
    operator = ctx.operators[cohort.operator]
    drafts = list[Draft]()
    for number, member in enumerate(cohort.members):
        if operator.form and number % run.rules.search.samples:
            draft = replace(drafts[-1], ordinal=member.ordinal)
        else:
            draft = draft_of(tx, run, strategy, operator, island, member.ordinal)
        count(draft.parents[0])
        drafts.append(draft)
    return tuple(drafts)


class _Overlong(Exception):
    """A prompt has to be written anew, in at most `longest` tokens."""

    def __init__(self, longest: int) -> None:
        super().__init__(longest)
        self.longest = longest


def converse(ctx: Context, briefed: Briefed) -> list[Child]:
    """Lets the operator ask the run's model until it has its children.

    Every turn's completions are saved before the operator sees them, and read back when the step
    runs again, so that none is paid for twice.  The conversation begins anew with the replies so
    far where a prompt is longer than its model takes, then with less room for each prompt; and
    where children are programs that the run has already, so that the operator can ask again.
    """
    replies: _Replies = {}
    while True:
        brief = briefed.brief
        try:
            children = _converse(ctx, briefed, replies)
        except _Overlong as error:
            rules = replace(brief.prompts, max_prompt_tokens=error.longest)
            briefed = replace(briefed, brief=replace(brief, prompts=rules))
            continue
        taken = _read_taken(ctx, briefed, children) - brief.taken
        if not taken:
            return children
        briefed = replace(briefed, brief=replace(brief, taken=brief.taken | taken))


def _read_taken(ctx: Context, briefed: Briefed, children: Sequence[Child]) -> frozenset[str]:
    """Returns the fingerprints of children that the run has already, where another can be asked."""
    operator, brief = ctx.operators[briefed.leased.cohort.operator], briefed.brief
    if not (operator.asks_model and operator.repairs and brief.repair_turns):
        return frozenset()
    pairs = zip(briefed.leased.cohort.members, brief.drafts, children, strict=True)
    claims = [
        (member.id, draft.epoch, fingerprint(child.program))
        for member, draft, child in pairs
        if isinstance(child, Offspring)
    ]
    if not claims:
        return frozenset()
    run = briefed.run.id

    def read(claims: Sequence[tuple[ProposalId, int, str]]) -> Sequence[bool]:
        with ctx.store.begin() as tx:
            return tx.programs.are_taken(run, claims)

    taken = ctx.process.share(("taken", run), claims, read)
    return frozenset(claim[2] for claim, is_taken in zip(claims, taken, strict=True) if is_taken)


def _converse(ctx: Context, briefed: Briefed, replied: _Replies) -> list[Child]:
    """Lets the operator ask until it has its children.

    Args:
      ctx: The world.
      briefed: The work.
      replied: Replies of an earlier beginning; those that arrive are added.

    Raises:
      _Overlong: See `_take_turn`.
    """
    operator = ctx.operators[briefed.leased.cohort.operator]
    brief = briefed.brief
    conversation = operator.converse(brief)
    most = operator.most_completions(brief.repair_turns, brief.roles) * len(brief.drafts)
    turn, total, replies, models = 0, 0, None, briefed.models
    while True:
        try:
            prompts = conversation.send(replies) if replies is not None else next(conversation)
        except StopIteration as finished:
            children: list[Child] = finished.value
            if len(children) != len(brief.drafts):
                raise ValueError(
                    f"operator {operator.name!r} returned {len(children)} children for "
                    f"{len(brief.drafts)} drafts"
                ) from None
            return children
        prompts = addressed(brief.drafts, models, assigned(brief, prompts))
        total += len(prompts)
        if total > most:
            raise ValueError(
                f"operator {operator.name!r} asks for {total} completions; it declares at most "
                f"{most} for its drafts, and budgets set aside no more"
            )
        _direct(ctx, briefed, prompts)
        replies = _take_turn(ctx, briefed, turn, prompts, replied)
        models = answered_by(models, prompts, replies)
        turn += 1


def _direct(ctx: Context, briefed: Briefed, prompts: Sequence[Prompt]) -> None:
    """Records the directions of prompts before they are asked; a proposal keeps its first one."""
    by_ordinal = {prompt.sample: prompt.direction for prompt in prompts if prompt.direction}
    cohort = briefed.leased.cohort
    members = [member for member in cohort.members if member.ordinal in by_ordinal]
    if not members:
        return
    with ctx.store.begin() as tx:
        _, planned = tx.cohorts.lock_planned([member.id for member in members])
        given = {m.id: by_ordinal[m.ordinal] for m in members if m.id in planned}
        new = tx.proposals.direct(given)
        for member in members:
            if member.id in new:
                direction = given[member.id]
                directed = Directed(
                    proposal=member.ordinal,
                    island=cohort.island,
                    category=direction.category,
                    text=direction.text,
                    by=direction.by,
                )
                tx.events.emit(cohort.run, directed)


def _take_turn(
    ctx: Context, briefed: Briefed, turn: int, prompts: list[Prompt], replied: _Replies
) -> list[Completion]:
    """Returns a reply to each prompt; one that no model takes has a reply that says so.

    Args:
      ctx: The world.
      briefed: The work.
      turn: Its number in the conversation.
      prompts: What is asked.
      replied: See `_converse`.

    Raises:
      _Overlong: A prompt is longer than its model takes, and may have items to cut.  It is not
        raised once a prompt of the turn was answered: a shorter one could take another place.
    """
    if not prompts:
        return []
    answers = dict(briefed.answers.get(turn, {}))
    if turn in replied:
        earlier = replied[turn]
        answers = {n: earlier[p.sample] for n, p in enumerate(prompts) if p.sample in earlier}
    drafts = () if turn else briefed.brief.drafts
    while True:
        asked = Turn(briefed.leased.cohort, Asker.OPERATOR, turn, Charge(), prompts, drafts=drafts)
        try:
            replies = ask(ctx, briefed.run, asked, answers, briefed.answered, briefed.stop)
        except PromptTooLong as error:
            answers |= error.answered
            place = prompts.index(error.prompt)
            if error.prompt.shortest:
                _require_another(ctx, briefed.run, error)
                reply = Completion(str(error), finish=TOO_LONG, role=error.prompt.role)
                answers[place] = reply
            elif not answers and error.longest < briefed.brief.prompts.max_prompt_tokens:
                raise _Overlong(error.longest) from error
            else:
                prompts[place] = replace(error.prompt, shortest=True)
        else:
            replied[turn] = {
                prompt.sample: reply for prompt, reply in zip(prompts, replies, strict=True)
            }
            return replies


def _require_another(ctx: Context, run: Run, error: PromptTooLong) -> None:
    """Makes sure that proposals have settled otherwise than by a prompt that is too long.

    Raises:
      Misconfigured: So far the prompts of all were too long: a person has to act.
    """
    with ctx.store.begin() as tx:
        failed = tx.history.failures(run.id).get(FailureKind.TOO_LONG, 0)
        states = tx.history.states(run.id)
    settled = sum(n for state, n in states.items() if state.final)
    if failed >= OVERLONG and failed == settled:
        raise Misconfigured(f"the prompt of every proposal was too long so far: {error}") from error
