"""Settings of the language models: who is asked in which role, and how.

What a model of a role does not say is taken from its role, and what the role does not say from the
section `llm`.  Whoever names a provider inherits neither address nor key; whoever names an address
inherits no provider.
"""

import enum
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from app.config.model_address import sound_address
from app.domain.operator import Role
from app.domain.search.budget import PriceCeiling

OPENAI_KEY = "OPENAI_API_KEY"
_SAMPLED = ("n", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens")
_OWN_FIELDS = frozenset(("model", "messages", "stream", "reasoning_effort", *_SAMPLED))
_OWN_FIELDS_ARE_SET = "it has a setting of its own, or is set by the step that asks"


class Provider(enum.StrEnum):
    """Who serves a model, by name."""

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


class Asked(BaseModel):
    """How a model is asked; None: inherited, or left to the provider."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: Provider | None = Field(None, description="who serves it: address, key and quirks")
    base_url: Annotated[str, AfterValidator(sound_address)] | None = Field(
        None, description="OpenAI-compatible endpoint"
    )
    api_key_variable: str | None = Field(None, description="environment variable of the key")
    temperature: float | None = Field(None, ge=0, le=2, description="of sampling")
    top_p: float | None = Field(None, gt=0, le=1, description="of sampling; none: the endpoint's")
    max_tokens: int | None = Field(None, ge=1, description="longest completion, reasoning included")
    timeout_seconds: float | None = Field(None, gt=0, description="of one attempt, at most")
    min_timeout_seconds: float | None = Field(
        None, gt=0, description="what measured answers make of that at least; the same: they do not"
    )
    deadline_seconds: float | None = Field(None, gt=0, description="of all attempts together")
    retries: int | None = Field(None, ge=0, description="attempts after the first")
    retry_delay_seconds: float | None = Field(
        None, ge=0, description="longest first pause between attempts; doubled for each further one"
    )
    max_in_flight: int | None = Field(
        None, ge=1, description="most requests of one worker process at one endpoint"
    )
    min_in_flight: int | None = Field(
        None, ge=1, description="what adapting to the endpoint leaves of those at least"
    )
    target_in_flight: int | None = Field(
        None, ge=1, description="where adapting begins; none: 32, or the most if that is less"
    )
    parallel_generations: int | None = Field(
        None, ge=1, description="requests of the whole deployment at one endpoint; none: no limit"
    )
    reasoning_effort: str | None = Field(None, description="for models that take one")
    extra_body: dict[str, JsonValue] | None = Field(
        None,
        description="further fields of each request, such as vLLM's top_k, structured_outputs",
    )
    usd_per_million_prompt_tokens: float | None = Field(
        None, ge=0, description="price; none: nobody knows"
    )
    usd_per_million_cached_tokens: float | None = Field(
        None, ge=0, description="prompt tokens the endpoint had read before; none: as the others"
    )
    usd_per_million_completion_tokens: float | None = Field(
        None, ge=0, description="price; none: nobody knows"
    )

    @field_validator("extra_body")
    @classmethod
    def _no_field_twice(cls, told: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        taken = sorted(_OWN_FIELDS & set(told or ()))
        if taken:
            raise ValueError(f"{taken[0]!r} is not for extra_body: {_OWN_FIELDS_ARE_SET}")
        return told

    @field_validator("provider", mode="before")
    @classmethod
    def _known_provider(cls, told: Any) -> Any:
        if isinstance(told, str) and told not in list(Provider):
            raise ValueError(f"no provider {told!r}: {_closest(told, list(Provider))}")
        return told


class ModelChoice(Asked):
    """One model of a mix.

    Attributes:
      weight: Its share of the prompts, relative to the others'; 0 is a reserve.
      system_message: Takes the place of every prompt's system text.
    """

    name: str
    weight: float = Field(1.0, ge=0)
    system_message: str | None = None


class RoleSettings(Asked):
    """Who answers in one role; without a model, the models of the section `llm`."""

    models: list[ModelChoice] = Field(
        default_factory=list, description="a mix: each a `name`, a `weight` and what differs for it"
    )
    model: str | None = Field(None, description="shorthand for one model of weight 1")

    failover_after: int | None = Field(
        None, ge=1, description="failed attempts in a row after which a model is left alone"
    )
    failover_rest_seconds: float | None = Field(
        None, gt=0, description="how long, the first time; doubled while it stays down"
    )

    @model_validator(mode="after")
    def _somebody_is_asked(self) -> "RoleSettings":
        if self.mix and not any(one.weight for one in self.mix):
            names = ", ".join(one.name for one in self.mix)
            raise ValueError(f"none of {names} has a weight above 0: all are reserves, of nobody")
        return self

    @property
    def mix(self) -> list[ModelChoice]:
        """Every model the role names; empty where it names none."""
        return [*self.models, *([ModelChoice(name=self.model)] if self.model else [])]


class ModelSettings(RoleSettings):
    """The language model.  Without a model name there is none, and no operator asks one."""

    temperature: float | None = Field(0.7, ge=0, le=2, description="of sampling")
    max_tokens: int | None = Field(4096, ge=1, description="longest completion, with reasoning")
    timeout_seconds: float | None = Field(60.0, gt=0, description="of one attempt, at most")
    min_timeout_seconds: float | None = Field(
        2.0, gt=0, description="what measured answers make of that at least"
    )
    deadline_seconds: float | None = Field(300.0, gt=0, description="of all attempts together")
    retries: int | None = Field(5, ge=0, description="attempts after the first")
    retry_delay_seconds: float | None = Field(0.5, ge=0, description="longest first pause")
    max_in_flight: int | None = Field(
        128, ge=1, description="most requests of one worker process at one endpoint"
    )
    failover_after: int | None = Field(
        3, ge=1, description="failed attempts in a row after which a model is left alone"
    )
    failover_rest_seconds: float | None = Field(
        30.0, gt=0, description="how long, the first time; doubled while it stays down"
    )
    cache: bool = Field(False, description="read what any run was answered to the same question")
    repair_turns: int = Field(
        1, ge=0, le=5, description="how often a reply that cannot be used is asked for again"
    )
    refiner_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="of the children that are due, how many the refiner writes; none: half where a "
        "refiner is configured",
    )
    refiner_top: int = Field(
        3, ge=0, description="due: children of so many fittest of an island, as far as shown"
    )
    refiner_stalled: int = Field(
        3, ge=0, le=3, description="due: children of parents whose so many newest were no better"
    )
    answers: str = Field(
        ".evoq/answers", description="folder of prompts for, and replies of, the provider human"
    )
    feedback: bool = Field(
        False, description="ask every model of the role judge about each measured program"
    )
    feedback_weight: float = Field(0.1, ge=0, description="of the judges' metrics, llm_...")
    roles: dict[Role, RoleSettings] = Field(
        default_factory=dict, description="role to what differs for it from this section"
    )

    @field_validator("roles", mode="before")
    @classmethod
    def _known_roles(cls, told: Any) -> Any:
        if isinstance(told, dict):
            for name, own in told.items():
                if name not in list(Role):
                    raise ValueError(f"no role {name!r}: {_closest(str(name), list(Role))}")
                _refuse_unknown(own, RoleSettings, f"roles.{name}")
        return told

    @field_validator("models", mode="before")
    @classmethod
    def _known_keys(cls, told: Any) -> Any:
        for one in told if isinstance(told, list) else []:
            _refuse_unknown(one, ModelChoice, "models")
        return told

    def asked(self, role: Role = Role.GENERATOR) -> list[ModelChoice]:
        """Returns the models of a role with all they inherit; empty when none is configured."""
        own = self.roles.get(role, RoleSettings())
        return [_inheriting(choice, own, self) for choice in own.mix or self.mix]

    @property
    def price_ceiling(self) -> PriceCeiling:
        """The most that one completion may take, whichever model answers."""
        asked = self.every
        prompt = [one.usd_per_million_prompt_tokens or 0.0 for one in asked] + [
            one.usd_per_million_cached_tokens or 0.0 for one in asked
        ]
        answer = [one.usd_per_million_completion_tokens or 0.0 for one in asked]
        longest = [one.max_tokens or 0 for one in asked]
        return PriceCeiling(
            max(longest, default=0), max(prompt, default=0.0), max(answer, default=0.0)
        )

    def fail_over(self, role: Role) -> tuple[int, float]:
        """Returns after how many failures a model of the role rests, and for how many seconds."""
        own = self.roles.get(role, RoleSettings())
        return (
            own.failover_after or self.failover_after or 3,
            own.failover_rest_seconds or self.failover_rest_seconds or 30.0,
        )

    @property
    def every(self) -> list[ModelChoice]:
        """Every model that any role may ask, with all it inherits."""
        return [choice for role in (Role.GENERATOR, *self.roles) for choice in self.asked(role)]


def _inheriting(choice: ModelChoice, *levels: Asked) -> ModelChoice:
    found = choice.model_dump(exclude_none=True)
    for level in levels:
        told = level.model_dump(include=set(Asked.model_fields), exclude_none=True)
        if "provider" in found:
            dropped = {"provider", "base_url", "api_key_variable"}
        elif "base_url" in found:
            dropped = {"provider", "base_url"}
        else:
            dropped = set()
        found = {k: v for k, v in told.items() if k not in dropped} | found
    return ModelChoice.model_validate(found)


def _refuse_unknown(told: Any, model: type[BaseModel], where: str) -> None:
    known = list(model.model_fields)
    for name in told if isinstance(told, dict) else ():
        if name not in known:
            raise ValueError(f"{where} has no setting {name!r}: {_closest(str(name), known)}")


def _closest(name: str, known: list[str]) -> str:
    [nearest] = get_close_matches(name, known, n=1, cutoff=0.0)
    return f"the closest is {str(nearest)!r}, of {', '.join(known)}"
