"""The recipe `tournament` on a real ledger: games, ratings, podium and their events."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.client import target
from app.dashboard.frames import adapter, encode
from app.dashboard.reads import RunReader
from app.domain.digits import number_text
from app.domain.evaluation import Evaluation, Failure, FailureKind, Trial
from app.domain.events import Closed, Entered, EventKind, GateTested, Played, Scored
from app.domain.games import Game, bradley_terry, elo
from app.domain.problem import GameLimits, Job, Outcome, Problem
from app.domain.program import Program, ProgramId
from app.domain.run import RunState
from app.domain.search.cohort import CutReason
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.protocols import NEVER, Stop
from app.reports.bands import comparison
from app.reports.course import read_course
from app.reports.folder import write_best
from app.reports.lineage import branches
from app.reports.metrics import GrowingMetrics, generations_of, metrics_of
from app.reports.program import program_document
from app.reports.ratings import read_ratings
from app.reports.report import report
from app.reports.summary import summarise
from app.reports.waiting import QueueState
from tests.engine.conftest import new_run, run_to_the_end, table, with_process
from tests.engine.toy import ToySandbox, problem
from tests.integration.cli import Evoq
from tests.unit.cli.remedies import replace_everywhere

SEEDS = ("x = 0.0\n", "x = 1.0\n", "x = -1.0\n")


def number(program: Program) -> float:
    return float(program.source.split("=")[1].split("#")[0])


def interpret(trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome) -> Evaluation:
    """The larger number wins; the smoke stage fails as the sandbox does."""
    if outcome.failure is not None:
        return Evaluation(failure=outcome.failure, verified=True)
    if trial.stage == "smoke":
        [player] = trial.players
        return Evaluation(scores={player: {"smoke": 1.0}}, verified=True)
    first, second = (number(programs[player]) for player in trial.players)
    score = 0.5 if first == second else float(first > second)
    scores = {
        player: {f"{other[:12]} {seat} {trial.cases[0]}": points}
        for player, other, seat, points in zip(
            trial.players, trial.players[::-1], ("first", "second"), (score, 1 - score), strict=True
        )
    }
    artifacts = {"moves": "up down", "termination": "larger"}
    return Evaluation(scores=scores, artifacts=artifacts, verified=True)


def game(**changes: Any) -> Problem:
    toy = problem(seeds=SEEDS, stages=("smoke", "match"), axes=())
    return replace(toy, players=2, interpret=interpret, **changes)


def played(ctx: Context, toy: Problem, *, budget: int = 12, **strategy: Any) -> int:
    new = new_run(toy, islands=1, budget=budget, in_flight=16)
    settings = {**new.settings, "strategy": {"entrants": 4, **strategy}}
    return run_to_the_end(ctx, toy, replace(new, strategy="tournament", settings=settings))


def facts(ctx: Context, run: int, kind: EventKind) -> list[Any]:
    with ctx.store.begin() as tx:
        return [event.fact for event in tx.events.read(run, limit=5000, kinds=(kind,))]


def test_champion_and_runner_up_found_the_next_generation(ctx: Context) -> None:
    run = played(ctx, game())

    closed: list[Closed] = facts(ctx, run, EventKind.CLOSED)
    entered: list[Entered] = facts(ctx, run, EventKind.ENTERED)
    assert len(closed) == 4  # the seeds, and three generations of four
    podiums = {one.cohort: set(one.podium) for one in closed}
    cohorts = sorted(podiums)
    for before, after in pairwise(cohorts):
        parents = {p for one in entered if one.cohort == after for p in one.parents}
        assert parents <= podiums[before]
    with ctx.store.begin() as tx:
        assert tx.runs.get(run).state is RunState.FINISHED
        champion = tx.history.best(run)
    assert champion is not None
    assert champion.program == closed[-1].podium[0]


def test_the_podium_is_the_two_largest_numbers_of_all(ctx: Context) -> None:
    run = played(ctx, game(), budget=12)

    with ctx.store.begin() as tx:
        ids = {p for g in facts(ctx, run, EventKind.PLAYED) for p in (g.first, g.second)}
        numbers = {program: number(tx.programs.get([program])[program]) for program in ids}
    best = sorted(numbers.values(), reverse=True)[:2]
    podium = facts(ctx, run, EventKind.CLOSED)[-1].podium
    assert [numbers[program] for program in podium] == best


def test_every_pair_of_a_generation_plays_from_both_sides(ctx: Context) -> None:
    run = played(ctx, game(), budget=4, games=2)

    games: list[Played] = facts(ctx, run, EventKind.PLAYED)
    for cohort in {one.cohort for one in games}:
        mine = [one for one in games if one.cohort == cohort]
        players = {p for one in mine for p in (one.first, one.second)}
        seatings = [(one.first, one.second) for one in mine]
        assert len(mine) == len(players) * (len(players) - 1) * 2
        assert all(seatings.count(one) == 2 for one in seatings)
    assert {one.moves for one in games} == {("up", "down")}


def test_newcomers_play_the_podium_alone_where_that_is_asked(ctx: Context) -> None:
    run = played(ctx, game(), budget=4, pairing="podium")

    founders, closed = facts(ctx, run, EventKind.CLOSED)
    podium = set(founders.podium)
    games = [one for one in facts(ctx, run, EventKind.PLAYED) if one.cohort == closed.cohort]
    assert games
    assert all(podium & {one.first, one.second} for one in games)


def test_the_finalists_of_a_bracket_are_its_podium(ctx: Context) -> None:
    run = played(ctx, game(), budget=8, pairing="bracket")

    closed: list[Closed] = facts(ctx, run, EventKind.CLOSED)
    assert len(closed) == 3
    for one in closed:
        games = [g for g in facts(ctx, run, EventKind.PLAYED) if g.cohort == one.cohort]
        players = {p for g in games for p in (g.first, g.second)}
        assert len(games) == 2 * (len(players) - 1)
        last = max(games, key=lambda g: g.game)
        assert set(one.podium) == {last.first, last.second}
        assert (last.score == 1.0) == (one.podium[0] == last.first) or last.score == 0.5
    with ctx.store.begin() as tx:
        champion = tx.history.best(run)
    assert champion is not None
    assert (champion.program, champion.fitness) == (closed[-1].podium[0], 1.0)


def test_incumbents_are_rerated_before_newcomers_enter(ctx: Context) -> None:
    run = played(ctx, game(), budget=4)

    with ctx.store.begin() as tx:
        events = [event.fact for event in tx.events.read(run, limit=5000)]
    generation = [fact for fact in events if isinstance(fact, Scored)][-1]
    offered = [f for f in events if f.kind in (EventKind.ADMITTED, EventKind.REFUSED)]
    incumbents = [fact for fact in offered if fact.proposal is None]  # type: ignore[union-attr]
    assert len(incumbents) == 2
    assert offered[:2] == incumbents
    for fact in incumbents:
        share = generation.points[fact.program] / generation.games[fact.program]  # type: ignore
        assert fact.fitness == pytest.approx(share)  # type: ignore[union-attr]


def beaten_in_turn(
    trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome
) -> Evaluation:
    """The largest seed beats seeds always, and children where it begins; other games are draws."""
    found = interpret(trial, programs, outcome)
    sources = [programs[player].source for player in trial.players]
    if trial.stage == "smoke" or {*sources} <= {*SEEDS}:
        return found
    if sources[0] == SEEDS[1]:
        scores = {
            player: dict.fromkeys(row, float(programs[player].source == SEEDS[1]))
            for player, row in found.scores.items()
        }
        return replace(found, scores=scores)
    scores = {player: dict.fromkeys(row, 0.5) for player, row in found.scores.items()}
    return replace(found, scores=scores)


def test_a_champion_that_is_rated_anew_has_one_fitness_everywhere(
    ctx: Context, evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = replace(game(), interpret=beaten_in_turn, baselines={"one": Program(SEEDS[1]).id})
    replace_everywhere(monkeypatch, target, "stored_problem", lambda store, run: toy)
    run = played(ctx, toy, budget=8)

    shown = evoq("show", "toy-run", "--json").json["best"]
    summary, course = summarise(ctx.store, run, toy), read_course(ctx.store, run)
    write_best(summary, toy, tmp_path)
    with ctx.store.begin() as tx:
        page = program_document(tx, tx.runs.get(run), Program(SEEDS[1]).id, ("smoke", "match"))
        podium = tx.archive.island(run, 0).best(1)

    crowned, rerated = (facts(ctx, run, kind) for kind in (EventKind.CROWNED, EventKind.RERATED))
    assert [one.fitness for one in crowned] == [1.0]
    assert 0.5 < rerated[-1].fitness < 1.0
    assert {one.program for one in (*crowned, *rerated)} == {shown["program"], podium[0].program}
    assert {
        "elite": podium[0].fitness,
        "show": shown["fitness"],
        "baseline": summary.baselines["one"].fitness,
        "best.json": json.loads((tmp_path / "best.json").read_text())["fitness"],
        "line": course.progress.best,
        "chart": course.improvements[-1].fitness,
        "page": page.fitness,
    } == dict.fromkeys(
        ("elite", "show", "baseline", "best.json", "line", "chart", "page"), rerated[-1].fitness
    )
    assert course.progress.improvements == len(crowned)


def test_tables_trees_and_comparisons_have_the_fitness_of_the_champion(
    ctx: Context, tmp_path: Path
) -> None:
    toy = replace(game(), interpret=beaten_in_turn, baselines={"one": Program(SEEDS[1]).id})
    own = replace(ctx, problem=lambda digest: toy)
    new = new_run(toy, islands=1, budget=8, in_flight=16)
    settings = {**new.settings, "strategy": {"entrants": 4}}
    name = "mine.toy.tournament.1"
    order = replace(new, name=name, strategy="tournament", settings=settings)
    run = lifecycle.start(own, toy, order)
    growing = GrowingMetrics(ctx.store, run, tmp_path / "metrics.jsonl")
    executor = own.executor
    assert isinstance(executor, InlineExecutor)
    # Lines are written after each step.
    executor.drain(table(own), lambda: bool(growing.append()))
    growing.append()

    with ctx.store.begin() as tx:
        run = tx.runs.get(run.id)
        best = tx.history.best(run.id)
    assert best is not None
    assert best.fitness is not None
    course = read_course(ctx.store, run.id)
    reader = RunReader(ctx.store, "redis://127.0.0.1:9/0", lambda digest: toy, QueueState)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    [arm] = comparison(ctx.store, "mine").problems[0].arms.values()
    told = report(ctx.store, [(summarise(ctx.store, run.id, toy), toy)], lambda _: None)

    crowned, rerated = (facts(ctx, run.id, kind) for kind in (EventKind.CROWNED, EventKind.RERATED))
    assert len(rerated) == 2  # by each generation
    after = [crowned[-1].fitness, *(one.fitness for one in rerated)]
    assert [row.best_so_far for row in metrics_of(ctx.store, run)] == [
        fitness for fitness, size in zip(after, (3, 4, 4), strict=True) for _ in range(size)
    ]
    assert [(best.settled, best.fitness) for best in course.bests] == list(
        zip((0, 4, 8), after, strict=True)
    )
    assert [(point.settled, point.median) for point in arm.band] == list(
        zip((0, 4, 8), after, strict=True)
    )
    assert [row.best_score for row in generations_of(ctx.store, run)] == after[1:]
    assert {
        "file that grows": lines[-1]["best_so_far"],
        "rows of /api": reader.proposals(run, 9, 1)[0].best_so_far,
        "proposal": reader.proposal(run, 0).proposal.best_so_far,
        "lineage": reader.lineage(run, str(best.program))[0].fitness,
        "tree": branches(reader.tree(run, course.improvements).nodes, best.program)[0].best,
        "comparison": arm.band[-1].median,
    } == {
        "file that grows": best.fitness,
        "rows of /api": best.fitness,
        "proposal": after[1],
        "lineage": best.fitness,
        "tree": best.fitness,
        "comparison": best.fitness,
    }
    assert f"Fitness {number_text(best.fitness)}<" in told


@pytest.mark.parametrize("pairing", ["round_robin", "podium", "bracket"])
def test_the_mean_of_the_games_that_are_named_is_the_fitness(ctx: Context, pairing: str) -> None:
    toy = replace(game(), interpret=beaten_in_turn)
    run = played(ctx, toy, budget=8, pairing=pairing)

    best = summarise(ctx.store, run, toy).best
    assert best is not None
    newest = facts(ctx, run, EventKind.SCORED)[-1].cohort
    games = [g for g in facts(ctx, run, EventKind.PLAYED) if g.cohort == newest]
    points = {
        f"{other[:12]} {seat} {g.game}": score if seat == "first" else 1.0 - score
        for g in games
        for seat, player, other, score in (
            ("first", g.first, g.second, g.score),
            ("second", g.second, g.first, g.score),
        )
        if player == best.measured.program
    }
    names = best.measured.fitness_names
    if pairing == "bracket" and not names:
        assert best.measured.fitness != fmean(points.values())
    else:
        assert sorted(names) == sorted(points)
        assert best.measured.fitness == fmean(points[name] for name in names)


def test_a_candidate_that_fails_its_test_plays_no_game(ctx: Context) -> None:
    run = played(ctx, game(), budget=16, entrants=8)

    tested: list[GateTested] = facts(ctx, run, EventKind.TESTED)
    failed = {one.program for one in tested if one.failure is not None}
    players = {p for g in facts(ctx, run, EventKind.PLAYED) for p in (g.first, g.second)}
    assert failed, "one child in ten crashes"
    assert not failed & players


def test_a_gate_before_the_game_keeps_children_out_and_lets_seeds_play(ctx: Context) -> None:
    run = played(ctx, replace(game(), thresholds=(1.5,)), budget=8)

    games: list[Played] = facts(ctx, run, EventKind.PLAYED)
    assert len({one.cohort for one in games}) == 1
    assert {p for one in games for p in (one.first, one.second)} == {Program(s).id for s in SEEDS}
    reasons = {one.why for one in facts(ctx, run, EventKind.CUT)}
    assert CutReason.BELOW_THRESHOLD in reasons
    with ctx.store.begin() as tx:
        assert tx.runs.get(run).state is RunState.FINISHED


def test_a_void_game_does_not_count_and_blames_nobody(ctx: Context) -> None:
    lost = Failure(FailureKind.TIMEOUT, "no result")

    def void(trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome) -> Evaluation:
        if trial.stage == "match" and trial.cases == ("0",):
            return Evaluation(failure=lost, verified=True)
        return interpret(trial, programs, outcome)

    run = played(ctx, replace(game(), interpret=void), budget=4)

    games: list[Played] = facts(ctx, run, EventKind.PLAYED)
    assert {one.score is None for one in games if one.game == 0} == {True}
    scored: list[Scored] = facts(ctx, run, EventKind.SCORED)
    assert all(2 * n == len(one.games) - 1 or n for one in scored for n in one.games.values())
    assert sum(sum(one.games.values()) for one in scored) == 2 * sum(g.game == 1 for g in games)


@pytest.fixture
def evoq(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Evoq:
    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:9/0")
    replace_everywhere(monkeypatch, target, "stored_problem", lambda store, run: game())
    return Evoq(capsys)


def test_the_command_line_shows_ratings_with_their_intervals(ctx: Context, evoq: Evoq) -> None:
    run = played(ctx, game(), budget=4)

    shown = evoq("show", "toy-run", "--json").json
    text = evoq("show", "toy-run").out

    with ctx.store.begin() as tx:
        ratings = read_ratings(tx, run)
    assert shown["ratings"] == [asdict(one) for one in ratings]
    assert shown["best"]["program"] == ratings[0].program
    assert all(one["low"] < one["rating"] < one["high"] for one in shown["ratings"])
    assert f"{ratings[0].program[:12]}   {ratings[0].rating:>6.0f}" in text
    assert "fitness: the share of the points in the games of one generation" in text


def test_ratings_are_reproducible_from_the_ledger(ctx: Context) -> None:
    run = played(ctx, game(), budget=8)

    def rated() -> tuple[Any, Any]:
        games: list[Played] = facts(ctx, run, EventKind.PLAYED)
        counted = [g for g in games if g.score is not None]
        results = [Game(g.first, g.second, g.score) for g in counted if g.score is not None]
        periods: dict[ProgramId, float] = {}
        for cohort in dict.fromkeys(g.cohort for g in counted):
            mine = [r for r, g in zip(results, counted, strict=True) if g.cohort == cohort]
            periods = elo(mine, periods)
        return periods, bradley_terry(results)

    assert rated() == rated()
    podium = facts(ctx, run, EventKind.CLOSED)[-1].podium
    by_strength = rated()[1]
    assert max(by_strength, key=lambda player: by_strength[player].value) == podium[0]


class _Interrupted(ToySandbox):
    """Ends the process of a worker, as it were, at every fifth job."""

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        outcome = super().run(job, stop)
        if self.runs % 5 == 0:
            raise KeyboardInterrupt
        return outcome


def test_a_game_that_a_worker_lost_is_played_again_and_settled_once(ctx: Context) -> None:
    ctx = replace(ctx, sandbox=_Interrupted(), pace=Pace(lease_seconds=0.0, redeliver_seconds=0.0))
    toy = game()
    ctx = replace(ctx, problem=lambda digest: toy)
    new = new_run(toy, islands=1, budget=8, in_flight=16)
    settings = {**new.settings, "strategy": {"entrants": 4}}
    run = lifecycle.start(ctx, toy, replace(new, strategy="tournament", settings=settings))
    assert isinstance(ctx.executor, InlineExecutor)
    for _ in range(300):
        with suppress(KeyboardInterrupt):
            ctx.executor.drain(table(ctx), lambda: False)
        steps.reap(ctx, run.id)
        with ctx.store.begin() as tx:
            if tx.runs.get(run.id).state is RunState.FINISHED:
                break
    games: list[Played] = facts(ctx, run.id, EventKind.PLAYED)
    seatings = [(g.cohort, g.first, g.second, g.game) for g in games]
    assert len(seatings) == len(set(seatings))
    assert len(facts(ctx, run.id, EventKind.CLOSED)) == 3


class _Watched(ToySandbox):
    """Shows moves while it runs a game, which are not those that the game ends with."""

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if job.watch is not None:
            job.watch(["invented"])
        return super().run(job, stop)


def test_moves_are_shown_of_games_alone_and_are_not_believed(ctx: Context) -> None:
    seen: dict[int, list[str]] = {}
    toy, limits = game(), GameLimits(move_seconds=1.0, game_seconds=9.0, memory_mib=64)

    def prepare(trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
        job = toy.prepare(trial, programs)
        return job if trial.stage == "smoke" else replace(job, game=limits)

    def show(trial: int, moves: Sequence[str]) -> None:
        seen[trial] = [*moves]

    watched = with_process(replace(ctx, sandbox=_Watched()), show_moves=show)
    run = played(watched, replace(toy, prepare=prepare), budget=4)

    games: list[Played] = facts(ctx, run, EventKind.PLAYED)
    assert len(seen) == len(games)
    assert all(moves == ["invented"] for moves in seen.values())
    assert {one.moves for one in games} == {("up", "down")}


class _Deadly(ToySandbox):
    """Ends the process of a worker, as it were, whenever it runs a game of one pair of programs."""

    begun = 0

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if [text for _, text in job.programs] == [SEEDS[0].encode(), SEEDS[1].encode()]:
            self.begun += 1
            raise KeyboardInterrupt
        return super().run(job, stop)


def test_a_game_that_never_ends_is_settled_as_void_and_the_run_goes_on(ctx: Context) -> None:
    deadly = _Deadly()
    ctx = replace(ctx, sandbox=deadly, pace=Pace(lease_seconds=0.0, redeliver_seconds=0.0))
    toy = game()
    ctx = replace(ctx, problem=lambda digest: toy)
    new = new_run(toy, islands=1, budget=4, in_flight=16)
    settings = {**new.settings, "strategy": {"entrants": 4}}
    run = lifecycle.start(ctx, toy, replace(new, strategy="tournament", settings=settings))
    assert isinstance(ctx.executor, InlineExecutor)
    for _ in range(100):
        with suppress(KeyboardInterrupt):
            ctx.executor.drain(table(ctx), lambda: False)
        steps.reap(ctx, run.id)
        with ctx.store.begin() as tx:
            if tx.runs.get(run.id).state is not RunState.RUNNING:
                break

    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).state is RunState.FINISHED
    games: list[Played] = facts(ctx, run.id, EventKind.PLAYED)
    void = [one for one in games if one.failure is not None]
    cursed = {(Program(SEEDS[0]).id, Program(SEEDS[1]).id)}
    assert {(one.first, one.second) for one in void} == cursed
    assert {(one.score, one.culprit) for one in void} == {(None, None)}
    assert len(void) * ctx.pace.attempts == deadly.begun


def test_the_events_of_a_tournament_are_frames(ctx: Context) -> None:
    run = played(ctx, game(), budget=4)

    with ctx.store.begin() as tx:
        frames = [encode(run, event) for event in tx.events.read(run, limit=5000)]
    for frame in frames:
        adapter().validate_python(json.loads(frame))
