"""`evoq prompt`: what a model would be asked, before anything is paid for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.adapters.tuning.cma import ask
from app.cli.execution import find
from app.cli.faults import Failed
from app.cli.plan import Layers, layers_of, load
from app.cli.program import program_named
from app.cli.screen import Screen
from app.cli.show import problem_of
from app.cli.target import opened, place, require_runs
from app.config.layers import UsageError
from app.config.resolve import resolved
from app.config.rules import rules_of
from app.config.settings import RunSettings
from app.domain.operator import Brief, Draft, Operator, Prompt
from app.domain.operators import operators
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.tokens import estimated
from app.domain.run import Run
from app.domain.search.strategy import RecipeInputs
from app.engine.briefing import brief_of, first_prompts, unmeasured_brief
from app.ports.ledger import Transaction

_USUAL = "diff"


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `evoq prompt`.

    Attributes:
      paths: The problem; () where the run's own is meant.
      run: Whose programs are shown; None shows the problem's seeds.
      program: The parent: the beginning of an id or, without a run, a file.  None: what comes next.
    """

    paths: tuple[Path, ...]
    run: str | None = None
    program: str | None = None
    operator: str | None = None
    island: int = 0
    config: Path | None = None
    assignments: tuple[str, ...] = ()


def show(asked: Asked, screen: Screen) -> None:
    """Prints the first prompt of an operator's conversation, and what was left out of it."""
    if not asked.paths and asked.run is None:
        raise UsageError(
            "nothing to make a prompt of",
            where="PROBLEM",
            remedy="Name a problem, or a run with --run.",
        )
    layers = layers_of(asked.assignments, asked.config)
    if asked.run is None:
        told = _of_problem(asked, layers, screen)
    else:
        told = _of_run(asked, layers, screen)
    rules = told.brief.prompts
    prompts = first_prompts(told.operator, told.brief)
    if not prompts:
        raise Failed(f"operator `{told.operator.name}` asks nobody about this program")
    _print(told, prompts[0], rules, screen)


@dataclass(frozen=True, slots=True)
class _Told:
    problem: Problem
    operator: Operator
    brief: Brief
    run: str | None = None


def _of_problem(asked: Asked, layers: Layers, screen: Screen) -> _Told:
    loaded = load(asked.paths, layers, strict=False)
    problem = loaded.problem
    found = resolved(loaded.layers, problem.suggestions, problem.suggested_by)
    for notice in (*problem.notices, *found.notices):
        screen.note(f"notice: {notice}")
    settings, search = found.settings.model_dump(mode="json"), found.settings.search
    parent = problem.seeds[0] if asked.program is None else _seed(problem, asked.program)
    brief = unmeasured_brief(
        problem, rules_of(search.strategy, settings), search.seed, parent, problem.seeds
    )
    return _Told(problem, _operator(asked.operator, settings), brief)


def _of_run(asked: Asked, layers: Layers, screen: Screen) -> _Told:
    at = place(layers.choices)
    require_runs(at)
    with opened(at) as ledger:
        run = find(ledger.store, str(asked.run))
        if asked.paths:
            problem = load(asked.paths, layers, strict=False).problem
            if problem.digest != run.problem:
                screen.note(
                    f"notice: {problem.name} is not as it was when {run.name} began: its "
                    "instructions and templates as they are now, over the run's programs"
                )
        else:
            problem = problem_of(ledger.store, run)
        suggestions = _flat(run.settings) | (dict(problem.suggestions) if asked.paths else {})
        settings = resolved(layers.choices, suggestions).settings.model_dump(mode="json")
        run = replace(run, settings=settings, rules=rules_of(run.strategy, settings))
        operator = _operator(asked.operator, settings, run)
        with ledger.store.begin() as tx:
            draft = _draft(tx, run, problem, asked)
            brief = brief_of(tx, run, problem, operator, (draft,))
    return _Told(problem, operator, brief, run.name)


def _operator(name: str | None, settings: Mapping[str, Any], run: Run | None = None) -> Operator:
    """Returns the operator of that name; else the first of the mix that asks a model."""
    known = {one.name: one for one in operators(ask).values() if one.asks_model}
    mix: Mapping[str, float] = run.operators if run else settings["search"]["operators"] or {}
    heaviest = sorted(mix, key=lambda one: -mix[one])
    chosen = name or next((one for one in heaviest if one in known), _USUAL)
    if chosen not in known:
        raise UsageError(
            f"operator `{chosen}` asks no model, or does not exist",
            where="--operator",
            remedy=f"Choose among {', '.join(sorted(known))}.",
        )
    return known[chosen]


def _seed(problem: Problem, named: str) -> Program:
    found = [seed for seed in problem.seeds if seed.id.startswith(named)]
    if len(found) == 1:
        return found[0]
    path = Path(named)
    if not path.is_file():
        raise UsageError(
            "neither a file nor the beginning of a seed's id",
            where="--program",
            value=named,
            remedy="The seeds are " + ", ".join(seed.id[:12] for seed in problem.seeds) + ".",
        )
    try:
        return Program(path.read_text(encoding="utf-8-sig"), problem.language)
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: cannot be read as text ({error})") from error


def _draft(tx: Transaction, run: Run, problem: Problem, asked: Asked) -> Draft:
    """Returns the draft that would come next, or one of the chosen program."""
    if not 0 <= asked.island < run.islands:
        raise UsageError(
            f"{run.name} has islands 0 to {run.islands - 1}",
            where="--island",
            value=str(asked.island),
            remedy="Choose one of them.",
        )
    island = tx.archive.island(run.id, asked.island)
    if island.size == 0:
        raise Failed(f"{run.name} has measured no program on island {asked.island} yet")
    recipe = run.rules.search.recipe
    if recipe is None:
        raise Failed(f"the recipe {run.strategy!r} of {run.name} is not installed here")
    inputs = RecipeInputs(run.axes, problem.stages, problem.thresholds, run.islands)
    drawn = recipe.strategy(inputs).selection(island, run.rng(run.proposals, "selection"))
    draft = drawn.draft(run.proposals, island)
    if asked.program is None:
        return draft
    parent = program_named(tx, run, asked.program)
    fittest = (elite.program for elite in island.best(run.rules.prompts.num_top_programs + 1))
    others = dict.fromkeys((*fittest, *draft.inspirations, *draft.parents))
    others.pop(parent, None)
    return replace(draft, parents=(parent,), inspirations=tuple(others))


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    known = RunSettings.model_validate(settings).model_dump(mode="json", exclude_defaults=True)
    return {f"{section}.{k}": value for section in known for k, value in known[section].items()}


def _print(told: _Told, prompt: Prompt, rules: PromptRules, screen: Screen) -> None:
    tokens = estimated(prompt.system + prompt.user)
    parent = told.brief.drafts[0].parents[0]
    whose = f"run {told.run}" if told.run else "seeds of the problem, nothing measured"
    screen.say(
        f"{told.problem.name}, operator {told.operator.name}, role {prompt.role.value}: "
        f"program {parent[:12]} ({whose}); about {tokens} tokens of at most "
        f"{rules.max_prompt_tokens}"
    )
    cut = ", ".join(prompt.left_out) or "nothing"
    screen.say(f"left out to keep within that: {cut}")
    if tokens > rules.max_prompt_tokens:
        screen.note("notice: too long all the same; the program itself is never cut")
    screen.say(f"\n----- system -----\n{prompt.system}\n\n----- user -----\n{prompt.user}")
    screen.answer(
        {
            "problem": told.problem.name,
            "run": told.run,
            "operator": told.operator.name,
            "role": prompt.role.value,
            "program": parent,
            "inspirations": list(told.brief.drafts[0].inspirations),
            "tokens": tokens,
            "max_tokens": rules.max_prompt_tokens,
            "left_out": list(prompt.left_out),
            "templates": sorted(rules.templates),
            "system": prompt.system,
            "user": prompt.user,
        }
    )
