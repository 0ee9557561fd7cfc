"""What of vLLM is loaded, and how: its arguments, its metrics.

vLLM is imported when the engine is loaded, so that this module can be imported without it.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.ports.protocols import Misconfigured


@dataclass(frozen=True, slots=True)
class Launch:
    """What is loaded.

    Attributes:
      model: A name on the Hugging Face hub, or a folder.
      served_name: What runs call it.
      arguments: Those of `vllm serve`, as one line: `--max-model-len 8192 --dtype auto`.
      metrics_port: Where vLLM's own /metrics are served; None: nowhere.
    """

    model: str
    served_name: str
    arguments: str = ""
    metrics_port: int | None = None


def load(launch: Launch) -> Any:
    """Returns vLLM's AsyncLLM.

    Raises:
      Misconfigured: vLLM is not installed, or the model cannot be loaded.
    """
    try:
        from vllm import AsyncEngineArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise Misconfigured(
            f"EVOQ_VLLM_MODEL is {launch.model!r}, and vLLM cannot be imported: {error}; install "
            "evoqueue[gpu], or unset the variable to ask a server"
        ) from error
    if _named_as_path(launch.model) and not Path(launch.model).exists():
        raise Misconfigured(
            f"{_cannot(launch)}: there is no such folder; give one that has the model's "
            "config.json, or the model's name on the hub"
        )
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    try:
        given = parser.parse_args(["--model", launch.model, *shlex.split(launch.arguments)])
        return AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(given))
    except (Exception, SystemExit) as error:  # the parser exits; vLLM raises what it likes
        raise Misconfigured(f"{_cannot(launch)}: {_cause(launch, error)}") from error


def _cannot(launch: Launch) -> str:
    return f"EVOQ_VLLM_MODEL is {launch.model!r}, and vLLM cannot load it"


def _named_as_path(model: str) -> bool:
    """Returns whether this is no name on the hub, which has one slash, between two words."""
    return model.startswith(("/", "./", "../", "~"))


def _cause(launch: Launch, error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it does not take EVOQ_VLLM_ARGS {launch.arguments!r}; what it says is above"
    return (
        f"{type(error).__name__}: {str(error)[:400]}; its own messages are above, and what it is "
        "told of memory, context and devices is in EVOQ_VLLM_ARGS"
    )


def gauge(name: str) -> float:
    """Returns one of vLLM's gauges, summed over its labels."""
    from prometheus_client import REGISTRY

    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == name
    )


def serve_metrics(port: int) -> None:
    """Serves vLLM's own metrics.

    Raises:
      Misconfigured: The port cannot be had.
    """
    from prometheus_client import start_http_server

    try:
        start_http_server(port)
    except OSError as error:
        raise Misconfigured(
            f"EVOQ_VLLM_METRICS_PORT: port {port} cannot be had: {error}"
        ) from error
