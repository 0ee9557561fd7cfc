"""`evoq prompt`: the prompt that a model would get, before anything is paid for."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from app.adapters.tuning.cma import ask
from app.cli.options import Assignments, Config, Debug, Json
from app.cli.output import Screen
from app.cli.program_folder import program_with, read_evolving
from app.cli.show import program_named
from app.client.notes import CommandError
from app.client.setting_layers import SettingLayers, load_problem, named_problem, read_layers
from app.client.target import find_target, open_run, stored_problem
from app.config.layers import UsageError
from app.config.resolve import resolved
from app.config.rules import rules_of
from app.config.settings import RunSettings
from app.domain.operator import Brief, Draft, Operator
from app.domain.operators import operators
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.prompting.tokens import estimated
from app.domain.run import Run
from app.domain.search.strategy import RecipeInputs
from app.engine.briefing import brief_of, draft_of, first_prompts, unmeasured_brief
from app.ports.ledger import Transaction

_DEFAULT_OPERATOR = "diff"


def prompt(
    problem: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROBLEM]...", help="As for `evoq run`; the run's own problem by default."
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Show this run's programs.")
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            "--program",
            metavar="ID",
            help="The parent: beginning of an id; a file or folder without --run.",
        ),
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option("--operator", metavar="NAME", help="Operator whose prompt is shown."),
    ] = None,
    island: Annotated[
        int, typer.Option("--island", metavar="N", min=0, help="With --run: island of the parent.")
    ] = 0,
    config: Config = None,
    assignments: Assignments = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Shows the prompt that a model would get; asks no model.

    Without --run the parent is the problem's first seed, unmeasured, and no service is needed. With
    --run it is the run's next prompt; a PROBLEM beside it applies its present templates to the
    run's programs.

    Examples:
      evoq prompt my_problem
      evoq prompt my_problem --operator rewrite --set prompts.template_dir=my_templates
      evoq prompt --run my_problem-1 --program 3f2a91c0 --json
    """
    screen = Screen(json=as_json)
    paths, config = named_problem(problem or (), config)
    if not paths and run is None:
        raise UsageError(
            "nothing to make a prompt of",
            where="PROBLEM",
            remedy="Name a problem, or a run with --run.",
        )
    layers = read_layers(assignments, config)
    loaded = load_problem(paths, layers) if paths else None
    if run is not None:
        _of_run(run, loaded, layers, program, operator, island, screen)
    elif loaded is not None:
        _of_problem(loaded, layers, program, operator, screen)


def _of_problem(
    problem: Problem,
    layers: SettingLayers,
    program: str | None,
    operator: str | None,
    screen: Screen,
) -> None:
    resolution = resolved(layers.choices, problem.suggestions, problem.suggested_by)
    for notice in (*problem.notices, *resolution.notices):
        screen.note(f"notice: {notice}")
    parent = problem.seeds[0] if program is None else _seed(problem, program)
    chosen = _operator(operator, resolution.settings.search.operators or {})
    brief = _unmeasured(problem, resolution.settings, chosen, parent)
    _print_prompt(problem, chosen, brief, None, screen)


def _unmeasured(
    problem: Problem, settings: RunSettings, operator: Operator, parent: Program
) -> Brief:
    search = settings.search
    rules = rules_of(search.strategy, settings.model_dump(mode="json"))
    return unmeasured_brief(problem, rules, search.seed, parent, problem.seeds, operator.language)


def tokens_of_first_prompt(problem: Problem, settings: RunSettings) -> int | None:
    """Returns about how many tokens a run's first prompt has; None where its operator has none."""
    operator = _operator(None, settings.search.operators or {})
    prompts = first_prompts(operator, _unmeasured(problem, settings, operator, problem.seeds[0]))
    return estimated(prompts[0].system + prompts[0].user) if prompts else None


def _of_run(
    name: str,
    present: Problem | None,
    layers: SettingLayers,
    program: str | None,
    operator: str | None,
    island: int,
    screen: Screen,
) -> None:
    """Prints a prompt of a run; with a `present` problem, by its templates and instructions."""
    with open_run(name, find_target(layers.choices)) as (ledger, run):
        if present is not None and present.digest != run.problem:
            screen.note(
                f"notice: {present.name} is not as it was when {run.name} began: its "
                "instructions and templates as they are now, over the run's programs"
            )
        problem = present or stored_problem(ledger.store, run)
        suggestions = _changed_settings(run) | (dict(present.suggestions) if present else {})
        settings = resolved(layers.choices, suggestions).settings.model_dump(mode="json")
        run = replace(run, settings=settings, rules=rules_of(run.strategy, settings))
        chosen = _operator(operator, run.operators)
        with ledger.store.begin() as tx:
            draft = _draft(tx, run, problem, chosen, program, island)
            brief = brief_of(tx.programs, run, problem, chosen, (draft,))
    _print_prompt(problem, chosen, brief, run.name, screen)


def _operator(name: str | None, mix: Mapping[str, float]) -> Operator:
    """Returns the operator of that name; without one, the mix's heaviest that asks a model."""
    known = {name: operator for name, operator in operators(ask).items() if operator.prompts}
    heaviest = sorted(mix, key=lambda name: -mix[name])
    chosen = name or next((name for name in heaviest if name in known), _DEFAULT_OPERATOR)
    if chosen not in known:
        raise UsageError(
            f"operator `{chosen}` asks no model, or does not exist",
            where="--operator",
            remedy=f"Choose among {', '.join(sorted(known))}.",
        )
    return known[chosen]


def _seed(problem: Problem, name: str) -> Program:
    """Returns the seed whose id begins with `name`, or the program in the file or folder `name`.

    Raises:
      UsageError: It is neither.
      CommandError: The file cannot be read.
    """
    seeds = [seed for seed in problem.seeds if seed.id.startswith(name)]
    if len(seeds) == 1:
        return seeds[0]
    path = Path(name)
    if path.exists() and problem.seeds[0].path:
        return program_with(problem, read_evolving(problem, path, "--program"))
    if not path.is_file():
        raise UsageError(
            "neither a file nor the beginning of a seed's id",
            where="--program",
            value=name,
            remedy="The seeds are " + ", ".join(seed.id[:12] for seed in problem.seeds) + ".",
        )
    try:
        return Program(path.read_text(encoding="utf-8-sig"), problem.language)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: cannot be read as text ({error})") from error


def _draft(
    tx: Transaction,
    run: Run,
    problem: Problem,
    operator: Operator,
    program: str | None,
    island: int,
) -> Draft:
    """Returns the run's next draft on an island, or one whose parent is the chosen program."""
    if not 0 <= island < run.islands:
        raise UsageError(
            f"{run.name} has islands 0 to {run.islands - 1}",
            where="--island",
            value=str(island),
            remedy="Choose one of them.",
        )
    view = tx.archive.island(run.id, island)
    if view.size == 0:
        raise CommandError(f"{run.name} has measured no program on island {island} yet")
    recipe = run.rules.recipe
    if recipe is None:
        raise CommandError(f"the recipe {run.strategy!r} of {run.name} is not installed here")
    budget = run.budget.proposals
    inputs = RecipeInputs(
        run.axes, problem.stages, problem.thresholds, run.islands, budget, problem.cases
    )
    draft = draft_of(tx, run, recipe.strategy(inputs), operator, view, run.ordinals)
    if program is None:
        return draft
    parent = program_named(tx, run, program)
    most = run.rules.prompts.num_top_programs
    # `PromptSettings.rules` sets it.
    assert most is not None
    fittest = (elite.program for elite in view.best(most + 1))
    others = dict.fromkeys((*fittest, *draft.inspirations, *draft.parents))
    others.pop(parent, None)
    return replace(draft, parents=(parent,), inspirations=tuple(others))


def _changed_settings(run: Run) -> dict[str, object]:
    """Returns the settings of a run that are not defaults, by dotted name."""
    settings = RunSettings.model_validate(run.settings)
    changed = settings.model_dump(mode="json", exclude_defaults=True)
    return {f"{section}.{k}": value for section in changed for k, value in changed[section].items()}


def _print_prompt(
    problem: Problem, operator: Operator, brief: Brief, run: str | None, screen: Screen
) -> None:
    """Prints the first prompt of an operator's conversation, and what was left out of it."""
    prompts, rules = first_prompts(operator, brief), brief.prompts
    if not prompts:
        raise CommandError(f"operator `{operator.name}` asks no model about this program")
    prompt, draft = prompts[0], brief.drafts[0]
    tokens = estimated(prompt.system + prompt.user)
    origin = f"run {run}" if run else "seeds of the problem, nothing measured"
    screen.say(
        f"{problem.name}, operator {operator.name}, role {prompt.role.value}: "
        f"program {draft.parents[0][:12]} ({origin}); about {tokens} tokens of at most "
        f"{rules.max_prompt_tokens}"
    )
    screen.say(f"left out to keep within that: {', '.join(prompt.left_out) or 'nothing'}")
    if tokens > rules.max_prompt_tokens:
        screen.note("notice: too long all the same; the program itself is never cut")
    screen.say(f"\n----- system -----\n{prompt.system}\n\n----- user -----\n{prompt.user}")
    screen.answer(
        {
            "problem": problem.name,
            "run": run,
            "operator": operator.name,
            "role": prompt.role.value,
            "program": draft.parents[0],
            "inspirations": list(draft.inspirations),
            "tokens": tokens,
            "max_tokens": rules.max_prompt_tokens,
            "left_out": list(prompt.left_out),
            "templates": sorted(rules.templates),
            "system": prompt.system,
            "user": prompt.user,
        }
    )
