"""Settings: one model; every number carries its unit, and every description stands alone.

A value is looked for in this order: `--set`, the environment (`EVOQ_SEARCH__ISLANDS=3`), the
configuration file, the problem's own suggestions, the default here.
"""

import enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.config.models import LARGEST_INTEGER, MOST, ModelSettings, require_bounded
from app.domain.prompting.rules import PromptRules
from app.domain.search.gates import gate

RULES = PromptRules()
"""The defaults of the section `prompts`."""


class Owner(enum.StrEnum):
    """The process whose value of a setting holds; a setting that names none is the run's."""

    RUN = "run"  # stored with the run, and read by every step of it
    WORKER = "worker"  # read by each worker at its start, for all runs
    COMMAND = "command"  # read by the command of `evoq` that it is given to


class Section(BaseModel):
    """A group of settings; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    _bounded = field_validator("*")(require_bounded)

    @classmethod
    def owner_of(cls, name: str) -> Owner:
        """Returns the owner of a setting of this section."""
        owners = (part for part in cls.model_fields[name].metadata if isinstance(part, Owner))
        return next(owners, Owner.RUN)

    @classmethod
    def owned_by(cls, owner: Owner) -> set[str]:
        """Returns the settings of this section that an owner has."""
        return {name for name in cls.model_fields if cls.owner_of(name) is owner}


class BudgetSettings(Section):
    """Hard caps of a run; work in flight counts."""

    proposals: int = Field(100, ge=1, le=MOST)
    """Children the run may propose; its seeds do not count."""
    wall_seconds: float | None = Field(None, gt=0)
    """Seconds the run may take from its creation on, pauses included."""
    tokens: int | None = Field(None, ge=1, le=LARGEST_INTEGER)
    """Tokens the run may use, of prompts and completions together."""
    cost_usd: float | None = Field(None, gt=0)
    """US dollars the run's completions may cost."""


class SearchSettings(Section):
    """How a run searches.  Names and defaults are OpenEvolve's where it has them."""

    strategy: str = "map_elites"
    """Name of the recipe that the search follows."""
    seed: int = Field(42, ge=0, le=LARGEST_INTEGER)
    """Seed of every random draw of the run."""
    islands: int | None = Field(None, ge=1, le=1000)
    """Number of islands, sub-populations that evolve separately. Without a value, one for each 500
    proposals of the budget, from 1 to 5; 1 for a recipe without migration or resets."""
    migration_interval: int = Field(10, ge=1)
    """Cohorts an island closes between two migrations."""
    migration_rate: float = Field(0.1, ge=0, le=1)
    """Share of an island's cells whose elites migrate."""
    exploration_ratio: float = Field(0.05, ge=0, le=1)
    """Share of parents that are drawn from all cells of an island, each cell being equally
    likely."""
    exploitation_ratio: float = Field(0.95, ge=0, le=1)
    """Share of parents that exploitation chooses, see `search.archive_size`; the remaining parents
    are drawn by rank."""
    archive_size: int | None = Field(None, ge=1)
    """Number of fittest elites of all islands that exploitation draws parents from, each being
    equally likely. Without a value, exploitation takes one of the fittest that have fewer than
    `strategy.patience` children, see `strategy.patience`."""
    top_programs: int = Field(3, ge=0)
    """Number of fittest programs that a prompt contains."""
    inspirations: int = Field(2, ge=0)
    """Number of other programs, drawn at random, that a prompt contains."""
    operators: dict[str, float] | None = None
    """Operators and their weights, 0 or more. Without a value: `search` with `nested.strategy`,
    `tune` and `mutate` without a language model, else a mix that suits the initial programs."""
    samples: int = Field(1, ge=1, le=64)
    """Children that one prompt asks for, from the same parents. An endpoint reads the prompt once
    where it takes `n`; where it does not, it may have the beginning of the prompt in its cache."""
    learn_forms: bool | None = None
    """Whether the weights of `diff`, `rewrite`, `function` and `complete` are learnt: from the
    children that were measured, per token, in this run and, at its start, in earlier runs of the
    same models. Without a value, they are unless `search.operators` is set by hand or the run is
    reproducible."""
    enforce_blocks: bool | None = None
    """Whether text outside EVOLVE-BLOCK regions is kept unchanged. Without a value, the problem
    decides."""
    gates: list[float | str] | None = None
    """What a program needs to go on from each stage to the next, in order: a fitness, `quantile Q
    of N` or `top K of N` of the newest N programs of its island. Without a value, the problem
    decides."""
    measurements: int = Field(1, ge=1)
    """Most measurements of a program at the last stage of the problem, for an evaluator with noise.
    A program is measured again, each time with another seed, until the 95 % confidence interval of
    its mean excludes the fitness of its island's best, or does not vary."""
    validate_best: int = Field(10, ge=0)
    """Number of fittest programs that a problem's validation measures at the end of the run, on
    data that the search never saw; the best of them by that data is the result. 0 for none."""
    reuse: bool = False
    """Whether a trial takes the result of an equal one of any run, which has the same program,
    evaluator, limits and image. Leave it off where equal trials may differ: an evaluator with
    noise, with a clock, or with data of its own from elsewhere."""
    similarity: float | None = Field(None, gt=0, le=1)
    """A child is not evaluated if its text is at least so similar to one of the 64 fittest programs
    of its island: the share of runs of three tokens that they have in common, or the cosine of
    their embeddings where `llm.roles.embedder` names a model. Without a value, no texts are
    compared."""
    grid_after: int | None = Field(None, ge=1)
    """Evaluations after which the ranges of axes without a declared range are learnt and frozen.
    Without a value, a fifth of the budget, at most 50."""
    stop_fitness: float | None = None
    """The run stops when its best fitness reaches this."""
    stop_admitted: int | None = Field(None, ge=1)
    """The run stops when this many children have been admitted."""
    stop_patience: int | None = Field(None, ge=1)
    """The run stops after this many settled proposals in a row without improvement."""
    stop_threshold: float = Field(0.001, ge=0)
    """Least rise in fitness that `search.stop_patience` counts as an improvement."""

    @field_validator("gates")
    @classmethod
    def _readable_gates(cls, gates: list[float | str] | None) -> list[float | str] | None:
        for each in gates or ():
            gate(each)
        return gates


class NestedSettings(Section):
    """Runs inside the run, which the operator `search` begins; they have none inside them."""

    strategy: str | None = None
    """Name of the recipe that each run inside follows. Without a value, there are none."""
    proposals: int = Field(10, ge=1)
    """Most children that each of them may propose. They are set aside from `budget.proposals` when
    the proposal of the operator `search` is planned, and what is left of them is given back."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameters of their recipe that are no settings of `search`."""
    operators: dict[str, float] | None = None
    """Their operators and weights. Without a value, those that a run without `nested.strategy` has
    by default."""


class QueueSettings(Section):
    """Back-pressure, and the recovery of lost work."""

    generating: int | None = Field(None, ge=1, le=MOST)
    """Most proposals that wait for their operator. Without a value, it follows from measurements
    and from what the workers hold."""
    evaluating: int | None = Field(None, ge=1, le=MOST)
    """Proposals under test from which on no further proposal is planned. Without a value, it
    follows from measurements and from what the workers hold."""
    trials_at_once: int | None = Field(None, ge=1, le=MOST)
    """Most trials of the run that are in a sandbox at once, over all workers. Without a value, as
    many as the workers have places."""
    weight: float = Field(1.0, gt=0, le=MOST)
    """Share of the workers that the run has beside other runs, relative to their weights."""
    lease_seconds: Annotated[float, Owner.WORKER] = Field(30.0, gt=0)
    """Seconds after which the lease of a step expires if its worker does not renew it."""
    redeliver_seconds: Annotated[float, Owner.WORKER] = Field(30.0, gt=0)
    """Seconds after which a step that no worker has leased is enqueued again."""
    patience_seconds: Annotated[float, Owner.COMMAND] = Field(180.0, gt=0)
    """Seconds that an embedded run waits for a service that is down before it is paused."""
    attempts: Annotated[int, Owner.WORKER] = Field(5, ge=1)
    """Times that one step is started before the run fails; a game is a draw or void instead."""


class SandboxSettings(Section):
    """How programs are isolated."""

    backend: Annotated[Literal["auto", "process", "docker"], Owner.WORKER] = "auto"
    """Isolation of programs: `docker` is containers, `process` is child processes, `auto` is
    containers where a Docker engine answers, else child processes, unless the worker may open the
    engine's socket."""
    mode: Literal["guarded", "compatible"] | None = None
    """Whether evaluator and program are separate processes (`guarded`) or one (`compatible`).
    Without a value, the problem decides."""
    compare_modes: Annotated[bool, Owner.COMMAND] = True
    """Whether `evoq check` measures the seeds in both modes."""
    image: str = "evoqueue-sandbox:1"
    """Container image that trials run in, in place of what the problem brings. As a variable of a
    worker: the image that trials of other problems run in, and that dependencies are added to."""
    runtime: Annotated[str, Owner.WORKER] = ""
    """OCI runtime of containers, such as `runsc`. Without a value, the engine's default."""
    seccomp: Annotated[str, Owner.WORKER] = ""
    """Seccomp profile of containers: a path, or `engine` for the engine's own. Without a value,
    Evoqueue's."""
    cpus: Annotated[float, Owner.WORKER] = Field(1.0, gt=0)
    """CPUs that the programs of one container may use together."""
    cells: Annotated[int | None, Owner.WORKER] = Field(None, ge=1)
    """Trials that one worker runs at once, each in a warm sandbox: another name of
    `EVOQ_EVALUATE_CONCURRENCY`. Without a value, one for each core, and at least 4."""
    spares: Annotated[int, Owner.WORKER] = Field(1, ge=0)
    """Booted warm sandboxes that a worker keeps ready beyond those in use."""
    trials_per_cell: Annotated[int, Owner.WORKER] = Field(500, ge=1)
    """Trials after which a warm sandbox is replaced."""
    minutes_per_cell: Annotated[float, Owner.WORKER] = Field(30.0, gt=0)
    """Age in minutes at which a warm sandbox is replaced, or ends if it is idle."""
    trials_per_evaluator: Annotated[int, Owner.WORKER] = Field(50, ge=1)
    """Trials that one process of a guarded evaluator measures, as long as it finds no
    difference between itself and a fresh one. 1 starts a process for each trial."""
    one_container_per_trial: Annotated[bool, Owner.WORKER] = False
    """Whether every trial has a container of its own, never a warm one."""
    owner: Annotated[str, Owner.WORKER] = ""
    """Name of the deployment, on an engine that several share. A worker removes what killed workers
    left only where their deployment has the same name."""
    environments: Annotated[str, Owner.WORKER] = ""
    """Folder of the virtual environments of problems. Without a value, a folder in the user's
    cache."""
    build_minutes: Annotated[float, Owner.WORKER] = Field(30.0, gt=0)
    """Minutes that the build of an image may take."""
    build_hosts: Annotated[str, Owner.WORKER] = ""
    """Hosts beside the package index that an installation into an environment may reach: names,
    with `:PORT` where it is not 443, separated by spaces."""
    unisolated_builds: Annotated[bool, Owner.WORKER] = False
    """Whether packages are installed, and used, also where nothing isolates what they run."""
    wall_seconds: float | None = Field(None, gt=0)
    """Time-out of one stage in seconds. Without a value, the problem decides."""
    memory_mib: int | None = Field(None, ge=16)
    """Memory of one trial in MiB. Without a value, the problem decides."""
    cpu_seconds: float | None = Field(None, gt=0)
    """CPU time of one stage in seconds. Without a value, the problem decides."""
    output_bytes: int | None = Field(None, ge=1)
    """Bytes that are kept of standard output, and of standard error. Without a value, 1 MiB."""
    result_bytes: int | None = Field(None, ge=1)
    """Bytes of the metrics and artifacts of one trial. Without a value, 1 MiB."""
    file_bytes: int | None = Field(None, ge=1)
    """Bytes of each file that a trial writes. Without a value, 32 MiB."""
    processes: int | None = Field(None, ge=1)
    """Processes of one trial at once. Without a value, 64."""
    unbounded_processes: Annotated[bool, Owner.WORKER] = False
    """Whether child processes isolate programs even where nothing bounds the number of processes
    that a program starts, or what it writes."""
    open_files: int | None = Field(None, ge=3)
    """Open files of one process of a trial. Without a value, 256."""


class PriceSettings(Section):
    """The price of an hour of a worker, busy or idle; None where it is not known."""

    gpu_usd_per_hour: Annotated[float | None, Owner.WORKER] = Field(None, ge=0)
    """US dollars for an hour of a worker of the queue `gpu`."""
    cpu_usd_per_hour: Annotated[float | None, Owner.WORKER] = Field(None, ge=0)
    """US dollars for an hour of a worker of the queue `cpu`."""
    control_usd_per_hour: Annotated[float | None, Owner.WORKER] = Field(None, ge=0)
    """US dollars for an hour of a worker of the queue `control`."""

    def of(self, kind: str) -> float | None:
        """Returns the price of a kind of worker."""
        prices: dict[str, float | None] = self.model_dump()
        return prices[f"{kind}_usd_per_hour"]


class PromptSettings(Section):
    """What prompts contain.  Names and defaults are OpenEvolve's where it has them."""

    templates: dict[str, str] = Field(default_factory=dict)
    """Texts that replace packaged templates, by name; and texts of other names, which
    `prompts.system_message` may name."""
    system_message: str = RULES.system_message
    """System prompt: a text, or the name of a template. Without a value, the problem's
    instructions."""
    template_variations: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """For each `{key}` in a template, texts of which one is drawn for each prompt."""
    use_template_stochasticity: bool = RULES.use_template_stochasticity
    """Whether the texts of `prompts.template_variations` are drawn at random; otherwise the first
    is used."""
    num_top_programs: int | None = Field(None, ge=0)
    """Number of fittest programs that are shown. Without a value, `search.top_programs`."""
    num_diverse_programs: int | None = Field(None, ge=0)
    """Number of other programs that are shown. Without a value, `search.inspirations`."""
    include_artifacts: bool = RULES.include_artifacts
    """Whether the artifacts of the parent are shown."""
    max_artifact_bytes: int = Field(RULES.max_artifact_bytes, ge=0)
    """Characters that are shown of each artifact."""
    artifact_security_filter: bool = RULES.artifact_security_filter
    """Whether what looks like a secret is removed from artifacts and messages of failures."""
    max_prompt_tokens: int = Field(RULES.max_prompt_tokens, ge=0)
    """Tokens, as estimated, of the longest prompt, its system text included."""
    failure_messages: bool = RULES.failure_messages
    """Whether the message of a failed trial and what it printed are quoted; they can contain inputs
    that the program is tested on."""
    suggest_simplification_after_chars: int | None = Field(
        RULES.suggest_simplification_after_chars, ge=0
    )
    """Characters of source from which on a prompt suggests a simpler program; null for never."""
    include_changes_under_chars: int | None = Field(RULES.include_changes_under_chars, ge=0)
    """Characters of changes up to which an inspiration is labelled with them; null for never."""
    concise_implementation_max_lines: int | None = Field(
        RULES.concise_implementation_max_lines, ge=0
    )
    """Lines up to which an inspiration is labelled as concise; null for never."""
    comprehensive_implementation_min_lines: int | None = Field(
        RULES.comprehensive_implementation_min_lines, ge=0
    )
    """Lines from which on an inspiration is labelled as comprehensive; null for never."""
    diff_summary_max_line_len: int = Field(RULES.diff_summary_max_line_len, ge=0)
    """Characters that are shown of each line of a summary of changes."""
    diff_summary_max_lines: int = Field(RULES.diff_summary_max_lines, ge=0)
    """Lines that are shown of each block in a summary of changes."""
    functions_per_prompt: int = Field(RULES.functions_per_prompt, ge=0)
    """Versions of the function, the parent's included, that a prompt of the operator `complete`
    contains."""
    log_prompts: bool = RULES.log_prompts
    """Whether the ledger keeps the text of each prompt; `evoq show` and the dashboard show it."""
    max_logged_chars: int = Field(RULES.max_logged_chars, ge=1)
    """Characters that the ledger keeps of the system text, and of the user text, of a prompt."""
    function: str = RULES.function
    """Name of the function that the operator `complete` evolves. Without a value, the program says
    which."""

    @model_validator(mode="after")
    def _templates_can_be_filled(self) -> "PromptSettings":
        self.rules(SearchSettings()).check_templates()
        return self

    def rules(self, search: SearchSettings) -> PromptRules:
        """Returns the rules of prompts; what is not set here is shown as the search says."""
        top, others = self.num_top_programs, self.num_diverse_programs
        shown = {
            "num_top_programs": search.top_programs if top is None else top,
            "num_diverse_programs": search.inspirations if others is None else others,
        }
        return PromptRules(**(self.model_dump() | shown))


class RunSettings(Section):
    """Every setting that is stored with a run; none is a secret."""

    budget: BudgetSettings = BudgetSettings()
    search: SearchSettings = SearchSettings()
    nested: NestedSettings = NestedSettings()
    queue: QueueSettings = QueueSettings()
    llm: ModelSettings = ModelSettings()
    sandbox: SandboxSettings = SandboxSettings()
    prices: PriceSettings = PriceSettings()
    strategy: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the recipe that are no settings of `search`."""
    prompts: PromptSettings = PromptSettings()
    problem: dict[str, Any] = Field(default_factory=dict)
    """Options of the problem, see problems.md."""


class Settings(BaseSettings):
    """The settings of a process, from its environment."""

    model_config = SettingsConfigDict(
        env_prefix="EVOQ_",
        env_nested_delimiter="__",
        extra="ignore",
        frozen=True,
    )

    database_url: SecretStr | None = None
    """Address of Postgres. Without a value, an embedded Postgres is started."""
    redis_url: SecretStr | None = None
    """Address of Redis. Without a value, an embedded Valkey is started."""
    home: str = ".evoq"
    """Folder of the embedded stack and of what this machine remembers."""
    database_connections: int = Field(16, ge=1)
    """Most database connections of one process; a worker has one more, for notices of
    withdrawn steps."""
    sandbox: SandboxSettings = SandboxSettings()
    prices: PriceSettings = PriceSettings()
    queue: QueueSettings = QueueSettings()
    dashboard_token: SecretStr | None = None
    """Token that a dashboard asks for. Without a value, a random one for each start."""
    dashboard_hosts: str = ""
    """Names that browsers reach a dashboard by, with commas between them."""
    nice: int | None = Field(None, ge=0, le=19)
    """Least `nice` value of a worker and of its trials: other programs of the machine go first.
    Without a value, 10 in an embedded stack, and as it was started in a deployment."""
    metrics_address: str | None = None
    """Address at which a worker serves its `/metrics`, as 0.0.0.0:9464. Without a value, they are
    not served."""
    vllm_model: str | None = None
    """Model that a worker of the queue `gpu` loads into its own process. Without a value, it sends
    requests to endpoints."""
    vllm_name: str | None = None
    """Name by which runs refer to the loaded model. Without a value, `EVOQ_VLLM_MODEL`."""
    vllm_args: str = ""
    """Arguments of `vllm serve` as one line."""
    vllm_metrics_port: int | None = Field(None, ge=1, le=65535)
    """Port of vLLM's `/metrics`. Without a value, they are not served."""
    llm_max_in_flight: int | None = Field(None, ge=1)
    """Most requests of this process at all endpoints together."""
    llm_target_in_flight: int | None = Field(None, ge=1)
    """Requests in flight at which the adaptive window of this process begins, instead of a run's
    `llm.target_in_flight`."""
    llm_parallel_generations: int | None = Field(None, ge=1)
    """Most requests of the whole deployment at one endpoint, whatever the run; the lower of this
    and a run's `llm.parallel_generations` holds."""

    def of_worker(self) -> dict[str, Any]:
        """Returns the settings that this process owns as a worker, by dotted key."""
        sections = {"sandbox": self.sandbox, "queue": self.queue, "prices": self.prices}
        return {
            f"{section}.{name}": value
            for section, own in sections.items()
            for name, value in own.model_dump(
                mode="json", include=own.owned_by(Owner.WORKER)
            ).items()
        }

    @property
    def deployed(self) -> bool:
        """Whether both addresses of a deployment are given."""
        return self.database_url is not None and self.redis_url is not None
