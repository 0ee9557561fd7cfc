"""Tokens per second through the step `generate`, whole stack, beside vLLM's own client; real vLLM.

    VENV/bin/python -m benchmarks.vllm_generate MODEL_FOLDER      # VENV has vLLM and this project
    VENV/bin/python -m benchmarks.vllm_generate MODEL_FOLDER --in-worker

One `vllm serve` is asked in turns by a run (Postgres, Valkey, Celery workers and beat, prompts of the
operator `rewrite`, replies booked and read) and by `vllm bench serve`, which asks the very prompts
that the run has just asked: the same number, at the same concurrency, and answers of the same length
(`ignore_eos`).  With `--in-worker` the run is answered by an engine inside its worker instead.  Only
the evaluation is simulated, and hardly takes place: a random model's replies hold no program.

Server, stack and client share the machine.  Answers must be long enough, and the model heavy enough,
for the model to be the bottleneck, as it is on a GPU; on two cores the figure is still about what
the stack costs beside it.  Prints one JSON document.
"""  # noqa: E501  commands are not broken

import argparse
import json
import os
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psycopg

from app.config.models import ModelSettings
from app.config.settings import QueueSettings, RunSettings, SearchSettings
from app.domain.run import RunState
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.engine import lifecycle
from app.ports.records import NewRun
from benchmarks.simulated import problem
from benchmarks.stack import Stack, running_stack
from tests.vllm.engine_arguments import SOUND
from tests.vllm.server import gauge, vllm_server

TEMPERATURE = 0.7
RUNNING, GENERATED = "vllm:num_requests_running", "vllm:generation_tokens_total"


@dataclass(frozen=True, slots=True)
class Round:
    """What one turn came to.

    Attributes:
      tokens_per_second: Of answers, from the first request to the last answer.
      peak_running: Most requests at once, by vLLM's own gauge.
    """

    tokens_per_second: float
    seconds: float
    tokens: int
    prompt_tokens: float
    peak_running: int


def main() -> None:
    told = _arguments()
    with tempfile.TemporaryDirectory(prefix="evoq-bench-") as folder:
        answer = (_inside if told.in_worker else _beside)(told, Path(folder))
    shown = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "settings": vars(told)}
    print(json.dumps(shown | answer, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a model")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--requests", type=int, default=256, help="of a round")
    parser.add_argument("--tokens", type=int, default=1024, help="of an answer, exactly")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-worker", action="store_true")
    return parser.parse_args()


def _beside(told: argparse.Namespace, folder: Path) -> dict[str, object]:
    prompts = folder / "prompts.jsonl"
    ours: list[Round] = []
    theirs: list[Round] = []
    with (
        vllm_server(told.model, folder / "server.log") as base_url,
        running_stack(["gpu", "cpu,control"], _environment(told, prompts)) as stack,
    ):
        metrics = base_url.replace("/v1", "/metrics")
        _run(stack, told, base_url, metrics, 0)  # warms all
        for number in range(1, told.rounds + 1):
            prompts.unlink()
            ours.append(_run(stack, told, base_url, metrics, number))
            theirs.append(_bench_serve(told, base_url, metrics, prompts, number))
    pairs = zip(ours, theirs, strict=True)
    ratios = [round(one.tokens_per_second / other.tokens_per_second, 3) for one, other in pairs]
    return {
        "what": "tokens per second: generate, whole stack, beside vLLM's own client; real vLLM",
        "generate": [asdict(one) for one in ours],
        "vllm_bench_serve": [asdict(one) for one in theirs],
        "ratios": ratios,  # of two that ran one after the other: the machine may be shared
        "median_ratio": median(ratios),
    }


def _inside(told: argparse.Namespace, folder: Path) -> dict[str, object]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    engine = {
        "EVOQ_VLLM_MODEL": told.model,
        "EVOQ_VLLM_NAME": "tiny",
        "EVOQ_VLLM_ARGS": SOUND,
        "EVOQ_VLLM_METRICS_PORT": str(port),
    }
    prompts = folder / "prompts.jsonl"
    with running_stack(["gpu", "cpu,control"], _environment(told, prompts) | engine) as stack:
        metrics = f"http://127.0.0.1:{port}/metrics"
        rounds = [_run(stack, told, None, metrics, number) for number in range(told.rounds + 1)]
    return {
        "what": "tokens per second: generate, whole stack, real engine inside the worker",
        "generate": [asdict(one) for one in rounds[1:]],
    }


def _environment(told: argparse.Namespace, prompts: Path) -> dict[str, str]:
    return {
        "SIMULATED_MODEL": "settings",
        "SIMULATED_PROMPTS": str(prompts),
        "EVOQ_GENERATE_CONCURRENCY": str(2 * told.concurrency),  # as many are ready as are answered
        "EVOQ_EVALUATE_CONCURRENCY": "2",
        "EVOQ_LLM_MAX_IN_FLIGHT": str(told.concurrency),
    }


def _run(
    stack: Stack, told: argparse.Namespace, base_url: str | None, metrics: str, number: int
) -> Round:
    """Has a run ask for as many completions as a round has, and waits for its end."""
    simulated = problem()
    model = ModelSettings(
        model="tiny",
        base_url=base_url,
        temperature=TEMPERATURE,
        max_tokens=told.tokens,
        extra_body={"ignore_eos": True},
        repair_turns=0,
        min_in_flight=told.concurrency,
        target_in_flight=told.concurrency,
        max_in_flight=told.concurrency,
        timeout_seconds=600.0,
        min_timeout_seconds=600.0,
        deadline_seconds=900.0,
    )
    queue = QueueSettings(generating=3 * told.concurrency, evaluating=told.concurrency)
    settings = RunSettings(search=SearchSettings(seed=number), llm=model, queue=queue)
    run = lifecycle.start(
        stack.ctx,
        simulated,
        NewRun(
            name=f"generate-{number}",
            problem=simulated.digest,
            strategy="map_elites",
            settings=settings.model_dump(mode="json"),
            operators={"rewrite": 1.0},
            axes=simulated.axes,
            seed=number,
            islands=1,
            budget=Budget(told.requests),
            limits=InFlightLimits(3 * told.concurrency, told.concurrency),
        ),
    )

    def over() -> bool:
        with stack.store.begin() as tx:
            return tx.runs.get(run.id).state is not RunState.RUNNING

    seen = _watched(metrics, over)
    with psycopg.connect(stack.database_url.replace("+psycopg", "")) as connection:
        counted = (
            "SELECT count(*), sum(completion_tokens), avg(prompt_tokens) FROM completions q"
            " JOIN cohorts k ON k.id = q.cohort WHERE k.run = %s"
        )
        n, tokens, prompt = connection.execute(counted, (run.id,)).fetchone() or (0, 0, 0)
    if n != told.requests or tokens != n * told.tokens:
        raise SystemExit(f"{n} of {told.requests} completions with {tokens} tokens together")
    return _round(seen, int(tokens), float(prompt))


@dataclass(slots=True)
class _Seen:
    """When a round was at work, by the server's own metrics, looked at four times a second."""

    first: float = 0.0
    last: float = 0.0
    peak: float = 0.0


def _watched(metrics: str, over: Callable[[], bool]) -> _Seen:
    """Looks on until it is over."""
    seen, made = _Seen(), gauge(metrics, GENERATED)
    while not over():
        now, running = time.monotonic(), gauge(metrics, RUNNING)
        generated = gauge(metrics, GENERATED)
        seen.first = seen.first or (now if running else 0.0)
        if generated > made:
            seen.last, made = now, generated
        seen.peak = max(seen.peak, running)
        time.sleep(0.25)
    return seen


def _round(seen: _Seen, tokens: int, prompt_tokens: float) -> Round:
    seconds = seen.last - seen.first
    rate = round(tokens / seconds, 1)
    return Round(rate, round(seconds, 2), tokens, round(prompt_tokens, 1), int(seen.peak))


def _bench_serve(
    told: argparse.Namespace, base_url: str, metrics: str, prompts: Path, number: int
) -> Round:
    """Has vLLM's own client ask the prompts; its rate is the one that it reports."""
    folder = prompts.parent
    lines = prompts.read_text().splitlines()
    random.Random(number).shuffle(lines)
    asked = folder / "asked.jsonl"
    asked.write_text("\n".join(lines[: told.requests]) + "\n")
    command = [str(Path(sys.executable).with_name("vllm")), "bench", "serve"]
    command += shlex.split(
        f"--backend openai-chat --model tiny --tokenizer {shlex.quote(told.model)}"
        f" --base-url {base_url.removesuffix('/v1')} --endpoint /v1/chat/completions"
        f" --dataset-name custom --dataset-path {asked} --custom-output-len {told.tokens}"
        f" --num-prompts {told.requests} --max-concurrency {told.concurrency} --ignore-eos"
        f" --disable-shuffle --skip-chat-template --temperature {TEMPERATURE}"
        f" --disable-tqdm --save-result --result-dir {folder} --result-filename result.json"
    )
    with (folder / "bench.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    seen = _watched(metrics, lambda: process.poll() is not None)
    if process.returncode:
        raise SystemExit(f"vllm bench serve: {(folder / 'bench.log').read_text()[-3000:]}")
    result = json.loads((folder / "result.json").read_text())
    if result["completed"] != told.requests:
        raise SystemExit(f"vllm bench serve: {result['completed']} of {told.requests} completed")
    return Round(
        round(float(result["output_throughput"]), 1),
        round(float(result["duration"]), 2),
        int(result["total_output_tokens"]),
        round(float(result["total_input_tokens"]) / told.requests, 1),
        int(seen.peak),
    )


if __name__ == "__main__":
    main()
