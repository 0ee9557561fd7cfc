"""Documents of programs and proposals: source, measurements, prompts and replies, children."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from app.domain.evaluation import Evaluation, Failure
from app.domain.operator import Role
from app.domain.problem import Problem
from app.domain.program import Program, ProgramId
from app.domain.replies.agent import agent_log
from app.domain.run import Run
from app.domain.secrets import redacted
from app.ports.completions import StoredReply
from app.ports.ledger import Transaction
from app.ports.protocols import Store
from app.reports.champions import read_champions
from app.reports.measured import measured_program, present_fitness
from app.reports.metrics import MetricsRow, rows
from app.reports.patch import Change, changes_of, patch_of

MOST_CHILDREN = 100
MOST_PROPOSALS = 20
"""Proposals with the same child that a program's document names."""
MOST_REPLIES = 50
MOST_TEXT = 1_000_000
"""Characters of a source, an artifact or a reply; what is cut off is said."""


@dataclass(frozen=True, slots=True)
class FailureDocument:
    """A failure of a trial, without secrets."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class TrialDocument:
    """One measurement of a program.

    Attributes:
      stage: Its stage with the names of its cases, or its number from 1.
      failure: None where the trial ended well.
      boot_seconds: Until its sandbox was ready.
    """

    stage: str
    scores: dict[str, float]
    metrics: dict[str, float]
    features: dict[str, float]
    artifacts: dict[str, str]
    failure: FailureDocument | None
    verified: bool
    wall_seconds: float
    cpu_seconds: float
    peak_memory_mib: float | None
    boot_seconds: float


@dataclass(frozen=True, slots=True)
class ReplyDocument:
    """What a model answered while a program was made, or judged.

    Attributes:
      prompt: Digest of the prompt.
      system, user: Its texts, without secrets; None where the run keeps no prompts.
    """

    asker: str
    turn: int
    prompt: str
    system: str | None
    user: str | None
    model: str
    role: str
    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    latency_seconds: float
    cost_usd: float | None
    reused: bool


@dataclass(frozen=True, slots=True)
class ChildDocument:
    """A child of a program, with the fitness of its page."""

    program: ProgramId
    fitness: float | None
    changes: str


@dataclass(frozen=True, slots=True)
class ProposalDocument:
    """A settled proposal, also one that no program came of."""

    run: int
    proposal: MetricsRow
    replies: list[ReplyDocument]


@dataclass(frozen=True, slots=True)
class ProgramDocument:
    """A program of a run.

    Attributes:
      source: Its text; of several files their texts, each below its path.
      fitness: Of a player on a podium, what it is rated at now; else that of the first proposal
        that measured it.  None where none did.
      fitness_names: Cases whose mean is the fitness.
      proposals: The first proposals that made it, oldest first.
      children: Its admitted children, newest first.
      files: Path to text of each of several files; {} where there is one.
    """

    run: int
    program: ProgramId
    language: str
    source: str
    fitness: float | None
    fitness_names: list[str]
    proposals: list[MetricsRow]
    parents: list[ProgramId]
    trials: list[TrialDocument]
    replies: list[ReplyDocument]
    children: list[ChildDocument]
    files: dict[str, str] = field(default_factory=dict)


def read_program(
    store: Store, run: Run, beginning: str, problem: Problem | None
) -> ProgramDocument:
    """Reads a program of a run in one transaction.

    Args:
      store: The ledger.
      run: The run.
      beginning: Of the program's id.
      problem: Its problem; None where this version cannot read it: then trials have numbers.

    Raises:
      LookupError: No program of the run has such an id, or several have.
    """
    stages: Sequence[str] = ()
    later = ""
    if problem is not None:
        stages = problem.trial_names
        if problem.players > 1:
            # A player has played as many games as its generations asked for.
            stages, later = problem.stages, problem.final_stage
    with store.begin(snapshot=True) as tx:
        return program_document(tx, run, beginning, stages, later)


def program_document(
    tx: Transaction, run: Run, beginning: str, stages: Sequence[str], later: str = ""
) -> ProgramDocument:
    """Returns a program of a run.

    Args:
      tx: A snapshot of the ledger.
      run: The run.
      beginning: Of the program's id.
      stages: Names of its trials, in order.
      later: The name of each one after them; "" for its number.

    Raises:
      LookupError: No program of the run has such an id, or several have.
    """
    program = program_named(tx, run, beginning)
    stored = tx.programs.get([program])[program]
    made = tx.history.of_program(run.id, program, MOST_PROPOSALS)
    tested = tx.history.evaluations(run.id, program)
    founded = next((p.fitness for p in made if p.fitness is not None), None)
    verified = all(trial.verified for trial in tested)
    measured = measured_program(tx, run, program, founded, verified=verified)
    champions, present = read_champions(tx, run), present_fitness(tx, run)
    return ProgramDocument(
        run=run.id,
        program=program,
        language=stored.language,
        source=bounded(stored.text),
        files={path: bounded(text) for path, text in files_of(stored).items()},
        fitness=measured.fitness,
        fitness_names=list(measured.fitness_names),
        proposals=list(rows(made, champions=champions)),
        parents=list(made[0].parents) if made and not made[0].seed else [],
        trials=[
            _trial(program, trial, stages[n] if n < len(stages) else later or str(n + 1))
            for n, trial in enumerate(tested)
        ],
        replies=[
            _reply(reply) for reply in tx.completions.of_program(run.id, program, MOST_REPLIES)
        ],
        children=[
            ChildDocument(
                child.program.id, present.get(child.program.id, child.fitness), child.changes
            )
            for child in tx.programs.children(run.id, program, MOST_CHILDREN)
        ],
    )


def agent_logs(replies: Iterable[ReplyDocument]) -> list[str]:
    """Returns what agents printed while a program was made."""
    return [agent_log(reply.text) for reply in replies if reply.role == Role.AGENT.value]


def proposal_document(tx: Transaction, run: Run, ordinal: int) -> ProposalDocument:
    """Returns a settled proposal of a run.

    Raises:
      LookupError: None has this ordinal.
    """
    settled = tx.history.of_ordinal(run.id, ordinal)
    if settled is None:
        raise LookupError(f"{run.name} has no settled proposal {ordinal}")
    [row] = rows([settled], champions=read_champions(tx, run))
    replies = tx.completions.of_proposal(run.id, ordinal, MOST_REPLIES)
    return ProposalDocument(
        run=run.id,
        proposal=replace(row, detail=redacted(row.detail)),
        replies=[_reply(reply) for reply in replies],
    )


def _reply(reply: StoredReply) -> ReplyDocument:
    return ReplyDocument(
        asker=reply.asker.value,
        turn=reply.turn,
        prompt=reply.prompt,
        system=None if reply.system is None else bounded(redacted(reply.system)),
        user=None if reply.user is None else bounded(redacted(reply.user)),
        model=reply.completion.revision or reply.completion.model,
        role=reply.completion.role.value,
        text=bounded(redacted(reply.completion.text)),
        finish=reply.completion.finish,
        prompt_tokens=reply.completion.prompt_tokens,
        completion_tokens=reply.completion.completion_tokens,
        latency_seconds=reply.completion.latency_seconds,
        cost_usd=reply.completion.cost_usd,
        reused=reply.completion.reused,
    )


def _trial(program: ProgramId, trial: Evaluation, stage: str) -> TrialDocument:
    return TrialDocument(
        stage=stage,
        scores=dict(trial.scores.get(program, {})),
        metrics=dict(trial.metrics.get(program, {})),
        features=dict(trial.features.get(program, {})),
        artifacts={name: bounded(redacted(text)) for name, text in trial.artifacts.items()},
        failure=failure_document(trial.failure),
        verified=trial.verified,
        wall_seconds=trial.wall_seconds,
        cpu_seconds=trial.cpu_seconds,
        peak_memory_mib=trial.peak_memory_mib,
        boot_seconds=trial.boot_seconds,
    )


def failure_document(failure: Failure | None) -> FailureDocument | None:
    """Returns a failure as a document; None for none."""
    return FailureDocument(failure.kind.value, failure.shown) if failure else None


def read_difference(store: Store, run: Run, old: str, new: str) -> str:
    """Returns the unified difference between two programs of a run, by the beginnings of their ids.

    That of programs of several files is a patch; see `patch_of`.

    Raises:
      LookupError: No program of the run has such an id, or several have.
    """
    pair = _pair(store, run, old, new)
    if pair.before.path:
        return bounded(patch_of(pair.before, pair.after))
    before, after = (bounded(each.source).splitlines() for each in (pair.before, pair.after))
    first, second = (program[:12] for program in pair.ids)
    return "\n".join(difflib.unified_diff(before, after, first, second, lineterm=""))


def read_changes(store: Store, run: Run, old: str, new: str) -> list[Change]:
    """Returns the files that differ between two programs of several files.

    Args:
      store: The ledger.
      run: Their run.
      old: The beginning of the id of the program before.
      new: That of the program after.

    Raises:
      LookupError: No program of the run has such an id, or several have.
    """
    pair = _pair(store, run, old, new)
    return changes_of(pair.before, pair.after)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two programs of a run, and their ids as the ledger has them."""

    ids: tuple[ProgramId, ProgramId]
    before: Program
    after: Program


def _pair(store: Store, run: Run, old: str, new: str) -> _Pair:
    with store.begin() as tx:
        first, second = program_named(tx, run, old), program_named(tx, run, new)
        known = tx.programs.get([first, second])
    return _Pair((first, second), known[first], known[second])


def files_of(program: Program) -> dict[str, str]:
    """Returns path to text of each file of several; {} for a program of one file."""
    return {file.path: file.source for file in program.files if file.path}


def bounded(text: str) -> str:
    """Returns at most `MOST_TEXT` characters, with a note where some were cut off."""
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n… {len(text) - MOST_TEXT} more characters"


def program_named(tx: Transaction, run: Run, beginning: str) -> ProgramId:
    """Returns the program of a run whose id has this beginning.

    Raises:
      LookupError: No id or several have it.
    """
    programs: list[ProgramId] = []
    if re.fullmatch(r"[0-9a-f]{4,64}", beginning):
        programs = tx.programs.named(run.id, beginning)
    if len(programs) != 1:
        many = "more than one" if programs else "no"
        raise LookupError(f"{run.name} has {many} program whose id begins with {beginning!r}")
    return programs[0]
