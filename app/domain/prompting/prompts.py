"""Prompts: what a model is told of a draft, from templates and within a budget of tokens.

Texts stand in the order in which they change least, see `prompt_templates`; nothing that is new in
every prompt, such as a number or a time, stands above what is not.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from app.domain.evaluation import Failure
from app.domain.operator import Brief, Completion, Draft, ProgramRecord, Prompt
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.sections import Shown, TemplateFiller, focus, numbers, rank, score, shown
from app.domain.prompting.tokens import fits
from app.domain.replies.reply_text import without_thoughts
from app.domain.source.functions import versions

_QUOTED_SHARE = 5  # a repair quotes the reply up to a fifth of the prompt: budgets expect a quarter
_QUOTED_CHARS = 2_000  # and this much in any case that has room for it
_QUOTED_CHARS_AT_LEAST = 500  # with less of it, nobody knows what is to be repaired

Write = Callable[[Shown, TemplateFiller], str]
"""Makes the user text from what is shown."""


def diff_prompt(brief: Brief, draft: Draft) -> Prompt:
    """Returns the prompt that asks for SEARCH/REPLACE blocks."""
    return within_budget(brief, draft, lambda parts, scribe: _user("diff_user", parts, scribe))


def rewrite_prompt(brief: Brief, draft: Draft) -> Prompt:
    """Returns the prompt that asks for the whole program."""
    return within_budget(
        brief, draft, lambda parts, scribe: _user("full_rewrite_user", parts, scribe)
    )


def complete_prompt(
    brief: Brief, draft: Draft, name: str, programs: Sequence[ProgramRecord]
) -> Prompt:
    """Returns the prompt that asks for the next version of a function.

    Args:
      brief: The cohort's.
      draft: Whose child is asked for.
      name: The function.
      programs: Whose versions are shown, the parent's among them; the first is cut first.
    """
    rules = brief.prompts
    full = shown(brief, draft, rules)
    parent = full.parent
    others = tuple(one for one in programs if one.program != parent.program)
    parts = Shown(parent, top=others, failures=full.failures)

    def write(parts: Shown, scribe: TemplateFiller) -> str:
        ranked = sorted((parent, *parts.top), key=rank)
        values = {
            "language": scribe.language,
            "function": name,
            "versions": versions(parent.program, [one.program for one in ranked], name).rstrip(
                "\n"
            ),
            "failures": scribe.failures(parts.failures),
            "left_out": left_out(parts),
        }
        return scribe.filled("complete_user", values)

    return within_budget(brief, draft, write, parts)


def repair_prompt(
    brief: Brief, asked: Prompt, reply: Completion, failure: Failure
) -> Prompt | None:
    """Returns the prompt that asks again: the first one, then the reply and what was wrong.

    The first one stands unchanged at the beginning, so that endpoints need not read it again.
    None where the budget of tokens has no room for more.
    """
    rules = brief.prompts
    for most in (max(_QUOTED_CHARS, len(asked.user) // _QUOTED_SHARE), _QUOTED_CHARS_AT_LEAST):
        quoted = _quoted(reply, most)
        values = {"reply": quoted, "failure": failure.kind.value, "detail": failure.detail}
        scribe = _scribe(brief, rules, f"repair/{asked.sample}")
        user = asked.user + scribe.filled("repair_user", values)
        if fits(asked.system + user, rules.max_prompt_tokens):
            return replace(asked, user=user)
    return None


def _quoted(reply: Completion, most: int) -> str:
    """Returns a reply's head and tail, of about `most` characters together."""
    text = without_thoughts(reply.text).strip() or "(nothing but reasoning)"
    return text if len(text) <= most else f"{text[: most // 2]}\n[...]\n{text[-most // 2 :]}"


def within_budget(brief: Brief, draft: Draft, write: Write, parts: Shown | None = None) -> Prompt:
    """Returns a draft's prompt, without as many of its least useful parts as it takes.

    Where nothing is left to cut, the prompt stays too long: the program itself is never cut.

    Args:
      brief: The cohort's.
      draft: Whose prompt it is.
      write: Makes the user text.
      parts: What is shown; None: everything the brief has.
    """
    rules = brief.prompts
    system = rules.system(brief.instructions)
    parts = shown(brief, draft, rules) if parts is None else parts
    while True:
        user = write(parts, _scribe(brief, rules, f"prompt/{draft.ordinal}"))
        shorter = None if fits(system + user, rules.max_prompt_tokens) else parts.shorter()
        if shorter is None:
            return Prompt(system, user, draft.ordinal, left_out=parts.left_out)
        parts = shorter


def left_out(parts: Shown) -> str:
    """Returns what a prompt says of what was cut; "" where nothing was."""
    if not parts.left_out:
        return ""
    counts = Counter(name.split(" ")[0] for name in parts.left_out)
    told = ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts.items())
    return f"(Left out to keep this short: {told}.)\n"


def _scribe(brief: Brief, rules: PromptRules, purpose: str) -> TemplateFiller:
    return TemplateFiller(rules, brief.rng(purpose), brief.language)


def _user(name: str, parts: Shown, scribe: TemplateFiller) -> str:
    parent, rules = parts.parent, scribe.rules
    history = {
        "top_programs": scribe.top(parts.top),
        "inspirations_section": scribe.inspirations(parts.others),
        "previous_attempts": scribe.attempts(parts.attempts, parent),
        "ancestry": scribe.ancestry(parent, parts.ancestors),
        "failures": scribe.failures(parts.failures),
    }
    values = history | {
        "metrics": numbers(parent.metrics) or "none",
        "fitness_score": score(parent),
        "feature_coords": numbers(parent.features) or "none",
        "feature_dimensions": ", ".join(parent.features) or "none",
        "improvement_areas": focus(parts, rules),
        "evolution_history": _evolution_history(name, history, parts, scribe),
        "current_program": parent.program.source.rstrip("\n"),
        "language": scribe.language,
        "artifacts": scribe.artifacts(parts.artifacts),
        "left_out": left_out(parts),
    }
    values["top_programs"] = values["top_programs"] or "None yet.\n"
    return scribe.filled(name, values)


def _evolution_history(
    name: str, history: dict[str, str], parts: Shown, scribe: TemplateFiller
) -> str:
    """Returns OpenEvolve's one placeholder for all of this, where the template asks for it."""
    if "{evolution_history}" not in scribe.rules.template(name):
        return ""
    text = scribe.filled("evolution_history", history) or "None yet.\n"
    return f"{text}\n{left_out(parts)}" if parts.left_out else text
