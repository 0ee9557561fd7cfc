"""Settings of the language models: the models of each role, and how requests to them are made.

What a model of a role does not set is taken from its role, and what the role does not set from the
section `llm`.  A model or role that names a provider inherits neither address nor key; one that
names an address inherits no provider.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from difflib import get_close_matches
from operator import attrgetter
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator
from pydantic.dataclasses import dataclass

from app.config.section import Section, fields_of
from app.domain.operator import Role
from app.domain.search.budget import PriceCeiling
from app.domain.search.fleets import fleet_name, label_of
from app.domain.setting import BY_MEASUREMENTS, MOST, Fixed, bounded

OPENAI_KEY = "OPENAI_API_KEY"
_SAMPLED = ("n", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens")
_OWN_FIELDS = frozenset(("model", "messages", "stream", "reasoning_effort", *_SAMPLED))
_OWN_FIELDS_ARE_SET = "it has a setting of its own, or is set by the step that asks"


class Provider(enum.StrEnum):
    """The service that answers for a model, by name.  Each has a preset in `app.adapters.model`."""

    OPENAI = "openai"
    DEEPSEEK = "deepseek"
    GEMINI = "gemini"
    ANTHROPIC = "anthropic"
    OPENROUTER = "openrouter"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    OLLAMA = "ollama"
    HUMAN = "human"
    REPLAY = "replay"


def sound_address(address: str) -> str:
    """Returns the address of an endpoint.

    Raises:
      ValueError: It is no address, or holds a secret: settings are stored and shown.
    """
    try:
        parts = urlsplit(address)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        # The port is no number, or a bracket is not closed.
        whole = False
    if not whole or any(character.isspace() for character in address):
        raise ValueError("it is no address: write http://HOST:PORT/v1 or https://HOST/v1")
    if "@" in parts.netloc:
        raise ValueError("no user or password: give a key, in the variable of api_key_variable")
    if parts.query or parts.fragment or parts.path.rstrip("/").endswith("/chat/completions"):
        raise ValueError("it must end where /chat/completions is appended, usually with /v1")
    return address


_Role = TypeVar("_Role", bound="RoleSettings")


def _gpu_fleet(name: str) -> str:
    return fleet_name(name, "gpu")


_Temperature: TypeAlias = Annotated[float | None, Field(ge=0, le=2)]
_Positive: TypeAlias = Annotated[float | None, Field(gt=0)]
_Pause: TypeAlias = Annotated[float | None, Field(ge=0)]
_Price: TypeAlias = Annotated[float | None, Field(ge=0, le=MOST)]
_Retries: TypeAlias = Annotated[int | None, Field(ge=0)]
_Count: TypeAlias = Annotated[int | None, Field(ge=1)]
"""Numbers with bounds, for settings whose default a subclass replaces, and for those like them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings(Section):
    """How requests to a model are made; None: inherited, or left to the provider."""

    provider: Provider | None = None
    """Service of the model, which implies an address, the variable of a key and adaptations of
    requests."""
    base_url: Annotated[str, AfterValidator(sound_address)] | None = None
    """Address of an OpenAI-compatible endpoint, as http://HOST:PORT/v1."""
    api_key_variable: str | None = None
    """Environment variable of the key. Without a value, the provider's usual one."""
    temperature: _Temperature = None
    """Sampling temperature; prompts for one function add 0.3. Null leaves it to the endpoint."""
    top_p: float | None = bounded(None, gt=0, le=1)
    """Share of the probability that tokens are sampled from. Without a value, the endpoint
    decides."""
    max_tokens: _Count = None
    """Tokens of the longest completion, reasoning included."""
    timeout_seconds: _Positive = None
    """Seconds of silence between two tokens of a reply, after which the attempt ends. Five times as
    long is waited for a first token until 30 are known."""
    min_timeout_seconds: _Positive = None
    """Lower bound in seconds of the adaptive wait for a first token; five times
    `llm.timeout_seconds` switches adapting off."""
    deadline_seconds: _Positive = None
    """Seconds without a token that all attempts of a request may take together."""
    retries: _Retries = None
    """Attempts of a request after the first one."""
    retry_delay_seconds: _Pause = None
    """Seconds of the longest first pause between attempts; each further pause may be twice as
    long."""
    max_in_flight: _Count = None
    """Most requests of one worker process at one endpoint."""
    min_in_flight: _Count = None
    """Lower bound of the adaptive window, in requests in flight at one endpoint."""
    target_in_flight: _Count = None
    """Requests in flight at which the adaptive window of an endpoint begins. Without a value, 32,
    or `llm.max_in_flight` if that is less."""
    parallel_generations: _Count = None
    """Most requests of the whole deployment at one endpoint."""
    seeded: bool | None = None
    """Whether requests have a seed, where the endpoint takes one. Without a value, those of a
    `--reproducible` run do. vLLM samples them one by one."""
    bind_replies: bool | None = None
    """Whether the reply to a prompt for a function or a program begins with its header. Without a
    value, true where the endpoint says that it can, and the model does not think before it
    answers."""
    reasoning_effort: str | None = None
    """Reasoning effort, for models that take one, such as `low`."""
    extra_body: dict[str, JsonValue] | None = None
    """Further fields of the body of each request, such as vLLM's `top_k`."""
    usd_per_million_prompt_tokens: _Price = None
    """US dollars for a million prompt tokens."""
    usd_per_million_cached_tokens: _Price = None
    """US dollars for a million prompt tokens from the endpoint's cache. Without a value, the price
    of other prompt tokens."""
    usd_per_million_completion_tokens: _Price = None
    """US dollars for a million completion tokens."""
    fleet: Annotated[str, AfterValidator(_gpu_fleet)] | None = None
    """[Fleet](fleets.md) whose workers ask the model, as `gpu:llama70b`. Without a value, those of
    any."""

    @field_validator("extra_body")
    @classmethod
    def _no_field_twice(cls, body: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        taken = sorted(_OWN_FIELDS & set(body or ()))
        if taken:
            raise ValueError(f"{taken[0]!r} is not for extra_body: {_OWN_FIELDS_ARE_SET}")
        return body

    @field_validator("provider", mode="before")
    @classmethod
    def _known_provider(cls, name: object) -> object:
        if isinstance(name, str) and name not in list(Provider):
            raise ValueError(f"no provider {name!r}: {_closest(name, Provider)}")
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice(RequestSettings):
    """One model of a mix.

    Attributes:
      weight: Its share of the prompts, relative to the others'; a model of weight 0 is a reserve.
      system_message: Takes the place of every prompt's system text.
    """

    name: str
    weight: float = bounded(1.0, ge=0, le=MOST)
    system_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSettings(RequestSettings):
    """The models of one role; without any, the models of the section `llm`."""

    models: list[ModelChoice] = field(default_factory=list)
    """Mix of models: each has a `name`, a `weight` and any setting of this section that differs for
    it. Null for no model."""
    model: str | None = None
    """Name of the only model; short for `models` with one entry. `auto`: that of a [server on this
    machine](local-models.md)."""

    failover_after: _Count = None
    """Failed attempts in a row after which a model rests."""
    failover_rest_seconds: _Positive = None
    """Seconds of a model's first rest; each further rest is twice as long."""

    @field_validator("models", mode="before")
    @classmethod
    def _known_keys(cls, models: object) -> object:
        for model in models if isinstance(models, list) else []:
            _refuse_unknown(model, ModelChoice, "models")
        return [] if models is None else models

    @model_validator(mode="after")
    def _not_only_reserves(self) -> "RoleSettings":
        if self.mix and not any(model.weight for model in self.mix):
            names = ", ".join(model.name for model in self.mix)
            raise ValueError(f"none of {names} has a weight above 0: all are reserves")
        return self

    @property
    def mix(self) -> list[ModelChoice]:
        """Every model the role names; empty where it names none."""
        return [*self.models, *([ModelChoice(name=self.model)] if self.model else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings(RoleSettings):
    """The language model.  Without a model name there is none, and no operator asks one."""

    temperature: _Temperature = 0.7
    max_tokens: _Count = 4096
    timeout_seconds: _Positive = 60.0
    min_timeout_seconds: _Positive = 2.0
    deadline_seconds: _Positive = 600.0
    retries: _Retries = 5
    retry_delay_seconds: _Pause = 0.5
    max_in_flight: _Count = 128
    failover_after: _Count = 3
    failover_rest_seconds: _Positive = 30.0
    adaptive_weights: bool = False
    """Whether the model that writes a child is drawn by the results and costs of the run's earlier
    children; only one in ten is drawn by weight."""
    cache: bool = False
    """Whether the reply of any run to the same request is used again."""
    repair_turns: int = bounded(1, ge=0, le=5)
    """Corrected replies that are requested for an unusable one."""
    refiner_share: float | None = bounded(None, ge=0, le=1)
    """Share of due children that the role `refiner` writes. Without a value, 0.5 with a refiner,
    else 0."""
    refiner_top: int = bounded(3, ge=0)
    """Children of this many fittest programs of an island are due for the refiner; at most
    `search.top_programs`."""
    refiner_stalled: int = bounded(3, ge=0, le=3)
    """Children of a parent are due for the refiner when this many of its newest ones were no
    better."""
    answers: str = ".evoq/answers"
    """Folder of prompts and replies for the provider `human`."""
    feedback: Annotated[
        bool, Fixed("the judges' ratings are a part of every program's measurement")
    ] = False
    """Whether every model of the role `judge` rates each measured program."""
    feedback_weight: Annotated[float, BY_MEASUREMENTS] = bounded(0.1, ge=0, le=MOST)
    """Weight of the judges' metrics, which are named `llm_...`."""
    roles: dict[Role, RoleSettings] = field(default_factory=dict)
    """For each role, the settings of this section that differ for it."""

    @field_validator("roles", mode="before")
    @classmethod
    def _known_roles(cls, roles: object) -> object:
        if isinstance(roles, dict):
            for name, settings in roles.items():
                if name not in list(Role):
                    raise ValueError(f"no role {name!r}: {_closest(str(name), Role)}")
                _refuse_unknown(settings, RoleSettings, f"roles.{name}")
        return roles

    def models_of(self, role: Role = Role.GENERATOR) -> list[ModelChoice]:
        """Returns the models of a role with all they inherit; empty when none is configured."""
        own = self.roles.get(role, RoleSettings())
        return [_inheriting(choice, own, self) for choice in own.mix or self.mix]

    @property
    def every_model(self) -> list[ModelChoice]:
        """The models of all roles, with all they inherit."""
        return [model for role in (Role.GENERATOR, *self.roles) for model in self.models_of(role)]

    def of_fleet(self, label: str, *, drawn: bool) -> "ModelSettings":
        """Returns the settings with the models that a step of a fleet asks.

        In each role they are those of the fleet, and those that name no fleet.

        Args:
          label: Of the fleet.
          drawn: Whether the fleet was drawn by the weights of its models, so that those that name
            no fleet have their share already; here they are reserves at most.
        """
        if not any(model.fleet for model in self.every_model):
            return self

        def only(role: _Role, models: Sequence[ModelChoice]) -> _Role:
            own = [model for model in models if label_of(model.fleet or "") == label]
            free = [model for model in models if label and not model.fleet]
            left = [model for model in free if not (drawn and own and model.weight)]
            return replace(role, models=[*own, *left], model=None)

        roles = {role: only(own, self.models_of(role)) for role, own in self.roles.items()}
        return replace(only(self, self.models_of()), roles=roles)

    @property
    def with_another_endpoint(self) -> list[tuple[ModelChoice, str]]:
        """The models that are not asked at the address of a level above them, with that address.

        They name a provider, or their role does, so that they inherit no address.
        """
        found: dict[tuple[str, Provider | None], tuple[ModelChoice, str]] = {}
        for role in dict.fromkeys((Role.GENERATOR, *self.roles)):
            own = self.roles.get(role, RoleSettings())
            for choice, model in zip(own.mix or self.mix, self.models_of(role), strict=True):
                if choice.base_url is not None:
                    continue
                above = (own.base_url if choice.provider is not None else None) or self.base_url
                own_address = choice.provider is None and own.base_url is not None
                if above is not None and model.base_url is None and not own_address:
                    found.setdefault((model.name, model.provider), (model, above))
        return list(found.values())

    @property
    def price_ceiling(self) -> PriceCeiling:
        """The most that one completion may take, whichever model answers."""
        models = self.every_model
        prompt = [
            price or 0.0
            for model in models
            for price in (model.usd_per_million_prompt_tokens, model.usd_per_million_cached_tokens)
        ]
        return PriceCeiling(
            max((model.max_tokens or 0 for model in models), default=0),
            max(prompt, default=0.0),
            max((model.usd_per_million_completion_tokens or 0.0 for model in models), default=0.0),
        )

    def fail_over(self, role: Role) -> tuple[int, float]:
        """Returns after how many failures a model of the role rests, and for how many seconds."""
        own = self.roles.get(role, RoleSettings())
        return (
            own.failover_after or self.failover_after or 3,
            own.failover_rest_seconds or self.failover_rest_seconds or 30.0,
        )


_INHERITED = tuple(fields_of(RequestSettings))


def _inheriting(choice: ModelChoice, *levels: RequestSettings) -> ModelChoice:
    settings = _given(choice)
    for level in levels:
        dropped: set[str] = set()
        if "provider" in settings:
            dropped = {"provider", "base_url", "api_key_variable"}
        elif "base_url" in settings:
            dropped = {"provider", "base_url"}
        settings = {k: v for k, v in _given(level).items() if k not in dropped} | settings
    return replace(choice, **settings)


def _given(section: RequestSettings) -> dict[str, Any]:
    """Returns the settings that can be inherited and have a value, by name."""
    values = zip(_INHERITED, attrgetter(*_INHERITED)(section), strict=True)
    return {name: value for name, value in values if value is not None}


def _refuse_unknown(settings: object, section: type[Section], where: str) -> None:
    known = fields_of(section)
    for name in settings if isinstance(settings, dict) else ():
        if name not in known:
            raise ValueError(f"{where} has no setting {name!r}: {_closest(str(name), known)}")


def _closest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    [nearest] = get_close_matches(name, names, n=1, cutoff=0.0)
    return f"the closest is {str(nearest)!r}, of {', '.join(names)}"
