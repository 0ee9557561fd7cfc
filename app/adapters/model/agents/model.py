"""An agent as a model: each prompt is a task, and its reply the files that the agent leaves."""

import itertools
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from app.adapters.locked_folders import LockedFolder
from app.adapters.model.agents.branch import AgentBranch
from app.adapters.model.agents.proxy import Account, AgentProxy, TryProgram, Upstream
from app.domain.operator import Completion, Prompt
from app.domain.problem import EvaluatorBroken
from app.domain.program import Program
from app.domain.replies.agent import OVERDUE, LeftFiles, agent_reply
from app.domain.replies.agent_files import agent_files
from app.domain.secrets import redacted
from app.ports.protocols import NEVER, Misconfigured, Stop, Stopped, Unavailable

PREFIX = "evoq-agent-"
"""Of the names of the folders of agents, in the temporary directory."""
_OUTPUT_CHARS = 20_000
_ADDRESSES = {
    "EVOQ_ADDRESS": "{address}",
    "OPENAI_API_BASE": "{address}/v1",
    "OPENAI_BASE_URL": "{address}/v1",
    "ANTHROPIC_BASE_URL": "{address}",
}


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """What is run for each proposal.

    Attributes:
      command: The program and its arguments.  `{task}` stands for the path of the task, `{prompt}`
        for its text, and `{model}` for the name of the model.
      seconds: Longest time of one agent.
      tokens: Most tokens of one agent.
      network: Whether it reaches the model at all.
      visible: Files and folders of this machine that it sees beside the system's, such as the
        environment in which it is installed.
      tries: How often it may have its draft measured.
      environment: Further variables of the agent; no secret belongs here.
    """

    command: tuple[str, ...]
    seconds: float = 600.0
    tokens: int = 200_000
    network: bool = True
    visible: tuple[str, ...] = ()
    tries: int = 3
    environment: Mapping[str, str] = field(default_factory=dict)


class RunCommand(Protocol):
    """Runs a command apart from this process, in a folder that it sees and may change.

    Returns:
      Its status, and why it was ended; "" where it ended by itself.

    Raises:
      Misconfigured: Nothing here keeps the command apart.
      Stopped: It was asked to stop.
    """

    def __call__(
        self,
        command: Sequence[str],
        home: Path,
        folder: str,
        *,
        seconds: float,
        environment: Mapping[str, str],
        addresses: Mapping[str, str],
        visible: Sequence[str],
        serve: Callable[[socket.socket], None],
        show: Callable[[bytes], None],
        stop: Stop,
    ) -> tuple[int, str]: ...


@dataclass(frozen=True, slots=True)
class AgentModel:
    """Answers tasks by running a command in a folder with the files of the prompt's program.

    Attributes:
      fixed: Path to contents of the files around those of a program.
      upstream: The model that the agent may ask; None for none.
      price: US dollars of so many tokens of prompts and of replies; None where it is not known.
      try_program: Measures a draft; None where that cannot be done here.
      tokens_left: Returns how many tokens the run's budget has left; None for any number.
      removing: Whether a child may be without files of its parent.
    """

    agent: AgentCommand
    run_command: RunCommand
    fixed: Mapping[str, bytes] = field(default_factory=dict)
    upstream: Upstream | None = None
    price: Callable[[int, int], float | None] = lambda prompt, completion: None  # noqa: ARG005
    try_program: Callable[[Program], Mapping[str, Any]] | None = None
    tokens_left: Callable[[], int | None] = lambda: None
    removing: bool = False

    @property
    def name(self) -> str:
        return "agent"

    @property
    def places(self) -> None:
        """There is no limit but the worker's."""
        return None

    def parameters(self, prompt: Prompt) -> Mapping[str, Any]:  # noqa: ARG002
        """Returns the command and the model that it asks."""
        model = self.upstream.model if self.upstream and self.agent.network else ""
        return {"provider": "agent", "command": list(self.agent.command), "model": model}

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        """Returns what each agent left, one after the other.

        Raises:
          Stopped: It was asked to stop; `answered` holds the replies so far.
          Misconfigured: Nothing here keeps an agent apart from this machine.
        """
        replies: dict[int, Completion] = {}
        for place, prompt in enumerate(prompts):
            account = Account(self.agent.tokens, self.tokens_left)
            try:
                replies[place] = self._run(prompt, account, stop)
            except (Stopped, Misconfigured) as error:
                if account.used:
                    # The tokens of an agent that was ended are booked with its reply.
                    text = agent_reply(str(error), "", LeftFiles({}))
                    replies[place] = self._completion(prompt, account, text, OVERDUE)
                error.answered = replies
                raise
        return [replies[place] for place in range(len(prompts))]

    def _run(self, prompt: Prompt, account: Account, stop: Stop) -> Completion:
        program = prompt.program
        assert program is not None
        own = {file.path: file.source.encode("utf-8", "replace") for file in agent_files(program)}
        try:
            home = LockedFolder(PREFIX)
        except OSError as error:
            raise Unavailable(f"the folder of an agent cannot be made: {error}") from error
        try:
            branch = AgentBranch(Path(home.folder), {**self.fixed, **own})
            branch.make(self._task(prompt), tuple(own))
            return self._reply(prompt, program, branch, account, stop)
        finally:
            home.remove()

    def _reply(
        self,
        prompt: Prompt,
        program: Program,
        branch: AgentBranch,
        account: Account,
        stop: Stop,
    ) -> Completion:
        upstream, output = self.upstream if self.agent.network else None, _Tail(_OUTPUT_CHARS)
        drafts = self._drafts(program) if self.try_program else None
        proxy = AgentProxy(upstream, account, drafts, lambda why: output.add(f"[evoq] {why}\n"))
        begun = time.monotonic()
        try:
            status, ended = self.run_command(
                self._filled(branch, prompt),
                branch.home,
                branch.folder.name,
                seconds=self.agent.seconds,
                environment={**branch.environment(_path(self.agent)), **self.agent.environment},
                addresses=_ADDRESSES,
                visible=self.agent.visible,
                serve=proxy.serve,
                show=lambda line: output.add(line.decode("utf-8", "replace")),
                stop=stop,
            )
        finally:
            account.close()
        seconds = time.monotonic() - begun
        how = ended or f"it ended with status {status}"
        left = LeftFiles({}) if ended else branch.left()
        text = agent_reply(f"The agent: {how} after {seconds:.0f} s", redacted(output.text), left)
        reply = self._completion(prompt, account, text, OVERDUE if ended else "stop")
        return replace(reply, latency_seconds=seconds)

    def _completion(self, prompt: Prompt, account: Account, text: str, finish: str) -> Completion:
        return Completion(
            text,
            model=self.name,
            finish=finish,
            prompt_tokens=account.prompt,
            completion_tokens=account.completion,
            cost_usd=self.price(account.prompt, account.completion),
            role=prompt.role,
            revision=self.upstream.model if self.upstream and self.agent.network else "",
            parameters=self.parameters(prompt),
        )

    def _task(self, prompt: Prompt) -> str:
        """Returns the text of the task, with the commands that the agent has here."""
        tries = ""
        if self.try_program is not None and self.agent.tries:
            tries = (
                f"\nThe command `evoq try` measures the files as they are, and prints the score or "
                f"the failure. It may be called {self.agent.tries} times.\n"
            )
        return "\n\n".join(filter(None, (prompt.system, prompt.user))) + tries

    def _filled(self, branch: AgentBranch, prompt: Prompt) -> list[str]:
        values = {
            "{task}": str(branch.task),
            "{prompt}": self._task(prompt),
            "{model}": self.upstream.model if self.upstream else "",
        }
        command = []
        for argument in self.agent.command:
            for name, value in values.items():
                argument = argument.replace(name, value)
            command.append(argument)
        return command

    def _drafts(self, program: Program) -> TryProgram:
        """Returns what measures an agent's drafts, a bounded number of times."""
        numbers = itertools.count(1)

        def measure(files: Mapping[str, str]) -> Mapping[str, Any]:
            assert self.try_program is not None
            number = next(numbers)
            if number > self.agent.tries:
                return {"error": f"a proposal may measure {self.agent.tries} drafts"}
            if program.path:
                paths = {file.path for file in program.files}
                kept = () if self.removing and files else program.files
                draft = Program.of_files(
                    {file.path: file.source for file in kept}
                    | {path: text for path, text in files.items() if path in paths}
                )
            else:
                draft = program.changed(next(iter(files.values()), program.source))
            try:
                measured = self.try_program(draft)
            except (Unavailable, EvaluatorBroken) as error:
                return {"error": f"drafts cannot be measured here: {error}"}
            return {**measured, "tries_left": self.agent.tries - number}

        return measure


def _path(agent: AgentCommand) -> str:
    """Returns where the agent's commands are: beside its own program, then the system's."""
    places = [os.path.dirname(agent.command[0])] if "/" in agent.command[0] else []
    places += [f"{folder}/bin" for folder in agent.visible]
    return ":".join([*places, "/usr/local/bin", "/usr/bin", "/bin"])


class _Tail:
    """The end of a text that grows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[str] = []
        self._length = 0

    def add(self, part: str) -> None:
        self._parts.append(part)
        self._length += len(part)
        if self._length > 2 * self._most:
            self._parts = [self.text]
            self._length = len(self._parts[0])

    @property
    def text(self) -> str:
        whole = "".join(self._parts)
        return whole if len(whole) <= self._most else f"[...]\n{whole[-self._most :]}"
