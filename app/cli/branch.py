"""`evoq branch`: commands as candidates that work on copies of a folder, of which one commits."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeAlias

import typer

from app.cli.branch_runner import Place
from app.cli.options import Debug, Json
from app.cli.output import DONE, FAILED, Screen
from app.client.notes import CommandError
from app.config.layers import UsageError
from app.domain.digits import number_texts
from app.patterns.commands import Command
from app.patterns.errors import BranchingError
from app.patterns.group import GroupLimits
from app.patterns.levels import BeamSearch, Tournament, TreeOfThoughts
from app.patterns.outcomes import SpeculationOutcome
from app.patterns.racing import BestOfN, Cascaded, Reflexion, Speculate

Pattern: TypeAlias = (
    Speculate | BestOfN | Cascaded | Reflexion | TreeOfThoughts | BeamSearch | Tournament
)
_COPIES = 3

Copies = Annotated[
    int | None,
    typer.Option("-n", metavar="N", min=1, help=f"Candidates that run COMMAND; {_COPIES}."),
]
AtOnce = Annotated[
    int | None, typer.Option("--max-parallel", metavar="N", min=1, help="Candidates at one time.")
]
Depth = Annotated[int, typer.Option("--depth", metavar="N", min=1, help="Levels.")]


def _shell(text: str) -> Command:
    if not text.strip():
        raise typer.BadParameter("the command for the shell is empty.")
    return Command(["/bin/sh", "-c", text])


Evaluate = Annotated[
    Command | None,
    typer.Option("--evaluate", metavar="TEXT", parser=_shell, help="Prints a folder's score."),
]


def branch() -> None:
    """Runs commands side by side, each on a copy of a folder of its own, and keeps one copy.

    A command succeeds by the exit status 0, and may write a score on descriptor 3. It runs as you;
    with --sandbox apart from this machine, as agents do: it sees its copy of the folder, the
    system's programs and what --visible names, and reaches no host but --network.

    With --on cpu it runs in the sandboxes of workers, with --on kubernetes as a Job.

    BRANCHING_ATTEMPT is its number, BRANCHING_DEPTH its level, BRANCHING_FEEDBACK what was said of
    failures before it. The exit status is 0 if a copy was kept. All patterns take --json.

    Examples:
      evoq branch best-of-n --help
      evoq branch speculate -c "make fast" -c "make safe" --timeout 600
      evoq branch best-of-n -n 100 --on cpu --evaluate "./score" -- ./improve
    """


def commands() -> dict[str, Callable[..., int]]:
    """Returns the commands of `evoq branch`: one for each pattern."""
    patterns = (speculate, best_of_n, cascaded, reflexion, tree_of_thoughts, beam, tournament)
    named = {one.__name__.replace("_", "-"): one for one in patterns}
    return {name: _command(name, one) for name, one in named.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The options of every pattern that say which commands run, on which folder and how long."""

    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="After `--`: what each candidate runs."),
    ] = None
    shells: Annotated[
        list[Command] | None,
        typer.Option("-c", metavar="TEXT", parser=_shell, help="A candidate; may be repeated."),
    ] = None
    folder: Annotated[
        str, typer.Option("--folder", metavar="DIR", help="The folder to work on.")
    ] = "."
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="For each candidate.")
    ] = None
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", min=1, help="Of all together.")
    ] = None
    memory_mib: Annotated[
        int | None, typer.Option("--memory-mib", metavar="MIB", min=1, help="Of all together.")
    ] = None
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="SECONDS", help="For the whole command.")
    ] = None

    def level(self, n: int | None, depth: int = 0) -> list[Command]:
        """Returns the candidates of a level: `n` of one command, or one for each -c.

        Raises:
          UsageError: They are given twice, or none is.
        """
        if bool(self.command) == bool(self.shells):
            what = "both are given" if self.command else "no candidate is given"
            remedy = "Give `-- COMMAND`, or -c TEXT once for each candidate."
            raise UsageError(what, where="COMMAND and -c", remedy=remedy)
        if self.shells and n is not None:
            remedy = "Repeat -c, or give `-- COMMAND`."
            raise UsageError("has no effect beside -c", where="-n", remedy=remedy)
        alone = [Command(self.command or [])] * (n or _COPIES)
        return [
            one.given(
                BRANCHING_ATTEMPT=str(number), BRANCHING_FEEDBACK="", BRANCHING_DEPTH=str(depth)
            )
            for number, one in enumerate(self.shells or alone)
        ]

    def only(self, pattern: str) -> Command:
        """Returns the one command of a pattern that runs it again and again.

        Raises:
          UsageError: There is none, or there are several.
        """
        if self.shells and len(self.shells) > 1:
            remedy = "Give one candidate, which runs again and again."
            raise UsageError(f"{pattern} has one command", where="-c", remedy=remedy)
        return self.level(None)[0]


def speculate(
    given: Candidates,
    *,
    n: Copies = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Let all run to their end; the first in order wins.")
    ] = False,
    max_parallel: AtOnce = None,
) -> Pattern:
    """Keeps the copy of the first command that succeeds, and ends the others.

    Examples:
      evoq branch speculate -c "make fast" -c "make safe" --timeout 600
      evoq branch speculate -n 4 --sandbox --network api.example.org --env KEY -- ./agent
    """
    return Speculate(given.level(n), first_wins=not all_, max_parallel=max_parallel)


def best_of_n(
    given: Candidates,
    *,
    n: Copies = None,
    evaluate: Evaluate = None,
    no_commit: Annotated[
        bool, typer.Option("--no-commit", help="Print scores, change nothing.")
    ] = False,
    max_parallel: AtOnce = None,
) -> Pattern:
    """Keeps the copy with the highest score, after all commands have ended.

    Examples:
      evoq branch best-of-n -n 8 --evaluate "./score" -- ./improve
      evoq branch best-of-n -n 100 --on cpu --evaluate "./score" -- ./improve
    """
    return BestOfN(
        given.level(n), evaluate=evaluate, commit=not no_commit, max_parallel=max_parallel
    )


def cascaded(
    given: Candidates,
    *,
    fan_out: Annotated[
        str, typer.Option("--fan-out", metavar="N,N,…", help="Candidates of each wave.")
    ] = "1,2,4",
    max_parallel: AtOnce = None,
) -> Pattern:
    """Runs a command in larger and larger waves, until one succeeds.

    Examples:
      evoq branch cascaded --fan-out 1,3 -- ./agent
    """
    widths = fan_out.split(",")
    if not all(width.isdecimal() and int(width) for width in widths):
        remedy = "Give numbers above 0, as 1,2,4."
        raise UsageError("is no list of numbers", where="--fan-out", value=fan_out, remedy=remedy)
    waves = [int(width) for width in widths]
    return Cascaded(given.only("cascaded"), fan_out=waves, max_parallel=max_parallel)


def reflexion(
    given: Candidates,
    *,
    retries: Annotated[int, typer.Option("--retries", metavar="N", min=1, help="Attempts.")] = 3,
    critique: Annotated[
        Command | None,
        typer.Option("--critique", metavar="TEXT", parser=_shell, help="Prints what to improve."),
    ] = None,
) -> Pattern:
    """Runs a command again and again with the critique of its failure, until it succeeds.

    Examples:
      evoq branch reflexion --critique "cat test.log" -- ./agent
    """
    command = given.only("reflexion")
    return Reflexion(command, max_retries=retries, critique=critique)


def tree_of_thoughts(
    given: Candidates,
    *,
    n: Copies = None,
    evaluate: Evaluate = None,
    depth: Depth = 2,
    max_parallel: AtOnce = None,
) -> Pattern:
    """Builds each level on the best copy of the level before, and keeps the last.

    Examples:
      evoq branch tree-of-thoughts -n 4 --depth 3 --evaluate "./score" -- ./improve
    """
    return TreeOfThoughts(
        given.level(n),
        evaluate=evaluate,
        expand=lambda path, level: given.level(n, level),  # noqa: ARG005
        max_depth=depth,
        max_parallel=max_parallel,
    )


def beam(
    given: Candidates,
    *,
    n: Copies = None,
    evaluate: Evaluate = None,
    width: Annotated[int, typer.Option("--width", metavar="N", min=1, help="Beams.")] = 3,
    depth: Depth = 2,
    max_parallel: AtOnce = None,
) -> Pattern:
    """Builds each level on the best copies of the level before, and keeps the best of the last.

    Examples:
      evoq branch beam -n 4 --width 2 --depth 3 --evaluate "./score" -- ./improve
    """
    return BeamSearch(
        given.level(n),
        evaluate=evaluate,
        expand=lambda path, level: given.level(n, level),  # noqa: ARG005
        beam_width=width,
        max_depth=depth,
        max_parallel=max_parallel,
    )


def tournament(
    given: Candidates,
    *,
    n: Copies = None,
    judge: Annotated[
        Command,
        typer.Option(
            "--judge", metavar="TEXT", parser=_shell, help="Prints the better one: 0 or 1."
        ),
    ],
    max_parallel: AtOnce = None,
) -> Pattern:
    """Keeps the copy that wins a single elimination, whose pairs a judge compares.

    The judge compares the folders $BRANCHING_FIRST and $BRANCHING_SECOND and prints 0 or 1.

    Examples:
      evoq branch tournament -n 4 --judge "./compare" -- ./improve
    """
    return Tournament(given.level(n), judge, max_parallel=max_parallel)


def _command(name: str, pattern: Callable[..., Pattern]) -> Callable[..., int]:
    """Returns a pattern as a command, with its own options and those of all patterns."""
    parts = [signature(part).parameters for part in (pattern, Candidates, Place)]

    def command(*, as_json: Json = False, debug: Debug = False, **given: Any) -> int:  # noqa: ARG001
        own, shared, place = [{n: given[n] for n in part if n in given} for part in parts]
        candidates = Candidates(**shared)
        made, screen = pattern(candidates, **own), Screen(json=as_json)
        limits = GroupLimits(candidates.processes, candidates.memory_mib, candidates.seconds)
        return_to_the_shells_folder()
        try:
            runner = Place(**place).runner()
            terms = replace(made, timeout=candidates.timeout, limits=limits, runner=runner)
            outcome = terms(candidates.folder)
        except (BranchingError, TimeoutError) as error:
            raise CommandError(str(error)) from error
        return _report(name, outcome, given.get("no_commit", False), screen)

    named = [one for part in (*parts, signature(command).parameters) for one in part.values()]
    options = [one for one in named if one.kind is Parameter.KEYWORD_ONLY]
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]  # Typer reads it
    command.__doc__ = pattern.__doc__
    return command


def return_to_the_shells_folder() -> None:
    """Goes to the folder that has the name of this process's own, which a commit has removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        if named := os.environ.get("PWD"):
            os.chdir(named)


def _report(pattern: str, outcome: SpeculationOutcome, no_commit: bool, screen: Screen) -> int:
    scores = number_texts([result.score for result in outcome.all_results])
    for result, score in zip(outcome.all_results, scores, strict=True):
        mark = "*" if outcome.winner and result.branch_index == outcome.winner.branch_index else " "
        state = f"score {score}" if result.success else "failed"
        message = str(result.exception or result.error).strip().splitlines()
        screen.say(f"{mark} {result.branch_index}: {state}{': ' + message[-1] if message else ''}")
    if outcome.committed and outcome.winner:
        screen.say(f"committed: candidate {outcome.winner.branch_index}; shells need `cd .` now")
    else:
        screen.say("committed: nothing")
    screen.answer(
        {
            "pattern": pattern,
            "winner": outcome.winner.branch_index if outcome.winner else None,
            "committed": outcome.committed,
            "results": [
                {
                    "index": result.branch_index,
                    "success": result.success,
                    "score": result.score,
                    "error": str(result.exception or result.error),
                    "value": result.return_value,
                }
                for result in outcome.all_results
            ],
        }
    )
    succeeded = outcome.winner is not None if no_commit else outcome.committed
    return DONE if succeeded else FAILED
