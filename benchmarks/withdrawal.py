"""How soon what was cancelled stops: from `cancel` until its step has ended and nothing of it runs.

Each time a run on a real ledger has one step in progress, in a sandbox or at a model that does not
answer, and is cancelled.  `python benchmarks/withdrawal.py [times] [process|docker|model ...]`.
"""

import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIModel
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox, profile
from app.adapters.sandbox.process import ProcessSandbox
from app.adapters.store import schema
from app.adapters.store.leases import CHANNEL, LeaseRenewer
from app.bootstrap import context, open_store
from app.config.settings import RunSettings
from app.domain.problem import Evaluator, Job, Mode, Outcome
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.embedded.postgres import EmbeddedPostgres
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, Protection, Sandbox, Step, Stop
from app.ports.records import NewRun
from benchmarks.simulated import SimulatedSandbox, problem

EVALUATOR = b"""
import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"combined_score": module.solve()}
"""
ENDLESS = b"def solve():\n    while True:\n        pass\n"
INFRA = Path(__file__).resolve().parents[1] / "infra"
SETTLING_SECONDS = 0.3
"""From the beginning of a step to its cancellation, so that its program or request is under way."""


class Messages:
    """Keeps the messages of steps."""

    def __init__(self) -> None:
        self.sent: list[tuple[Step, int]] = []

    def submit(self, step: Step, subjects: Sequence[int], *, together: int = 1) -> None:
        self.sent += [(step, subject) for subject in subjects]


class EndlessTrials:
    """Runs a program that does not end, in the place of every job."""

    def __init__(self, sandbox: Sandbox, mode: Mode) -> None:
        self._sandbox = sandbox
        evaluator = Evaluator("endless", {"evaluator.py": EVALUATOR})
        self._job = Job(evaluator, "evaluate", ((".py", ENDLESS),), mode=mode)
        self.begun = threading.Event()

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        self.begun.set()
        return self._sandbox.run(self._job, stop)

    def prepare(self, evaluator: Evaluator) -> None: ...

    def surroundings(self, evaluator: Evaluator) -> str:
        return self._sandbox.surroundings(evaluator)

    def protections(self) -> list[Protection]:
        return []

    def close(self) -> None:
        self._sandbox.close()


class SilentEndpoint:
    """Accepts requests and never answers; knows when the last connection of them was closed."""

    def __init__(self) -> None:
        self.begun, self.closed = threading.Event(), threading.Event()
        self.url = ""
        serving = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(serving)), daemon=True).start()
        serving.wait()

    async def _serve(self, serving: threading.Event) -> None:
        server = await asyncio.start_server(self._serve_one, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        serving.set()
        await server.serve_forever()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.closed.clear()
        self.begun.set()
        while await reader.read(65536):
            pass
        self.closed.set()
        writer.close()


@dataclass(frozen=True, slots=True)
class Kind:
    """One place where a step may be.

    Attributes:
      ctx: Its step hangs there.
      step: The step.
      begun: Set once it has begun.
      gone: Returns whether nothing of it runs any more.
    """

    ctx: Context
    step: Callable[..., None]
    begun: threading.Event
    gone: Callable[[], bool]


def running_programs() -> list[psutil.Process]:
    """Returns this process's descendants that use a processor: the sandboxes' programs."""
    family = psutil.Process().children(recursive=True)
    return [one for one in family if _busy(one)]


def _busy(process: psutil.Process) -> bool:
    try:
        times = process.cpu_times()
        return bool(process.status() == psutil.STATUS_RUNNING and times.user > SETTLING_SECONDS / 3)
    except psutil.Error:
        return False


def begun_step(ctx: Context, messages: Messages, name: str, step: Step) -> tuple[int, int]:
    """Starts a run and performs its steps up to one of a kind; returns the run and its subject."""
    simulated = problem()
    new = NewRun(
        name=name,
        problem=simulated.digest,
        strategy="greedy",
        settings=RunSettings().model_dump(mode="json"),
        operators={"rewrite": 1.0},
        axes=(),
        seed=0,
        islands=1,
        budget=Budget(1),
        limits=InFlightLimits(1, 1),
    )
    simulating = replace(ctx, sandbox=SimulatedSandbox(0))
    run = lifecycle.start(ctx, simulated, new)
    table: dict[Step, Callable[[Context, int], None]] = {
        "generate": steps.generate,
        "evaluate": steps.evaluate,
        "produce": steps.produce,
    }
    while True:
        sent, subject = messages.sent.pop(0)
        if sent == step and (step == "evaluate" or _asks(ctx, run.id)):
            return run.id, subject
        table[sent](simulating, subject)


def _asks(ctx: Context, run: int) -> bool:
    with ctx.store.begin() as tx:
        return tx.proposals.backlog(run).seeding == 0


def measure(kind: Kind, messages: Messages, name: str, step: Step) -> tuple[float, float]:
    """Returns seconds until the step had ended, and until nothing of it ran."""
    run, subject = begun_step(kind.ctx, messages, name, step)
    kind.begun.clear()
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(kind.step, kind.ctx, subject)
        kind.begun.wait()
        time.sleep(SETTLING_SECONDS)
        began = time.perf_counter()
        lifecycle.cancel(kind.ctx, run)
        going.result()
        ended = time.perf_counter() - began
        while not kind.gone():
            time.sleep(0.002)
        gone = time.perf_counter() - began
    return ended, max(ended, gone)


def in_sandbox(ctx: Context, sandbox: Sandbox, mode: Mode) -> Kind:
    endless = EndlessTrials(sandbox, mode)
    return Kind(
        replace(ctx, sandbox=endless),
        steps.evaluate,
        endless.begun,
        lambda: not running_programs(),
    )


@contextmanager
def kinds(ctx: Context, wanted: Sequence[str]) -> Iterator[dict[str, tuple[Kind, Step]]]:
    found: dict[str, tuple[Kind, Step]] = {}
    process, docker = ProcessSandbox(engine=()), DockerSandbox(settings=_confined())
    loop, endpoint = ModelLoop(), SilentEndpoint()
    model = OpenAIModel(ModelSpec("silent", base_url=endpoint.url, api_key="none"), loop)
    for mode in Mode:
        found[f"process {mode.value}"] = in_sandbox(ctx, process, mode), "evaluate"
        found[f"docker {mode.value}"] = in_sandbox(ctx, docker, mode), "evaluate"
    free = nullcontext(lambda: None)
    asking = replace(ctx, model=lambda run: model, place=lambda run: free)
    found["model"] = (
        Kind(asking, steps.generate, endpoint.begun, endpoint.closed.is_set),
        "generate",
    )
    with closing(loop), closing(process), closing(docker):
        yield {name: kind for name, kind in found.items() if name.split()[0] in wanted}


def _confined() -> ContainerSettings:
    return ContainerSettings(seccomp=profile("", INFRA / "seccomp.json"))


def main(times: int, wanted: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="evoq-bench-") as folder:
        postgres = EmbeddedPostgres(Path(folder) / "postgres")
        url = postgres.start()
        schema.upgrade(url)
        messages = Messages()
        store = open_store(url)
        ctx = context(store, messages, SimulatedSandbox(0), keep_leases=False)
        renewer = LeaseRenewer(store, 30.0, partial(store.listen, CHANNEL, 0.5))
        ctx = replace(ctx, keep=renewer.keep, problem=lambda digest: problem())
        try:
            with kinds(ctx, wanted) as chosen:
                for name, (kind, step) in chosen.items():
                    runs = [measure(kind, messages, f"{name} {n}", step) for n in range(times + 1)]
                    show(name, runs[1:])
        finally:
            renewer.close()
            store.close()
            postgres.stop()


def show(name: str, runs: Sequence[tuple[float, float]]) -> None:
    ended, gone = zip(*runs, strict=True)
    print(
        f"{name:22} step ended: median {statistics.median(ended):.3f} s, most {max(ended):.3f} s; "
        f"gone: median {statistics.median(gone):.3f} s, most {max(gone):.3f} s ({len(runs)} times)",
        flush=True,
    )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 20, given[1:] or ["process", "docker", "model"])
