"""An agent as a model: each prompt is a task, and its reply the files that the agent leaves."""

import itertools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.adapters.isolated import (
    NAMESPACES,
    CommandLimits,
    IsolatedCommand,
    NotIsolated,
    Overdue,
    RunIsolated,
    Tail,
    places_of_programs,
)
from app.adapters.locked_folders import LockedFolder
from app.adapters.model.agents.branch import AgentBranch
from app.adapters.model.agents.proxy import Account, AgentProxy, TryProgram, Upstream
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Completion, Prompt
from app.domain.problem import EditRules, EvaluatorBroken
from app.domain.program import Program
from app.domain.replies.agent import OVERDUE, LeftFiles, agent_reply, child_of_files
from app.domain.replies.agent_files import agent_files
from app.domain.secrets import redacted
from app.ports.protocols import NEVER, Misconfigured, Stop, Stopped, Unavailable

PREFIX = "evoq-agent-"
"""Of the names of the folders of agents, in the temporary directory."""
_OUTPUT_BYTES = 20_000
_LIMITS = CommandLimits()
_REMEDY = (
    f"An agent needs namespaces of its own: {NAMESPACES.format('the worker')}, in a deployment by "
    "compose.agents.yml (docs/agents.md); or leave `agent` out of search.operators"
)
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


@dataclass(frozen=True, slots=True)
class AgentModel:
    """Answers tasks by running a command in a folder with the files of the prompt's program.

    Attributes:
      fixed: Path to contents of the files around those of a program.
      upstream: The model that the agent may ask; None for none.
      price: US dollars of so many tokens of prompts and of replies; None where it is not known.
      try_program: Measures a draft; None where that cannot be done here.
      tokens_left: Returns how many tokens the run's budget has left; None for any number.
      rules: The changes that a draft may make to the program.
    """

    agent: AgentCommand
    run_isolated: RunIsolated
    fixed: Mapping[str, bytes] = field(default_factory=dict)
    upstream: Upstream | None = None
    price: Callable[[int, int], float | None] = lambda prompt, completion: None  # noqa: ARG005
    try_program: Callable[[Program], Mapping[str, Any]] | None = None
    tokens_left: Callable[[], int | None] = lambda: None
    rules: EditRules = field(default_factory=EditRules)

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
            before = branch.make(self._task(prompt), tuple(own), self.rules.evolve)
            output, begun = Tail(_OUTPUT_BYTES), time.monotonic()
            try:
                status = self._work(prompt, program, branch, account, output, stop)
                how, finish, left = f"it ended with status {status}", "stop", branch.left(before)
            except Overdue as error:
                how, finish, left = str(error), OVERDUE, LeftFiles({})
            seconds = time.monotonic() - begun
        finally:
            home.remove()
        text = agent_reply(f"The agent: {how} after {seconds:.0f} s", redacted(output.text), left)
        reply = self._completion(prompt, account, text, finish)
        return replace(reply, latency_seconds=seconds)

    def _work(
        self,
        prompt: Prompt,
        program: Program,
        branch: AgentBranch,
        account: Account,
        output: Tail,
        stop: Stop,
    ) -> int:
        """Runs the agent to its end and returns its status.

        Raises:
          Overdue: It was ended.
          Stopped: It was asked to stop.
          Misconfigured: Its command is not there, or nothing here keeps it apart.
        """
        agent = self.agent
        environment = branch.environment(places_of_programs(agent.command[0], agent.visible))
        command = shutil.which(agent.command[0], path=environment["PATH"])
        if command is None:
            raise Misconfigured(
                f"agent.command: there is no {agent.command[0]!r} where agents find commands "
                f"({environment['PATH']}). Name its path, and in agent.visible the folder in which "
                f"it is installed"
            )
        drafts = self._drafts(program) if self.try_program else None
        proxy = AgentProxy(
            self.upstream if agent.network else None,
            account,
            drafts,
            lambda why: output.add(f"[evoq] {why}\n".encode()),
        )
        isolated = IsolatedCommand(
            command=(command, *self._filled(branch, prompt)[1:]),
            writable=(branch.home,),
            folder=branch.folder,
            deadline=time.monotonic() + agent.seconds,
            environment={**environment, **agent.environment},
            addresses=_ADDRESSES,
            serve=proxy.serve,
            show=output.add,
            readable=tuple(agent.visible),
            limits=_LIMITS,
        )
        try:
            return self.run_isolated(isolated, stop)
        except NotIsolated as error:
            raise Misconfigured(f"nothing here keeps an agent apart: {error}. {_REMEDY}") from error
        finally:
            account.close()

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
            removed = tuple(file.path for file in agent_files(program) if file.path not in files)
            child = child_of_files(LeftFiles(files, removed), program, self.rules)
            if isinstance(child, Failure) and child.kind is not FailureKind.UNCHANGED:
                return {"error": child.detail}
            number = next(numbers)
            if number > self.agent.tries:
                return {"error": f"a proposal may measure {self.agent.tries} drafts"}
            try:
                measured = self.try_program(
                    program if isinstance(child, Failure) else child.program
                )
            except (Unavailable, EvaluatorBroken) as error:
                return {"error": f"drafts cannot be measured here: {error}"}
            return {**measured, "tries_left": self.agent.tries - number}

        return measure
