"""Problems: how one program is measured alone."""

from dataclasses import replace

from app.domain.evaluation import Trial
from tests.engine.toy import problem


def test_a_program_of_a_game_alone_plays_the_first_seed_from_both_sides() -> None:
    toy = problem()
    seed = toy.seeds[0].id
    game = replace(toy, players=2, stages=("smoke", "match"))

    assert toy.trials_of("p", "evaluate") == (Trial("evaluate", ("p",)),)
    assert game.trials_of("p", "smoke") == (Trial("smoke", ("p",)),)
    assert game.trials_of("p", "match") == (
        Trial("match", ("p", seed), ("0",)),
        Trial("match", (seed, "p"), ("1",)),
    )
