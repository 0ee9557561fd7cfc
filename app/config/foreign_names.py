"""Names of settings in other engines and earlier versions, each with the name that works here."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from app.config.openevolve_keys import KEYS, Key
from app.config.section import variable_of


@dataclass(frozen=True, slots=True)
class ForeignName:
    """A setting under the name that another engine, or an earlier version of this one, gives it.

    Attributes:
      remedy: A whole sentence: what to write, or why there is nothing to write.
    """

    engine: str
    remedy: str

    @property
    def remedy_of_variables(self) -> str:
        """The remedy with the variables that set the settings it names."""
        return _SETTING.sub(lambda name: variable_of(name.group()), self.remedy)


@functools.cache
def foreign_names() -> Mapping[str, ForeignName]:
    """Returns every setting of other engines and earlier versions by its name there."""
    of_sections = {f"{one}.{name}": _SHINKA[name] for one in _SHINKA_SECTIONS for name in _SHINKA}
    by_engine: Mapping[str, Mapping[str, str]] = {
        "an earlier version": _EARLIER,
        "OpenEvolve's": {key.name: _of_openevolve(key) for key in KEYS},
        "FunSearch-Lite's": _FUNSEARCH_LITE,
        "ShinkaEvolve's": {**_SHINKA, **of_sections},
    }
    found: dict[str, ForeignName] = {}
    for engine, names in by_engine.items():
        for name, remedy in names.items():
            found.setdefault(name, ForeignName(engine, remedy))
    return found


def foreign_names_of(name: str, value: object) -> dict[str, ForeignName]:
    """Returns the names of other engines that a setting or a whole section stands for, by name."""
    known = foreign_names()
    if name in known:
        return {name: known[name]}
    inner = {f"{name}.{key}" for key in value} if isinstance(value, dict) else set()
    return {one: known[one] for one in sorted(inner & known.keys())}


def foreign_variables() -> dict[str, ForeignName]:
    """Returns the variables that would set what other engines name, by variable.

    Sections are parted from names by two underscores, or by one as in names of other programs.
    """
    ours = {key.name for key in KEYS if key.setting == key.name}
    found: dict[str, ForeignName] = {}
    for name, meant in foreign_names().items():
        if name not in ours:
            found.setdefault(variable_of(name), meant)
            found.setdefault(variable_of(name.replace(".", "_")), meant)
    return found


def _of_openevolve(key: Key) -> str:
    if key.setting:
        return f"Write {key.setting}."
    if key.reason:
        return f"Leave it out: {key.reason}."
    if key.name in _SETTINGS:
        return f"Write {_SETTINGS[key.name]}."
    return (
        f"Set it in the problem's config.yaml, or in one that --config names: it shapes "
        f"{key.shapes.removeprefix('a key of Evoqueue: ')}."
    )


_SETTING = re.compile(
    r"\b(?:search|llm|queue|budget|sandbox|prompts|problem|strategy)\.[a-z_]+(?:\.[a-z_]+)*"
)
"""A setting in a remedy."""

_SETTINGS: Mapping[str, str] = {
    "llm.api_key": "llm.api_key_variable, the name of the variable with the key",
    "llm.evaluator_models": "llm.roles.judge.models",
    "llm.primary_model": "llm.model, or llm.models for several",
    "llm.primary_model_weight": "llm.models with a weight for each",
    "llm.secondary_model": "llm.models with a name and a weight for each",
    "llm.secondary_model_weight": "llm.models with a weight for each",
    "llm.reasoning_effort": "llm.models with reasoning_effort for each",
    "diff_based_evolution": 'search.operators, as {"diff": 1} or {"rewrite": 1}',
    "enforce_evolve_blocks": "search.enforce_blocks",
    "early_stopping_patience": "search.stop_patience",
    "allow_imports": "problem.allow_imports",
    "deny_imports": "problem.deny_imports",
    "prompt.template_dir": "prompts.template_dir",
    "prompt.system_message": "prompts.system_message",
    "prompt.num_top_programs": "prompts.num_top_programs, and search.top_programs",
    "prompt.num_diverse_programs": "prompts.num_diverse_programs, and search.inspirations",
    "evaluator.timeout": "sandbox.wall_seconds",
    "evaluator.memory_limit_mb": "sandbox.memory_mib",
    "evaluator.cpu_limit": "sandbox.cpu_seconds",
}
"""Keys of OpenEvolve whose value a setting takes in another form."""

_EARLIER: Mapping[str, str] = {
    "sandbox.cells": "Write sandbox.places.",
    "sandbox.trials_per_cell": "Write sandbox.trials_per_sandbox.",
    "sandbox.minutes_per_cell": "Write sandbox.minutes_per_sandbox.",
}

_FUNSEARCH_LITE: Mapping[str, str] = {
    "max_generations": "Write budget.proposals: generations times population times islands.",
    "population_size": "Write strategy.population, with search.strategy=funsearch_lite.",
    "num_islands": "Write search.islands.",
    "top_k_for_full_eval": "Write strategy.top_k, with search.strategy=funsearch_lite.",
    "seed": "Write search.seed, or use --seed.",
    "run_id": "Use --name.",
    "artifact_dir": "Use --out.",
    "task_name": "Give the problem's folder as PROBLEM.",
    "evaluator": "Write problem.environment, as CAPACITY=100,SEED=42.",
    "evaluator.capacity": "Write problem.environment, as CAPACITY=100.",
    "evaluator.seed": "Write problem.environment, as SEED=42.",
    "llm_providers": "Write llm.models, with a name, a provider and a base_url for each.",
    "generator_provider_id": "Write llm.model, or llm.models.",
    "refiner_provider_id": "Write llm.roles.refiner.model.",
    "save_interval": "Leave it out: everything is stored at once.",
}

_SHINKA: Mapping[str, str] = {
    "num_generations": "Write budget.proposals, or use --iterations.",
    "max_parallel_jobs": "Write queue.evaluating.",
    "max_evaluation_jobs": "Write queue.evaluating.",
    "max_proposal_jobs": "Write queue.generating.",
    "llm_models": "Write llm.models, with a name and a weight for each.",
    "llm_dynamic_selection": "Write llm.adaptive_weights=true.",
    "llm_kwargs": "Write llm.temperature, llm.max_tokens and llm.reasoning_effort of llm.models.",
    "patch_types": 'Write search.operators, as {"diff": 0.6, "rewrite": 0.4}.',
    "patch_type_probs": 'Write search.operators, as {"diff": 0.6, "rewrite": 0.4}.',
    "max_patch_resamples": "Write llm.repair_turns.",
    "max_patch_attempts": "Write llm.repair_turns.",
    "task_sys_msg": "Write prompts.system_message.",
    "embedding_model": "Write llm.roles.embedder.model, with search.similarity.",
    "code_embed_sim_threshold": "Write search.similarity.",
    "novelty_llm_models": "Leave it out: search.similarity refuses what is nearly known.",
    "meta_llm_models": "Write llm.roles.strategist.models, with `directed` in search.operators.",
    "max_api_costs": "Write budget.cost_usd.",
    "use_text_feedback": "Write prompts.include_artifacts.",
    "init_program_path": "Give the problem's folder as PROBLEM.",
    "results_dir": "Use --out.",
    "num_islands": "Write search.islands.",
    "archive_size": "Write search.archive_size.",
    "num_archive_inspirations": "Write search.inspirations.",
    "num_top_k_inspirations": "Write search.top_programs.",
    "migration_interval": "Write search.migration_interval.",
    "migration_rate": "Write search.migration_rate.",
    "exploitation_ratio": "Write search.exploitation_ratio.",
    "elite_selection_ratio": "Leave it out: prompts contain the fittest programs.",
    "parent_selection_strategy": "Write search.strategy; docs/recipes.md says how each selects.",
    "eval_program_path": "Give the problem's folder as PROBLEM.",
    "time": "Write sandbox.wall_seconds.",
    "mem": "Write sandbox.memory_mib.",
    "db_path": "Leave it out: the ledger keeps every program.",
}
_SHINKA_SECTIONS = ("evo_config", "db_config", "job_config", "evo", "database", "job")
