"""Every key of OpenEvolve's config.yaml, and what becomes of it here.

`docs/openevolve.md` shows the same keys, grouped by their outcome; a test compares the two.
`parallel_generations` and `controller.task_buffer` are keys of the plan to distribute OpenEvolve.
"""

import enum
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """What a value must be; the text is what an error message shows."""

    INTEGER = "an integer of at most 64 bits"
    NUMBER = "a finite number"
    TRUTH = "true or false"
    TEXT = "a string"
    NUMBERS = "a list of finite numbers"
    TEXTS = "a list of strings"
    MODELS = "a list of mappings, one a model"
    MAPPING = "a mapping"
    COUNT_OR_COUNTS = "an integer of at most 64 bits, or a mapping of dimension name to one"
    RANGES = "a mapping of dimension name to a list of two numbers"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of config.yaml; exactly one of `setting`, `shapes` and `reason` is not empty.

    Attributes:
      setting: The run setting that takes the value as it stands.
      shapes: The part of the problem or of its settings that the loader makes from the value.
      reason: Why the key has no effect here, completing "because …".
      nullable: Whether null is allowed, and then means "not set".
    """

    name: str
    kind: Kind
    setting: str = ""
    shapes: str = ""
    reason: str = ""
    nullable: bool = False


_LEDGER = "the ledger keeps every program, evaluation and event"
_PROMPTS = "the ledger keeps prompts and replies: `prompts.log_prompts`"
_LOGS = "a process logs to its standard error"
_DEAD = "OpenEvolve itself never reads it"
_WORKERS = "worker processes are set where workers are started"
_ARTIFACTS = "artifacts live in the ledger, bounded for each evaluation"
_SHOWN = "prompts contain fixed numbers of programs"
_EMBEDDING = "`llm.roles.embedder` and `search.similarity` compare embeddings"
_TRACE = "the ledger records every proposal: `evoq metrics RUN --format jsonl`"
_CLIENTS = "endpoints are OpenAI-compatible"
_MANUAL = "a person is asked with `llm.provider=human`"
_DESCRIPTION = "prompts always contain programs"
_SEED = "seeds of requests follow from the top-level `random_seed`"
_RETRIED = "only failures of the machinery are retried"

_OURS = "a key of Evoqueue"
_RANGES = "the ranges of axes; others are learnt"
_CORES = "cores; times the time-out: `sandbox.cpu_seconds`"
_DIVERSE = "`prompts.num_diverse_programs`"

_I, _N, _T, _S, _L = Kind.INTEGER, Kind.NUMBER, Kind.TRUTH, Kind.TEXT, Kind.TEXTS


def _prompt(name: str, kind: Kind, *, nullable: bool = False) -> Key:
    """Returns a key of `prompt` whose value is the setting of that name."""
    return Key(f"prompt.{name}", kind, setting=f"prompts.{name}", nullable=nullable)


KEYS: tuple[Key, ...] = (
    Key("max_iterations", _I, setting="budget.proposals"),
    Key("checkpoint_interval", _I, reason=_LEDGER),
    Key("log_level", _S, reason=_LOGS),
    Key("log_dir", _S, reason=_LOGS, nullable=True),
    Key("random_seed", _I, setting="search.seed", nullable=True),
    Key("language", _S, shapes="the language of the programs", nullable=True),
    Key("file_suffix", _S, shapes="the file suffix of the programs"),
    Key("diff_based_evolution", _T, shapes="the first weights of `search.operators`"),
    Key("max_code_length", _I, shapes="the longest program that is evaluated, in characters"),
    Key("enforce_evolve_blocks", _T, shapes="whether text outside the markers is put back"),
    Key("allow_imports", _L, shapes=f"{_OURS}: all that a child may import", nullable=True),
    Key("deny_imports", _L, shapes=f"{_OURS}: modules that no child may import"),
    Key("diff_pattern", _S, shapes="the regular expression of a diff"),
    Key("early_stopping_patience", _I, shapes="`search.stop_patience`, if above 0", nullable=True),
    Key("convergence_threshold", _N, setting="search.stop_threshold"),
    Key("early_stopping_metric", _S, shapes="the fitness is watched, which is `combined_score`"),
    Key("max_tasks_per_child", _I, reason=_WORKERS, nullable=True),
    Key("llm.api_base", _S, setting="llm.base_url", nullable=True),
    Key("llm.api_key", _S, shapes="`llm.api_key_variable`, for `${NAME}`", nullable=True),
    Key("llm.provider", _S, reason=_CLIENTS, nullable=True),
    Key("llm.models", Kind.MODELS, shapes="`llm.models`"),
    Key("llm.evaluator_models", Kind.MODELS, shapes="`llm.roles.judge.models`"),
    Key("llm.primary_model", _S, shapes="the first of `llm.models`", nullable=True),
    Key("llm.primary_model_weight", _N, shapes="the weight of this model", nullable=True),
    Key("llm.secondary_model", _S, shapes="the next of `llm.models`", nullable=True),
    Key("llm.secondary_model_weight", _N, shapes="the weight of this model", nullable=True),
    Key("llm.temperature", _N, setting="llm.temperature", nullable=True),
    Key("llm.top_p", _N, setting="llm.top_p", nullable=True),
    Key("llm.max_tokens", _I, setting="llm.max_tokens"),
    Key("llm.timeout", _N, setting="llm.timeout_seconds"),
    Key("llm.retries", _I, setting="llm.retries"),
    Key("llm.retry_delay", _N, setting="llm.retry_delay_seconds"),
    Key("llm.reasoning_effort", _S, shapes="`reasoning_effort` of `llm.models`", nullable=True),
    Key("llm.parallel_generations", _I, setting="llm.parallel_generations", nullable=True),
    Key("llm.manual_mode", _T, reason=_MANUAL, nullable=True),
    Key("llm.init_client", _S, reason=_CLIENTS, nullable=True),
    Key("llm.max_budget_usd", _N, reason=_CLIENTS, nullable=True),
    Key("llm.max_ai_credits", _N, reason=_CLIENTS, nullable=True),
    Key("llm.allow_all_tools", _T, reason=_CLIENTS, nullable=True),
    Key("llm.system_message", _S, reason="`prompt.system_message` replaces it", nullable=True),
    Key("llm.random_seed", _I, reason=_SEED, nullable=True),
    Key("prompt.template_dir", _S, shapes="`prompts.templates`", nullable=True),
    Key("prompt.system_message", _S, shapes="the instructions: a text, or a template's name"),
    Key("prompt.evaluator_system_message", _S, reason=_DEAD),
    Key("prompt.programs_as_changes_description", _T, reason=_DESCRIPTION),
    Key("prompt.system_message_changes_description", _S, reason=_DESCRIPTION, nullable=True),
    Key("prompt.initial_changes_description", _S, reason=_DESCRIPTION),
    Key("prompt.num_top_programs", _I, shapes="`search.top_programs`, `prompts.num_top_programs`"),
    Key("prompt.num_diverse_programs", _I, shapes=f"`search.inspirations`, {_DIVERSE}"),
    _prompt("use_template_stochasticity", _T),
    _prompt("template_variations", Kind.MAPPING),
    Key("prompt.use_meta_prompting", _T, reason=_DEAD),
    Key("prompt.meta_prompt_weight", _N, reason=_DEAD),
    _prompt("include_artifacts", _T),
    _prompt("max_artifact_bytes", _I),
    _prompt("artifact_security_filter", _T),
    _prompt("suggest_simplification_after_chars", _I, nullable=True),
    _prompt("include_changes_under_chars", _I, nullable=True),
    _prompt("concise_implementation_max_lines", _I, nullable=True),
    _prompt("comprehensive_implementation_min_lines", _I, nullable=True),
    _prompt("diff_summary_max_line_len", _I),
    _prompt("diff_summary_max_lines", _I),
    Key("prompt.code_length_threshold", _I, reason="OpenEvolve has retired it", nullable=True),
    Key("database.db_path", _S, reason=_LEDGER, nullable=True),
    Key("database.in_memory", _T, reason=_DEAD),
    Key("database.log_prompts", _T, setting="prompts.log_prompts"),
    Key("database.population_size", _I, reason="a cell of the grid holds one program"),
    Key("database.archive_size", _I, setting="search.archive_size"),
    Key("database.num_islands", _I, setting="search.islands"),
    Key("database.elite_selection_ratio", _N, reason=_SHOWN),
    Key("database.exploration_ratio", _N, setting="search.exploration_ratio"),
    Key("database.exploitation_ratio", _N, setting="search.exploitation_ratio"),
    Key("database.diversity_metric", _S, reason=_DEAD),
    Key("database.feature_dimensions", _L, shapes="the axes of the grid"),
    Key("database.feature_bins", Kind.COUNT_OR_COUNTS, shapes="the bins of each axis"),
    Key("database.feature_ranges", Kind.RANGES, shapes=f"{_OURS}: {_RANGES}"),
    Key("database.diversity_reference_size", _I, reason="diversity is the distance to the seeds"),
    Key("database.migration_interval", _I, setting="search.migration_interval"),
    Key("database.migration_rate", _N, setting="search.migration_rate"),
    Key("database.random_seed", _I, reason="`random_seed` is read at top level", nullable=True),
    Key("database.artifacts_base_path", _S, reason=_ARTIFACTS, nullable=True),
    Key("database.artifact_size_threshold", _I, reason=_ARTIFACTS),
    Key("database.cleanup_old_artifacts", _T, reason=_ARTIFACTS),
    Key("database.artifact_retention_days", _I, reason=_ARTIFACTS),
    Key("database.max_snapshot_artifacts", _I, reason=_ARTIFACTS, nullable=True),
    Key("database.embedding_model", _S, reason=_EMBEDDING, nullable=True),
    Key("database.embedding_api_base", _S, reason=_EMBEDDING, nullable=True),
    Key("database.similarity_threshold", _N, reason=_EMBEDDING),
    Key("evaluator.timeout", _N, shapes="`sandbox.wall_seconds`, for each stage"),
    Key("evaluator.max_retries", _I, reason=_RETRIED),
    Key("evaluator.memory_limit_mb", _I, shapes="`sandbox.memory_mib`", nullable=True),
    Key("evaluator.cpu_limit", _N, shapes=_CORES, nullable=True),
    Key("evaluator.cascade_evaluation", _T, shapes="whether the stage functions are used"),
    Key("evaluator.cascade_thresholds", Kind.NUMBERS, shapes="the stages and their thresholds"),
    Key("evaluator.parallel_evaluations", _I, setting="queue.trials_at_once"),
    Key("evaluator.distributed", _T, reason="evaluation is always distributed over the workers"),
    Key("evaluator.use_llm_feedback", _T, setting="llm.feedback"),
    Key("evaluator.llm_feedback_weight", _N, setting="llm.feedback_weight"),
    Key("evaluator.enable_artifacts", _T, shapes="whether artifacts of a success are kept"),
    Key("evaluator.max_artifact_storage", _I, reason=_ARTIFACTS),
    Key("controller.task_buffer", _I, setting="queue.generating", nullable=True),
    Key("evolution_trace.enabled", _T, reason=_TRACE),
    Key("evolution_trace.format", _S, reason=_TRACE),
    Key("evolution_trace.include_code", _T, reason=_LEDGER),
    Key("evolution_trace.include_prompts", _T, reason=_PROMPTS),
    Key("evolution_trace.output_path", _S, reason=_TRACE, nullable=True),
    Key("evolution_trace.buffer_size", _I, reason=_TRACE),
    Key("evolution_trace.compress", _T, reason=_TRACE),
)

MODEL_KEYS: tuple[Key, ...] = (
    Key("name", _S, setting="name", nullable=True),
    Key("weight", _N, setting="weight"),
    Key("api_base", _S, setting="base_url", nullable=True),
    Key("api_key", _S, shapes="`api_key_variable`, for `${NAME}`", nullable=True),
    Key("provider", _S, reason=_CLIENTS, nullable=True),
    Key("init_client", _S, reason=_CLIENTS, nullable=True),
    Key("system_message", _S, reason="`prompt.system_message` replaces it", nullable=True),
    Key("temperature", _N, setting="temperature", nullable=True),
    Key("top_p", _N, setting="top_p", nullable=True),
    Key("max_tokens", _I, setting="max_tokens", nullable=True),
    Key("timeout", _N, setting="timeout_seconds", nullable=True),
    Key("retries", _I, setting="retries", nullable=True),
    Key("retry_delay", _N, setting="retry_delay_seconds", nullable=True),
    Key("random_seed", _I, reason=_SEED, nullable=True),
    Key("reasoning_effort", _S, setting="reasoning_effort", nullable=True),
    Key("parallel_generations", _I, setting="parallel_generations", nullable=True),
    Key("max_budget_usd", _N, reason=_CLIENTS, nullable=True),
    Key("max_ai_credits", _N, reason=_CLIENTS, nullable=True),
    Key("allow_all_tools", _T, reason=_CLIENTS, nullable=True),
    Key("manual_mode", _T, reason=_MANUAL, nullable=True),
)
"""Keys of one entry of `llm.models`; `setting` is its name in an entry of our `llm.models`."""
