"""The agents of a run: its command, the model that it asks, and the measuring of its drafts."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from app.adapters.locked_folders import remove_left_folders
from app.adapters.model.providers.presets import reasons
from app.adapters.model.providers.spec import ModelSpec, model_spec
from app.adapters.sandbox.isolated_command import run_isolated
from app.config.settings import stored_settings
from app.domain.evaluation import fitness, merged_metrics
from app.domain.operator import FailedChild, Role
from app.domain.operators.agent import AGENT
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.prompting.feedback import failure_text
from app.domain.run import Run
from app.domain.search.budget import tokens_left
from app.engine.budget import account, price_ceiling
from app.ports.protocols import LanguageModel, Misconfigured, Sandbox, Store


def agents(
    problem: Callable[[Run], Problem], sandbox: Sandbox, store: Store
) -> Callable[[Run], LanguageModel | None]:
    """Returns what gives the agent of a run; None for a run without one.

    Args:
      problem: Returns the problem of a run, with the limits that the run has now.
      sandbox: Measures drafts.
      store: Has what the run's budget has left.
    """

    def agent_of(run: Run) -> LanguageModel | None:
        if AGENT.name not in run.operators:
            return None
        settings = stored_settings(run.settings)
        agent, of_run = settings.agent, problem(run)
        if not agent.command:
            raise Misconfigured("the operator `agent` has no command to run")
        # Half a second, for runs with agents.
        from app.adapters.model.agents.model import PREFIX, AgentCommand, AgentModel
        from app.adapters.model.agents.proxy import Upstream

        remove_left_folders(PREFIX)
        choices = settings.llm.models_of(Role.AGENT) if agent.network else []
        spec = model_spec(choices[0], os.environ.get) if choices else None
        if spec is not None and not spec.over_http:
            raise Misconfigured(
                f"the model {spec.name!r} has no address that an agent could ask: name one with an "
                f"address in llm.roles.agent.model, or set agent.network=false"
            )
        return AgentModel(
            AgentCommand(
                command=tuple(agent.command),
                seconds=agent.seconds,
                tokens=agent.tokens,
                network=agent.network,
                visible=tuple(agent.visible),
                tries=agent.tries,
                environment=agent.environment,
            ),
            run_isolated,
            of_run.fixed,
            Upstream(
                spec.base_url, spec.name, spec.api_key, choices[0].max_tokens, reasons(spec.name)
            )
            if spec
            else None,
            partial(_price, spec),
            partial(_tried, of_run, sandbox, run) if of_run.players == 1 and agent.tries else None,
            partial(_tokens_left, store, run.id),
            of_run.edit,
        )

    return agent_of


def _tokens_left(store: Store, run_id: int) -> int | None:
    """Returns the tokens that a run's budget has left now; None where nothing caps them.

    The settings of a run may have changed since its agent began.
    """
    with store.begin() as tx:
        run = tx.runs.get(run_id)
    return tokens_left(run.budget, account(run), price_ceiling(run))


def _price(spec: ModelSpec | None, prompt: int, completion: int) -> float | None:
    if spec is None or spec.prompt_usd is None or spec.completion_usd is None:
        return None
    return (prompt * spec.prompt_usd + completion * spec.completion_usd) / 1e6


def _tried(problem: Problem, sandbox: Sandbox, run: Run, draft: Program) -> Mapping[str, Any]:
    """Measures a draft as a proposal would be; returns what an agent may see of it."""
    programs, evaluations = {draft.id: draft}, []
    for stage in problem.stages:
        for trial in problem.trials_of(draft.id, stage):
            outcome = sandbox.run(problem.prepare(trial, programs))
            evaluation = problem.interpret(trial, programs, outcome)
            if evaluation.failure is not None:
                failed = FailedChild(evaluation.failure, draft, artifacts=evaluation.artifacts)
                shown = failure_text(failed, messages=run.rules.prompts.failure_messages)
                return {"stage": stage, "failure": evaluation.failure.kind.value, "detail": shown}
            evaluations.append(evaluation)
    return {
        "score": fitness(draft.id, evaluations),
        "metrics": merged_metrics(draft.id, evaluations),
    }
