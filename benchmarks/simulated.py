"""SIMULATION: a Celery worker whose model and sandbox sleep for a given time, usually none.

Everything else is the product: the tasks, the steps, the ledger, the queue.  Started by
`benchmarks.stack` as `celery -A benchmarks.simulated worker`.

Environment: SIMULATED_MODEL_SECONDS and SIMULATED_EVALUATION_SECONDS are the durations of the
sleeps; SIMULATED_MODEL_SLOTS and SIMULATED_EVALUATION_SLOTS limit concurrent sleeps in this
process; SIMULATED_MODEL=settings calls the model of the run's settings instead, through the
product's adapter (its endpoint may be a simulation too); SIMULATED_PROMPTS is a file that its
prompts are written to.
"""

import hashlib
import json
import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import workers.lifecycle
from app.bootstrap.process import WorkerProcess
from app.bootstrap.worker import worker_context

# Celery's option `-A` finds the application here.
from app.celery import app as app
from app.config.settings import Settings
from app.domain.evaluation import Evaluation, Trial
from app.domain.operator import Completion, Prompt
from app.domain.problem import Axis, Evaluator, Job, Outcome, Problem
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.engine.context import Context
from app.ports.protocols import NEVER, LanguageModel, Protection, Stop

DIGEST = "51" * 32
SOURCE = "# EVOLVE-BLOCK-START\nx = {x:.6f}\ny = {y:.6f}\n# EVOLVE-BLOCK-END\n"


class SimulatedModel:
    """Sleeps, then answers with a program of two random numbers.

    Like a server with `slots` slots: further requests wait.
    """

    name = "simulated"

    def __init__(self, seconds: float, slots: int = 64) -> None:
        self._seconds = seconds
        self._places = slots
        self._slots = threading.BoundedSemaphore(slots)

    @property
    def places(self) -> int | None:
        return self._places

    def parameters(self, prompt: Prompt) -> Mapping[str, Any]:
        return {}

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        if self._seconds:
            with self._slots:
                time.sleep(self._seconds)
        return [self._answer() for _ in prompts]

    def _answer(self) -> Completion:
        source = SOURCE.format(x=random.uniform(-5, 5), y=random.uniform(-5, 5))
        return Completion(f"```python\n{source}```\n", self.name, latency_seconds=self._seconds)


class SimulatedSandbox:
    """Sleeps, then scores the program by a formula, in this process; the program does not run."""

    def __init__(self, seconds: float, slots: int = 64) -> None:
        self._seconds = seconds
        self._slots = threading.BoundedSemaphore(slots)

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if self._seconds:
            with self._slots:
                time.sleep(self._seconds)
        x, y = _numbers(job.programs[0][1])
        score = -((x - 1.0) ** 2) - (y + 2.0) ** 2
        result = json.dumps({"combined_score": score, "x": x, "y": y}).encode()
        return Outcome(result, None, wall_seconds=self._seconds)

    def prepare(self, evaluator: Evaluator) -> None: ...

    def surroundings(self, evaluator: Evaluator) -> str:
        return "simulated"

    def protections(self) -> list[Protection]:
        return []

    def summary(self) -> str:
        return "simulated"

    def close(self) -> None: ...


def _numbers(source: bytes) -> tuple[float, float]:
    """Returns the two numbers in a program; two of its digest where it no longer holds two."""
    digest = hashlib.sha256(source).digest()
    drawn = [int.from_bytes(digest[at : at + 4], "big") / 2**32 * 10 - 5 for at in (0, 4)]
    lines = [line.split("=")[1] for line in source.decode().splitlines() if line[1:4] == " = "]
    try:
        numbers = [float(line) for line in lines]
    except ValueError:
        numbers = []
    x, y = numbers if len(numbers) == 2 else drawn
    return x, y


def _prepare(trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
    sources = tuple((".py", programs[player].source.encode()) for player in trial.players)
    return Job(Evaluator(DIGEST, {}), trial.stage, sources)


def _interpret(trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome) -> Evaluation:
    assert outcome.result is not None
    measured = json.loads(outcome.result)
    [player] = trial.players
    return Evaluation(
        scores={player: {"combined_score": measured["combined_score"]}},
        metrics={player: measured},
        features={player: {"x": measured["x"], "y": measured["y"]}},
        wall_seconds=outcome.wall_seconds,
    )


def problem() -> Problem:
    """The simulated task: two numbers, a grid of 10 x 10."""
    return Problem(
        name="simulated",
        digest=DIGEST,
        format="simulated",
        files={"README": b"a simulation: scored by a formula, in the worker's own process"},
        options={},
        instructions="Find two numbers.",
        seeds=(Program(SOURCE.format(x=0.0, y=0.0)),),
        prepare=_prepare,
        interpret=_interpret,
        axes=(Axis("x", 10, -5.0, 5.0), Axis("y", 10, -5.0, 5.0)),
    )


def simulated_context(settings: Settings | None = None) -> Context:
    """Returns the worker's context with a simulated sandbox, problem and, by default, model."""
    real = worker_context(settings)
    simulated = problem()
    sandbox = SimulatedSandbox(
        float(os.environ.get("SIMULATED_EVALUATION_SECONDS", "0")),
        int(os.environ.get("SIMULATED_EVALUATION_SLOTS", "64")),
    )
    ctx = replace(real, sandbox=sandbox, problem=lambda digest: simulated, limited=None)
    if os.environ.get("SIMULATED_MODEL") == "settings":
        path = os.environ.get("SIMULATED_PROMPTS")
        return _recording(ctx, Path(path)) if path else ctx
    model = SimulatedModel(
        float(os.environ.get("SIMULATED_MODEL_SECONDS", "0")),
        int(os.environ.get("SIMULATED_MODEL_SLOTS", "64")),
    )

    def ask(run: Run) -> SimulatedModel:
        return model

    # The slots of the model are its only limit.
    assert isinstance(ctx.process, WorkerProcess)
    return replace(ctx, model=ask, process=replace(ctx.process, models=None))


class RecordingModel:
    """Records each prompt and sends it as one text, so that vLLM's own client can send the same."""

    def __init__(self, model: LanguageModel, path: Path) -> None:
        self.name = model.name
        self._model = model
        self._path = path

    @property
    def places(self) -> int | None:
        return self._model.places

    def parameters(self, prompt: Prompt) -> Mapping[str, Any]:
        return self._model.parameters(prompt)

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        texts = [f"{prompt.system}\n{prompt.user}" for prompt in prompts]
        with self._path.open("a") as file:
            file.write("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
        pairs = zip(prompts, texts, strict=True)
        return self._model.complete(
            [replace(prompt, system="", user=text) for prompt, text in pairs]
        )


def _recording(ctx: Context, path: Path) -> Context:
    return replace(ctx, model=lambda run: RecordingModel(ctx.model(run), path))


vars(workers.lifecycle)["worker_context"] = simulated_context
