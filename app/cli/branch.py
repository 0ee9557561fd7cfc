"""`evoq branch`: commands as candidates that work on copies of a folder, of which one commits."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import typer

from app.cli.options import Debug, Json
from app.cli.output import DONE, FAILED, Screen
from app.client.notes import CommandError
from app.config.layers import UsageError
from app.domain.digits import number_texts
from app.patterns.commands import Command
from app.patterns.errors import BranchingError
from app.patterns.group import GroupLimits, Target
from app.patterns.isolated import IsolatedRunner, is_host
from app.patterns.levels import BeamSearch, Tournament, TreeOfThoughts
from app.patterns.outcomes import SpeculationOutcome
from app.patterns.racing import BestOfN, Cascaded, Reflexion, Speculate

PATTERNS = (
    "speculate",
    "best-of-n",
    "cascaded",
    "reflexion",
    "tree-of-thoughts",
    "beam",
    "tournament",
)
_ONLY_FOR = {
    "--fan-out": ("cascaded",),
    "--retries": ("reflexion",),
    "--critique": ("reflexion",),
    "--evaluate": ("best-of-n", "tree-of-thoughts", "beam"),
    "--no-commit": ("best-of-n",),
    "--all": ("speculate",),
    "--depth": ("tree-of-thoughts", "beam"),
    "--width": ("beam",),
    "--judge": ("tournament",),
    "-n": ("speculate", "best-of-n", "tree-of-thoughts", "beam", "tournament"),
    "--max-parallel": tuple(name for name in PATTERNS if name != "reflexion"),
}
"""Options that have no effect on other patterns, which is wrong usage."""
_COPIES, _ATTEMPTS, _WIDTH, _DEPTH = 3, 3, 3, 2

PatternName = Annotated[
    str, typer.Argument(metavar="PATTERN", help=", ".join(PATTERNS[:-1]) + " or tournament.")
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND...", help="After `--`: what each candidate runs."),
]
Shells = Annotated[
    list[str] | None,
    typer.Option("-c", metavar="TEXT", help="A candidate, for the shell; may be repeated."),
]
Copies = Annotated[
    int | None, typer.Option("-n", metavar="N", min=1, help="Candidates that run COMMAND; 3.")
]
Folder = Annotated[str, typer.Option("--folder", metavar="DIR", help="The folder to work on.")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="For each candidate.")
]
AtOnce = Annotated[
    int | None, typer.Option("--max-parallel", metavar="N", min=1, help="Candidates at one time.")
]
Processes = Annotated[
    int | None, typer.Option("--processes", metavar="N", min=1, help="Of all together.")
]
Memory = Annotated[
    int | None, typer.Option("--memory-mib", metavar="MIB", min=1, help="Of all together.")
]
Seconds = Annotated[
    float | None, typer.Option("--seconds", metavar="SECONDS", help="For the whole command.")
]
Evaluate = Annotated[
    str | None,
    typer.Option("--evaluate", metavar="TEXT", help="Prints the score of a folder, for the shell."),
]
Critique = Annotated[
    str | None,
    typer.Option("--critique", metavar="TEXT", help="Prints what to do better, for the shell."),
]
Judge = Annotated[
    str | None,
    typer.Option(
        "--judge",
        metavar="TEXT",
        help="Prints 0 or 1: is $BRANCHING_FIRST or $BRANCHING_SECOND better?",
    ),
]
FanOut = Annotated[
    str | None, typer.Option("--fan-out", metavar="N,N,…", help="Candidates of each wave; 1,2,4.")
]
Retries = Annotated[int | None, typer.Option("--retries", metavar="N", min=1, help="Attempts; 3.")]
Width = Annotated[int | None, typer.Option("--width", metavar="N", min=1, help="Beams; 3.")]
Depth = Annotated[int | None, typer.Option("--depth", metavar="N", min=1, help="Levels; 2.")]
NoCommit = Annotated[bool, typer.Option("--no-commit", help="Print scores, change nothing.")]
All = Annotated[
    bool, typer.Option("--all", help="Let all run to their end; the first in order wins.")
]
Sandbox = Annotated[
    bool, typer.Option("--sandbox", help="Run each command apart from this machine.")
]
Network = Annotated[
    list[str] | None,
    typer.Option("--network", metavar="HOST[:PORT]", help="With --sandbox: reached by a proxy."),
]
Visible = Annotated[
    list[str] | None,
    typer.Option("--visible", metavar="PATH", help="With --sandbox: can be read, beside /usr."),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME[=VALUE]", help="With --sandbox: a variable it has."),
]


def branch(
    pattern: PatternName,
    command: Words = None,
    shells: Shells = None,
    n: Copies = None,
    folder: Folder = ".",
    timeout: Timeout = None,
    max_parallel: AtOnce = None,
    processes: Processes = None,
    memory_mib: Memory = None,
    seconds: Seconds = None,
    evaluate: Evaluate = None,
    critique: Critique = None,
    judge: Judge = None,
    fan_out: FanOut = None,
    retries: Retries = None,
    width: Width = None,
    depth: Depth = None,
    no_commit: NoCommit = False,
    all_: All = False,
    sandbox: Sandbox = False,
    network: Network = None,
    visible: Visible = None,
    env: Variables = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> int:
    """Runs commands side by side, each on a copy of a folder of its own, and keeps one copy.

    A command succeeds by the exit status 0, and may write a score on descriptor 3. It runs as you;
    with --sandbox apart from this machine, as agents do: it sees its copy of the folder, the
    system's programs and what --visible names, and reaches no host but --network.

    BRANCHING_ATTEMPT is its number, BRANCHING_DEPTH its level, BRANCHING_FEEDBACK what was said of
    failures before it. The exit status is 0 if a copy was kept.

    Examples:
      evoq branch speculate -c "make fast" -c "make safe" --timeout 600
      evoq branch best-of-n -n 8 --evaluate "./score" -- ./improve
      evoq branch reflexion --critique "cat test.log" -- ./agent
      evoq branch speculate -n 4 --sandbox --network api.example.org --env KEY -- ./agent
      evoq branch beam -n 4 --width 2 --depth 3 --evaluate "./score" -- ./improve
    """
    given = {
        "--fan-out": fan_out,
        "--retries": retries,
        "--critique": critique,
        "--evaluate": evaluate,
        "--no-commit": no_commit or None,
        "--all": all_ or None,
        "--depth": depth,
        "--width": width,
        "--judge": judge,
        "-n": n,
        "--max-parallel": max_parallel,
    }
    _check(pattern, given, command, shells)
    apart = _apart(sandbox, network or [], visible or [], env or [])
    options = _Options(
        [["/bin/sh", "-c", text] for text in shells] if shells else [list(command or ())],
        len(shells) if shells else n or _COPIES,
        given,
        {"timeout": timeout, "limits": GroupLimits(processes, memory_mib, seconds)}
        | ({} if pattern == "reflexion" else {"max_parallel": max_parallel}),
    )
    screen = Screen(json=as_json)
    return_to_the_shells_folder()
    try:
        if apart is not None:
            options.terms["runner"] = IsolatedRunner(**apart)
        outcome = _pattern(pattern, options)(folder)
    except (BranchingError, TimeoutError) as error:
        raise CommandError(str(error)) from error
    return _report(pattern, outcome, no_commit, screen)


class _Apart(TypedDict):
    """Arguments of `IsolatedRunner`."""

    hosts: list[str]
    visible: list[str]
    environment: dict[str, str]


def _apart(
    sandbox: bool, hosts: list[str], visible: list[str], variables: list[str]
) -> _Apart | None:
    """Returns what commands have that run apart; None where they run here."""
    for name, given in (("--network", hosts), ("--visible", visible), ("--env", variables)):
        if given and not sandbox:
            raise UsageError("has no effect without --sandbox", where=name, remedy="Add --sandbox.")
    if not sandbox:
        return None
    environment = {}
    for text in variables:
        name, assigned, value = text.partition("=")
        if not assigned and name not in os.environ:
            remedy = "Write NAME=VALUE, or export it."
            raise UsageError("no such variable", where="--env", value=name, remedy=remedy)
        environment[name] = value if assigned else os.environ[name]
    if missing := [path for path in visible if not os.path.exists(path)]:
        remedy = "Correct the path."
        raise UsageError("does not exist", where="--visible", value=missing[0], remedy=remedy)
    if wrong := [host for host in hosts if not is_host(host)]:
        remedy = "Write NAME, for HTTPS, or NAME:PORT."
        raise UsageError("is no host", where="--network", value=wrong[0], remedy=remedy)
    return {"hosts": hosts, "visible": visible, "environment": environment}


def return_to_the_shells_folder() -> None:
    """Goes to the folder that has the name of this process's own, which a commit has removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        if named := os.environ.get("PWD"):
            os.chdir(named)


def _check(
    pattern: str, given: dict[str, Any], command: list[str] | None, shells: list[str] | None
) -> None:
    if pattern not in PATTERNS:
        remedy = f"Choose one of {', '.join(PATTERNS)}."
        raise UsageError("unknown pattern", where="PATTERN", value=pattern, remedy=remedy)
    for name, value in given.items():
        if value is not None and pattern not in _ONLY_FOR[name]:
            remedy = f"It belongs to {', '.join(_ONLY_FOR[name])}."
            raise UsageError(f"has no effect on {pattern}", where=name, remedy=remedy)
    if bool(command) == bool(shells):
        what = "both are given" if command else "no candidate is given"
        remedy = "Give `-- COMMAND`, or -c TEXT once for each candidate."
        raise UsageError(what, where="COMMAND and -c", remedy=remedy)
    if shells and given["-n"] is not None:
        remedy = "Repeat -c, or give `-- COMMAND`."
        raise UsageError("has no effect beside -c", where="-n", remedy=remedy)
    if shells and len(shells) > 1 and pattern in ("cascaded", "reflexion"):
        remedy = "Give one candidate, which runs again and again."
        raise UsageError(f"{pattern} has one command", where="-c", remedy=remedy)
    if pattern == "tournament" and not given["--judge"]:
        raise UsageError("is missing", where="--judge", remedy="A tournament needs a judge.")
    widths = (given["--fan-out"] or "1").split(",")
    if not all(width.isdecimal() and int(width) for width in widths):
        remedy = "Give numbers above 0, as 1,2,4."
        raise UsageError(
            "is no list of numbers", where="--fan-out", value=given["--fan-out"], remedy=remedy
        )


@dataclass(frozen=True, slots=True)
class _Options:
    """What was given.

    Attributes:
      commands: The arguments of each candidate, or those of one that runs several times.
      n: Candidates of a level.
      given: Options of single patterns; None stands for the default.
      terms: Of every pattern.
    """

    commands: list[list[str]]
    n: int
    given: dict[str, Any]
    terms: dict[str, Any]

    def command(self, number: int = 0, depth: int = 0) -> Command:
        return Command(self.commands[number % len(self.commands)]).given(
            BRANCHING_ATTEMPT=str(number), BRANCHING_FEEDBACK="", BRANCHING_DEPTH=str(depth)
        )

    def candidates(self, depth: int = 0) -> list[Command]:
        return [self.command(number, depth=depth) for number in range(self.n)]

    def shell(self, option: str) -> Command | None:
        text = self.given[option]
        return Command(["/bin/sh", "-c", text]) if text else None

    def evaluated(self) -> dict[str, Any]:
        """Returns the terms of a pattern whose candidates have scores."""
        return {**self.terms, "evaluate": self.shell("--evaluate")}

    def levels(self) -> dict[str, Any]:
        """Returns the terms of a pattern with levels."""
        return {
            **self.evaluated(),
            "expand": lambda path, depth: self.candidates(depth),  # noqa: ARG005
            "max_depth": self.given["--depth"] or _DEPTH,
        }


def _pattern(name: str, options: _Options) -> Callable[[Target], SpeculationOutcome]:
    """Returns a pattern with what was given."""
    given, terms = options.given, options.terms
    match name:
        case "speculate":
            return Speculate(options.candidates(), first_wins=not given["--all"], **terms)
        case "best-of-n":
            commit = not given["--no-commit"]
            return BestOfN(options.candidates(), commit=commit, **options.evaluated())
        case "cascaded":
            widths = [int(width) for width in (given["--fan-out"] or "1,2,4").split(",")]
            return Cascaded(options.command(), fan_out=widths, **terms)
        case "reflexion":
            retries, critique = given["--retries"] or _ATTEMPTS, options.shell("--critique")
            return Reflexion(options.command(), max_retries=retries, critique=critique, **terms)
        case "tree-of-thoughts":
            return TreeOfThoughts(options.candidates(), **options.levels())
        case "beam":
            width = given["--width"] or _WIDTH
            return BeamSearch(options.candidates(), beam_width=width, **options.levels())
        case _:
            judge = options.shell("--judge")
            assert judge is not None
            return Tournament(options.candidates(), judge, **terms)


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
