"""Prompts: what a model is told of a draft, from templates and within a bound."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

from app.domain.operator import Brief, Draft, Known, Prompt
from app.domain.prompt_rules import PromptRules

ATTEMPTS = 3
"""Children of the parent that are shown, newest first."""

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[@-_]")
_LONG_TOKEN = re.compile(r"[A-Za-z0-9]{32,}")
_ASSIGNED = re.compile(r"(?i)\b(password|passwd|token|secret|api[_-]?key)(\s*[=:]\s*)\S+")
_KEY = re.compile(r"\b(?:sk|pk|ghp|xox[bp])[-_][A-Za-z0-9_-]{8,}")


@dataclass(frozen=True, slots=True)
class _Shown:
    """What of a brief goes into one prompt, before it is cut to length."""

    parent: Known
    attempts: tuple[Known, ...]
    top: tuple[Known, ...]
    others: tuple[Known, ...]
    artifacts: Mapping[str, str]
    left_out: int = 0


def diff_prompt(brief: Brief, draft: Draft) -> Prompt:
    """Returns the prompt that asks for SEARCH/REPLACE blocks."""
    return _prompt("diff_user", brief, draft)


def rewrite_prompt(brief: Brief, draft: Draft) -> Prompt:
    """Returns the prompt that asks for the whole program."""
    return _prompt("full_rewrite_user", brief, draft)


def _prompt(name: str, brief: Brief, draft: Draft) -> Prompt:
    rules = PromptRules.of(brief.prompts)
    shown: _Shown | None = _shown(brief, draft, rules)
    user = ""
    while shown is not None:
        user = _user_text(name, brief, shown, rules, brief.rng(f"prompt/{draft.ordinal}"))
        shown = _shorter(shown) if len(user) > rules.max_prompt_chars else None
    return Prompt(rules.system(brief.instructions), user, sample=draft.ordinal)


def _shown(brief: Brief, draft: Draft, rules: PromptRules) -> _Shown:
    parent = brief.known[draft.parents[0]]
    beside = dict.fromkeys((*draft.parents[1:], *draft.inspirations))
    beside.pop(draft.parents[0], None)
    ranked = sorted((brief.known[one] for one in beside), key=_rank, reverse=True)
    top = [known for known in ranked if _rank(known) > _rank(parent)]
    others = [known for known in ranked if _rank(known) <= _rank(parent)]
    return _Shown(
        parent,
        brief.siblings[:ATTEMPTS] if draft.parents[0] == brief.drafts[0].parents[0] else (),
        tuple(top[: rules.num_top_programs]),
        tuple(others[: rules.num_diverse_programs]),
        parent.artifacts if rules.include_artifacts else {},
    )


def _shorter(shown: _Shown) -> _Shown | None:
    """Returns the same without its least useful part; None where only the parent is left."""
    out = shown.left_out + 1
    if shown.others:
        return replace(shown, others=shown.others[:-1], left_out=out)
    if shown.top:
        return replace(shown, top=shown.top[:-1], left_out=out)
    if shown.attempts:
        return replace(shown, attempts=shown.attempts[:-1], left_out=out)
    if shown.artifacts:
        longest = max(shown.artifacts, key=lambda name: len(shown.artifacts[name]))
        kept = {name: text for name, text in shown.artifacts.items() if name != longest}
        return replace(shown, artifacts=kept, left_out=out)
    return None


def _user_text(name: str, brief: Brief, shown: _Shown, rules: PromptRules, rng: Random) -> str:
    parent = shown.parent
    values = {
        "metrics": _numbers(parent.metrics) or "none",
        "fitness_score": _score(parent),
        "feature_coords": _numbers(parent.features) or "none",
        "feature_dimensions": ", ".join(parent.features) or "none",
        "improvement_areas": _focus(shown, rules),
        "evolution_history": _history(shown, brief.language, rules, rng),
        "current_program": parent.program.source.rstrip("\n"),
        "language": brief.language,
        "artifacts": _artifacts(shown.artifacts, rules),
    }
    return _filled(name, values, rules, rng)


def _history(shown: _Shown, language: str, rules: PromptRules, rng: Random) -> str:
    attempts = "".join(
        _filled(
            "previous_attempt",
            {
                "attempt_number": str(number),
                "changes": known.changes or "unknown",
                "performance": _numbers(known.metrics) or _score(known),
                "outcome": _outcome(known, shown.parent),
            },
            rules,
            rng,
        )
        for number, known in enumerate(shown.attempts, 1)
    )
    top = "".join(
        _filled("top_program", _program(known, language, number, "key_features"), rules, rng)
        for number, known in enumerate(shown.top, 1)
    )
    others = "".join(
        _filled(
            "inspiration_program",
            _program(known, language, number, "unique_features")
            | {"program_type": "of another niche"},
            rules,
            rng,
        )
        for number, known in enumerate(shown.others, 1)
    )
    text = _filled(
        "evolution_history",
        {
            "previous_attempts": f"## Attempts from the current program\n{attempts}"
            if attempts
            else "",
            "top_programs": f"## Top performing programs\n{top}" if top else "",
            "inspirations_section": _filled(
                "inspirations_section", {"inspiration_programs": others}, rules, rng
            )
            if others
            else "",
        },
        rules,
        rng,
    )
    if shown.left_out:
        text += f"\n({shown.left_out} parts were left out to keep this short.)\n"
    return text or "None yet.\n"


def _program(known: Known, language: str, number: int, features: str) -> dict[str, str]:
    described = [f"Features: {_numbers(known.features)}"] if known.features else []
    described += [f"Metrics: {_numbers(known.metrics)}"] if known.metrics else []
    return {
        "program_number": str(number),
        "score": _score(known),
        "language": language,
        "program_snippet": known.program.source.rstrip("\n"),
        features: "\n".join(described),
    }


def _filled(name: str, values: Mapping[str, str], rules: PromptRules, rng: Random) -> str:
    varied = {
        key: rng.choice(texts) if rules.use_template_stochasticity else texts[0]
        for key, texts in sorted(rules.template_variations.items())
    }
    return rules.template(name).format(**{**varied, **values})


def _focus(shown: _Shown, rules: PromptRules) -> str:
    parent, limit = shown.parent, rules.suggest_simplification_after_chars
    parts = []
    if parent.fitness is None:
        parts.append("the program has no fitness yet: make it run to the end.")
    elif shown.top:
        parts.append(f"a fitness of {_score(shown.top[0])} is known to be possible.")
    else:
        parts.append("no better program is known here: find what none of these tries.")
    if limit is not None and len(parent.program.source) > limit:
        parts.append("Consider simplifying the program.")
    return " ".join(parts)


def _outcome(child: Known, parent: Known) -> str:
    if child.fitness is None or parent.fitness is None:
        return "not comparable"
    if child.fitness == parent.fitness:
        return "no difference in fitness"
    change = f"{parent.fitness:.6g} to {child.fitness:.6g}"
    return f"{'better' if child.fitness > parent.fitness else 'worse'}: fitness {change}"


def _artifacts(artifacts: Mapping[str, str], rules: PromptRules) -> str:
    if not artifacts:
        return ""
    parts = ["\n## Last execution output"]
    for name, value in artifacts.items():
        text = redacted(value) if rules.artifact_security_filter else value
        if len(text) > rules.max_artifact_bytes:
            text = text[: rules.max_artifact_bytes] + "\n... (cut)"
        parts.append(f"### {name}\n```\n{text}\n```")
    return "\n".join(parts) + "\n"


def redacted(text: str) -> str:
    """Returns a text without terminal codes and without what looks like a secret.

    Source: OpenEvolve 0.4.0's artifact filter; common API key forms are added.
    """
    text = _ANSI.sub("", text)
    text = _KEY.sub("<REDACTED_KEY>", text)
    text = _ASSIGNED.sub(r"\1\2<REDACTED>", text)
    return _LONG_TOKEN.sub("<REDACTED_TOKEN>", text)


def _rank(known: Known) -> float:
    return float("-inf") if known.fitness is None else known.fitness


def _score(known: Known) -> str:
    return "none" if known.fitness is None else f"{known.fitness:.6g}"


def _numbers(values: Mapping[str, float] | Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in dict(values).items())
