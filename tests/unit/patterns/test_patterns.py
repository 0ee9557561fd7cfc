"""Each pattern by what only it does; candidates are forks of the test that work in real folders."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.patterns import running
from app.patterns.budget import CandidateBudget
from app.patterns.commands import Command
from app.patterns.errors import ConflictError, LimitError, ProcessBranchError
from app.patterns.group import GroupLimits
from app.patterns.levels import BeamSearch, Tournament, TreeOfThoughts
from app.patterns.outcomes import SpeculationOutcome
from app.patterns.racing import BestOfN, Cascaded, Reflexion, Speculate
from app.patterns.running import ProcessRunner, Running
from app.patterns.work import Candidate, Work, perform, read_answer
from app.patterns.workspace import Workspace

FOREVER = 10_000.0


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "log").write_text("")
    return folder


def add(text: str, returned: object = True) -> Candidate:
    """Returns a candidate that appends to the file `log`."""

    def work(path: Path) -> object:
        with (path / "log").open("a") as log:
            log.write(text)
        return returned

    return work


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


def hanging(signs: Path) -> Candidate:
    """Returns a candidate that starts a process in a session of its own and never ends."""

    def work(path: Path) -> bool:
        child = os.fork()
        if child == 0:
            os.setsid()
            time.sleep(FOREVER)
        for pid in (os.getppid(), os.getpid(), child):
            (signs / f"{pid}").touch()
        (signs / "hangs").touch()
        time.sleep(FOREVER)
        return True

    return work


def after(sign: Path, candidate: Candidate) -> Candidate:
    def work(path: Path) -> object:
        wait_for(sign)
        return candidate(path)

    return work


def alive(signs: Path) -> list[int]:
    """Returns the processes that left their number here and are still there."""
    pids = [int(path.name) for path in signs.iterdir() if path.name.isdigit()]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def log(base: Path) -> str:
    return (base / "log").read_text()


def scores(outcome: SpeculationOutcome) -> list[float]:
    return [result.score for result in outcome.all_results]


def winner(outcome: SpeculationOutcome) -> int | None:
    return outcome.winner.branch_index if outcome.winner else None


def test_speculate_returns_with_the_first_success_and_the_losers_are_gone(
    base: Path, tmp_path: Path
):
    signs = tmp_path / "signs"
    signs.mkdir()

    outcome = Speculate([hanging(signs), add("no", False), after(signs / "hangs", add("yes"))])(
        base
    )

    assert (winner(outcome), outcome.committed, log(base)) == (2, True, "yes")
    assert alive(signs) == []
    assert outcome.winner in outcome.all_results


def test_speculate_without_first_wins_takes_the_first_success_in_the_order_given(
    base: Path, tmp_path: Path
):
    done = tmp_path / "done"

    def fast(path: Path) -> bool:
        done.touch()
        return True

    patient = [add("bad", False), after(done, add("good")), fast]

    assert winner(Speculate(patient, first_wins=False)(base)) == 1
    assert log(base) == "good"


def test_speculate_commits_nothing_where_nobody_succeeds(base: Path):
    def breaks(path: Path) -> bool:
        (path / "log").write_text("broken")
        raise ZeroDivisionError("by zero")

    def ends(path: Path) -> bool:
        os._exit(3)

    outcome = Speculate([breaks, add("x", False), ends, lambda path: None])(base)

    assert (outcome.winner, outcome.committed, log(base)) == (None, False, "")
    said = [str(result.exception) for result in outcome.all_results]
    assert said[0] == "ZeroDivisionError: by zero"
    assert said[1] == "None"
    assert said[2] == "its process ended without a result"
    assert "return a bool, (bool, score)" in said[3]
    assert all(
        isinstance(result.exception, ProcessBranchError | None) for result in outcome.all_results
    )


@pytest.mark.parametrize(
    "pattern",
    [
        lambda late: Speculate([late, late], timeout=0.2),
        lambda late: Speculate([late, late], first_wins=False, timeout=0.2),
        lambda late: BestOfN([late, late], timeout=0.2),
        lambda late: TreeOfThoughts([late, late], timeout=0.2),
        lambda late: BeamSearch([late, late], timeout=0.2),
        lambda late: Tournament([late, late], lambda first, second: 0, timeout=0.2),
        lambda late: Cascaded(lambda path, errors: late(path), fan_out=(2,), timeout=0.2),
        lambda late: Reflexion(lambda path, *_: late(path), max_retries=2, timeout=0.2),
    ],
    ids=["first", "all", "best of n", "tree", "beam", "tournament", "cascaded", "reflexion"],
)
def test_a_candidate_of_any_pattern_that_takes_longer_than_the_time_out_is_ended(
    base: Path, tmp_path: Path, pattern: Callable[[Candidate], Speculate]
):
    signs = tmp_path / "signs"
    signs.mkdir()

    outcome = pattern(hanging(signs))(base)

    assert [type(result.exception) for result in outcome.all_results] == [TimeoutError] * 2
    assert outcome.all_results[0].error == "no end within 0.2 s"
    assert (outcome.winner, outcome.committed) == (None, False)
    assert alive(signs) == []


def test_what_a_pattern_is_not_given_is_as_in_branchcontext():
    tree, beam = TreeOfThoughts([]), BeamSearch([])

    assert Speculate([]).first_wins
    assert BestOfN([]).commit
    assert Reflexion(add("x")).max_retries == 3
    assert Cascaded(add("x")).fan_out == (1, 2, 4)
    assert (tree.max_depth, beam.beam_width, beam.max_depth) == (1, 3, 2)
    assert tree.timeout is tree.max_parallel is None


def test_max_parallel_bounds_the_candidates_at_work(base: Path, tmp_path: Path):
    def counts(path: Path) -> tuple[bool, float]:
        mine = tmp_path / f"at-work-{os.getpid()}"
        mine.touch()
        seen = len(list(tmp_path.glob("at-work-*")))
        time.sleep(0.01)
        mine.unlink()
        return True, seen

    outcome = BestOfN([counts] * 6, max_parallel=2)(base)

    assert max(scores(outcome)) <= 2
    assert len(scores(outcome)) == 6


def test_a_success_whose_base_has_changed_is_a_conflict_and_no_winner(base: Path):
    def meanwhile(path: Path) -> bool:
        (base / "log").write_text("from outside")
        return True

    outcome = Speculate([meanwhile])(base)

    assert (outcome.winner, outcome.committed, log(base)) == (None, False, "from outside")
    conflict = outcome.all_results[0].exception
    assert isinstance(conflict, ConflictError)
    assert conflict.paths == ("log",)


def test_best_of_n_waits_for_all_and_commits_the_highest_score(base: Path):
    candidates = [add("a", (True, 1.0)), add("b", (True, 3.0)), add("c", (False, 9.0))]

    outcome = BestOfN([*candidates, add("d", (True, 3.0))])(base)

    assert (winner(outcome), scores(outcome), log(base)) == (1, [1.0, 3.0, 0.0, 3.0], "b")


def test_the_score_of_best_of_n_is_that_of_evaluate_then_its_own_then_the_one_given(base: Path):
    mixed = [add("aaa", (True, 0.5)), add("b"), add("cc")]
    lengths = BestOfN(mixed, evaluate=lambda path: len(log(path)), commit=False)

    assert scores(lengths(base)) == [3.0, 1.0, 2.0]
    assert scores(BestOfN(mixed, scores=[9, 8, 7], commit=False)(base)) == [0.5, 8.0, 7.0]
    assert scores(BestOfN(mixed, commit=False)(base)) == [0.5, 1.0, 1.0]
    assert log(base) == ""
    with pytest.raises(ValueError, match="1 scores for 3 candidates"):
        BestOfN(mixed, scores=[1])(base)


def test_best_of_n_without_commit_names_the_best_and_changes_nothing(base: Path):
    outcome = BestOfN([add("a", (True, 1.0)), add("b", (True, 2.0))], commit=False)(base)

    assert (winner(outcome), outcome.committed, log(base)) == (1, False, "")


def test_branches_that_are_beaten_are_gone_before_the_last_candidate_ends(base: Path):
    def last(path: Path) -> tuple[bool, float]:
        branches = path.parent.parent
        while len([one for one in branches.iterdir() if one.name.isdigit()]) > 2:
            time.sleep(0.005)
        return True, 2.0

    beaten = [add("a", (True, 1.0)), add("b", (False, 9.0)), add("c", (True, 1.0))]

    outcome = BestOfN([*beaten, last, add("d", (True, 3.0))], timeout=20)(base)

    assert (winner(outcome), scores(outcome), log(base)) == (4, [1.0, 0.0, 1.0, 2.0, 3.0], "d")


def test_cascaded_widens_only_on_failure_and_hands_errors_on(base: Path, tmp_path: Path):
    def task(path: Path, errors: Sequence[str]) -> tuple[bool, str]:
        (tmp_path / f"call-{os.getpid()}").write_text(repr(sorted(errors)))
        add(f"{len(errors)}")(path)
        return len(errors) >= 2, "" if len(errors) == 1 and _is_second(tmp_path) else "e"

    outcome = Cascaded(task, fan_out=(1, 2, 4), max_parallel=1)(base)

    # one error of the first wave, one of the two of the second, since empty ones are dropped
    assert (winner(outcome), outcome.committed, log(base)) == (3, True, "2")
    assert [result.success for result in outcome.all_results] == [False, False, False, True]


def _is_second(folder: Path) -> bool:
    return len(list(folder.glob("call-*"))) == 2


def test_cascaded_stops_after_a_wave_with_a_success(base: Path):
    outcome = Cascaded(lambda path, errors: (True, ""), fan_out=(1, 50))(base)

    assert [result.branch_index for result in outcome.all_results] == [0]


def test_a_wave_of_cascaded_ends_at_its_time_out_and_the_next_begins(base: Path, tmp_path: Path):
    signs = tmp_path / "signs"
    signs.mkdir()
    task = hanging(signs)

    outcome = Cascaded(lambda path, errors: task(path), fan_out=(1, 2), wave_timeout=0.2)(base)

    assert [type(result.exception) for result in outcome.all_results] == [TimeoutError] * 3
    assert alive(signs) == []


def test_reflexion_tries_in_turn_with_the_critique_of_the_last_failure(base: Path):
    def task(path: Path, attempt: int, feedback: str) -> bool:
        add(f"{attempt}:{feedback};")(path)
        return attempt == 2

    def critique(path: Path) -> str:
        return f"critique of {log(path)}"

    outcome = Reflexion(task, max_retries=5, critique=critique)(base)

    assert (winner(outcome), len(outcome.all_results)) == (2, 3)
    assert log(base) == "2:critique of 1:critique of 0:;;;"


def test_reflexion_without_critique_hands_on_what_was_raised_and_gives_up(base: Path):
    def task(path: Path, attempt: int, feedback: str) -> bool:
        raise ValueError(f"attempt {attempt} after '{feedback}'")

    outcome = Reflexion(task, max_retries=2)(base)

    assert not outcome.committed
    assert outcome.all_results[1].error == (
        "ValueError: attempt 1 after 'ValueError: attempt 0 after '''"
    )


def test_tree_of_thoughts_builds_each_level_on_the_best_of_the_last(base: Path):
    def expand(path: Path, depth: int) -> list[Candidate]:
        return [add(f"<{depth}{log(path)}", (True, 0.1)), add("worse", (True, 0.0))]

    outcome = TreeOfThoughts(
        [add("a", (True, 1.0)), add("b", (True, 2.0))], expand=expand, max_depth=3
    )(base)

    assert outcome.committed
    assert log(base) == "b<1b<2b<1b"
    assert len(outcome.all_results) == 6


def test_a_level_of_a_tree_of_thoughts_without_success_undoes_all(base: Path):
    tree = TreeOfThoughts([add("a")], expand=lambda *_: [add("b", False)], max_depth=2)

    outcome = tree(base)

    assert (outcome.winner, outcome.committed, log(base)) == (None, False, "")
    assert len(outcome.all_results) == 2


def test_a_beam_keeps_the_best_globally_each_in_a_branch_of_its_own(base: Path):
    seen: list[tuple[int, list[str]]] = []

    def expand(path: Path, depth: int) -> list[Candidate]:
        if not seen or seen[-1][0] != depth:
            seen.append((depth, []))
        seen[-1][1].append(log(path))
        level = {
            1: {"a": ["1", "2"], "b": ["9", "8"], "c": ["0"]},
            2: {"b9": ["1"], "b8": ["7"], "a2": ["0"]},
        }[depth]
        return [add(digit) for digit in level[log(path)]]

    outcome = BeamSearch(
        [add("a"), add("b"), add("c"), add("d", False)],
        expand=expand,
        evaluate=lambda path: float(log(path)[-1]) if log(path)[-1].isdigit() else -ord(log(path)),
        beam_width=3,
        max_depth=3,
    )(base)

    # both children of b survive and go on, which one branch for both could not hold
    assert seen == [(1, ["a", "b", "c"]), (2, ["b9", "b8", "a2"])]
    assert (outcome.committed, log(base)) == (True, "b87")


def test_a_beam_ends_with_the_level_before_one_without_success(base: Path):
    search = BeamSearch([add("a")], expand=lambda *_: [add("b", False)], max_depth=4)

    outcome = search(base)

    assert (winner(outcome), outcome.committed, log(base)) == (0, True, "a")


def test_a_tournament_commits_whom_the_judge_prefers_and_the_odd_one_goes_on(
    base: Path, tmp_path: Path
):
    def judge(first: Path, second: Path) -> int:
        (tmp_path / f"{log(first)}-{log(second)}").touch()
        return int(log(second) > log(first))

    names = ["c", "e", "no", "a", "d", "b"]
    candidates = [add(name, name != "no") for name in names]

    outcome = Tournament(candidates, judge)(base)

    assert (winner(outcome), outcome.committed, log(base)) == (1, True, "e")
    games = sorted(path.name for path in tmp_path.glob("?-?"))
    assert games == ["a-d", "c-e", "e-b", "e-d"] or games == ["a-d", "c-e", "d-b", "e-d"], games


def test_a_judge_that_gives_no_verdict_ends_the_tournament(base: Path):
    with pytest.raises(ProcessBranchError, match="the judge returned 'a'; return 0 or 1"):
        Tournament([add("x"), add("y")], lambda first, second: "a")(base)  # type: ignore[arg-type, return-value]

    assert log(base) == ""


@pytest.mark.parametrize("inner_takes", [1, 2])
def test_a_pattern_inside_a_candidate_spends_its_slice_and_gives_the_rest_back(
    base: Path, inner_takes: int
):
    inner = Speculate([add("in", False)] * (inner_takes - 1) + [add("in")], max_parallel=1)
    budget = CandidateBudget(10)

    outcome = BestOfN([inner, add("out", False)], budget=budget, reserved=4)(base)

    assert (winner(outcome), log(base)) == (0, "in")
    assert budget.left == 10 - 2 - inner_takes


def test_a_pattern_inside_a_candidate_cannot_take_more_than_its_slice(base: Path):
    inner = BestOfN([add("a", (True, 1)), add("b", (True, 2)), add("c", (True, 3))])
    budget = CandidateBudget(9)

    outcome = Speculate([inner], budget=budget, reserved=2)(base)

    assert log(base) == "b"
    assert outcome.committed
    assert budget.left == 6


def test_candidates_beyond_the_budget_are_not_started(base: Path):
    budget = CandidateBudget(2)

    outcome = BestOfN([add("a"), add("b"), add("c")], budget=budget)(base)

    assert [type(result.exception) for result in outcome.all_results] == [
        type(None),
        type(None),
        LimitError,
    ]
    assert budget.left == 0
    with pytest.raises(ValueError, match="-1 candidates"):
        CandidateBudget(-1)


@pytest.mark.timing
def test_a_killed_candidate_gives_back_what_it_did_not_spend(base: Path):
    def dies(path: Path) -> bool:
        Speculate([add("x")])(path)
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    budget = CandidateBudget(10)

    Speculate([dies], budget=budget, reserved=5)(base)

    assert (budget.left, log(base)) == (8, "")


def _forks(signs: Path) -> Candidate:
    def work(path: Path) -> bool:
        for _ in range(6):
            if os.fork() == 0:
                (signs / f"{os.getpid()}").touch()
                time.sleep(FOREVER)
        time.sleep(FOREVER)
        return True

    return work


def _grows(signs: Path) -> Candidate:
    def work(path: Path) -> bool:
        held = bytearray(os.urandom(1)) * (300 << 20)
        (signs / f"{os.getpid()}").touch()
        time.sleep(FOREVER)
        return bool(held)

    return work


@pytest.mark.parametrize(
    ("over", "limits", "said"),
    [
        (_forks, GroupLimits(processes=5), "processes; its limit is 5"),
        (_grows, GroupLimits(memory_mib=250), "MiB; its limit is 250"),
    ],
)
def test_a_group_over_a_limit_is_ended_as_a_whole(
    base: Path,
    tmp_path: Path,
    over: Callable[[Path], Candidate],
    limits: GroupLimits,
    said: str,
):
    signs = tmp_path / "signs"
    signs.mkdir()

    outcome = BestOfN([over(signs), hanging(signs)], limits=limits)(base)

    assert [type(result.exception) for result in outcome.all_results] == [LimitError] * 2
    assert said in outcome.all_results[0].error
    assert alive(signs) == []


def test_the_time_of_a_group_also_ends_what_waits_for_its_turn(base: Path, tmp_path: Path):
    signs = tmp_path / "signs"
    signs.mkdir()
    limits = GroupLimits(seconds=0.3)

    outcome = BestOfN([hanging(signs), add("never")], max_parallel=1, limits=limits)(base)

    assert [type(result.exception) for result in outcome.all_results] == [TimeoutError] * 2
    assert outcome.all_results[1].branch_path is None
    assert alive(signs) == []


@pytest.mark.parametrize("terms", [{"timeout": 0}, {"max_parallel": -1}])
def test_terms_out_of_range_are_refused(base: Path, terms: dict[str, int]):
    with pytest.raises(ValueError, match=r"must be more than 0"):
        Speculate([add("x")], **terms)(base)  # type: ignore[arg-type]


@pytest.mark.timing
def test_what_runs_elsewhere_is_not_counted_and_has_limits_of_its_own(
    base: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(running._Supervised, "pid", None)

    with pytest.raises(ValueError, match="give the limits to the runner"):
        Speculate([add("x")], limits=GroupLimits(processes=9))(base)

    assert Speculate([add("x")])(base).committed


def test_a_command_is_data_and_hands_its_score_and_feedback_on(base: Path):
    script = 'echo $BRANCHING_FEEDBACK >log; [ "$BRANCHING_ATTEMPT" = 1 ] && echo 4.5 >&3'
    seen: list[Work] = []

    class Recording(ProcessRunner):
        def start(self, work: Work) -> Running:
            seen.append(work)
            return super().start(work)

    said = Command(["sh", "-c", "echo again"])
    outcome = Reflexion(Command(["sh", "-c", script]), critique=said, runner=Recording())(base)

    assert scores(outcome) == [0.0, 4.5]
    assert log(base) == "again\n"
    assert all(work.is_data for work in seen)
    assert read_answer(perform(replace(seen[0], candidate=said, folders=(base,)))).success


def test_candidates_end_with_the_process_of_the_pattern(base: Path, tmp_path: Path):
    signs = tmp_path / "signs"
    signs.mkdir()
    coordinator = os.fork()
    if coordinator == 0:
        try:
            Speculate([hanging(signs)])(base)
        finally:
            os._exit(0)
    wait_for(signs / "hangs")

    os.kill(coordinator, signal.SIGKILL)
    os.waitpid(coordinator, 0)

    assert (base.parent / ".base.branches").exists()
    while alive(signs):
        time.sleep(0.005)
    with Workspace(base):
        pass
    assert not (base.parent / ".base.branches").exists()
