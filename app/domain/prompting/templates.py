"""Templates: the packaged texts of prompts, by name.  A run can replace each of them.

Names and placeholders are OpenEvolve's where it has them, so that its custom templates work.  A
text is filled by `str.format`: a literal brace is doubled.  Endpoints reuse the computation for a
common beginning of prompts.  So the texts stand in the order in which they change least: texts that
are equal in all prompts of a run, the fittest programs, the parent with its data, and what is drawn
for one prompt.
"""

from collections.abc import Mapping

SYSTEM_MESSAGE = (
    "You are an expert programmer improving a program by repeated, measured changes. Each version"
    " is run and scored; a higher fitness is better. Propose changes that raise the fitness of the"
    " current program."
)

_BLOCKS_NOTE = """\
Change only lines between EVOLVE-BLOCK-START and EVOLVE-BLOCK-END, if the program has these markers,
and keep the markers. Keep the names and parameters of functions that other code calls.
"""

_STATE = """\
# Other programs, best first
{top_programs}
# The current program
```{language}
{current_program}
```
- Score: {fitness_score} (higher is better)
- Metrics: {metrics}
{artifacts}{ancestry}{inspirations_section}{previous_attempts}{failures}{left_out}
# Task
"""

_DIFFERENT = """\
{improvement_areas} The new version must not compute the same as the current program, or as a change
that was tried.
"""

DIFF_USER = f"""\
{_STATE}Change the current program so that it gets a higher score. {_DIFFERENT}{_BLOCKS_NOTE}
Say in one sentence what you change. Then answer with one or more blocks of this form:

<<<<<<< SEARCH
the lines of the current program to replace, copied exactly
=======
the new lines
>>>>>>> REPLACE
"""

FULL_REWRITE_USER = f"""\
{_STATE}Write a better version of the current program, one with a higher score. {_DIFFERENT}\
{_BLOCKS_NOTE}
Answer with the complete new program in one ```{{language}} block, and nothing else.
"""

SCRATCH_USER = f"""\
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
"""

REFINE_USER = f"""\
{_STATE}The current program is one of the fittest of this search. Refine it: keep its idea, and find
where it still loses score. Go through its steps, constants, ties and special cases, decide which
change would gain most, and carry that change out with care. {_DIFFERENT}{_BLOCKS_NOTE}
Answer with the complete new program in one ```{{language}} block, and nothing else.
"""

FUNCTION_USER = f"""\
{_STATE}Write a better version of `{{function}}` of the current program, so that the program gets a
higher score. Keep its name and its parameters, and return the same kind of value. {_DIFFERENT}
Answer with the complete new `{{function}}` in one ```{{language}} block, and nothing else.
"""

MEND_USER = f"""\
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
"""

MEND_FUNCTION_USER = """\
# The current program, which failed
```{language}
{failed_program}
```
{failures}{left_out}
# Task
The current program failed when it was run, so that it has no score. Write `{function}` without the
error, and keep the idea of the program. Keep its name and its parameters.
Answer with the complete `{function}` in one ```{language} block, and nothing else.
"""

STRATEGIST_USER = """\
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
{tried}{left_out}"""

DIRECTION_USER = """\

# The direction
Improve the program in this direction, and in no other: {direction}
"""

CRITIQUE_USER = """\
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
{left_out}"""

FIX_USER = f"""\
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
{{left_out}}"""

COMPLETE_USER = """\
# Task
The file below holds versions of the function `{function}`, each with a higher score than the one
before it. Complete the last, which has no body yet, so that it scores higher still. Keep its name
and its parameters; it may use what the file imports, but call no earlier version. Answer with the
finished function in one fence, and with nothing beside it.

```{language}
{versions}
```
{failures}{left_out}"""

REPAIR_USER = """\

# Your first answer
~~~~~~
{reply}
~~~~~~

This answer could not be used ({failure}): {detail}

Do the task again and correct this. Give the complete answer, in the form that the task asks for.
"""

AGAIN_USER = """\

An earlier answer made nothing new. Write one that differs in how it computes. Try this:
{direction}
"""

EVOLUTION_HISTORY = "{ancestry}{previous_attempts}{failures}{top_programs}{inspirations_section}"

PREVIOUS_ATTEMPT = """\
{attempt_number}. {changes}
   Result: {outcome}
"""

ANCESTOR = """\
- Score {score}: {changes}
"""

FAILED_ATTEMPT = """\
{number}. {changes}
   Failed ({failure}): {detail}
"""

TOP_PROGRAM = """\
### Program {program_number}, score {score}
```{language}
{program_snippet}
```
"""

INSPIRATIONS_SECTION = """\
## Programs of other kinds
{inspiration_programs}"""

INSPIRATION_PROGRAM = """\
### Program {program_number} {program_type}, score {score}
{unique_features}
```{language}
{program_snippet}
```
"""

EVALUATION = """\
Judge the program below by reading it. What it measured: {metrics}.

```{language}
{current_program}
```

Answer with one JSON object and nothing else. Give `readability`, `maintainability` and `efficiency`
as numbers from 0.0 (worst) to 1.0 (best), and `reasoning`, a text of a few sentences that says what
would improve the program most:

{{"readability": 0.0, "maintainability": 0.0, "efficiency": 0.0, "reasoning": "..."}}
"""

TEMPLATES: Mapping[str, str] = {
    "system_message": SYSTEM_MESSAGE,
    "diff_user": DIFF_USER,
    "full_rewrite_user": FULL_REWRITE_USER,
    "scratch_user": SCRATCH_USER,
    "refine_user": REFINE_USER,
    "function_user": FUNCTION_USER,
    "complete_user": COMPLETE_USER,
    "mend_user": MEND_USER,
    "mend_function_user": MEND_FUNCTION_USER,
    "strategist_user": STRATEGIST_USER,
    "direction_user": DIRECTION_USER,
    "critique_user": CRITIQUE_USER,
    "fix_user": FIX_USER,
    "repair_user": REPAIR_USER,
    "again_user": AGAIN_USER,
    "evaluation": EVALUATION,
    "evolution_history": EVOLUTION_HISTORY,
    "previous_attempt": PREVIOUS_ATTEMPT,
    "ancestor": ANCESTOR,
    "failed_attempt": FAILED_ATTEMPT,
    "top_program": TOP_PROGRAM,
    "inspirations_section": INSPIRATIONS_SECTION,
    "inspiration_program": INSPIRATION_PROGRAM,
}

_HISTORY = frozenset(
    ("previous_attempts", "top_programs", "inspirations_section", "ancestry", "failures")
)
_USER = _HISTORY | frozenset(
    (
        *("metrics", "fitness_score", "feature_coords", "feature_dimensions"),
        *("improvement_areas", "evolution_history", "current_program", "language"),
        *("artifacts", "left_out"),
    )
)
PLACEHOLDERS: Mapping[str, frozenset[str]] = {
    "diff_user": _USER,
    "full_rewrite_user": _USER,
    "scratch_user": _USER,
    "refine_user": _USER,
    "function_user": _USER | {"function"},
    "complete_user": frozenset(("language", "versions", "function", "failures", "left_out")),
    "mend_user": frozenset(("language", "failed_program", "failures", "left_out")),
    "mend_function_user": frozenset(
        ("language", "failed_program", "failures", "function", "left_out")
    ),
    "strategist_user": _USER | {"count", "tried"},
    "direction_user": frozenset(("direction",)),
    "critique_user": frozenset(("language", "current_program", "direction", "left_out")),
    "fix_user": frozenset(("language", "current_program", "direction", "critique", "left_out")),
    "again_user": frozenset(("direction",)),
    "repair_user": frozenset(("reply", "failure", "detail")),
    "evaluation": frozenset(("current_program", "language", "metrics")),
    "evolution_history": _HISTORY,
    "previous_attempt": frozenset(("attempt_number", "changes", "performance", "outcome")),
    "ancestor": frozenset(("score", "changes", "performance")),
    "failed_attempt": frozenset(("number", "failure", "changes", "detail")),
    "top_program": frozenset(
        ("program_number", "score", "language", "program_snippet", "key_features")
    ),
    "inspirations_section": frozenset(("inspiration_programs",)),
    "inspiration_program": frozenset(
        (
            *("program_number", "score", "program_type", "language", "program_snippet"),
            "unique_features",
        )
    ),
}
"""The placeholders that each template may contain."""
