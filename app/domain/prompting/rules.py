"""Prompt rules: how the prompts of a run are written."""

from dataclasses import dataclass, field
from typing import Annotated

from app.domain.setting import Fixed, bounded


@dataclass(frozen=True, slots=True)
class PromptRules:
    """What prompts contain: the section `prompts` of a run's settings.

    Names and defaults are OpenEvolve's where it has them.  The rules of a run have both numbers of
    programs; without one, every program of a draft is shown.
    """

    templates: dict[str, str] = field(default_factory=dict)
    """Texts that replace packaged templates, by name, and texts that `prompts.system_message` may
    name."""
    system_message: str = ""
    """System prompt: a text, or the name of a template. Without a value, the problem's
    instructions."""
    template_variations: dict[str, list[str]] = field(default_factory=dict)
    """For each `{key}` in a template, texts of which one is drawn."""
    use_template_stochasticity: bool = True
    """Whether the texts of `prompts.template_variations` are drawn at random; otherwise the first
    is used."""
    num_top_programs: int | None = bounded(None, ge=0)
    """Number of fittest programs. Without a value, `search.top_programs`."""
    num_diverse_programs: int | None = bounded(None, ge=0)
    """Number of other programs. Without a value, `search.inspirations`."""
    include_artifacts: bool = True
    """Whether the artifacts of the parent are shown."""
    max_artifact_bytes: int = bounded(20_480, ge=0)
    """Characters of each artifact that are shown."""
    artifact_security_filter: bool = True
    """Whether what looks like a secret is removed from artifacts and messages."""
    max_prompt_tokens: int = bounded(32_000, ge=0)
    """Estimated tokens of the longest prompt, its system text included."""
    failure_messages: bool = False
    """Whether the message and output of a failed trial are quoted; they can contain hidden
    inputs."""
    suggest_simplification_after_chars: int | None = bounded(None, ge=0)
    """Characters of source above which a prompt suggests a simpler program; null for never."""
    include_changes_under_chars: int | None = bounded(100, ge=0)
    """Characters of changes up to which they label an inspiration; null for never."""
    concise_implementation_max_lines: int | None = bounded(10, ge=0)
    """Lines up to which an inspiration is labelled as concise; null for never."""
    comprehensive_implementation_min_lines: int | None = bounded(50, ge=0)
    """Lines from which on an inspiration is labelled as comprehensive; null for never."""
    diff_summary_max_line_len: int = bounded(100, ge=0)
    """Characters of each line in a summary of changes."""
    diff_summary_max_lines: int = bounded(30, ge=0)
    """Lines of each block in a summary of changes."""
    functions_per_prompt: int = bounded(2, ge=0)
    """Versions of the function, the parent's included, that a prompt of the operator `complete`
    contains."""
    log_prompts: bool = True
    """Whether the ledger keeps the text of each prompt."""
    max_logged_chars: int = bounded(100_000, ge=1)
    """Characters that the ledger keeps of each text of a prompt."""
    function: Annotated[str, Fixed("it is the function that the run evolves")] = ""
    """Name of the function that the operator `complete` evolves. Without a value, the program says
    which."""

    @property
    def logged_chars(self) -> int:
        """Characters that the ledger keeps of each text of a prompt; 0 where it keeps none."""
        return self.max_logged_chars if self.log_prompts else 0
