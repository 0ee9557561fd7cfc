"""What can be set about prompts, read and checked once."""

import string
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from app.domain.prompting.templates import PLACEHOLDERS, TEMPLATES


@dataclass(frozen=True, slots=True)
class PromptRules:
    """How prompts are written.  Names and defaults are OpenEvolve's where it has them.

    Attributes:
      templates: Replacements of packaged templates, by name; and texts of one's own, which
        `system_message` may name.
      system_message: The system prompt, or the name of a template; "" takes the problem's
        instructions, and where those are empty too the packaged template.
      template_variations: For each `{key}` in a template, texts of which one is drawn a prompt.
      num_top_programs, num_diverse_programs: Most programs shown that are fitter than the parent,
        and most others.
      max_artifact_bytes: Characters kept of each artifact.
      artifact_security_filter: Whether what looks like a secret is taken out of artifacts.
      max_prompt_tokens: Longest prompt, system and user text together, by `tokens.estimated`; as
        far as leaving out what `prompt_parts.CUT_FIRST` names can keep to it.
      failure_messages: Whether the words of a failed trial are quoted, and what it printed.  They
        can hold what the program was tried on.
      suggest_simplification_after_chars: Source length from which brevity is suggested; None for
        never.
      include_changes_under_chars, concise_implementation_max_lines,
        comprehensive_implementation_min_lines: When an inspiration is labelled with its changes, as
        concise, as comprehensive; None for never.
      diff_summary_max_line_len, diff_summary_max_lines: Bounds of edits put into prose.
      functions_per_prompt: Versions of the function that `complete` shows, the parent's among them.
      function: The function that `complete` evolves; "" where the program says which.
    """

    templates: Mapping[str, str] = field(default_factory=dict)
    system_message: str = ""
    template_variations: Mapping[str, Any] = field(default_factory=dict)
    use_template_stochasticity: bool = True
    num_top_programs: int = 3
    num_diverse_programs: int = 2
    include_artifacts: bool = True
    max_artifact_bytes: int = 20_480
    artifact_security_filter: bool = True
    max_prompt_tokens: int = 32_000
    failure_messages: bool = False
    suggest_simplification_after_chars: int | None = 500
    include_changes_under_chars: int | None = 100
    concise_implementation_max_lines: int | None = 10
    comprehensive_implementation_min_lines: int | None = 50
    diff_summary_max_line_len: int = 100
    diff_summary_max_lines: int = 30
    functions_per_prompt: int = 2
    function: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> "PromptRules":
        """Reads the rules from a mapping that may hold other keys too.

        Raises:
          ValueError: A value has the wrong type, or a template refers to what it is not given.
        """
        chosen: dict[str, Any] = {}
        for one in fields(cls):
            if one.name in settings:
                chosen[one.name] = _checked(one.name, settings[one.name])
        rules = cls(**chosen)
        for name in rules.templates:  # the packaged ones are tested
            if name in TEMPLATES:
                _check_template(name, rules.template(name), frozenset(rules.template_variations))
        return rules

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of everything that can be set."""
        return tuple(one.name for one in fields(cls))

    def template(self, name: str) -> str:
        """Returns the text of a template.

        Raises:
          LookupError: There is none of that name.
        """
        return self.templates[name] if name in self.templates else TEMPLATES[name]

    def system(self, instructions: str) -> str:
        """Returns the system prompt of a problem with these instructions."""
        text = self.system_message or instructions or "system_message"
        return self.template(text) if text in self.templates or text in TEMPLATES else text


_TRUTHS = frozenset(
    (
        *("use_template_stochasticity", "include_artifacts", "artifact_security_filter"),
        "failure_messages",
    )
)
_NULLABLE = frozenset(
    (
        *("suggest_simplification_after_chars", "include_changes_under_chars"),
        *("concise_implementation_max_lines", "comprehensive_implementation_min_lines"),
    )
)


def _checked(name: str, value: object) -> object:
    match name:
        case "templates":
            right = isinstance(value, Mapping) and all(isinstance(v, str) for v in value.values())
            wanted = "a mapping of names to texts"
        case "template_variations":
            right = isinstance(value, Mapping) and all(
                isinstance(texts, list | tuple) and texts and all(isinstance(t, str) for t in texts)
                for texts in value.values()
            )
            wanted = "a mapping of names to lists of texts, none of them empty"
        case "system_message" | "function":
            right, wanted = isinstance(value, str), "a text"
        case _ if name in _TRUTHS:
            right, wanted = isinstance(value, bool), "true or false"
        case _ if name in _NULLABLE and value is None:
            right, wanted = True, ""
        case _:
            right = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            wanted = "a whole number, not negative"
    if not right:
        raise ValueError(f"prompts.{name} must be {wanted}, and is {value!r}")
    return value


def _check_template(name: str, text: str, variations: frozenset[str]) -> None:
    if name == "system_message":
        return  # taken as it is, braces included
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
