"""One model with its endpoint's address, key and peculiarities, as settings describe it.

Imports no client, so that commands can read an address without the time that takes.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, field

from app.adapters.model.providers.presets import (
    NO_ENDPOINT,
    PRESETS,
    UNKNOWN,
    Preset,
    preset_at,
)
from app.config.models import OPENAI_KEY, ModelChoice, Provider, sound_address
from app.domain.operator import Prompt
from app.ports.protocols import Misconfigured

OPENAI_URL = PRESETS[Provider.OPENAI].base_url
IN_PROCESS = "vllm://this-worker"
"""Stands for the address of a model that this process serves itself."""
START = 32
"""Size at which a window begins without a target."""
_ADDRESS = "OPENAI_BASE_URL"

Environment = Callable[[str], str | None]
"""Looks a variable up; None where it is not set."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model and how it is asked.

    Attributes:
      weight: Its share of the prompts, relative to the other models'.
      api_key: "" for an endpoint without one.
      key_variable: Variable in which the key was looked up; messages name it, never the key.
      preset: What the endpoint takes.
      temperature, top_p: None leaves them to the endpoint.
      max_tokens: Longest completion, reasoning included.
      timeout_seconds: Longest silence between two tokens of a reply.
      min_timeout_seconds: Lower bound of the wait for a first token.
      deadline_seconds: For one prompt, with all its attempts and pauses, while no tokens come.
      retries: Attempts after the first.
      retry_delay_seconds: Longest first pause; doubled for each further one.
      max_in_flight: Requests of this process at the endpoint at once.
      min_in_flight: Lower bound of their window.
      target_in_flight: Size at which the window begins; None leaves it to the gate.
      parallel_generations: Requests of the whole deployment at the endpoint; None: no such limit.
      bind_replies: Whether a reply begins as its prompt says, where the endpoint can go on from it.
      seeded: Whether a seed is sent, where the endpoint takes one.
      system_message: Replaces every prompt's system text; None leaves it.
      extra_body: Fields of the request that only this endpoint knows; see `app.config.models`.
      prompt_usd, cached_usd, completion_usd: Price of a million tokens; None: not known, and for
        cached prompt tokens that of the others.
    """

    name: str
    weight: float = 1.0
    base_url: str = OPENAI_URL
    api_key: str = field(default="", repr=False)
    key_variable: str = "OPENAI_API_KEY"
    preset: Preset = UNKNOWN
    temperature: float | None = 0.7
    top_p: float | None = None
    max_tokens: int = 4096
    timeout_seconds: float = 60.0
    min_timeout_seconds: float = 2.0
    deadline_seconds: float = 600.0
    retries: int = 5
    retry_delay_seconds: float = 0.5
    max_in_flight: int = 128
    min_in_flight: int = 1
    target_in_flight: int | None = None
    parallel_generations: int | None = None
    seeded: bool = False
    bind_replies: bool = True
    reasoning_effort: str | None = None
    system_message: str | None = None
    extra_body: Mapping[str, object] = field(default_factory=dict)
    prompt_usd: float | None = None
    cached_usd: float | None = None
    completion_usd: float | None = None

    def __str__(self) -> str:
        """Returns the model as messages name it."""
        return f"model {self.name!r} at {self.base_url}"

    def system_of(self, prompt: Prompt) -> str:
        """Returns the system text with which a prompt is asked; "" without one."""
        return prompt.system if self.system_message is None else self.system_message

    @property
    def over_http(self) -> bool:
        """Whether an endpoint is asked, and not this process, a person or the ledger."""
        return self.preset is not NO_ENDPOINT and self.base_url != IN_PROCESS

    @property
    def opening(self) -> int:
        """Requests in flight at which its window begins, by its own settings."""
        start = self.target_in_flight or START
        return least(start, self.max_in_flight, self.parallel_generations) or start

    @property
    def gate_key(self) -> Hashable:
        """What models must have in common to share a gate: an endpoint and its limits."""
        limits = (self.min_in_flight, self.target_in_flight, self.max_in_flight)
        return self.base_url, limits, self.parallel_generations


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of this process, whatever the settings of a model say.

    Attributes:
      redis_url: Where the deployment counts, and where the status is published; None: nowhere.
      max_in_flight: Requests of this process, over all endpoints; None: no such limit.
      target_in_flight: Size at which every window begins; None: that of the model's settings.
      parallel_generations: Requests of the deployment at one endpoint; the lower number holds.
    """

    redis_url: str | None = None
    max_in_flight: int | None = None
    target_in_flight: int | None = None
    parallel_generations: int | None = None

    @property
    def opening(self) -> int:
        """Requests that may be in flight at an endpoint that this process has not asked yet."""
        start = self.target_in_flight or START
        return least(start, self.max_in_flight, self.parallel_generations) or start


def least(*limits: int | None) -> int | None:
    """Returns the lowest of some limits; None where there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def model_spec(choice: ModelChoice, environment: Environment) -> ModelSpec:
    """Returns how to ask a model that has inherited all it can.

    Without a provider, the key of a known host is looked up in the variable of its provider and
    then, as in OpenEvolve, in OpenAI's.

    Raises:
      Misconfigured: A key or an address in the environment cannot be used.
    """
    preset, address = _endpoint(choice, environment)
    of_provider = choice.provider is not None or environment(preset.key_variable)
    variable = choice.api_key_variable or (preset.key_variable if of_provider else OPENAI_KEY)
    others = ("provider", "base_url", "api_key_variable", "fleet")
    fields = {k: v for k, v in asdict(choice).items() if v is not None and k not in others}
    prices = {
        "prompt_usd": fields.pop("usd_per_million_prompt_tokens", None),
        "cached_usd": fields.pop("usd_per_million_cached_tokens", None),
        "completion_usd": fields.pop("usd_per_million_completion_tokens", None),
    }
    return ModelSpec(
        base_url=address,
        api_key=_key(variable, environment),
        key_variable=variable,
        preset=preset,
        **{"temperature": None, **fields},
        **prices,
    )


def _endpoint(choice: ModelChoice, environment: Environment) -> tuple[Preset, str]:
    if choice.provider is not None:
        preset = PRESETS[choice.provider]
        return preset, choice.base_url or preset.base_url
    if choice.base_url:
        return preset_at(choice.base_url), choice.base_url
    try:
        address = sound_address(environment(_ADDRESS) or OPENAI_URL)
    except ValueError as error:
        raise Misconfigured(f"{_ADDRESS} in the worker's environment: {error}") from error
    return preset_at(address), address


def _key(variable: str, environment: Environment) -> str:
    """Returns a key without the newline that files of secrets end with; "" where there is none."""
    key = (environment(variable) or "").strip()
    if not (key.isascii() and key.isprintable()):
        place = next(n for n, letter in enumerate(key, 1) if not " " <= letter <= "~")
        raise Misconfigured(
            f"the key in {variable} cannot be sent: character {place} is not printable ASCII. Copy "
            "it again"
        )
    return key
