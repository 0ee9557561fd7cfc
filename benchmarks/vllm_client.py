"""Tokens per second of this project's adapters and of vLLM's own client, against the real vLLM.

    VENV/bin/python -m benchmarks.vllm_client MODEL_FOLDER            # VENV has vLLM and this project
    VENV/bin/python -m benchmarks.vllm_client MODEL_FOLDER --in-process

Nothing is simulated.  One server answers the same prompts, at the same concurrency and with the
same limit on tokens, to `vllm bench serve` and to the adapter of the step `generate`, in
turns; or, with `--in-process`, to the engine that a worker loads into its process.  On a machine without
a GPU server and client share the cores, so this measures the cost of a client, not the speed of a GPU.
Prints one JSON document.
"""  # noqa: E501  commands are not broken

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIModel
from app.adapters.model.providers.spec import IN_PROCESS, ModelSpec
from app.adapters.model.providers.vllm import VllmModel
from app.adapters.model.providers.vllm_engine import VllmEngine, VllmLaunch
from app.domain.operator import Prompt
from app.ports.protocols import LanguageModel
from tests.vllm.engine_arguments import SOUND
from tests.vllm.server import vllm_server

TEMPERATURE = 0.7


def main() -> None:
    options = _arguments()
    spec = ModelSpec(
        "tiny",
        base_url=IN_PROCESS,
        max_tokens=options.tokens,
        temperature=TEMPERATURE,
        seeded=False,
        max_in_flight=options.concurrency,
    )
    with tempfile.TemporaryDirectory(prefix="evoq-bench-") as folder:
        inside = options.in_process
        answer = _inside(options, spec) if inside else _beside(options, spec, Path(folder))
    shown = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "settings": vars(options)}
    print(json.dumps(shown | answer, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a model")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=64, help="limit of a reply")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-process", action="store_true")
    return parser.parse_args()


def _beside(options: argparse.Namespace, spec: ModelSpec, folder: Path) -> dict[str, object]:
    ours: list[float] = []
    theirs: list[float] = []
    with vllm_server(options.model, folder / "server.log") as base_url:
        model_loop = ModelLoop()
        model = OpenAIModel(
            ModelSpec(
                spec.name,
                base_url=base_url,
                max_tokens=spec.max_tokens,
                temperature=TEMPERATURE,
                seeded=False,  # as vLLM's client does
                max_in_flight=spec.max_in_flight,
            ),
            model_loop,
        )
        _rate(model, _prompts(options, 0)[: options.concurrency], options.concurrency)  # warms both
        for number in range(1, options.rounds + 1):
            prompts = _prompts(options, number)
            theirs.append(_bench_serve(options, base_url, number, folder))
            ours.append(_rate(model, prompts, options.concurrency))
        model_loop.close()
    return {
        "what": "tokens per second, the real vLLM as a server on the same machine",
        "vllm_bench_serve": theirs,
        "our_adapter": ours,
        "ratio_of_medians": round(median(ours) / median(theirs), 3),
    }


def _inside(options: argparse.Namespace, spec: ModelSpec) -> dict[str, object]:
    engine = VllmEngine(VllmLaunch(options.model, "tiny", SOUND))
    engine.start(lambda line: print(line, file=sys.stderr))
    model_loop = ModelLoop()
    model = VllmModel(spec, engine, model_loop)
    rates = [
        _rate(model, _prompts(options, number), options.concurrency)
        for number in range(options.rounds + 1)
    ]
    model_loop.close()
    engine.close()
    return {"what": "tokens per second, the engine inside the process", "our_adapter": rates[1:]}


def _arguments_of_bench(options: argparse.Namespace, number: int) -> list[str]:
    """Returns the options of `vllm bench serve` that define the requests; each round has its seed.

    The prompts share eight prefixes, as prompts of one parent share theirs.
    """
    half = options.prompt_tokens // 2
    return shlex.split(
        f"--backend openai-chat --model tiny --tokenizer {shlex.quote(options.model)}"
        f" --seed {number} --dataset-name prefix_repetition --prefix-repetition-prefix-len {half}"
        f" --prefix-repetition-suffix-len {half}"
        f" --prefix-repetition-num-prefixes 8 --prefix-repetition-output-len {options.tokens}"
        f" --num-prompts {options.requests}"
    )


def _prompts(options: argparse.Namespace, number: int) -> list[str]:
    """Returns the prompts that vLLM's own client sends with these arguments, drawn by its code."""
    import numpy as np
    from vllm.benchmarks.datasets import get_samples
    from vllm.benchmarks.serve import add_cli_args
    from vllm.tokenizers import get_tokenizer
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    given = parser.parse_args(_arguments_of_bench(options, number))
    random.seed(given.seed)
    np.random.seed(given.seed)
    return [sample.prompt for sample in get_samples(given, get_tokenizer(options.model))]


def _rate(model: LanguageModel, prompts: list[str], concurrency: int) -> float:
    requests = [Prompt("", text, sample=number) for number, text in enumerate(prompts)]
    began = time.monotonic()
    with ThreadPoolExecutor(concurrency) as pool:
        replies = list(pool.map(lambda prompt: model.complete([prompt])[0], requests))
    seconds = time.monotonic() - began
    return round(sum(reply.completion_tokens for reply in replies) / seconds, 1)


def _bench_serve(options: argparse.Namespace, base_url: str, number: int, folder: Path) -> float:
    """Runs vLLM's own client and returns the rate that it reports."""
    command = [str(Path(sys.executable).with_name("vllm")), "bench", "serve"]
    command += _arguments_of_bench(options, number)
    command += shlex.split(
        f"--base-url {base_url.removesuffix('/v1')} --endpoint /v1/chat/completions"
        f" --max-concurrency {options.concurrency} --temperature {TEMPERATURE}"
        f" --disable-tqdm --save-result --result-dir {folder} --result-filename result.json"
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"vllm bench serve: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    result = json.loads((folder / "result.json").read_text())
    if result["completed"] != options.requests:
        raise SystemExit(f"vllm bench serve: {result['completed']} of {options.requests} completed")
    return round(float(result["output_throughput"]), 1)


if __name__ == "__main__":
    main()
