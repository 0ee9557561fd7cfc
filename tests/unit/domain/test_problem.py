"""Problems: how one program is measured alone."""

from dataclasses import replace

from app.domain.evaluation import Trial
from tests.engine.toy import problem


def test_a_program_alone_plays_against_itself_where_a_trial_has_two_players() -> None:
    toy = problem()

    assert toy.trials_of("p", "evaluate") == (Trial("evaluate", ("p",)),)
    assert replace(toy, players=2).trials_of("p", "match") == (Trial("match", ("p", "p")),)
