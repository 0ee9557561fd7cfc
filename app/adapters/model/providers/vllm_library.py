"""vLLM's library as the engine uses it: loading a model, one request, and its gauges.

The one module that imports vLLM; `vllm_engine` imports it when a model is loaded.  The core of the
engine is a child process that vLLM starts; this side renders prompts and collects texts.
"""

import shlex
import uuid
from pathlib import Path

from prometheus_client import REGISTRY
from vllm import AsyncEngineArgs, SamplingParams
from vllm.exceptions import VLLMClientError, VLLMError
from vllm.renderers.params import ChatParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from app.adapters.model.congestion.engine_queue import RUNNING, WAITING, EngineQueue
from app.adapters.model.providers.vllm_engine import (
    EngineRequest,
    GeneratedText,
    GeneratedTexts,
    VllmLaunch,
)
from app.ports.protocols import Misconfigured, Unavailable


class LoadedVllm:
    """A model with its engine; see `vllm_engine.LoadedModel`."""

    def __init__(self, name: str, engine: AsyncLLM) -> None:
        """Keeps the engine.

        Args:
          name: Of the model, in messages.
          engine: Ended by `shutdown`.
        """
        self._name = name
        self.engine = engine

    @property
    def errored(self) -> bool:
        return bool(self.engine.errored)

    @property
    def load(self) -> str:
        """The load by vLLM's own gauges."""
        queue, config = self.queue(), self.engine.vllm_config
        return (
            f"{queue.running} running, {queue.waiting} waiting, "
            f"KV cache {_gauge('vllm:kv_cache_usage_perc'):.0%} used; "
            f"up to {config.scheduler_config.max_num_seqs} at once, "
            f"{config.model_config.max_model_len} tokens each"
        )

    @property
    def template(self) -> str:
        return str(getattr(self.engine.get_tokenizer(), "chat_template", None) or "")

    def queue(self) -> EngineQueue:
        """Returns the queue by vLLM's own gauges."""
        return EngineQueue(int(_gauge(RUNNING)), int(_gauge(WAITING)))

    async def generate(self, request: EngineRequest) -> GeneratedTexts:
        """See `vllm_engine.LoadedModel.generate`."""
        try:
            return await self._generate(request)
        except EngineDeadError as error:
            raise Unavailable("the vLLM engine died; it is being rebuilt") from error
        except (VLLMClientError, ValueError, TypeError) as error:
            raise Misconfigured(
                f"the vLLM engine refuses a request for {self._name}: {error}; "
                "check llm.extra_body, and prompts.max_prompt_tokens and llm.max_tokens "
                "against --max-model-len"
            ) from error
        except VLLMError as error:
            # vLLM raises this for a full queue and for other faults of its own.
            raise Unavailable(f"the vLLM engine: {type(error).__name__}: {error}") from error

    def shutdown(self) -> None:
        """Ends the core."""
        self.engine.shutdown()

    async def _generate(self, request: EngineRequest) -> GeneratedTexts:
        engine, last = self.engine, None
        shape = ChatParams(chat_template_kwargs=dict(request.template))
        _, [rendered] = await engine.renderer.render_chat_async([list(request.messages)], shape)
        async for output in engine.generate(rendered, sampling(request), uuid.uuid4().hex):
            last = output
        if last is None:
            raise Unavailable("the vLLM engine ended a request without an answer")
        return GeneratedTexts(
            tuple(
                GeneratedText(output.text, output.finish_reason or "", len(output.token_ids))
                for output in sorted(last.outputs, key=lambda output: output.index)
            ),
            len(last.prompt_token_ids or ()),
            last.num_cached_tokens or 0,
        )


def sampling(request: EngineRequest) -> SamplingParams:
    """Returns vLLM's parameters of a request."""
    fields = dict(request.sampling)
    if isinstance(structured := fields.get("structured_outputs"), dict):
        fields["structured_outputs"] = StructuredOutputsParams(**structured)
    return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **fields)


def load(launch: VllmLaunch) -> LoadedVllm:
    """Loads a model.

    Raises:
      Misconfigured: It cannot be loaded.
    """
    if _named_as_path(launch.model) and not Path(launch.model).exists():
        raise Misconfigured(
            f"{_cannot(launch)}: there is no such folder; give one that has the model's "
            "config.json, or the model's name on the hub"
        )
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    try:
        given = parser.parse_args(["--model", launch.model, *shlex.split(launch.arguments)])
        engine = AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(given))
    except (Exception, SystemExit) as error:
        # The parser exits on an error, and vLLM documents no exceptions.
        raise Misconfigured(f"{_cannot(launch)}: {_cause(launch, error)}") from error
    return LoadedVllm(launch.served_name, engine)


def _cannot(launch: VllmLaunch) -> str:
    return f"EVOQ_VLLM_MODEL is {launch.model!r}, and vLLM cannot load it"


def _named_as_path(model: str) -> bool:
    """Returns whether this is a path; a name on the hub has one slash, between two words."""
    return model.startswith(("/", "./", "../", "~"))


def _cause(launch: VllmLaunch, error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it does not take EVOQ_VLLM_ARGS {launch.arguments!r}; what it says is above"
    return (
        f"{type(error).__name__}: {str(error)[:400]}; its own messages are above; its "
        "arguments for memory, context and devices are in EVOQ_VLLM_ARGS"
    )


def _gauge(name: str) -> float:
    """Returns one of vLLM's gauges, summed over its labels."""
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == name
    )
