"""The cascade: each member climbs alone."""

from dataclasses import replace

from app.domain.evaluation import Cases, Evaluation, Failure, FailureKind, Trial
from app.domain.operator import Draft
from app.domain.search.archive import Cell, Elite
from app.domain.search.cohort import Cohort, Member, State, Verdict
from app.domain.search.gates import TopOf
from app.domain.search.promotion import Promotion, at_deadline, cascade, shortfall, top
from tests.islands import Island

FIELD = Island(0, cells={(): Cell((), (Elite("whole", 0.1, 10, 0),))})
BEGINNING = Island(0, cells={(): Cell((), (Elite("seed", 0.4, 10, 0, stages_left=1),))})
CHEAP, FULL = Trial("cheap", ("p",)), Trial("full", ("p",))
CLIMB = cascade(("cheap", "full"), (0.5,))


def cohort(trials: dict[Trial, Evaluation | None], *, seeding: bool = False) -> Cohort:
    member = Member(1, 0, State.TESTING, Draft(0, 0, 0, 1, ("q",)), "p")
    return Cohort(1, 1, 0, "mutate", (replace(member, seed=seeding),), trials)


def scored(value: float) -> Evaluation:
    return Evaluation(scores={"p": {"combined_score": value}})


def test_a_newcomer_is_tested_at_the_first_stage() -> None:
    assert CLIMB(cohort({}), FIELD) == Verdict(test=(CHEAP,))


def test_while_a_trial_runs_there_is_nothing_to_do() -> None:
    assert CLIMB(cohort({CHEAP: None}), FIELD) == Verdict()


def test_reaching_the_threshold_leads_to_the_next_stage() -> None:
    assert CLIMB(cohort({CHEAP: scored(0.5)}), FIELD) == Verdict(test=(FULL,))


def test_staying_below_it_is_a_cut() -> None:
    assert CLIMB(cohort({CHEAP: scored(0.49)}), FIELD) == Verdict(cut=(1,))


def test_while_an_island_has_nobody_above_it_staying_below_is_no_cut() -> None:
    assert CLIMB(cohort({CHEAP: scored(0.49)}), BEGINNING) == Verdict(admit=("p",))


def test_a_seed_below_it_is_admitted_with_what_it_reached() -> None:
    assert CLIMB(cohort({CHEAP: scored(0.49)}, seeding=True), FIELD) == Verdict(admit=("p",))


def test_a_seed_that_fails_is_failed_like_any_child() -> None:
    failure = Evaluation(failure=Failure(FailureKind.RUNTIME))
    assert CLIMB(cohort({CHEAP: failure}, seeding=True), FIELD) == Verdict(fail=(1,))


def test_a_failure_at_any_stage_fails_the_proposal() -> None:
    failure = Evaluation(failure=Failure(FailureKind.TIMEOUT))
    assert CLIMB(cohort({CHEAP: scored(1), FULL: failure}), FIELD) == Verdict(fail=(1,))


def test_the_last_stage_admits_whatever_the_score() -> None:
    last = cascade(("cheap", "full"), (0.5, 0.9))
    assert last(cohort({CHEAP: scored(1), FULL: scored(0)}), FIELD) == Verdict(admit=("p",))


GROUPS = {"full": (("3",), ("4",))}
SMALL, LARGE = Trial("full", ("p",), ("3",)), Trial("full", ("p",), ("4",))
FAULT = Evaluation(failure=Failure(FailureKind.TIMEOUT))


def test_the_trials_of_all_cases_of_a_stage_are_planned_at_once() -> None:
    climb = cascade(("cheap", "full"), (), Cases(GROUPS))

    assert climb(cohort({}), FIELD) == Verdict(test=(CHEAP,))
    assert climb(cohort({CHEAP: scored(1)}), FIELD) == Verdict(test=(SMALL, LARGE))
    assert climb(cohort({CHEAP: scored(1), SMALL: scored(1)}), FIELD) == Verdict(test=(LARGE,))
    assert climb(cohort({CHEAP: scored(1), SMALL: scored(1), LARGE: None}), FIELD) == Verdict()


def test_a_program_fails_by_one_case_or_by_all_of_them() -> None:
    tested = cohort({SMALL: scored(1), LARGE: FAULT})

    assert cascade(("full",), (), Cases(GROUPS))(tested, FIELD) == Verdict(fail=(1,))
    some = cascade(("full",), (), Cases(GROUPS, whole=False))
    assert some(tested, FIELD) == Verdict(admit=("p",))
    assert some(cohort({SMALL: FAULT, LARGE: FAULT}), FIELD) == Verdict(fail=(1,))


def test_a_shortfall_names_the_stage_the_fitness_and_the_threshold() -> None:
    stages = ("cheap", "full")
    short = shortfall(stages, (0.5, 0.9), 0, 0.364)
    assert str(short) == "stops after cheap with fitness 0.364, below the threshold 0.5"
    nearly = shortfall(stages, (0.5, 0.9), 0, 0.49999999)
    assert str(nearly) == "stops after cheap with fitness 0.49999999, below the threshold 0.5"
    assert shortfall(stages, (0.5, 0.9), 0, 0.5) is None
    assert shortfall(stages, (0.5, 0.9), 1, 0.0) is None


def test_a_verdict_on_the_same_cohort_twice_is_the_same_verdict() -> None:
    state = cohort({CHEAP: scored(0.7)})
    assert CLIMB(state, FIELD) == CLIMB(state, FIELD)


STAGES = ("cheap", "full", "last")


def generation(*members: Member, trials: dict[Trial, Evaluation | None]) -> Cohort:
    return Cohort(1, 1, 0, "mutate", members, trials)


def living(name: str, number: int) -> Member:
    return Member(number, number, State.TESTING, Draft(number, 0, 0, 1, ("q",)), name)


def cheaply(**scores: float | None) -> dict[Trial, Evaluation | None]:
    return {
        Trial("cheap", (name,)): None
        if score is None
        else Evaluation(scores={name: {"combined_score": score}})
        for name, score in scores.items()
    }


def test_the_best_of_a_cohort_climb_and_the_others_are_cut() -> None:
    members = [living(name, n) for n, name in enumerate("abcd", 1)]
    state = generation(*members, trials=cheaply(a=0.1, b=0.4, c=0.1, d=0.2))

    verdict = top(2, STAGES)(state, FIELD)

    assert verdict == Verdict(test=(Trial("full", ("b",)), Trial("full", ("d",))), cut=(1, 3))


def test_of_equal_members_the_older_climbs() -> None:
    members = [living(name, n) for n, name in enumerate("abc", 1)]
    state = generation(*members, trials=cheaply(a=0.1, b=0.1, c=0.1))

    assert top(1, STAGES)(state, FIELD) == Verdict(test=(Trial("full", ("a",)),), cut=(2, 3))


def test_nobody_climbs_before_every_member_has_been_measured() -> None:
    measured = [living("a", 1), living("b", 2)]
    late = Member(3, 3, State.PLANNED)
    fresh = living("c", 3)
    promotion = top(1, STAGES)

    scores = cheaply(a=0.1, b=0.4)
    assert promotion(generation(*measured, late, trials=scores), FIELD) == Verdict()
    assert promotion(generation(*measured, fresh, trials=scores), FIELD) == Verdict(
        test=(Trial("cheap", ("c",)),)
    )
    running = cheaply(a=0.1, b=0.4, c=None)
    assert promotion(generation(*measured, fresh, trials=running), FIELD) == Verdict()


def test_who_was_promoted_climbs_the_later_stages_alone() -> None:
    full = {Trial("full", ("a",)): Evaluation(scores={"a": {"combined_score": -5.0}})}
    state = generation(living("a", 1), trials=cheaply(a=0.1) | full)

    assert top(1, STAGES)(state, FIELD) == Verdict(test=(Trial("last", ("a",)),))


def test_a_member_that_failed_is_no_competitor() -> None:
    failed = {Trial("cheap", ("a",)): Evaluation(failure=Failure(FailureKind.RUNTIME))}
    members = [living("a", 1), living("b", 2)]
    state = generation(*members, trials=failed | cheaply(b=-3.0))

    assert top(1, STAGES)(state, FIELD) == Verdict(test=(Trial("full", ("b",)),), fail=(1,))


def test_a_problem_with_one_stage_has_no_ranking() -> None:
    members = [living("a", 1), Member(2, 2, State.PLANNED)]

    verdict = top(1, ("cheap",))(generation(*members, trials=cheaply(a=0.1)), FIELD)

    assert verdict == Verdict(admit=("a",))


def test_who_passed_a_gate_is_not_compared_again_with_newer_programs() -> None:
    gated = cascade(("cheap", "full"), (TopOf(1, 3),))
    field = replace(FIELD, measured={"cheap": (0.7, 9.0)})

    assert gated(cohort({CHEAP: scored(0.7)}), field) == Verdict(cut=(1,))
    assert gated(cohort({CHEAP: scored(0.7), FULL: scored(0.1)}), field) == Verdict(admit=("p",))
    seeds = cohort({CHEAP: scored(0.7)}, seeding=True)
    assert gated(seeds, field) == Verdict(test=(FULL,)), "seeds are compared with no program"


NOISY = Cases(repeated="full", measurements=4)
HELD = Island(0, cells={(): Cell((), (Elite("q", 5.0, 10, 0),))})


def measured(*values: float | None) -> Cohort:
    """Returns a cohort whose only member was measured so often; None: a trial under way."""
    trials: dict[Trial, Evaluation | None] = {CHEAP: scored(1.0)}
    for n, value in enumerate(values):
        [trial] = NOISY.trials("full", ("p",), n)
        trials[trial] = None if value is None else scored(value)
    return cohort(trials)


def test_a_program_is_measured_until_it_is_apart_from_the_best_of_its_island() -> None:
    noisy = cascade(("cheap", "full"), (), NOISY)
    second, third, fourth = (NOISY.trials("full", ("p",), n) for n in (1, 2, 3))

    assert noisy(measured(9.0), HELD) == Verdict(test=second), "one measurement says nothing"
    assert noisy(measured(9.0, None), HELD) == Verdict()
    assert noisy(measured(9.0, 3.0), HELD) == Verdict(test=third)
    assert noisy(measured(9.0, 3.0, 8.0), HELD) == Verdict(test=fourth)
    assert noisy(measured(9.0, 3.0, 8.0, 4.0), HELD) == Verdict(admit=("p",)), "at most four"
    assert noisy(measured(9.0, 9.1), HELD) == Verdict(admit=("p",))
    assert noisy(measured(1.0, 1.1), HELD) == Verdict(admit=("p",)), "apart below it, too"
    assert noisy(measured(5.0, 5.0), HELD) == Verdict(admit=("p",)), "no noise"
    assert noisy(measured(9.0, 9.1), Island(0)) == Verdict(test=third), "nothing to be apart from"


def test_the_fitness_of_a_program_is_the_mean_of_its_measurements() -> None:
    state = measured(9.0, 3.0, 6.0)

    assert state.fitness("p", ("cheap", "full")) == 6.0
    assert state.measurements("p", "full") == [9.0, 3.0, 6.0]
    assert state.fitness("p", ("cheap",)) == 1.0


def test_a_failed_repetition_fails_the_program() -> None:
    noisy = cascade(("cheap", "full"), (), NOISY)
    [again] = NOISY.trials("full", ("p",), 1)
    state = measured(9.0)
    failed = {**state.trials, again: Evaluation(failure=Failure(FailureKind.RUNTIME))}

    assert noisy(replace(state, trials=failed), HELD) == Verdict(fail=(1,))


def late(promotion: Promotion, state: Cohort, field: Island = FIELD) -> Verdict:
    return at_deadline(promotion, replace(state, late=True), field)


def test_at_the_deadline_what_is_not_measured_to_its_end_is_withdrawn() -> None:
    members = [living("a", 1), living("b", 2), Member(3, 3, State.PLANNED), living("c", 4)]
    state = generation(*members, trials=cheaply(a=0.1, b=None, c=0.7))

    assert late(cascade(("cheap",)), state) == Verdict(admit=("a", "c"), withdraw=(2, 3))


def test_at_the_deadline_a_ranking_has_who_was_measured_and_tests_nobody_further() -> None:
    full = {
        Trial("full", ("a",)): Evaluation(scores={"a": {"combined_score": 5.0}}),
        Trial("full", ("b",)): None,
    }
    members = [living("a", 1), living("b", 2), living("c", 3)]
    ranking = top(2, ("cheap", "full"))

    state = generation(*members[:2], trials=cheaply(a=0.1, b=0.4) | full)
    assert late(ranking, state) == Verdict(admit=("a",), withdraw=(2,))
    state = generation(*members, trials=cheaply(a=0.1, b=0.4, c=None))
    assert late(ranking, state) == Verdict(withdraw=(1, 2, 3))


def test_at_the_deadline_measurements_that_came_are_the_fitness() -> None:
    noisy = cascade(("cheap", "full"), (), NOISY)

    assert late(noisy, measured(9.0, None), HELD) == Verdict(admit=("p",))
    assert late(noisy, measured(9.0, 3.0), HELD) == Verdict(admit=("p",))
    assert late(noisy, measured(None), HELD) == Verdict(withdraw=(1,))


def test_at_the_deadline_whoever_nothing_is_decided_about_is_withdrawn() -> None:
    state = generation(living("a", 1), trials=cheaply(a=0.1))

    assert late(lambda cohort, field: Verdict(), state) == Verdict(withdraw=(1,))
