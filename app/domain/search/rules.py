"""Rules of a search: the section `search` of a run's settings."""

from dataclasses import dataclass, field
from typing import Annotated

from app.domain.setting import BY_MEASUREMENTS, BY_THE_RECIPE, LARGEST_INTEGER, Fixed


@dataclass(frozen=True, slots=True)
class SearchRules:
    """How a run searches.  Names and defaults are OpenEvolve's where it has them."""

    strategy: Annotated[str, BY_THE_RECIPE] = "map_elites"
    """Name of the recipe that the search follows."""
    seed: Annotated[int, Fixed("every random draw of the run comes from it")] = field(
        default=42, metadata={"ge": 0, "le": LARGEST_INTEGER}
    )
    """Seed of every random draw of the run."""
    islands: Annotated[int | None, Fixed("the programs of the run live on its islands")] = field(
        default=None, metadata={"ge": 1, "le": 1000}
    )
    """Number of islands, sub-populations that evolve separately. Without a value, one for each 500
    proposals of the budget, from 1 to 5; 1 for a recipe without migration or resets."""
    migration_interval: Annotated[int, BY_THE_RECIPE] = field(default=10, metadata={"ge": 1})
    """Cohorts an island closes between two migrations."""
    migration_rate: Annotated[float, BY_THE_RECIPE] = field(
        default=0.1, metadata={"ge": 0, "le": 1}
    )
    """Share of an island's cells whose elites migrate."""
    exploration_ratio: Annotated[float, BY_THE_RECIPE] = field(
        default=0.05, metadata={"ge": 0, "le": 1}
    )
    """Share of parents that are drawn from all cells of an island, each cell being equally
    likely."""
    exploitation_ratio: Annotated[float, BY_THE_RECIPE] = field(
        default=0.95, metadata={"ge": 0, "le": 1}
    )
    """Share of parents that exploitation chooses, see `search.archive_size`; the remaining parents
    are drawn by rank."""
    archive_size: Annotated[int | None, BY_THE_RECIPE] = field(default=None, metadata={"ge": 1})
    """Number of fittest elites of all islands that exploitation draws parents from, each being
    equally likely. Without a value, exploitation takes one of the fittest that have fewer than
    `strategy.patience` children, see `strategy.patience`."""
    top_programs: int = field(default=3, metadata={"ge": 0})
    """Number of fittest programs that a prompt contains."""
    inspirations: int = field(default=2, metadata={"ge": 0})
    """Number of other programs, drawn at random, that a prompt contains."""
    operators: dict[str, float] | None = None
    """Operators and their weights, 0 or more. Without a value: `search` with `nested.strategy`,
    `tune` and `mutate` without a language model, else a mix that suits the initial programs."""
    samples: int = field(default=1, metadata={"ge": 1, "le": 64})
    """Children that one prompt asks for, from the same parents. An endpoint reads the prompt once
    where it takes `n`; where it does not, it may have the beginning of the prompt in its cache."""
    learn_forms: Annotated[
        bool | None,
        Fixed("the weights of a run's operators are learnt, or not, from its beginning"),
    ] = None
    """Whether the weights of `diff`, `rewrite`, `function` and `complete` are learnt: from the
    children that were measured, per token, in this run and, at its start, in earlier runs of the
    same models. Without a value, they are unless `search.operators` is set by hand or the run is
    reproducible."""
    enforce_blocks: Annotated[
        bool | None, Fixed("it decides which part of a program may change")
    ] = None
    """Whether text outside EVOLVE-BLOCK regions is kept unchanged. Without a value, the problem
    decides."""
    gates: Annotated[
        list[float | str] | None, Fixed("what was measured so far went through the present gates")
    ] = None
    """What a program needs to go on from each stage to the next, in order: a fitness, `quantile Q
    of N` or `top K of N` of the newest N programs of its island. Without a value, the problem
    decides."""
    measurements: Annotated[int, BY_MEASUREMENTS] = field(default=1, metadata={"ge": 1})
    """Most measurements of a program at the last stage of the problem, for an evaluator with noise.
    A program is measured again, each time with another seed, until the 95 % confidence interval of
    its mean excludes the fitness of its island's best, or does not vary."""
    validate_best: int = field(default=10, metadata={"ge": 0})
    """Number of fittest programs that a problem's validation measures at the end of the run, on
    data that the search never saw; the best of them by that data is the result. 0 for none."""
    reuse: bool = False
    """Whether a trial takes the result of an equal one of any run, which has the same program,
    evaluator, limits and image. Leave it off where equal trials may differ: an evaluator with
    noise, with a clock, or with data of its own from elsewhere."""
    similarity: float | None = field(default=None, metadata={"gt": 0, "le": 1})
    """A child is not evaluated if its text is at least so similar to one of the 64 fittest programs
    of its island: the share of runs of three tokens that they have in common, or the cosine of
    their embeddings where `llm.roles.embedder` names a model. Without a value, no texts are
    compared."""
    grid_after: Annotated[
        int | None, Fixed("the grid of the archive is learnt once, and programs have their cells")
    ] = field(default=None, metadata={"ge": 1})
    """Evaluations after which the ranges of axes without a declared range are learnt and frozen.
    Without a value, a fifth of the budget, at most 50."""
    stop_fitness: float | None = None
    """The run stops when its best fitness reaches this."""
    stop_admitted: int | None = field(default=None, metadata={"ge": 1})
    """The run stops when this many children have been admitted."""
    stop_patience: int | None = field(default=None, metadata={"ge": 1})
    """The run stops after this many settled proposals in a row without improvement."""
    stop_threshold: float = field(default=0.001, metadata={"ge": 0})
    """Least rise in fitness that `search.stop_patience` counts as an improvement."""
