"""Prompt rules: how the prompts of a run are written."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.domain.prompting.templates import PLACEHOLDERS, TEMPLATES


@dataclass(frozen=True, slots=True)
class PromptRules:
    """How prompts are written.  Names and defaults are OpenEvolve's where it has them.

    Attributes:
      templates: Replacements of packaged templates, by name; and further texts, which
        `system_message` may name.
      system_message: The system prompt, or the name of a template; "" takes the problem's
        instructions, and where those are empty too the packaged template.
      template_variations: For each `{key}` in a template, texts of which each prompt draws one.
      num_top_programs, num_diverse_programs: Most of the fittest other programs shown, and most
        further programs.
      max_artifact_bytes: Characters kept of each artifact.
      artifact_security_filter: Whether artifacts are shown without what looks like a secret.
      max_prompt_tokens: Longest prompt, system and user text together, by `tokens.estimated`, as
        far as cutting the sections of the prompt can achieve it.
      failure_messages: Whether the message and the output of a failed trial are quoted.  They can
        contain inputs of the evaluation.
      suggest_simplification_after_chars: Source length above which the prompt suggests to simplify
        the program; None for never.
      include_changes_under_chars, concise_implementation_max_lines,
        comprehensive_implementation_min_lines: When an inspiration is labelled with its changes, as
        concise, as comprehensive; None for never.
      diff_summary_max_line_len, diff_summary_max_lines: Bounds of edits put into prose.
      functions_per_prompt: Versions of the function that `complete` shows, the parent's included.
      log_prompts: Whether the ledger keeps the texts of prompts.
      max_logged_chars: Most characters that it keeps of a system text, and of a user text.
      function: The function that `complete` evolves; "" where the program determines it.
      by_task: Whether children of a seed without inspirations, and those of the refiner, are asked
        for by templates of their own; the run's recipe decides.
    """

    templates: Mapping[str, str] = field(default_factory=dict)
    system_message: str = ""
    template_variations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    use_template_stochasticity: bool = True
    num_top_programs: int = 3
    num_diverse_programs: int = 2
    include_artifacts: bool = True
    max_artifact_bytes: int = 20_480
    artifact_security_filter: bool = True
    max_prompt_tokens: int = 32_000
    failure_messages: bool = False
    suggest_simplification_after_chars: int | None = None
    include_changes_under_chars: int | None = 100
    concise_implementation_max_lines: int | None = 10
    comprehensive_implementation_min_lines: int | None = 50
    diff_summary_max_line_len: int = 100
    diff_summary_max_lines: int = 30
    functions_per_prompt: int = 2
    log_prompts: bool = True
    max_logged_chars: int = 100_000
    function: str = ""
    by_task: bool = False

    @property
    def logged_chars(self) -> int:
        """Characters that the ledger keeps of each text of a prompt; 0 where it keeps none."""
        return self.max_logged_chars if self.log_prompts else 0

    def check_templates(self) -> None:
        """Checks that each replaced template refers only to its placeholders.

        Raises:
          ValueError: A template refers to an unknown name, or cannot be filled.
        """
        for name in self.templates:  # tests cover the packaged templates
            if name in TEMPLATES:
                _check_template(name, self.template(name), frozenset(self.template_variations))

    def template(self, name: str) -> str:
        """Returns the text of a template.

        Raises:
          LookupError: There is none of that name.
        """
        return self.templates[name] if name in self.templates else TEMPLATES[name]

    def system(self, instructions: str) -> str:
        """Returns the system prompt for a problem with these instructions."""
        text = self.system_message or instructions or "system_message"
        return self.template(text) if text in self.templates or text in TEMPLATES else text


def _check_template(name: str, text: str, variations: frozenset[str]) -> None:
    if name == "system_message":
        return  # not filled, so that its braces are literal
    allowed = PLACEHOLDERS[name] | variations
    try:
        named = {key for _, key, _, _ in string.Formatter().parse(text) if key is not None}
    except ValueError as error:
        raise ValueError(f"template {name!r}: {error}; double a brace that is meant") from error
    if named - allowed:
        unknown = ", ".join(sorted("{" + key + "}" for key in named - allowed))
        raise ValueError(
            f"template {name!r} refers to {unknown}; it is given {', '.join(sorted(allowed))}."
            " A literal brace is doubled"
        )
    try:
        text.format(**dict.fromkeys(allowed, ""))
    except (ValueError, LookupError) as error:
        raise ValueError(
            f"template {name!r} cannot be filled: {error}; everything it is given is a text"
        ) from error
