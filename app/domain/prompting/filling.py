"""Filling: packaged texts with placeholders, which a run may replace, and how they are filled."""

import string
from dataclasses import dataclass
from random import Random

from app.domain.prompting.rules import PromptRules


@dataclass(frozen=True, slots=True)
class Template:
    """A packaged text, which a run may replace by its name.

    Attributes:
      text: It is filled by `str.format`: a literal brace is doubled.
      also: Placeholders that a replacement may contain beside those of `text`.
    """

    name: str
    text: str
    also: frozenset[str] = frozenset()

    @property
    def placeholders(self) -> frozenset[str]:
        """The placeholders that the text or its replacement may contain."""
        return named_in(self.text) | self.also

    def current(self, rules: PromptRules) -> str:
        """Returns the text of a run with these rules."""
        return rules.templates.get(self.name, self.text)


@dataclass(frozen=True, slots=True)
class Filler:
    """Fills a run's templates; each prompt has its own, because variations are drawn in order."""

    rules: PromptRules
    rng: Random
    language: str

    def fill(self, template: Template, **values: str) -> str:
        """Returns a template's text with these values and a drawn text for every variation."""
        varied = {
            key: self.rng.choice(texts) if self.rules.use_template_stochasticity else texts[0]
            for key, texts in sorted(self.rules.template_variations.items())
        }
        return template.current(self.rules).format(**{**varied, **values})


def named_in(text: str) -> frozenset[str]:
    """Returns the names of the placeholders in a text.

    Raises:
      ValueError: A brace is neither doubled nor part of a placeholder.
    """
    return frozenset(key for _, key, _, _ in string.Formatter().parse(text) if key is not None)
