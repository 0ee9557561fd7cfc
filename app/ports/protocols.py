"""Ports: everything the engine can do to the world.

Four protocols.  An implementation is one module under `app.adapters`; nothing here names one.
Machinery that is down raises `Unavailable`, and the step that met it is tried again later.  A
program's own misbehaviour never raises: it is a `Failure` inside an `Evaluation`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

from app.domain.operator import Completion, Prompt
from app.domain.problem import Evaluator, Job, Outcome
from app.ports.ledger import Transaction

_NOTHING: Mapping[int, Completion] = MappingProxyType({})

Step: TypeAlias = Literal["produce", "generate", "evaluate", "judge"]


class Unavailable(Exception):
    """A port could not be reached.  Retrying the same step later is safe and is the remedy.

    Attributes:
      unanswered: Of a model: completions that were requested and may be billed, though no answer
        arrived.
      answered: Of a model: the completions that arrived, by the place of their prompt in the call.
        They were paid for; a retry requests the others only.
    """

    def __init__(
        self,
        *args: object,
        unanswered: int = 0,
        answered: Mapping[int, Completion] = _NOTHING,
    ) -> None:
        super().__init__(*args)
        self.unanswered = unanswered
        self.answered = dict(answered)


class Starved(Unavailable):
    """The machine was too busy for a trial, which may do better later or on another machine.

    Attributes:
      outcome: That of the trial where it is not to be repeated: a failure by time-out.
    """

    def __init__(self, outcome: Outcome) -> None:
        detail = "" if outcome.failure is None else outcome.failure.detail
        super().__init__(f"the machine is too busy for a trial: {detail}")
        self.outcome = outcome


class Unwritable(Unavailable):
    """The ledger answers, and has no room for what was to be written: nothing of it was."""


class Stopped(Unavailable):
    """The work of a port was asked to stop before its end: its result is not wanted any more."""


class Misconfigured(Unavailable):
    """Retrying will not help until a person acts; the message says what, where, and the remedy."""


class PromptTooLong(Misconfigured):
    """A prompt is longer than its model takes; a shorter one may be asked at once.

    Attributes:
      prompt: The refused one.
      longest: Tokens of the longest prompt that the model is likely to take, as
        `app.domain.prompting.tokens` estimates them; fewer than those of `prompt`.
    """

    def __init__(
        self,
        message: str,
        prompt: Prompt,
        longest: int,
        *,
        unanswered: int = 0,
        answered: Mapping[int, Completion] = _NOTHING,
    ) -> None:
        super().__init__(message, prompt, longest, unanswered=unanswered, answered=answered)
        self.prompt, self.longest = prompt, longest

    def __str__(self) -> str:
        return str(self.args[0])


class Stop(Protocol):
    """Whether a piece of work is to stop because its result is not wanted any more."""

    @property
    def asked(self) -> bool: ...

    def then(self, act: Callable[[], None]) -> AbstractContextManager[None]:
        """Has `act` called, once, when the work is asked to stop while the context is open.

        It is called by any thread, at once if that was asked before, and never after the context.
        It must neither block nor raise.
        """
        ...


class Never:
    """The stop of work that is never withdrawn."""

    asked = False

    def then(self, act: Callable[[], None]) -> AbstractContextManager[None]:  # noqa: ARG002
        """Calls nothing."""
        return nullcontext()


NEVER = Never()


class LanguageModel(Protocol):
    """Completes prompts."""

    @property
    def name(self) -> str: ...

    @property
    def places(self) -> int | None:
        """How many requests of this process it takes at once now; None where it limits none."""
        ...

    def parameters(self, prompt: Prompt) -> Mapping[str, Any]:
        """Returns what `Completion.parameters` of the prompt's completion will be."""
        ...

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        """Returns one completion a prompt, in order.

        Raises:
          Stopped: It was asked to stop; requests in flight were dropped.
          Unavailable: The model cannot be reached, or refuses every prompt.  Raised
            once no request is in flight any more, with the completions that were `answered`.
        """
        ...


class Embedder(Protocol):
    """Gives texts vectors, whose angle says how alike the texts are."""

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Returns a vector of length 1 for each text, in order, all of as many dimensions.

        Raises:
          Unavailable: The model cannot be reached, or refuses the texts.
        """
        ...


@dataclass(frozen=True, slots=True)
class Protection:
    """One protection that a sandbox may give.

    Attributes:
      name: What it protects from, as a noun phrase.
      on: Whether it is in force in sandboxes started now.
      remedy: What to do to have it; "" where it is on.
    """

    name: str
    on: bool
    remedy: str = ""


class Sandbox(Protocol):
    """Runs one job in isolation."""

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        """Returns how the job ended, whatever the program did.

        Raises:
          Stopped: It was asked to stop; nothing of the job goes on.
          Unavailable: The isolation itself could not be set up or answered no more.
        """
        ...

    def prepare(self, evaluator: Evaluator) -> None:
        """Installs the dependencies of a problem, unless that has been done: it may take minutes.

        Raises:
          EvaluatorBroken: They cannot be installed.
          Unavailable: The machinery does not answer, or the installation takes too long.
        """
        ...

    def surroundings(self, evaluator: Evaluator) -> str:
        """Names what shapes the result of a job and is not part of it: image or interpreter.

        Raises:
          EvaluatorBroken: The dependencies of the problem cannot be installed.
          Unavailable: The machinery does not answer.
        """
        ...

    def protections(self) -> list[Protection]:
        """Returns which protections are in force, as a sandbox started for this call reports.

        Raises:
          Unavailable: No sandbox could be started.
        """
        ...

    def summary(self) -> str:
        """Returns one line: the isolation in force, and what is missing of it, with the remedies.

        Raises:
          Unavailable: No sandbox could be started.
        """
        ...

    def close(self) -> None:
        """Ends every process and container that this sandbox holds.  Idempotent."""
        ...


class Executor(Protocol):
    """Arranges for a step to be run at least once, in some process, at some later time."""

    def submit(
        self, step: Step, subjects: Sequence[int], *, together: int = 1, fleet: str = ""
    ) -> None:
        """Enqueues the step for each subject, in order, up to `together` per message.

        A message that cannot be sent is not an error: `reap` enqueues the step again.

        Args:
          step: What to run.
          subjects: What to run it for.
          together: The largest number of subjects in a message.
          fleet: Label of the workers that are to run it; "" for those without a label.
        """
        ...

    def queued(self, step: Step, fleet: str = "") -> int:
        """Returns how many messages wait in a step's queue for a fleet; 0 where that is unknown."""
        ...


class Store(Protocol):
    """The ledger: the only state that outlives a process.

    Obligations of an adapter; `tests/contracts/store.py` checks them:
    * *Threads*: `begin` may be called by several threads at once, and a thread may have several
      transactions open.  A transaction and the islands it returns belong to the thread that began
      it, and end with it.
    * *Atomicity*: everything in a transaction is committed or nothing is, events included.
    * *Isolation*: a read sees the transaction's own writes and what others committed before the
      read; with `snapshot`, what was committed before the transaction's first read.
    * *Order*: the events of a run are numbered from 1 without gaps, in the order of commits; those
      of one transaction are consecutive.
    * *Waiting*: a transaction may wait for another one's locks, but never in a circle, if callers
      take them in the order of `app.ports.ledger`.
    """

    def begin(self, *, snapshot: bool = False) -> AbstractContextManager[Transaction]:
        """Opens a transaction that commits on a clean exit and rolls back on an exception.

        Args:
          snapshot: Whether all is read as it was at one moment, and nothing may be written;
            otherwise each read sees what was committed before it.

        Raises:
          Unavailable: The database cannot be reached, or ended the transaction.
        """
        ...

    def vacuum(self, *, full: bool = False) -> None:
        """Makes the room of rows that were removed free for others.

        Args:
          full: Whether the room is given back to the file system; every table is locked meanwhile,
            and written anew.

        Raises:
          Unavailable: The database cannot be reached.
        """
        ...
