"""Operators: how parents become children.

An operator is a conversation written as a generator: it yields batches of prompts, receives the
completions, and returns one child or one failure per draft.  It performs no I/O, so the same
operator runs against a GPU, a remote API or a list of canned replies.
"""

import enum
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, TypeAlias

from app.domain.evaluation import Failure
from app.domain.problem import EditRules
from app.domain.program import Program, ProgramId
from app.domain.prompting.rules import PromptRules


class Role(enum.StrEnum):
    """What a model is asked to be.  Settings give each role models of its own."""

    GENERATOR = "generator"  # writes children; cheap, for breadth
    REFINER = "refiner"  # writes children where the search is stuck or at its best; strong
    STRATEGIST = "strategist"  # says what to try, writes no program
    BUILDER = "builder"  # writes the program a strategist asked for
    JUDGE = "judge"  # has an opinion of a program that was measured


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is asked.

    Attributes:
      sample: The proposal's ordinal: tells apart repeated draws of the same text.
      role: Which models may answer.
      model: Which of them should, by name; "" leaves it to their weights.
      left_out: What was cut to keep within the budget of tokens, a few words each.
    """

    system: str
    user: str
    sample: int = 0
    role: Role = Role.GENERATOR
    left_out: tuple[str, ...] = ()
    model: str = ""

    @property
    def digest(self) -> str:
        """Names the text, whatever its sample and role."""
        text = f"{len(self.system)}/{self.system}{self.user}"
        return sha256(text.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model answered.

    Attributes:
      model: The name it was asked by, which is the settings' and what reports count by.
      finish: The endpoint's finish reason, `stop`, `length`, `content_filter`…; "" if it gave none.
      prompt_tokens, completion_tokens: As counted by the endpoint; 0 where it does not say.
      latency_seconds: From the request that was answered to its answer; waits and earlier attempts
        are not counted.
      cost_usd: Price of this completion; None where no price is known.
      cached_tokens: How many of `prompt_tokens` the endpoint had read before.
      role: That of its prompt.
      revision: What the endpoint says it served, where it says more than `model`.
      reused: Whether it was read from a store: its tokens and its cost were spent earlier.
      parameters: What shaped it beside its prompt and its sample: endpoint, model, temperature,
        seed… (JSON values, no secret); empty where the provider does not say.
      unanswered: Requests for it that were sent before and never answered: they may be billed.
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
    """A proposal before its operator has spoken: where the child goes and what it grows from.

    Attributes:
      ordinal: The proposal's number in its run, from 0; makes repeated draws distinct.
      epoch: The island's epoch when the parents were drawn.
      generation: Edits since a seed.
      role: Who writes the child, where a model is asked.
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
    """A program an operator may look at, with what is known of it.

    Attributes:
      fitness: None when it never reached the final stage.
      features: Position in feature space, by axis name.
      artifacts: Texts its last evaluation left, bounded.
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
    """A child that came to nothing, of a parent or of one of its ancestors.

    Attributes:
      program: None where the reply held none.
      cases: What it was tried on when it failed, where the trial names it.
      artifacts: Texts the failed trial left, bounded.
    """

    failure: Failure
    program: Program | None = None
    changes: str = ""
    cases: tuple[str, ...] = ()
    artifacts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ancestry:
    """Where a program comes from, and what failed on the way.

    Attributes:
      ancestors: Its parent first, then that one's.
      failures: Failed children of the program and of those ancestors, newest first.
    """

    ancestors: tuple[ProgramRecord, ...] = ()
    failures: tuple[FailedChild, ...] = ()


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything an operator may look at.

    Attributes:
      known: Every parent and inspiration of `drafts`.
      siblings: Final-stage children of the first draft's first parent, newest first; as many as
        the operator asked for, and possibly none.
      ancestry: That of the first draft's first parent; as much as the operator asked for.
      prompts: Prompt templates, and what they are filled with.
      repair_turns: How often a reply that came to nothing may be asked for again.
      seed: Text that seeds every random choice of this conversation.
    """

    instructions: str
    language: str
    drafts: tuple[Draft, ...]
    known: Mapping[ProgramId, ProgramRecord]
    edit: EditRules = field(default_factory=EditRules)
    siblings: tuple[ProgramRecord, ...] = ()
    ancestry: Ancestry = Ancestry()
    prompts: PromptRules = field(default_factory=PromptRules)
    repair_turns: int = 0
    seed: str = ""

    def rng(self, purpose: str) -> Random:
        """Returns a generator that is the same for the same brief and purpose."""
        return Random(f"{self.seed}/{purpose}")


@dataclass(frozen=True, slots=True)
class Offspring:
    """A child, and how it differs from its parent, in prose."""

    program: Program
    changes: str = ""


Child: TypeAlias = Offspring | Failure
Conversation: TypeAlias = Generator[list[Prompt], list[Completion], list[Child]]


@dataclass(frozen=True, slots=True)
class Operator:
    """A named way of making children.

    Attributes:
      asks_model: Whether it can only run where a language model is configured.
      siblings: How many siblings its briefs should hold, at most.
      ancestors, failures: How much of the first parent's ancestry they should hold, at most.
      completions: The most it asks for a draft, over all turns but those that repair.
      repairs: Whether it asks again for a reply that came to nothing.
    """

    name: str
    converse: Callable[[Brief], Conversation]
    asks_model: bool = True
    siblings: int = 0
    ancestors: int = 0
    failures: int = 0
    completions: int = 1
    repairs: bool = False

    def most_completions(self, repair_turns: int) -> int:
        """Returns the most it asks for a draft; what budgets set aside."""
        return self.completions * (1 + repair_turns if self.repairs else 1)
