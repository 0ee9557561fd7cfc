"""Operators: how parents become children.

An operator is a conversation written as a generator: it yields batches of prompts, receives the
completions, and returns one child or one failure per draft.  It performs no I/O, so the same
operator runs against a GPU, a remote API or a list of canned replies.
"""

import enum
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, Protocol, TypeAlias

from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import EditRules
from app.domain.program import Program, ProgramId
from app.domain.prompting.rules import PromptRules
from app.domain.search.archive import IslandView


class Role(enum.StrEnum):
    """The role of a model.  The settings assign models to each role."""

    GENERATOR = "generator"
    """A cheap model that writes children, for breadth."""
    REFINER = "refiner"
    """A strong model that writes children where the search is stuck or at its best."""
    JUDGE = "judge"
    """A model that rates a measured program."""
    STRATEGIST = "strategist"
    """A model that gives each child of a cohort a direction."""
    ADVERSARY = "adversary"
    """A model that criticises a child before it is evaluated."""
    EMBEDDER = "embedder"
    """A model that gives texts the vectors by which they are compared."""
    AGENT = "agent"
    """A command that changes the files of a program; the section `agent` describes it."""


@dataclass(frozen=True, slots=True)
class Direction:
    """What a child is to try.

    Attributes:
      category: One to three words; "" for none.
      by: Name of the model that gave it; "" for the packaged list.
    """

    category: str
    text: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class TriedDirection:
    """A direction that a proposal of the run was given, and how its child fared.

    Attributes:
      fitness: The child's; None where it was not measured, or not yet.
      parent_fitness: The parent's; None where it is not known.
      failure: How the child failed; None where it did not.
    """

    direction: Direction
    fitness: float | None = None
    parent_fitness: float | None = None
    failure: FailureKind | None = None


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """The form of a reply, for an endpoint that can hold a model to it.

    Attributes:
      opening: The text with which the reply begins, so that the model goes on after it.
      stops: Texts before which the reply ends, whichever comes first.
      ending: The text that follows where the reply ended by one of `stops`.
      grammar: Of the whole reply, in GBNF, which llama.cpp and vLLM read; "" without one.
    """

    opening: str = ""
    stops: tuple[str, ...] = ()
    ending: str = ""
    grammar: str = ""

    def whole(self, text: str, *, stopped: bool) -> str:
        """Returns the reply of a model that went on after the opening.

        Some endpoints repeat the opening, which stands in the reply once.

        Args:
          text: What the endpoint answered.
          stopped: Whether the model ended by itself or at one of `stops`, and was not cut off.
        """
        text = text if text.startswith(self.opening) else self.opening + text
        return text + self.ending if stopped else text


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request to a model.

    Attributes:
      sample: The proposal's ordinal: distinguishes repeated draws of the same text.
      role: The models that may reply are those of this role.
      model: Name of the model that replies; "" draws a model by weight.
      left_out: What was cut to stay within the budget of tokens, a few words each.
      direction: What it asks the child of its proposal to try; None where it leaves that open.
      shortest: Whether it is longer than the budget of tokens, and nothing is left to be cut.
      form: The form of the reply; None where it is free.
      warmer: Is added to the temperature of the model, so that its replies differ more.
      program: The program in whose folder an agent works; None for a prompt to a model.
    """

    system: str
    user: str
    sample: int = 0
    role: Role = Role.GENERATOR
    left_out: tuple[str, ...] = ()
    model: str = ""
    direction: Direction | None = None
    shortest: bool = False
    form: ReplyForm | None = None
    warmer: float = 0.0
    program: Program | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """Digest of the text and of the reply's form, independent of sample and role."""
        text = f"{len(self.system)}/{self.system}{self.user}"
        if self.form is not None:
            text += f"/{self.form}"
        if self.program is not None:
            text += f"/{self.program.id}"
        return sha256(text.encode(errors="surrogatepass")).hexdigest()


TOO_LONG = "prompt_too_long"
"""Finish reason of a prompt that is longer than any model takes, so that it was not answered."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's reply to a prompt.

    Attributes:
      model: Name of the model in the settings, which reports use too.
      finish: The endpoint's finish reason, `stop`, `length`, `content_filter`…; "" without one;
        `TOO_LONG` where no model takes the prompt, and the text says why.
      prompt_tokens, completion_tokens: As counted by the endpoint; 0 without a count.
      latency_seconds: Duration of the successful request, without waits and earlier attempts.
      cost_usd: Price of this completion; None where no price is known.
      cached_tokens: How many of `prompt_tokens` the endpoint read from its cache.
      role: The role of the prompt.
      revision: The model that the endpoint reports, if it is more specific than `model`.
      reused: Whether it was read from a store: its tokens and its cost were spent earlier.
      parameters: Parameters of the request beside prompt and sample: endpoint, model, temperature,
        seed… (JSON values, no secret); empty where the provider does not report them.
      unanswered: Earlier requests for it without a reply: they may be billed.
    """

    text: str
    model: str = ""
    finish: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_seconds: float = 0.0
    cost_usd: float | None = None
    cached_tokens: int = 0
    role: Role = Role.GENERATOR
    revision: str = ""
    reused: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    unanswered: int = 0


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposal before its operator has run: the place of the child, and its parents.

    Attributes:
      ordinal: The proposal's number in its run, from 0; makes repeated draws distinct.
      epoch: The island's epoch when the parents were drawn.
      generation: Edits since a seed.
      role: The role of the model that writes the child, if a model does.
    """

    ordinal: int
    island: int
    epoch: int
    generation: int
    parents: tuple[ProgramId, ...]
    inspirations: tuple[ProgramId, ...] = ()
    role: Role = Role.GENERATOR


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """A program with its measurements, as an operator sees it.

    Attributes:
      fitness: None if the program never reached the final stage.
      features: Position in feature space, by axis name.
      artifacts: Texts from its last evaluation, bounded.
      changes: How it differs from its own parent, in prose; "" for a seed.
    """

    program: Program
    fitness: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    changes: str = ""


@dataclass(frozen=True, slots=True)
class FailedChild:
    """A failed child of a parent or of one of its ancestors.

    Attributes:
      program: None where the reply contained none.
      cases: The cases of the failed trial, if it names them.
      artifacts: Texts from the failed trial, bounded.
    """

    failure: Failure
    program: Program | None = None
    changes: str = ""
    cases: tuple[str, ...] = ()
    artifacts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The ancestors of a program and the failed children among its lineage.

    Attributes:
      ancestors: Its parent first, then the parent of that, and so on.
      failures: Failed children of the program and of those ancestors, newest first.
    """

    ancestors: tuple[ProgramRecord, ...] = ()
    failures: tuple[FailedChild, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """A program as numbers, among those of its family.

    Attributes:
      family: Name of all programs that differ from it in these numbers only.
      numbers: In the order of the text.
    """

    family: str
    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A point with the fitness of its program; None where the program failed."""

    numbers: tuple[float, ...]
    fitness: float | None


@dataclass(frozen=True, slots=True)
class Offspring:
    """A child, with its differences from the parent in prose.

    Attributes:
      point: Its place in its family, if its operator looks at families.
    """

    program: Program
    changes: str = ""
    point: Point | None = None


Child: TypeAlias = Offspring | Failure


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything that an operator sees.

    Attributes:
      known: Every parent and inspiration of `drafts`.
      siblings: Final-stage children of the first draft's first parent, newest first; within the
        bounds of `Operator.reads`, as the four below.
      points: Measured and failed points of the family of the first draft's first parent, newest
        first.
      ancestry: The ancestry of the first draft's first parent.
      failed: The failed child that the first draft's first inspiration is; None where it is none.
      found: What the run inside the only draft found; None for an operator that searches none.
      tried: The newest directions of the run, newest first.
      roles: The roles that the run's settings name.
      prompts: The rules by which prompts are written.
      by_task: Whether children of a seed without inspirations, and those of the refiner, are asked
        for by templates of their own.
      repair_turns: Most repair turns after an unusable reply.
      context: Path to text of the fixed files that prompts show beside a program of several files.
      taken: Fingerprints of programs that the run has already; found after replies made them.
      seed: Text that seeds every random choice of the operator.
    """

    instructions: str
    language: str
    drafts: tuple[Draft, ...]
    known: Mapping[ProgramId, ProgramRecord]
    edit: EditRules = field(default_factory=EditRules)
    siblings: tuple[ProgramRecord, ...] = ()
    points: tuple[MeasuredPoint, ...] = ()
    ancestry: Ancestry = Ancestry()
    failed: FailedChild | None = None
    found: Child | None = None
    tried: tuple[TriedDirection, ...] = ()
    roles: frozenset[Role] = frozenset()
    prompts: PromptRules = field(default_factory=PromptRules)
    by_task: bool = False
    repair_turns: int = 0
    context: Mapping[str, str] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()
    seed: str = ""

    def parent(self, draft: Draft) -> ProgramRecord:
        """Returns the first parent of a draft, of which its child is a change."""
        return self.known[draft.parents[0]]

    def rng(self, purpose: str) -> Random:
        """Returns a generator that is equal for equal briefs and purposes."""
        return Random(f"{self.seed}/{purpose}")


@dataclass(frozen=True, slots=True)
class Aim:
    """The parent that an operator chose, and the programs that it wants to see beside it.

    Attributes:
      generation: The child's: edits since a seed.
    """

    parent: ProgramId
    generation: int
    inspirations: tuple[ProgramId, ...] = ()


class Population(Protocol):
    """What an operator may ask of an island and its run; every answer costs a bounded read."""

    @property
    def island(self) -> IslandView: ...

    def programs(self, ids: Sequence[ProgramId]) -> Mapping[ProgramId, Program]: ...

    def failures(self, kinds: Collection[FailureKind], most: int) -> Sequence[Aim]:
        """Returns the newest failed programs of the island's epoch, newest first.

        Each is the inspiration of an aim at its own parent.
        """
        ...

    def born_since(self, family: str, program: ProgramId, most: int) -> int:
        """Returns how many children of a family were made after a program, at most `most`."""
        ...


@dataclass(frozen=True, slots=True)
class Reads:
    """The facts of the ledger in the briefs of an operator; every number bounds a read.

    Attributes:
      siblings: Most children of the parent.
      points: Most points of the parent's family.
      ancestors, failures: Most ancestors and failed children in the ancestry.
      directions: Most directions that were tried before.
      mended: Whether the brief says how the first inspiration failed.
    """

    siblings: int = 0
    points: int = 0
    ancestors: int = 0
    failures: int = 0
    directions: int = 0
    mended: bool = False


Conversation: TypeAlias = Generator[list[Prompt], list[Completion], list[Child]]


@dataclass(frozen=True, slots=True)
class Operator:
    """A named method that makes children from parents.

    Attributes:
      asks_model: Whether it needs a language model.
      agent: Whether its prompts are the tasks of agents, each of which makes a child.
      form: Whether it asks for a change of the parent in a form of its own, so that its weight
        beside other forms can be learnt; see `app.domain.search.form_mix`.
      aim: Chooses the parent of a draft; None from it, and None in its place, leave the choice to
        the strategy's selection.
      family: Names the family of a program; "" for none.
      reads: The facts of the ledger in its briefs, beside the programs of the drafts.
      completions: Most completions for a draft, repair turns not included.
      advisers: Roles that it asks only where the run's settings name them, each with the most
        further completions for a draft.
      repairs: Whether it has repair turns.
      searches: Whether its children are the best programs of runs inside this one, which are
        searched before it converses; see `app.domain.search.nested`.
      language: The only language of which it edits a file; "" for any.
      of_function: Whether it edits the file that defines the function of the run's settings.
      together: Whether one conversation makes the children of a whole cohort; otherwise each draft
        has a conversation of its own, and its child is tested as soon as it is there.
    """

    name: str
    converse: Callable[[Brief], Conversation]
    asks_model: bool = True
    agent: bool = False
    form: bool = False
    aim: Callable[[Population, Random], Aim | None] | None = None
    family: Callable[[Program], str] = lambda program: ""  # noqa: ARG005
    reads: Reads = Reads()
    completions: int = 1
    advisers: Mapping[Role, int] = field(default_factory=dict)
    repairs: bool = False
    searches: bool = False
    language: str = ""
    of_function: bool = False
    together: bool = False

    @property
    def prompts(self) -> bool:
        """Whether it sends prompts: to models, or to agents."""
        return self.asks_model or self.agent

    def most_completions(self, repair_turns: int, roles: Collection[Role]) -> int:
        """Returns the most completions for a draft, which budgets reserve.

        Args:
          repair_turns: Most repair turns after an unusable reply.
          roles: The roles that the run's settings name.
        """
        advice = sum(most for role, most in self.advisers.items() if role in roles)
        return self.completions * (1 + repair_turns if self.repairs else 1) + advice
