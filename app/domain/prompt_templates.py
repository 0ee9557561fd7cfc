"""The packaged prompt templates, by name; any of them can be replaced by a run.

Names and placeholders are OpenEvolve's, so that its custom templates work.  A text is filled by
`str.format`: a literal brace is doubled.  What never changes in a run stands first and what changes
with every prompt last, so that endpoints can reuse what they computed for a common beginning.
"""

from collections.abc import Mapping

SYSTEM_MESSAGE = (
    "You are an expert programmer improving a program by repeated, measured changes. Each version"
    " is run and scored; a higher fitness is better. Propose changes that raise the fitness of the"
    " current program."
)

_BLOCKS_NOTE = """\
Lines outside the EVOLVE-BLOCK-START and EVOLVE-BLOCK-END markers, where there are any, cannot be
changed; keep the markers. Keep the inputs and outputs of what is called from outside."""

_STATE = """\
# Other programs of this search
{evolution_history}
# The current program
- Fitness: {fitness_score}
- Metrics: {metrics}
- Features ({feature_dimensions}): {feature_coords}
- Focus: {improvement_areas}
{artifacts}
```{language}
{current_program}
```
"""

DIFF_USER = f"""\
# Task
Improve the current program below. Answer with one or more SEARCH/REPLACE blocks, each exactly so:

<<<<<<< SEARCH
lines of the current program, copied letter by letter
=======
the lines that take their place; none to delete them
>>>>>>> REPLACE

Each SEARCH section must be found in the current program, white space included, and be long enough
to be found once. The blocks are applied in order, all or none. Say in a sentence or two before the
blocks why the change should raise the fitness.
{_BLOCKS_NOTE}

{_STATE}"""

FULL_REWRITE_USER = f"""\
# Task
Write a better version of the current program below. Answer with the complete program in one fence:

```{{language}}
the whole program
```
{_BLOCKS_NOTE}

{_STATE}"""

EVOLUTION_HISTORY = "{previous_attempts}{top_programs}{inspirations_section}"

PREVIOUS_ATTEMPT = """\
### Attempt {attempt_number}
- Changes: {changes}
- Metrics: {performance}
- Outcome: {outcome}
"""

TOP_PROGRAM = """\
### Program {program_number} (fitness {score})
{key_features}
```{language}
{program_snippet}
```
"""

INSPIRATIONS_SECTION = """\
## Inspirations
{inspiration_programs}
"""

INSPIRATION_PROGRAM = """\
### Inspiration {program_number} (fitness {score}, {program_type})
{unique_features}
```{language}
{program_snippet}
```
"""

TEMPLATES: Mapping[str, str] = {
    "system_message": SYSTEM_MESSAGE,
    "diff_user": DIFF_USER,
    "full_rewrite_user": FULL_REWRITE_USER,
    "evolution_history": EVOLUTION_HISTORY,
    "previous_attempt": PREVIOUS_ATTEMPT,
    "top_program": TOP_PROGRAM,
    "inspirations_section": INSPIRATIONS_SECTION,
    "inspiration_program": INSPIRATION_PROGRAM,
}

PLACEHOLDERS: Mapping[str, frozenset[str]] = {
    "diff_user": frozenset(
        (
            *("metrics", "fitness_score", "feature_coords", "feature_dimensions"),
            *("improvement_areas", "evolution_history", "current_program", "language"),
            "artifacts",
        )
    ),
    "evolution_history": frozenset(("previous_attempts", "top_programs", "inspirations_section")),
    "previous_attempt": frozenset(("attempt_number", "changes", "performance", "outcome")),
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
"""What each template may refer to.  `full_rewrite_user` takes what `diff_user` takes."""
