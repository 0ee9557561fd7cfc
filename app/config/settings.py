"""Settings: one model; every number carries its unit.

A value is looked for in this order: `--set`, the environment (`EVOQ_SEARCH__ISLANDS=3`), the
configuration file, the problem's own suggestions, the default here.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.config.models import ModelSettings


class Section(BaseModel):
    """A group of settings; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetSettings(Section):
    """Hard caps of a run; what is in flight counts."""

    proposals: int = Field(100, ge=1, description="children the run may ask for")
    wall_seconds: float | None = Field(
        None, gt=0, description="from the run's creation on, pauses included"
    )
    tokens: int | None = Field(None, ge=1, description="prompt and completion tokens together")
    cost_usd: float | None = Field(None, gt=0, description="price of the model's completions")


class SearchSettings(Section):
    """How a run searches.  Names and defaults are OpenEvolve's where it has them."""

    strategy: str = Field("map_elites", description="name of the search's recipe")
    seed: int = Field(42, ge=0, description="of every draw")
    islands: int = Field(5, ge=1, le=1000, description="sub-populations")
    migration_interval: int = Field(50, ge=1, description="cohorts per island between migrations")
    migration_rate: float = Field(0.1, ge=0, le=1, description="share of an island's cells offered")
    exploration_ratio: float = Field(
        0.2, ge=0, le=1, description="share of parents drawn from all of an island's cells alike"
    )
    exploitation_ratio: float = Field(
        0.7, ge=0, le=1, description="share drawn from the fittest alike; the rest by rank"
    )
    archive_size: int = Field(100, ge=1, description="fittest elites exploitation draws from")
    top_programs: int = Field(3, ge=0, description="fittest programs shown to the model")
    inspirations: int = Field(2, ge=0, description="other programs shown to the model")
    operators: dict[str, float] | None = Field(
        None,
        description="operator to weight; none: diff, rewrite with a model, tune, mutate without",
    )
    enforce_blocks: bool | None = Field(
        None, description="whether text outside EVOLVE-BLOCK regions is kept; none: the problem's"
    )
    grid_after: int = Field(
        50,
        ge=1,
        description="evaluations after which the ranges of open axes are learnt and frozen",
    )
    stop_fitness: float | None = Field(
        None, allow_inf_nan=False, description="stop when the best program is at least so fit"
    )
    stop_patience: int | None = Field(
        None, ge=1, description="stop after so many settled proposals without improvement"
    )
    stop_threshold: float = Field(0.001, ge=0, description="rise in fitness that counts")


class QueueSettings(Section):
    """Back-pressure, and how long lost work is waited for."""

    generating: int | None = Field(
        None, ge=1, description="most proposals waiting for their operator; none: as measured"
    )
    evaluating: int | None = Field(
        None, ge=1, description="proposals under test beyond which none is planned; none: likewise"
    )
    lease_seconds: float = Field(
        30.0, gt=0, description="how long a step of a killed worker is left alone"
    )
    redeliver_seconds: float = Field(
        30.0, gt=0, description="how long a step that nobody began waits to be rung for again"
    )
    patience_seconds: float = Field(
        180.0, gt=0, description="an embedded run that waits so long for what is down is paused"
    )
    attempts: int = Field(5, ge=1, description="starts of one step before the run is broken")


class SandboxSettings(Section):
    """How programs are isolated."""

    backend: Literal["auto", "process", "docker"] = Field(
        "auto", description="auto: containers where an engine answers, else child processes"
    )
    mode: Literal["guarded", "compatible"] | None = Field(
        None, description="none: what the problem says, else guarded"
    )
    compare_modes: bool = Field(
        True, description="whether `evoq check` measures the seeds in both modes"
    )
    image: str = Field("evoqueue-sandbox:1", description="container image of a cell")
    runtime: str = Field("", description="OCI runtime by name, such as runsc; none: the engine's")
    seccomp: str = Field(
        "", description="system call profile of containers: a path, or `engine`; none: ours"
    )
    cpus: float = Field(
        1.0, gt=0, description="CPUs' time that the programs of one container may take"
    )
    cells: int = Field(4, ge=1, description="trials of one worker at once, each in a warm cell")
    spares: int = Field(1, ge=0, description="booted cells kept ready beyond those")
    trials_per_cell: int = Field(500, ge=1, description="trials after which a cell is replaced")
    minutes_per_cell: float = Field(30.0, gt=0, description="age at which a cell is replaced")
    one_container_per_trial: bool = Field(False, description="no cell serves two trials")
    environments: str = Field(
        "", description="folder of virtual environments of problems; none: the user's cache"
    )
    build_minutes: float = Field(30.0, gt=0, description="longest build of an image")
    wall_seconds: float | None = Field(None, gt=0, description="overrides the problem's time-out")
    memory_mib: int | None = Field(None, ge=16, description="overrides the problem's limit")
    cpu_seconds: float | None = Field(None, gt=0, description="overrides the problem's limit")
    output_bytes: int | None = Field(
        None, ge=1, description="of standard output and error; none: 1 MiB"
    )
    result_bytes: int | None = Field(
        None, ge=1, description="of metrics and artifacts together; none: 1 MiB"
    )
    file_bytes: int | None = Field(None, ge=1, description="of each file; none: 32 MiB")
    processes: int | None = Field(None, ge=1, description="at once; none: 64")
    unbounded_processes: bool = Field(
        False, description="child processes also where nothing bounds how many they start"
    )
    open_files: int | None = Field(None, ge=3, description="of one process; none: 256")


class PriceSettings(Section):
    """What an hour of a worker costs, busy or not; none: nobody knows."""

    gpu_usd_per_hour: float | None = Field(None, ge=0, description="of a worker that generates")
    cpu_usd_per_hour: float | None = Field(None, ge=0, description="of a worker that evaluates")
    control_usd_per_hour: float | None = Field(None, ge=0, description="of a worker that plans")

    def of(self, kind: str) -> float | None:
        """Returns the price of a kind of worker."""
        told: dict[str, float | None] = self.model_dump()
        return told[f"{kind}_usd_per_hour"]


class RunSettings(Section):
    """Everything a run remembers of its settings; holds no secret."""

    budget: BudgetSettings = BudgetSettings()
    search: SearchSettings = SearchSettings()
    queue: QueueSettings = QueueSettings()
    llm: ModelSettings = ModelSettings()
    sandbox: SandboxSettings = SandboxSettings()
    prices: PriceSettings = PriceSettings()
    strategy: dict[str, Any] = Field(
        default_factory=dict, description="parameters of the recipe that `search` does not have"
    )
    prompts: dict[str, Any] = Field(default_factory=dict, description="see prompts.md")
    problem: dict[str, Any] = Field(default_factory=dict, description="options of the problem")


class Settings(BaseSettings):
    """What this process is told by its environment."""

    model_config = SettingsConfigDict(
        env_prefix="EVOQ_", env_nested_delimiter="__", extra="ignore", frozen=True
    )

    database_url: SecretStr | None = Field(None, description="none: embedded")
    redis_url: SecretStr | None = Field(None, description="none: embedded")
    home: str = Field(".evoq", description="folder of the embedded stack")
    database_connections: int = Field(16, ge=1, description="largest pool of one process")
    sandbox: SandboxSettings = SandboxSettings()
    prices: PriceSettings = PriceSettings()
    queue: QueueSettings = QueueSettings()
    vllm_model: str | None = Field(
        None, description="model that a worker of the queue gpu loads into itself; none: it asks"
    )
    vllm_name: str | None = Field(None, description="what runs call it; none: as it is loaded")
    vllm_args: str = Field("", description="arguments of `vllm serve`, as one line")
    vllm_metrics_port: int | None = Field(
        None, ge=1, le=65535, description="where vLLM's own /metrics are served; none: nowhere"
    )
    llm_max_in_flight: int | None = Field(
        None, ge=1, description="requests of this process at all endpoints together"
    )
    llm_target_in_flight: int | None = Field(
        None, ge=1, description="where adapting begins here, whatever a run says"
    )
    llm_parallel_generations: int | None = Field(
        None, ge=1, description="requests of the deployment at one endpoint, whatever a run says"
    )

    @property
    def deployed(self) -> bool:
        """Whether both addresses of a deployment are given."""
        return self.database_url is not None and self.redis_url is not None
