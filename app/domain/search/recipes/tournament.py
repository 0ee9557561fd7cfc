"""Tournaments: programs that play each other, whose champion and runner-up found the next ones.

A generation of an island is one cohort.  Its children pass the stages before the game one by one,
then they and the incumbents play.  The incumbents are rated anew before the newcomers enter, so
that nobody keeps a place by points of games against others.

Source: the architecture of Darwin.  Departures: docs/games.md.
"""

from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Literal

from app.domain.evaluation import Trial
from app.domain.games import against, bracket, pairings, rounds_won
from app.domain.program import ProgramId
from app.domain.search.archive import IslandView, best, everyone_together
from app.domain.search.cohort import Cohort, Verdict
from app.domain.search.promotion import Gates, Promotion, cascade, shortfall
from app.domain.search.strategy import (
    Barrier,
    Lineage,
    Ranking,
    RecipeInputs,
    Selection,
    Strategy,
    at_least,
    fixed,
)

PODIUM = 2
"""The champion and the runner-up."""

Pairing = Literal["round_robin", "podium", "bracket"]


def from_podium(island: IslandView, rng: Random) -> Lineage:
    """Draws the champion or the runner-up as the parent; the other one is the inspiration."""
    podium = island.best(PODIUM)
    parent = rng.choice(podium)
    return Lineage((parent,), tuple(elite for elite in podium if elite != parent))


def by_games(stages: tuple[str, ...], gates: Gates, pairing: Pairing, games: int) -> Promotion:
    """Members that pass the stages before the last play each other and the incumbents.

    The games begin when every member has passed or has dropped out.  Where none has passed, there
    are no games.  When they have ended, the incumbents are admitted first, then the newcomers; a
    program whose games all count for nothing is neither admitted nor rated anew.

    Args:
      stages: Of the problem; the last one is the game.
      gates: Between the stages, the one before the game included; every seed plays.
      pairing: See `TournamentRecipe`.
      games: Games of a pair in which each of the two begins.
    """
    *before, game = stages
    climb = cascade(tuple(before), gates) if before else _all_pass

    def promotion(cohort: Cohort, field: IslandView) -> Verdict:
        gate = climb(cohort, field)
        if cohort.pending or gate.test or any(cohort.waits_at(stage) for stage in before):
            return replace(gate, admit=())
        newcomers = tuple(p for p in gate.admit if _enters(stages, gates, cohort, p, field))
        short = [m.id for m in cohort.living if m.program in {*gate.admit} - {*newcomers}]
        gate = replace(gate, admit=(), cut=(*gate.cut, *short))
        if not newcomers:
            return gate
        incumbents = _incumbents(cohort, field)
        players = (*incumbents, *newcomers)
        if pairing == "bracket":
            ranked = sorted(newcomers, key=lambda p: -(cohort.fitness(p, tuple(before)) or 0.0))
            trials = bracket(game, (*incumbents, *ranked), games, cohort.trials)
        else:
            trials = _trials(game, players, incumbents, pairing, games)
        missing = tuple(trial for trial in trials if trial not in cohort.trials)
        if missing or cohort.waits_at(game):
            return replace(gate, test=missing)
        # A single founder has no opponent, and enters by what its gate measured.
        rated = (game,) if trials else stages
        scored = [p for p in players if cohort.fitness(p, rated) is not None]
        void = [p for p in newcomers if p not in scored]
        dropped = tuple(member.id for member in cohort.living if member.program in void)
        return replace(gate, admit=tuple(scored), cut=(*gate.cut, *dropped))

    return promotion


def _enters(
    stages: tuple[str, ...], gates: Gates, cohort: Cohort, player: ProgramId, field: IslandView
) -> bool:
    """Returns whether a player passes the gate before the game: seeds do, and who plays already."""
    *before, game = stages
    if not before or cohort.seeding:
        return True
    if any(player in trial.players for trial in cohort.trials if trial.stage == game):
        return True
    score = cohort.fitness(player, tuple(before))
    return shortfall(stages, gates, len(before) - 1, score, field) is None


def _all_pass(cohort: Cohort, field: IslandView) -> Verdict:  # noqa: ARG001  the signature of a Promotion
    return Verdict(admit=tuple(m.program for m in cohort.living if m.program is not None))


def _incumbents(cohort: Cohort, field: IslandView) -> tuple[ProgramId, ...]:
    """Returns the podium that the cohort was drawn from, and that still has its place, in order."""
    drafts = [member.draft for member in cohort.members if member.draft is not None]
    drawn = {program for draft in drafts for program in (*draft.parents, *draft.inspirations)}
    return tuple(elite.program for elite in field.best(PODIUM) if elite.program in drawn)


def _trials(
    game: str,
    players: tuple[ProgramId, ...],
    incumbents: tuple[ProgramId, ...],
    pairing: Pairing,
    games: int,
) -> tuple[Trial, ...]:
    if pairing == "round_robin" or not incumbents:
        return pairings(game, players, games)
    return against(game, incumbents, players, games)


def _placing(game: str, games: int, cohort: Cohort, player: ProgramId) -> float | None:
    return rounds_won(game, player, games, cohort.trials)


@dataclass(frozen=True, slots=True)
class TournamentRecipe:
    """The recipe, for problems that are games.

    Attributes:
      entrants: Children of a generation.
      games: Games of a pair of programs in which each of the two begins.
      pairing: Who plays whom: everyone everyone (`round_robin`), the newcomers only the champion
        and the runner-up, who play each other (`podium`), or who has not lost yet (`bracket`, a
        single elimination, whose fitness is the share of the rounds won).

    Raises:
      ValueError: A parameter is out of range.
    """

    entrants: int = 4
    games: int = 1
    pairing: Pairing = "round_robin"

    def __post_init__(self) -> None:
        at_least(1, entrants=self.entrants, games=self.games)

    def strategy(self, inputs: RecipeInputs) -> Strategy:
        """Builds the five decisions."""
        selection: Selection = from_podium
        return Strategy(
            niche=everyone_together,
            occupancy=best(PODIUM),
            selection=selection,
            promotion=by_games(inputs.stages, inputs.thresholds, self.pairing, self.games),
            model_mix={"directed": 1.0},
            size=fixed(self.entrants),
            barrier=Barrier.ISLAND,
            rated=inputs.stages[-1:],
            placing=partial(_placing, inputs.stages[-1], self.games)
            if self.pairing == "bracket"
            else None,
            gridded=False,
            ranking=Ranking.RELATIVE,
            plays=True,
        )
