"""Templates: the packaged texts of prompts, by name.  A run can replace each of them.

Names and placeholders are OpenEvolve's where it has them, so that its custom templates work.  A
text is filled by `str.format`: a literal brace is doubled.  Endpoints reuse the computation for a
common beginning of prompts.  So the texts stand in the order in which they change least: texts that
are equal in all prompts of a run, the fittest programs, the parent with its data, and what is drawn
for one prompt.
"""

from collections.abc import Mapping

from app.domain.prompting.filling import Template, named_in
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.sections import EVOLUTION_HISTORY, SECTIONS, STATE

_USER = frozenset(
    (
        *("metrics", "fitness_score", "feature_coords", "feature_dimensions"),
        *("improvement_areas", "evolution_history", "current_program", "language", "left_out"),
        *(section.name for section in SECTIONS),
    )
)
"""The placeholders of a prompt that shows the sections."""

SYSTEM_MESSAGE = Template(
    "system_message",
    "You are an expert programmer improving a program by repeated, measured changes. Each version"
    " is run and scored; a higher fitness is better. Propose changes that raise the fitness of the"
    " current program.",
)

_BLOCKS_NOTE = """\
Change only lines between EVOLVE-BLOCK-START and EVOLVE-BLOCK-END, if the program has these markers,
and keep the markers. Keep the names and parameters of functions that other code calls.
"""

_DIFFERENT = """\
{improvement_areas} The new version must not compute the same as the current program, or as a change
that was tried.
"""

DIFF_USER = Template(
    "diff_user",
    f"""\
{STATE}Change the current program so that it gets a higher score. {_DIFFERENT}{_BLOCKS_NOTE}
Say in one sentence what you change. Then answer with one or more blocks of this form:

<<<<<<< SEARCH
the lines of the current program to replace, copied exactly
=======
the new lines
>>>>>>> REPLACE
""",
    also=_USER,
)

FULL_REWRITE_USER = Template(
    "full_rewrite_user",
    f"""\
{STATE}Write a better version of the current program, one with a higher score. {_DIFFERENT}\
{_BLOCKS_NOTE}
Answer with the complete new program in one ```{{language}} block, and nothing else.
""",
    also=_USER,
)

SCRATCH_USER = Template(
    "scratch_user",
    f"""\
# The current program, which shows what a program of this problem looks like
```{{language}}
{{current_program}}
```
- Score: {{fitness_score}} (higher is better)
- Metrics: {{metrics}}
{{artifacts}}{{previous_attempts}}{{failures}}{{left_out}}
# Task
Write a program for this problem from scratch, with an approach of your own. The current program
shows the form that is needed; do not take over how it solves the problem, and do not take an
approach that was tried. {_BLOCKS_NOTE}
Answer with the complete new program in one ```{{language}} block, and nothing else.
""",
    also=_USER,
)

REFINE_USER = Template(
    "refine_user",
    f"""\
{STATE}The current program is one of the fittest of this search. Refine it: keep its idea, and find
where it still loses score. Go through its steps, constants, ties and special cases, decide which
change would gain most, and carry that change out with care. {_DIFFERENT}{_BLOCKS_NOTE}
Answer with the complete new program in one ```{{language}} block, and nothing else.
""",
    also=_USER,
)

FUNCTION_USER = Template(
    "function_user",
    f"""\
{STATE}Write a better version of `{{function}}` of the current program, so that the program gets a
higher score. Keep its name and its parameters, and return the same kind of value. {_DIFFERENT}
Answer with the complete new `{{function}}` in one ```{{language}} block, and nothing else.
""",
    also=_USER,
)

MEND_USER = Template(
    "mend_user",
    f"""\
# The current program, which failed
```{{language}}
{{failed_program}}
```
{{failures}}{{left_out}}
# Task
The current program failed when it was run, so that it has no score. Fix the error, and keep the
idea of the program. {_BLOCKS_NOTE}
Answer with one or more blocks of this form:

<<<<<<< SEARCH
the lines of the current program to replace, copied exactly
=======
the new lines
>>>>>>> REPLACE
""",
)

MEND_FUNCTION_USER = Template(
    "mend_function_user",
    """\
# The current program, which failed
```{language}
{failed_program}
```
{failures}{left_out}
# Task
The current program failed when it was run, so that it has no score. Write `{function}` without the
error, and keep the idea of the program. Keep its name and its parameters.
Answer with the complete `{function}` in one ```{language} block, and nothing else.
""",
)

AGENT_USER = Template(
    "agent_user",
    """\
# The program
Its files are in this folder. These may change:
{files}
Score of the current version: {fitness_score} (higher is better)
Metrics: {metrics}
{artifacts}{ancestry}{previous_attempts}{failures}{left_out}
# Task
Change the files so that the program gets a higher score. The new version must not compute the same
as the current one, or as a change that was tried.
"""
    + _BLOCKS_NOTE
    + """\
Leave the changed files in this folder, and do not commit them.
""",
)

STRATEGIST_USER = Template(
    "strategist_user",
    """\
# Task
Propose {count} direction(s) in which the current program below could be improved. They must differ
from each other and from what was tried, unless that paid; another programmer follows each of them
on its own. Answer with a numbered list and nothing else, one line a direction, each exactly so:

1. category in one or two words: what to try, and why it should raise the fitness

# The fittest other programs of this search
{top_programs}
# The current program
```{language}
{current_program}
```
- Fitness: {fitness_score}
- Metrics: {metrics}
{artifacts}
# Directions that were tried, newest first
{tried}{left_out}""",
    also=_USER,
)

DIRECTION_USER = Template(
    "direction_user",
    """\

# The direction
Improve the program in this direction, and in no other: {direction}
""",
)

CRITIQUE_USER = Template(
    "critique_user",
    """\
# Task
Find what is wrong with the program below before it is run: faults that would make it fail, cases
that it handles badly, and where it does not follow the direction that was given. Answer in a few
sentences that say what to change. Where nothing is to be changed, answer only: NO FAULT

# The direction
{direction}

# The current program
```{language}
{current_program}
```
{left_out}""",
)

FIX_USER = Template(
    "fix_user",
    f"""\
# Task
Write the current program below anew without what its critique finds wrong. Keep what the program
tries. Answer with the complete program in one fence:

```{{language}}
the whole program
```
{_BLOCKS_NOTE}

# The direction
{{direction}}

# The current program
```{{language}}
{{current_program}}
```
# Its critique
{{critique}}
{{left_out}}""",
)

COMPLETE_USER = Template(
    "complete_user",
    """\
# Task
The file below holds versions of the function `{function}`, each with a higher score than the one
before it. Complete the last, which has no body yet, so that it scores higher still. Keep its name
and its parameters; it may use what the file imports, but call no earlier version. Answer with the
finished function in one fence, and with nothing beside it.

```{language}
{versions}
```
{failures}{left_out}""",
)

REPAIR_USER = Template(
    "repair_user",
    """\

# Your first answer
~~~~~~
{reply}
~~~~~~

This answer could not be used ({failure}): {detail}

Do the task again and correct this. Give the complete answer, in the form that the task asks for.
""",
)

AGAIN_USER = Template(
    "again_user",
    """\

An earlier answer made nothing new. Write one that differs in how it computes. Try this:
{direction}
""",
)

EVALUATION = Template(
    "evaluation",
    """\
Judge the program below by reading it. What it measured: {metrics}.

```{language}
{current_program}
```

Answer with one JSON object and nothing else. Give `readability`, `maintainability` and `efficiency`
as numbers from 0.0 (worst) to 1.0 (best), and `reasoning`, a text of a few sentences that says what
would improve the program most:

{{"readability": 0.0, "maintainability": 0.0, "efficiency": 0.0, "reasoning": "..."}}
""",
)

TEMPLATES: Mapping[str, Template] = {
    template.name: template
    for template in (
        *(SYSTEM_MESSAGE, DIFF_USER, FULL_REWRITE_USER, SCRATCH_USER, REFINE_USER, FUNCTION_USER),
        *(COMPLETE_USER, MEND_USER, MEND_FUNCTION_USER, STRATEGIST_USER, DIRECTION_USER),
        *(CRITIQUE_USER, FIX_USER, REPAIR_USER, AGAIN_USER, AGENT_USER, EVALUATION),
        EVOLUTION_HISTORY,
        *(template for section in SECTIONS for template in section.templates),
    )
}
"""Every packaged template by its name."""


def system_text(rules: PromptRules, instructions: str) -> str:
    """Returns the system text for a problem with these instructions."""
    text = rules.system_message or instructions or SYSTEM_MESSAGE.name
    if text in rules.templates:
        return rules.templates[text]
    return TEMPLATES[text].text if text in TEMPLATES else text


def check_templates(rules: PromptRules) -> None:
    """Checks that each replaced template refers only to its placeholders.

    Raises:
      ValueError: A template refers to an unknown name, or cannot be filled.
    """
    # Tests check the packaged templates.
    for name, text in rules.templates.items():
        # The system message is not filled, so that its braces are literal.
        if name in TEMPLATES and name != SYSTEM_MESSAGE.name:
            allowed = TEMPLATES[name].placeholders | frozenset(rules.template_variations)
            _check_template(name, text, allowed)


def _check_template(name: str, text: str, allowed: frozenset[str]) -> None:
    try:
        unknown = named_in(text) - allowed
    except ValueError as error:
        raise ValueError(f"template {name!r}: {error}; double a brace that is meant") from error
    if unknown:
        listed = ", ".join(sorted("{" + key + "}" for key in unknown))
        raise ValueError(
            f"template {name!r} refers to {listed}; it is given {', '.join(sorted(allowed))}."
            " A literal brace is doubled"
        )
    try:
        text.format(**dict.fromkeys(allowed, ""))
    except (ValueError, LookupError) as error:
        raise ValueError(
            f"template {name!r} cannot be filled: {error}; everything it is given is a text"
        ) from error
