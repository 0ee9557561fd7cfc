"""Completions of language models, and what they cost."""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.domain.operator import Completion, Draft, Prompt, Role
from app.domain.program import ProgramId
from app.domain.search.budget import Charge
from app.domain.search.cohort import Cohort, ProposalId
from app.domain.search.model_mix import Written


class Asker(enum.StrEnum):
    """The part of a step that prompts a model about a proposal."""

    OPERATOR = "operator"
    JUDGES = "judges"


@dataclass(frozen=True, slots=True)
class CompletionKey:
    """All that shapes a completion.

    Attributes:
      prompt: The prompt's digest.
      sample: Which draw of the same text.
      parameters: See `Completion.parameters`.
    """

    prompt: str
    sample: int
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation about proposals of a cohort, as it is saved.

    Attributes:
      cohort: With the members that the conversation is about.
      asker: What asks; operators and judges have conversations of their own.
      number: From 0 on.
      booked: What it adds to the run's account.
      prompts: What was asked; () where only the account changes.
      completions: One a prompt; None where there is none yet, or where it is saved already.
      drafts: The parents that were drawn, one a member; () if they are saved already.
      logged_chars: Characters that are kept of each text of a prompt; 0 keeps none.
    """

    cohort: Cohort
    asker: Asker
    number: int
    booked: Charge
    prompts: Sequence[Prompt] = ()
    completions: Sequence[Completion | None] = ()
    drafts: Sequence[Draft] = ()
    logged_chars: int = 0

    @property
    def proposal(self) -> ProposalId:
        """The proposal that the conversation is stored under: the first."""
        return self.cohort.members[0].id


@dataclass(frozen=True, slots=True)
class StoredReply:
    """A completion as it is kept for people to read.

    Attributes:
      turn: From 0 on, within the conversation of its asker.
      prompt: Digest of the prompt.
      system, user: Its texts, as far as they were kept; None where the run keeps none.
    """

    asker: Asker
    turn: int
    prompt: str
    system: str | None
    user: str | None
    completion: Completion


@dataclass(frozen=True, slots=True)
class Account:
    """Completions of a run in one role by one model.

    Attributes:
      reused: How many of them were read from earlier runs.
      unpriced: How many were paid for at an unknown price.
      prompt_tokens, cached_tokens, completion_tokens: Of those that were paid for; `cached_tokens`
        are the prompt tokens an endpoint had read before.
      reused_tokens: Of those that were not, prompts included.
      latency_seconds: Summed over those that were asked for.
      cost_usd: Of those with a price; None where none has one.
    """

    role: str
    model: str
    completions: int
    reused: int
    unpriced: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reused_tokens: int
    latency_seconds: float
    cost_usd: float | None


class Completions(Protocol):
    """Completions of language models, and what they cost."""

    def of_conversation(
        self, proposal: ProposalId, asker: Asker
    ) -> Mapping[int, Mapping[int, Completion]]:
        """Returns the stored completions of a conversation, by turn and place."""
        ...

    def save(self, turns: Sequence[Turn]) -> list[Turn]:
        """Stores completions for cohorts of one run, and adds their charge to the run's account.

        It locks the run, as the last but for the runs around it.
        A turn whose very completions are stored already is left as it is, and not charged again.
        A turn to which another worker's completions are stored is charged, and those stay; so do
        its drafts.  What a run inside another is charged, the one around it is charged, too.

        Returns:
          The turns of the latter kind.
        """
        ...

    def recall(self, keys: Sequence[CompletionKey]) -> list[Completion | None]:
        """Returns the first completion stored for each key in any run; None where there is none.

        A completion is returned as it was stored: its cost is that of then.
        """
        ...

    def replay(self, run: int, keys: Sequence[tuple[str, int]]) -> list[Completion | None]:
        """Returns a run's completion for each prompt digest and sample; None where none is."""
        ...

    def of_program(self, run: int, program: ProgramId, limit: int) -> list[StoredReply]:
        """Returns the first completions of proposals whose child is this program, in order."""
        ...

    def of_proposal(self, run: int, ordinal: int, limit: int) -> list[StoredReply]:
        """Returns the first completions of the proposal with this ordinal, in order."""
        ...

    def accounts(self, run: int) -> list[Account]:
        """Returns the totals of a run's completions, and of runs inside, by role and model."""
        ...

    def writers(self, run: int, programs: Sequence[ProgramId]) -> dict[tuple[str, str], int]:
        """Returns how many of the programs that were admitted each role and model took part in."""
        ...

    def written(self, run: int, role: Role, limit: int) -> dict[str, Written]:
        """Returns what came of the children that each model wrote in a role.

        Args:
          run: The run.
          role: The role of the completions.
          limit: How many of the run's newest settled proposals are looked at.
        """
        ...

    def written_by_operator(self, run: int, limit: int) -> dict[str, Written]:
        """Returns what came of the children of each operator that asked a model.

        A gain is a child that was measured.

        Args:
          run: The run.
          limit: How many of the run's newest settled proposals are looked at.
        """
        ...

    def written_before(
        self, models: Collection[str], chars: tuple[int, int], runs: int, limit: int
    ) -> dict[str, Written]:
        """Returns what came of the children of each operator in earlier runs.

        A gain is a child that was measured.

        Args:
          models: Names of the models whose completions count.
          chars: Least and most characters of the parents whose children count.
          runs: How many of the newest runs are looked at.
          limit: How many of the newest settled proposals of each.
        """
        ...
