"""Rules of a search: the section `search` of a run's settings."""

from dataclasses import dataclass
from typing import Annotated

from app.domain.setting import BY_MEASUREMENTS, BY_THE_RECIPE, LARGEST_INTEGER, Fixed, bounded


@dataclass(frozen=True, slots=True)
class SearchRules:
    """How a run searches.  Names and defaults are OpenEvolve's where it has them."""

    strategy: Annotated[str, BY_THE_RECIPE] = "map_elites"
    """Name of the recipe."""
    seed: Annotated[int, Fixed("every random draw of the run comes from it")] = bounded(
        42, ge=0, le=LARGEST_INTEGER
    )
    """Seed of every random draw of the run."""
    islands: Annotated[int | None, Fixed("the programs of the run live on its islands")] = bounded(
        None, ge=1, le=1000
    )
    """Number of islands, sub-populations that evolve separately. Without a value, one for each 500
    proposals of the budget, from 1 to 5; 1 without migration or resets."""
    migration_interval: Annotated[int, BY_THE_RECIPE] = bounded(10, ge=1)
    """Cohorts an island closes between two migrations."""
    migration_rate: Annotated[float, BY_THE_RECIPE] = bounded(0.1, ge=0, le=1)
    """Share of an island's cells whose elites migrate."""
    exploration_ratio: Annotated[float, BY_THE_RECIPE] = bounded(0.05, ge=0, le=1)
    """Share of parents that are drawn from all cells of an island, equally likely."""
    exploitation_ratio: Annotated[float, BY_THE_RECIPE] = bounded(0.95, ge=0, le=1)
    """Share of parents that exploitation chooses (`search.archive_size`); the others are drawn by
    rank."""
    archive_size: Annotated[int | None, BY_THE_RECIPE] = bounded(None, ge=1)
    """Number of fittest elites of all islands that exploitation draws parents from, equally likely.
    Without a value, `strategy.patience` chooses among the fittest."""
    top_programs: int = bounded(3, ge=0)
    """Number of fittest programs that a prompt contains."""
    inspirations: int = bounded(2, ge=0)
    """Number of other random programs that a prompt contains."""
    operators: dict[str, float] | None = None
    """Operators and their weights, 0 or more. Without a value, a [mix](operators.md#which-mix) that
    suits the run."""
    samples: int = bounded(1, ge=1, le=64)
    """Children that one prompt asks for, from the same parents. An endpoint that takes `n` reads
    the prompt once."""
    learn_forms: Annotated[
        bool | None,
        Fixed("the weights of a run's operators are learnt, or not, from its beginning"),
    ] = None
    """Whether the weights of `diff`, `rewrite`, `function` and `complete` are
    [learnt](operators.md#the-form-that-a-model-can-answer). Without a value, they are unless
    `search.operators` is set by hand or the run is reproducible."""
    enforce_blocks: Annotated[
        bool | None, Fixed("it decides which part of a program may change")
    ] = None
    """Whether text outside EVOLVE-BLOCK regions stays. Without a value, the problem decides."""
    gates: Annotated[
        list[float | str] | None, Fixed("what was measured so far went through the present gates")
    ] = None
    """[Gates](recipes.md#gates) between the stages, in order: a fitness, `quantile Q of N` or `top
    K of N`. Without a value, the problem decides."""
    measurements: Annotated[int, BY_MEASUREMENTS] = bounded(1, ge=1)
    """Most measurements of a program at the last stage, for an evaluator with
    [noise](recipes.md#noise)."""
    validate_best: int = bounded(10, ge=0)
    """Number of fittest programs that the problem's [validation](problems.md#validation) measures
    at the end of the run. 0 for none."""
    reuse: bool = False
    """Whether a trial takes the result of an equal one of any run: the same program, evaluator,
    limits and image. Leave it off where equal trials may differ."""
    similarity: float | None = bounded(None, gt=0, le=1)
    """A child is not evaluated if its text is at least so similar to one of the 64 fittest programs
    of its island: the share of common runs of three tokens, or with `llm.roles.embedder` the cosine
    of embeddings. Without a value, no texts are compared."""
    grid_after: Annotated[
        int | None, Fixed("the grid of the archive is learnt once, and programs have their cells")
    ] = bounded(None, ge=1)
    """Evaluations after which the ranges of axes are learnt and frozen. Without a value, a fifth of
    the budget, at most 50."""
    stop_fitness: float | None = None
    """The run stops when its best fitness reaches this."""
    stop_admitted: int | None = bounded(None, ge=1)
    """The run stops when this many children are admitted."""
    stop_patience: int | None = bounded(None, ge=1)
    """The run stops after this many settled proposals without improvement."""
    stop_threshold: float = bounded(0.001, ge=0)
    """Least rise in fitness that `search.stop_patience` counts as an improvement."""
