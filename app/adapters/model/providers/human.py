"""A person as a model: prompts are files in a folder, and so are the replies.

`NAME.prompt.md` holds the prompt and `NAME.reply.md` the reply; NAME is the proposal's number and
the beginning of the prompt's digest.  `evoq answer` reads and writes the same files.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from app.domain.operator import Completion, Prompt
from app.ports.protocols import NEVER, Misconfigured, Stop, Stopped, Unavailable

PROMPT, REPLY = ".prompt.md", ".reply.md"
_LOOK_SECONDS = 0.5
_SETTLED_SECONDS = 1.0
"""Least age of a reply that is read; an editor may still be writing a younger one."""


@dataclass(frozen=True, slots=True)
class OpenPrompt:
    """A prompt without a reply."""

    name: str
    text: str


class HumanModel:
    """Waits for a person's replies for a limited time; the step that asks is tried again later."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        wait_seconds: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Reads and writes nothing yet.

        Args:
          name: Of the person.
          folder: Of the run's prompts; created with the first.
          wait_seconds: For one call; prompts without a reply by then are asked again later.
          sleep: Waits so many seconds.
          clock: Seconds since the epoch, as in the file system.
        """
        self._name = name
        self._folder = folder
        self._wait_seconds = wait_seconds
        self._sleep = sleep
        self._clock = clock

    @property
    def name(self) -> str:
        return self._name

    @property
    def places(self) -> None:
        """There is no limit."""
        return None

    def parameters(self, prompt: Prompt) -> Mapping[str, object]:  # noqa: ARG002
        """Returns who answers."""
        return {"provider": "human", "model": self._name}

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        """Returns the replies, in order.

        Raises:
          Stopped: It was asked to stop; `answered` holds the replies so far.
          Misconfigured: The folder cannot be written.
          Unavailable: A reply is missing; `answered` holds the others.
        """
        started = self._clock()
        try:
            for prompt in prompts:
                self._ask(prompt)
            while True:
                replies = [self._reply(prompt) for prompt in prompts]
                answered = {n: reply for n, reply in enumerate(replies) if reply is not None}
                if len(answered) == len(prompts):
                    return list(answered.values())
                if stop.asked:
                    raise Stopped("the prompts were withdrawn", answered=answered)
                if self._clock() - started >= self._wait_seconds:
                    break
                self._sleep(_LOOK_SECONDS)
        except OSError as error:
            raise Misconfigured(
                f"{error.filename or self._folder}: prompts for a person cannot be kept here "
                f"({error.strerror}): set llm.answers to a folder that every worker can write"
            ) from error
        raise Unavailable(
            f"{len(prompts) - len(answered)} prompt(s) in {self._folder} wait for a person: see "
            "`evoq answer`",
            answered=answered,
        )

    def _ask(self, prompt: Prompt) -> None:
        """Writes a prompt once; an older prompt of the proposal without a reply is withdrawn."""
        path = self._folder / f"{_name(prompt)}{PROMPT}"
        if path.exists():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for other in self._folder.glob(f"{prompt.sample}-*{PROMPT}"):
            if not _reply_of(other).exists():
                other.unlink(missing_ok=True)
        parts = [f"# System\n\n{prompt.system}\n" if prompt.system else "", f"{prompt.user}\n"]
        _write(path, "\n".join(filter(None, parts)))

    def _reply(self, prompt: Prompt) -> Completion | None:
        question = self._folder / f"{_name(prompt)}{PROMPT}"
        path = _reply_of(question)
        if not path.exists():
            return None
        answered = path.stat().st_mtime
        if self._clock() - answered < _SETTLED_SECONDS:
            return None
        asked = question.stat().st_mtime if question.exists() else answered
        return Completion(
            path.read_text("utf-8-sig", "replace"),
            self._name,
            latency_seconds=max(0.0, answered - asked),
            role=prompt.role,
            parameters=self.parameters(prompt),
        )


def unanswered(folder: Path) -> list[OpenPrompt]:
    """Returns the prompts of a folder that have no reply, oldest first."""
    waiting = [path for path in folder.glob(f"*{PROMPT}") if not _reply_of(path).exists()]
    return [
        OpenPrompt(path.name.removesuffix(PROMPT), path.read_text("utf-8"))
        for path in sorted(waiting, key=lambda path: (path.stat().st_mtime, path.name))
    ]


def answer(folder: Path, name: str, text: str) -> None:
    """Writes the reply to a prompt, atomically.

    Raises:
      LookupError: No prompt of that name waits for a reply.
    """
    if name not in [prompt.name for prompt in unanswered(folder)]:
        raise LookupError(f"no prompt {name!r} in {folder} waits for an answer")
    _write(folder / f"{name}{REPLY}", text)


def _name(prompt: Prompt) -> str:
    return f"{prompt.sample}-{prompt.digest[:12]}"


def _reply_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(PROMPT) + REPLY)


def _write(path: Path, text: str) -> None:
    """Writes a file atomically; of several writers at once, the last wins."""
    written = path.with_name(f"{path.name}.{uuid4().hex}.writing")
    written.write_text(text, "utf-8", "replace")
    written.replace(path)
