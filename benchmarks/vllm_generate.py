"""Tokens per second of the step `generate`, whole stack, beside vLLM's own client; real vLLM.

    VENV/bin/python -m benchmarks.vllm_generate MODEL_FOLDER      # VENV has vLLM and this project
    VENV/bin/python -m benchmarks.vllm_generate MODEL_FOLDER --in-worker

One `vllm serve` answers in turns a run (Postgres, Valkey, Celery workers and beat, prompts of the
operator `rewrite`, replies charged and read) and `vllm bench serve`, which sends the prompts of the
run again: the same number, at the same concurrency, with replies of the same length
(`ignore_eos`).  With `--in-worker` an engine inside the worker answers the run instead.  Only
the evaluation is simulated, and is rare: the replies of a random model hold no program.

Server, stack and client share the machine.  Replies must be long enough, and the model large enough,
for the model to be the bottleneck, as it is on a GPU; on two cores the figure still includes the
costs of the stack.  Prints one JSON document.
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
from app.ports.runs import NewRun
from benchmarks.simulated import problem
from benchmarks.stack import Stack, running_stack
from tests.vllm.engine_arguments import SOUND
from tests.vllm.server import gauge, vllm_server

TEMPERATURE = 0.7
RUNNING, GENERATED = "vllm:num_requests_running", "vllm:generation_tokens_total"


@dataclass(frozen=True, slots=True)
class Round:
    """The results of one round.

    Attributes:
      tokens_per_second: Rate of reply tokens, from the first request to the last reply.
      peak_running: Largest number of concurrent requests, by vLLM's own gauge.
    """

    tokens_per_second: float
    seconds: float
    tokens: int
    prompt_tokens: float
    peak_running: int


def main() -> None:
    options = _arguments()
    with tempfile.TemporaryDirectory(prefix="evoq-bench-") as folder:
        answer = (_inside if options.in_worker else _beside)(options, Path(folder))
    shown = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "settings": vars(options)}
    print(json.dumps(shown | answer, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a model")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--requests", type=int, default=256, help="requests of a round")
    parser.add_argument("--tokens", type=int, default=1024, help="exact length of a reply")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-worker", action="store_true")
    return parser.parse_args()


def _beside(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    prompts = folder / "prompts.jsonl"
    ours: list[Round] = []
    theirs: list[Round] = []
    with (
        vllm_server(options.model, folder / "server.log") as base_url,
        running_stack(["gpu", "cpu,control"], _environment(options, prompts)) as stack,
    ):
        metrics = base_url.replace("/v1", "/metrics")
        # This first round warms all processes.
        _run(stack, options, base_url, metrics, 0)
        for number in range(1, options.rounds + 1):
            prompts.unlink()
            ours.append(_run(stack, options, base_url, metrics, number))
            theirs.append(_bench_serve(options, base_url, metrics, prompts, number))
    pairs = zip(ours, theirs, strict=True)
    ratios = [round(run.tokens_per_second / client.tokens_per_second, 3) for run, client in pairs]
    return {
        "what": "tokens per second: generate, whole stack, beside vLLM's own client; real vLLM",
        "generate": [asdict(result) for result in ours],
        "vllm_bench_serve": [asdict(result) for result in theirs],
        # Each ratio compares neighbouring rounds, because the machine may be shared.
        "ratios": ratios,
        "median_ratio": median(ratios),
    }


def _inside(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    engine = {
        "EVOQ_VLLM_MODEL": options.model,
        "EVOQ_VLLM_NAME": "tiny",
        "EVOQ_VLLM_ARGS": SOUND,
        "EVOQ_VLLM_METRICS_PORT": str(port),
    }
    prompts = folder / "prompts.jsonl"
    with running_stack(["gpu", "cpu,control"], _environment(options, prompts) | engine) as stack:
        metrics = f"http://127.0.0.1:{port}/metrics"
        rounds = [
            _run(stack, options, None, metrics, number) for number in range(options.rounds + 1)
        ]
    return {
        "what": "tokens per second: generate, whole stack, real engine inside the worker",
        "generate": [asdict(result) for result in rounds[1:]],
    }


def _environment(options: argparse.Namespace, prompts: Path) -> dict[str, str]:
    return {
        "SIMULATED_MODEL": "settings",
        "SIMULATED_PROMPTS": str(prompts),
        # As many requests wait as are in flight.
        "EVOQ_GENERATE_CONCURRENCY": str(2 * options.concurrency),
        "EVOQ_EVALUATE_CONCURRENCY": "2",
        "EVOQ_LLM_MAX_IN_FLIGHT": str(options.concurrency),
    }


def _run(
    stack: Stack, options: argparse.Namespace, base_url: str | None, metrics: str, number: int
) -> Round:
    """Starts a run with the completions of one round, and waits for its end."""
    simulated = problem()
    model = ModelSettings(
        model="tiny",
        base_url=base_url,
        temperature=TEMPERATURE,
        max_tokens=options.tokens,
        extra_body={"ignore_eos": True},
        repair_turns=0,
        min_in_flight=options.concurrency,
        target_in_flight=options.concurrency,
        max_in_flight=options.concurrency,
        timeout_seconds=600.0,
        min_timeout_seconds=600.0,
        deadline_seconds=900.0,
    )
    queue = QueueSettings(generating=3 * options.concurrency, evaluating=options.concurrency)
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
            budget=Budget(options.requests),
            limits=InFlightLimits(3 * options.concurrency, options.concurrency),
        ),
    )

    def over() -> bool:
        with stack.store.begin() as tx:
            return tx.runs.get(run.id).state is not RunState.RUNNING

    activity = _watched(metrics, over)
    with psycopg.connect(stack.database_url.replace("+psycopg", "")) as connection:
        counted = (
            "SELECT count(*), sum(completion_tokens), avg(prompt_tokens) FROM completions q"
            " JOIN cohorts k ON k.id = q.cohort WHERE k.run = %s"
        )
        n, tokens, prompt = connection.execute(counted, (run.id,)).fetchone() or (0, 0, 0)
    if n != options.requests or tokens != n * options.tokens:
        raise SystemExit(f"{n} of {options.requests} completions with {tokens} tokens together")
    return _round(activity, int(tokens), float(prompt))


@dataclass(slots=True)
class _Activity:
    """The active time of a round, by the server's own metrics, sampled four times a second."""

    first: float = 0.0
    last: float = 0.0
    peak: float = 0.0


def _watched(metrics: str, over: Callable[[], bool]) -> _Activity:
    """Samples the metrics until `over()` holds."""
    activity, made = _Activity(), gauge(metrics, GENERATED)
    while not over():
        now, running = time.monotonic(), gauge(metrics, RUNNING)
        generated = gauge(metrics, GENERATED)
        activity.first = activity.first or (now if running else 0.0)
        if generated > made:
            activity.last, made = now, generated
        activity.peak = max(activity.peak, running)
        time.sleep(0.25)
    return activity


def _round(activity: _Activity, tokens: int, prompt_tokens: float) -> Round:
    seconds = activity.last - activity.first
    rate = round(tokens / seconds, 1)
    return Round(rate, round(seconds, 2), tokens, round(prompt_tokens, 1), int(activity.peak))


def _bench_serve(
    options: argparse.Namespace, base_url: str, metrics: str, prompts: Path, number: int
) -> Round:
    """Sends the prompts with vLLM's own client and returns the rate that it reports."""
    folder = prompts.parent
    lines = prompts.read_text().splitlines()
    random.Random(number).shuffle(lines)
    requests = folder / "requests.jsonl"
    requests.write_text("\n".join(lines[: options.requests]) + "\n")
    command = [str(Path(sys.executable).with_name("vllm")), "bench", "serve"]
    command += shlex.split(
        f"--backend openai-chat --model tiny --tokenizer {shlex.quote(options.model)}"
        f" --base-url {base_url.removesuffix('/v1')} --endpoint /v1/chat/completions"
        f" --dataset-name custom --dataset-path {requests} --custom-output-len {options.tokens}"
        f" --num-prompts {options.requests} --max-concurrency {options.concurrency} --ignore-eos"
        f" --disable-shuffle --skip-chat-template --temperature {TEMPERATURE}"
        f" --disable-tqdm --save-result --result-dir {folder} --result-filename result.json"
    )
    with (folder / "bench.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    activity = _watched(metrics, lambda: process.poll() is not None)
    if process.returncode:
        raise SystemExit(f"vllm bench serve: {(folder / 'bench.log').read_text()[-3000:]}")
    result = json.loads((folder / "result.json").read_text())
    if result["completed"] != options.requests:
        raise SystemExit(f"vllm bench serve: {result['completed']} of {options.requests} completed")
    return Round(
        round(float(result["output_throughput"]), 1),
        round(float(result["duration"]), 2),
        int(result["total_output_tokens"]),
        round(float(result["total_input_tokens"]) / options.requests, 1),
        int(activity.peak),
    )


if __name__ == "__main__":
    main()
