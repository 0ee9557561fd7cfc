"""A toy problem: bring `x` near pi.  Its sandbox is a fake that runs in this process."""

import json
import math
from collections.abc import Mapping

from app.domain.evaluation import Evaluation, Failure, FailureKind, Trial
from app.domain.operator import Brief, Conversation, Offspring, Operator, Prompt
from app.domain.problem import Axis, Evaluator, Job, Outcome, Problem
from app.domain.program import Program, ProgramId
from app.ports.protocols import NEVER, Stop

DIGEST = "70" * 32


def prepare(trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
    sources = tuple((".py", programs[p].source.encode()) for p in trial.players)
    return Job(Evaluator(DIGEST, {"evaluator.py": b"open(path)"}), trial.stage, sources)


def interpret(trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome) -> Evaluation:
    if outcome.result is None:
        return Evaluation(failure=outcome.failure, verified=True)
    x = json.loads(outcome.result)["x"]
    if trial.stage == "probe":
        return Evaluation(behaviour=f"near {round(x)}", verified=True)
    [player] = trial.players
    length = float(len(programs[player].source))
    return Evaluation(
        scores={player: {"near": -abs(x - math.pi)}},
        metrics={player: {"x": x}},
        features={player: {"x": x, "length": length}},
        verified=True,
    )


class ToySandbox:
    """Reads the number out of the program, or fails as the program says."""

    def __init__(self) -> None:
        self.runs = 0

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        self.runs += 1
        text = job.programs[0][1].decode().split("=")[1].split("#")[0].strip()
        if text == "crash":
            return Outcome(None, Failure(FailureKind.RUNTIME, "it crashed"))
        return Outcome(json.dumps({"x": float(text)}).encode(), None)

    def close(self) -> None: ...


def problem(
    *,
    axes: tuple[Axis, ...] = (Axis("x", 12, -4.0, 8.0),),
    seeds: tuple[str, ...] = ("x = 0.0\n",),
    stages: tuple[str, ...] = ("evaluate",),
    thresholds: tuple[float, ...] = (),
    probe: str = "",
) -> Problem:
    return Problem(
        name="toy",
        digest=DIGEST,
        format="toy",
        files={"evaluator.py": b"# toy"},
        options={},
        instructions="Bring x near pi.",
        seeds=tuple(Program(seed) for seed in seeds),
        prepare=prepare,
        interpret=interpret,
        axes=axes,
        stages=stages,
        thresholds=thresholds,
        probe=probe,
    )


def _nudge(brief: Brief) -> Conversation:
    """Asks nobody: moves x by a random step; one in ten crashes, one in ten repeats its parent."""
    yield from ()
    children = []
    for draft in brief.drafts:
        parent = brief.known[draft.parents[0]].program
        rng = brief.rng(f"nudge/{draft.ordinal}")
        x = float(parent.source.split("=")[1].split("#")[0])
        luck = rng.random()
        if luck < 0.1:
            children.append(Offspring(Program(f"x = crash  # {draft.ordinal}\n")))
        elif luck < 0.2:
            children.append(Offspring(parent))
        else:
            children.append(Offspring(Program(f"x = {x + rng.uniform(-1, 1):.6f}\n"), "nudged"))
    return children


NUDGE = Operator("nudge", _nudge, asks_model=False)


def _asked(brief: Brief) -> Conversation:
    """Asks a model twice for a number: once for a plan, once for the program."""
    [_] = yield [Prompt("plan", brief.instructions, brief.drafts[0].ordinal)]
    replies = yield [Prompt("build", brief.instructions, d.ordinal) for d in brief.drafts]
    return [Offspring(Program(reply.text)) for reply in replies]


ASKED = Operator("asked", _asked, completions=2)
