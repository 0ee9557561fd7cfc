"""Settings: one model; every number carries its unit, and every description stands alone.

A value is looked for in this order: `--set`, the environment (`EVOQ_SEARCH__ISLANDS=3`), the
configuration file, the problem's own suggestions, the default here.
"""

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.config.cluster import KubernetesSettings
from app.config.models import ModelSettings
from app.config.section import Owner, Section, fields_of
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.templates import check_templates
from app.domain.search.back_pressure import Caps
from app.domain.search.budget import Budget
from app.domain.search.fleets import fleet_name
from app.domain.search.gates import gate
from app.domain.search.quotas import project_name
from app.domain.search.rules import SearchRules
from app.domain.setting import BY_MEASUREMENTS, BY_THE_RECIPE, MOST, Fixed, bounded


@dataclass(frozen=True, slots=True)
class BudgetSettings(Section, Budget):
    """The section `budget`, validated."""


@dataclass(frozen=True, slots=True)
class SearchSettings(Section, SearchRules):
    """The section `search`, validated."""

    @field_validator("gates")
    @classmethod
    def _readable_gates(cls, gates: list[float | str] | None) -> list[float | str] | None:
        for each in gates or ():
            gate(each)
        return gates


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedSettings(Section):
    """Runs inside the run, which the operator `search` begins; they have none inside them."""

    strategy: str | None = None
    """Recipe of each run inside. Without a value, there are none."""
    proposals: int = bounded(10, ge=1)
    """Most children that each of them may propose, of `budget.proposals`."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters of their recipe that are no settings of `search`."""
    operators: dict[str, float] | None = None
    """Their operators and weights. Without a value, the default mix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(Section):
    """The command that the operator `agent` runs for each proposal; see agents.md."""

    command: list[str] | None = None
    """The command and its arguments. `{task}` stands for the path of the task, `{prompt}` for its
    text, and `{model}` for the name of the model."""
    seconds: float = bounded(600.0, gt=0)
    """Longest time of one agent."""
    tokens: int = bounded(200_000, ge=1)
    """Most tokens of one agent, of prompts and replies; a further request is refused."""
    network: bool = True
    """Whether an agent reaches the run's model, and through it alone a network."""
    visible: list[str] = field(default_factory=list)
    """Files and folders of the workers' machines that an agent sees beside the system's."""
    environment: dict[str, str] = field(default_factory=dict)
    """Further variables of an agent. They are stored with the run: no secret belongs here."""
    tries: int = bounded(3, ge=0)
    """Times that an agent may have its draft measured with `evoq try`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(Section, Caps):
    """Back-pressure, and the recovery of lost work."""

    weight: float = bounded(1.0, gt=0, le=MOST)
    """Share of the workers that the run has, relative to other runs' weights."""
    priority: int = bounded(0, ge=-1000, le=1000)
    """Runs of the project with a lower priority use only what this run leaves free."""
    project: str = ""
    """[Project](fleets.md#projects-and-quotas) of the run, whose runs share its weight and its
    quotas; also `--project`."""
    fleets: list[str] = field(default_factory=list)
    """[Fleets](fleets.md) that serve the run, as `["gpu:llama70b", "cpu:highmem"]`. Islands take
    those of one kind in turn. Without one of a kind, workers without a label, and those that
    `llm.fleet` names."""
    lease_seconds: Annotated[float, Owner.WORKER] = bounded(30.0, gt=0)
    """Seconds after which the lease of a step expires if its worker does not renew it."""
    redeliver_seconds: Annotated[float, Owner.WORKER] = bounded(30.0, gt=0)
    """Seconds after which a step that no worker has leased is enqueued again."""
    patience_seconds: Annotated[float, Owner.COMMAND] = bounded(180.0, gt=0)
    """Seconds that an embedded run waits for a service that is down before it is paused."""
    attempts: Annotated[int, Owner.WORKER] = bounded(5, ge=1)
    """Times that one step is started before the run fails; a game is a draw or void instead."""

    @field_validator("fleets")
    @classmethod
    def _named_fleets(cls, fleets: list[str]) -> list[str]:
        return [fleet_name(name) for name in fleets]

    @field_validator("project")
    @classmethod
    def _named_project(cls, project: str) -> str:
        return project and project_name(project)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings(Section):
    """How programs are isolated."""

    backend: Annotated[Literal["auto", "process", "docker", "kubernetes"], Owner.WORKER] = "auto"
    """Isolation of programs: `docker` (containers), `process` (child processes), `kubernetes` (a
    Job for each trial), or `auto`: containers where a Docker engine answers, else child processes,
    unless the worker may open the engine's socket."""
    mode: Annotated[Literal["guarded", "compatible"] | None, BY_MEASUREMENTS] = None
    """Whether evaluator and program are separate processes (`guarded`) or one (`compatible`).
    Without a value, the problem decides."""
    compare_modes: Annotated[bool, Owner.COMMAND] = True
    """Whether `evoq check` measures the seeds in both modes."""
    image: Annotated[str, BY_MEASUREMENTS] = "evoqueue-sandbox:1"
    """Container image that trials run in, in place of the problem's. As a variable of a worker: the
    default image, which dependencies are added to."""
    runtime: Annotated[str, Owner.WORKER] = ""
    """OCI runtime of containers, such as `runsc`. Without a value, the engine's default."""
    seccomp: Annotated[str, Owner.WORKER] = ""
    """Seccomp profile of containers: a path, or `engine` for the engine's own. Without a value,
    Evoqueue's."""
    cpus: Annotated[float, Owner.WORKER] = bounded(1.0, gt=0)
    """CPUs of the programs of one container together."""
    places: Annotated[int | None, Owner.WORKER] = bounded(None, ge=1)
    """Trials that one worker runs at once, each in a warm sandbox; also
    `EVOQ_EVALUATE_CONCURRENCY`. Without a value, one for each core, and at least 4."""
    spares: Annotated[int, Owner.WORKER] = bounded(1, ge=0)
    """Booted warm sandboxes that a worker keeps ready."""
    trials_per_sandbox: Annotated[int, Owner.WORKER] = bounded(500, ge=1)
    """Trials after which a warm sandbox is replaced."""
    minutes_per_sandbox: Annotated[float, Owner.WORKER] = bounded(30.0, gt=0)
    """Age in minutes at which a warm sandbox is replaced, or ends if it is idle."""
    trials_per_evaluator: Annotated[int, Owner.WORKER] = bounded(50, ge=1)
    """Trials that one process of a guarded evaluator measures, as long as it is like a fresh one. 1
    starts a process for each trial."""
    one_container_per_trial: Annotated[bool, Owner.WORKER] = False
    """Whether every trial has a container of its own."""
    owner: Annotated[str, Owner.WORKER] = ""
    """Name of the deployment, on an engine that several share: a worker removes only its
    deployment's remains."""
    environments: Annotated[str, Owner.WORKER] = ""
    """Folder of the virtual environments of problems. Without a value, it is in the user's
    cache."""
    build_minutes: Annotated[float, Owner.WORKER] = bounded(30.0, gt=0)
    """Minutes that the build of an image may take."""
    build_hosts: Annotated[str, Owner.WORKER] = ""
    """Hosts beside the package index that an installation may reach: names, with `:PORT` where it
    is not 443, separated by spaces."""
    unisolated_builds: Annotated[bool, Owner.WORKER] = False
    """Whether packages are installed, and used, also without isolation."""
    wall_seconds: float | None = bounded(None, gt=0)
    """Time-out of one stage in seconds. Without a value, the problem decides."""
    memory_mib: int | None = bounded(None, ge=16)
    """Memory of one trial in MiB. Without a value, the problem decides."""
    cpu_seconds: float | None = bounded(None, gt=0)
    """CPU time of one stage in seconds. Without a value, the problem decides."""
    output_bytes: int | None = bounded(None, ge=1)
    """Bytes that are kept of standard output, and of standard error. Without a value, 1 MiB."""
    result_bytes: int | None = bounded(None, ge=1)
    """Bytes of the metrics and artifacts of one trial. Without a value, 1 MiB."""
    file_bytes: int | None = bounded(None, ge=1)
    """Bytes of each file that a trial writes. Without a value, 32 MiB."""
    processes: int | None = bounded(None, ge=1)
    """Processes of one trial at once. Without a value, 64."""
    unbounded_processes: Annotated[bool, Owner.WORKER] = False
    """Whether child processes isolate programs even where nothing bounds their number or what they
    write."""
    open_files: int | None = bounded(None, ge=3)
    """Open files of one process of a trial. Without a value, 256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings(Section):
    """The price of an hour of a worker, busy or idle; None where it is not known."""

    gpu_usd_per_hour: Annotated[float | None, Owner.WORKER] = bounded(None, ge=0)
    """US dollars for an hour of a worker of the queue `gpu`."""
    cpu_usd_per_hour: Annotated[float | None, Owner.WORKER] = bounded(None, ge=0)
    """US dollars for an hour of a worker of the queue `cpu`."""
    control_usd_per_hour: Annotated[float | None, Owner.WORKER] = bounded(None, ge=0)
    """US dollars for an hour of a worker of the queue `control`."""

    def of(self, kind: str) -> float | None:
        """Returns the price of a kind of worker."""
        prices: dict[str, float | None] = asdict(self)
        return prices[f"{kind}_usd_per_hour"]


@dataclass(frozen=True, slots=True)
class PromptSettings(Section, PromptRules):
    """The section `prompts`, validated."""

    template_variations: dict[str, Annotated[list[str], Field(min_length=1)]] = field(
        default_factory=dict
    )

    @model_validator(mode="after")
    def _templates_can_be_filled(self) -> "PromptSettings":
        check_templates(self)
        return self

    def rules(self, search: SearchRules) -> PromptRules:
        """Returns the rules of prompts; what is not set here is shown as the search says."""
        top, others = self.num_top_programs, self.num_diverse_programs
        return replace(
            self,
            num_top_programs=search.top_programs if top is None else top,
            num_diverse_programs=search.inspirations if others is None else others,
        )


class RunSettings(BaseModel):
    """Every setting that is stored with a run; none is a secret.

    A section that is `Fixed` cannot change once a run has begun.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: BudgetSettings = BudgetSettings()
    search: SearchSettings = SearchSettings()
    nested: Annotated[
        NestedSettings,
        Fixed("the runs inside the run have their recipe and their slices of the budget by it"),
    ] = NestedSettings()
    agent: AgentSettings = AgentSettings()
    queue: QueueSettings = QueueSettings()
    llm: ModelSettings = ModelSettings()
    sandbox: SandboxSettings = SandboxSettings()
    prices: PriceSettings = PriceSettings()
    strategy: Annotated[dict[str, Any], BY_THE_RECIPE] = Field(default_factory=dict)
    """Parameters of the recipe that are no settings of `search`."""
    prompts: PromptSettings = PromptSettings()
    problem: Annotated[
        dict[str, Any],
        Fixed("the problem was read when the run began, and every program was measured by it"),
    ] = Field(default_factory=dict)
    """Options of the problem, see problems.md."""


SECTIONS: Mapping[str, type | None] = {
    name: field.annotation if isinstance(field.annotation, type) else None
    for name, field in RunSettings.model_fields.items()
}
"""Section to its class; None for a section that takes any name."""
SETTINGS: Mapping[str, FieldInfo] = {
    f"{section}.{name}": field
    for section, form in SECTIONS.items()
    if form
    for name, field in fields_of(form).items()
}
"""Every setting of those classes, by dotted key."""


OF_PROCESSES: Mapping[str, type] = {"kubernetes": KubernetesSettings}
"""Sections that no run has: each process reads its own from its environment."""


def setting_of(name: str) -> str:
    """Returns the setting that a dotted key names, or names a part of."""
    return ".".join(name.split(".")[:2])


def owner_of(name: str) -> Owner:
    """Returns the owner of a setting by its dotted key; the run, of an unknown one."""
    field = SETTINGS.get(setting_of(name))
    owners = (part for part in field.metadata if isinstance(part, Owner)) if field else ()
    return next(iter(owners), Owner.RUN)


def of_workers(settings: "RunSettings | Settings") -> dict[str, object]:
    """Returns the settings that workers own, by dotted key."""
    sections = {"sandbox": settings.sandbox, "queue": settings.queue, "prices": settings.prices}
    return {
        f"{section}.{name}": value
        for section, own in sections.items()
        for name, value in asdict(own).items()
        if owner_of(f"{section}.{name}") is Owner.WORKER
    }


def stored_settings(settings: Mapping[str, object]) -> RunSettings:
    """Returns the settings of a run as they are stored.

    A setting that this version does not know is ignored, and an absent setting has its default.

    Raises:
      ValueError: A value is of the wrong type or out of range.
    """
    return RunSettings.model_validate(settings, extra="ignore")


class Settings(BaseSettings):
    """The settings of a process, from its environment."""

    model_config = SettingsConfigDict(
        env_prefix="EVOQ_",
        env_nested_delimiter="__",
        extra="ignore",
        frozen=True,
    )

    database_url: SecretStr | None = None
    """Address of Postgres. Without a value, it is embedded."""
    redis_url: SecretStr | None = None
    """Address of Redis. Without a value, an embedded Valkey is used."""
    home: str = ".evoq"
    """Folder of the embedded stack and of what this machine remembers."""
    database_connections: int = Field(16, ge=1)
    """Most database connections of one process; a worker has one more, see
    `EVOQ_DATABASE_LISTEN`."""
    database_session_url: SecretStr | None = None
    """Address of Postgres for migrations and notices, where `EVOQ_DATABASE_URL` is that of a pooler
    of transactions. Without a value, `EVOQ_DATABASE_URL`."""
    database_listen: bool = True
    """Whether a worker has a connection on which Postgres notifies it of withdrawn steps. Without
    one, they stop when their lease is renewed."""
    ledger_keep_days: float | None = Field(None, gt=0)
    """Days since its last event after which a run that has ended is deleted. Without a value, and
    after `evoq keep`, runs stay."""
    ledger_keep_gib: float | None = Field(None, gt=0)
    """Size of the database in GiB beyond which the oldest run that has ended is deleted, one at a
    time, unless `evoq keep` protects it."""
    ledger_keep_prompts_days: float | None = Field(None, gt=0)
    """Days since its last event after which a run that has ended loses its logged prompts; replies
    stay."""
    sandbox: SandboxSettings = SandboxSettings()
    prices: PriceSettings = PriceSettings()
    queue: QueueSettings = QueueSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    dashboard_token: SecretStr | None = None
    """Token that a dashboard asks for. Without a value, a random one for each start."""
    dashboard_hosts: str = ""
    """Names of the dashboard in browsers, separated by commas."""
    nice: int | None = Field(None, ge=0, le=19)
    """Least `nice` value of a worker and of its trials. Without a value, 10 in an embedded stack,
    and as it was started in a deployment."""
    drain_seconds: float | None = Field(None, ge=0)
    """Seconds that a worker which is asked to end (SIGTERM) goes on with its steps before it gives
    their leases back; whoever kills it has to wait longer. Without a value, 50 for a worker of the
    queue `gpu`, whose replies are paid for, and 20 for others."""
    metrics_address: str | None = None
    """Address of a worker's `/metrics`, as 0.0.0.0:9464. Without a value, they are not served."""
    vllm_model: str | None = None
    """Model that a worker of the queue `gpu` loads itself. Without a value, it sends requests to
    endpoints."""
    vllm_name: str | None = None
    """Name of the loaded model in runs. Without a value, `EVOQ_VLLM_MODEL`."""
    vllm_args: str = ""
    """Arguments of `vllm serve` as one line."""
    vllm_metrics_port: int | None = Field(None, ge=1, le=65535)
    """Port of vLLM's `/metrics`. Without a value, they are not served."""
    llm_max_in_flight: int | None = Field(None, ge=1)
    """Most requests of this process at all endpoints together."""
    llm_target_in_flight: int | None = Field(None, ge=1)
    """Requests in flight at which the adaptive window of this process begins, instead of
    `llm.target_in_flight`."""
    llm_parallel_generations: int | None = Field(None, ge=1)
    """Most requests of the whole deployment at one endpoint; the lower of this and a run's
    `llm.parallel_generations` holds."""

    @property
    def deployed(self) -> bool:
        """Whether both addresses of a deployment are given."""
        return self.database_url is not None and self.redis_url is not None
