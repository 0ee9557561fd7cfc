"""What of vLLM is loaded, and how: its arguments, its metrics.

vLLM is imported when the engine is loaded, so that this module can be imported without it.
"""

import shlex
from dataclasses import dataclass
from typing import Any

from app.ports import Misconfigured


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
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    try:
        given = parser.parse_args(["--model", launch.model, *shlex.split(launch.arguments)])
        return AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(given))
    except (Exception, SystemExit) as error:  # the parser exits; vLLM raises what it likes
        raise Misconfigured(
            f"EVOQ_VLLM_MODEL is {launch.model!r}, and vLLM cannot load it: "
            f"{type(error).__name__}: {str(error)[:400]}; its own messages are above"
        ) from error


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
