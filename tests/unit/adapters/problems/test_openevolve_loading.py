from pathlib import Path

import pytest

from app.adapters.problems import files, load, reload
from app.domain.evaluation import Trial
from app.domain.problem import Limits, Mode, Outcome, ProblemError

PROGRAM = "# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\n"
EVALUATOR = "def evaluate(program_path):\n    return {'combined_score': 1.0}\n"


def write(base: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return base


def toy(base: Path, **more: str) -> Path:
    files = {"initial_program.py": PROGRAM, "evaluator.py": EVALUATOR}
    return write(base, files | {name.replace("__", "/"): text for name, text in more.items()})


def refusal(*paths: Path, **arguments: object) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        load(paths, **arguments)
    return caught.value


def test_a_folder_of_two_files_is_a_problem(tmp_path):
    problem = load([toy(tmp_path)])

    assert problem.name == tmp_path.name
    assert [seed.source for seed in problem.seeds] == [PROGRAM]
    assert problem.stages == ("evaluate",)
    assert problem.thresholds == ()
    assert [axis.name for axis in problem.axes] == ["complexity", "diversity"]
    assert problem.notices == ()


def test_what_the_ledger_keeps_makes_the_identical_problem(tmp_path):
    toy(tmp_path, **{"seeds__other.py": "x = 2\n", "helper.py": "y = 1\n"})
    (tmp_path / "config.yaml").write_text("evaluator:\n  timeout: 7\n")
    data = tmp_path.parent / f"{tmp_path.name}-inputs.txt"
    data.write_text("1 2 3\n")

    stored = load([tmp_path], options={"problem.data": str(data), "sandbox.memory_mib": "256"})
    other = reload(stored.format, stored.name, stored.files, stored.options)

    assert other.digest == stored.digest
    assert other.seeds == stored.seeds
    assert other.options == stored.options
    trial, programs = (
        Trial("evaluate", (stored.seeds[0].id,)),
        {stored.seeds[0].id: stored.seeds[0]},
    )
    assert other.prepare(trial, programs) == stored.prepare(trial, programs)


@pytest.mark.parametrize("changed", ["initial_program.py", "evaluator.py", "table.csv"])
def test_the_digest_changes_with_every_file(tmp_path, changed):
    toy(tmp_path, **{"table.csv": "1,2\n"})
    before = load([tmp_path]).digest
    (tmp_path / changed).write_text((tmp_path / changed).read_text() + "\n# more\n")

    assert load([tmp_path]).digest != before


def test_the_digest_changes_with_limits_but_not_with_settings_of_the_machinery(tmp_path):
    toy(tmp_path)
    plain = load([tmp_path]).digest

    assert load([tmp_path], options={"sandbox.wall_seconds": 3}).digest != plain
    assert load([tmp_path], options={"sandbox.backend": "process"}).digest == plain


def test_a_pair_of_files_in_two_folders_is_a_problem(tmp_path):
    write(tmp_path, {"a/start.rs": "fn main() {}\n", "b/score.py": EVALUATOR, "b/extra.txt": "e"})

    problem = load([tmp_path / "a/start.rs", tmp_path / "b/score.py"])

    assert problem.suffix == ".rs"
    assert problem.language == "rust"
    assert set(problem.files) == {"start.rs", "score.py", "extra.txt"}
    job = problem.prepare(
        Trial("evaluate", (problem.seeds[0].id,)), {problem.seeds[0].id: problem.seeds[0]}
    )
    assert job.evaluator.entry == "score.py"
    assert job.programs == ((".rs", b"fn main() {}\n"),)


def test_a_configuration_from_elsewhere_does_not_replace_the_folders_own_file(tmp_path):
    toy(tmp_path / "problem", **{"config.yaml": "max_iterations: 3\n"})
    write(tmp_path, {"config.yaml": "max_iterations: 9\n"})

    problem = load([tmp_path / "problem"], config=tmp_path / "config.yaml")

    assert problem.suggestions == {"budget.proposals": 9}
    assert problem.files["config.yaml"] == b"max_iterations: 3\n"
    assert (
        reload("openevolve", "p", problem.files, problem.options).suggestions == problem.suggestions
    )


def test_one_marked_file_is_the_initial_program_whatever_its_name(tmp_path):
    write(
        tmp_path, {"start.txt": "EVOLVE-BLOCK-START", "notes.txt": "n", "evaluator.py": EVALUATOR}
    )

    assert load([tmp_path]).options["problem.initial"] == "start.txt"


def test_files_of_a_folder_seeds_are_further_seeds_and_baselines(tmp_path):
    toy(tmp_path, **{"seeds__worst_fit.py": "x = 3\n", "seeds__note.txt": "no program"})

    problem = load([tmp_path])

    assert [seed.source for seed in problem.seeds] == [PROGRAM, "x = 3\n"]
    assert list(problem.baselines) == ["initial program", "worst fit"]
    assert problem.baselines["worst fit"] == problem.seeds[1].id


def test_a_seed_equal_to_the_initial_program_gives_it_its_name(tmp_path):
    toy(tmp_path, **{"seeds__best_fit.py": PROGRAM})

    problem = load([tmp_path])

    assert len(problem.seeds) == 1
    assert list(problem.baselines) == ["best fit"]


def test_caches_output_and_secrets_of_the_folder_are_left_out(tmp_path):
    toy(
        tmp_path,
        **{
            ".env": "KEY=1",
            "__pycache____x.pyc": "x",
            ".git__config": "c",
            "runs__r__best.json": "{}",
            "openevolve_output__log": "l",
        },
    )
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "evaluator.pyc").write_bytes(b"x")

    assert set(load([tmp_path]).files) >= {"initial_program.py", "evaluator.py"}
    assert not {".env", ".git/config", "runs/r/best.json"} & set(load([tmp_path]).files)
    assert not any(name.endswith(".pyc") for name in load([tmp_path]).files)


def test_a_missing_path_is_named(tmp_path):
    error = refusal(tmp_path / "nowhere")

    assert "no such file" in error.what
    assert "nowhere" in error.where
    assert error.remedy


def test_a_missing_evaluator_is_named(tmp_path):
    write(tmp_path, {"initial_program.py": PROGRAM})

    assert "evaluator" in refusal(tmp_path).what


def test_a_missing_initial_program_is_named(tmp_path):
    write(tmp_path, {"evaluator.py": EVALUATOR})

    assert "initial program is missing" in refusal(tmp_path).what


def test_two_candidates_for_the_initial_program_are_named(tmp_path):
    toy(tmp_path, **{"initial_program.rs": "EVOLVE-BLOCK-START"})

    assert refusal(tmp_path).value == "initial_program.py, initial_program.rs"


@pytest.mark.parametrize("name", ["initial_program.py", "evaluator.py"])
def test_an_empty_file_is_refused(tmp_path, name):
    toy(tmp_path)
    (tmp_path / name).write_text(" \n")

    error = refusal(tmp_path)

    assert error.what == "the file is empty"
    assert error.where == name


@pytest.mark.parametrize("content", [b"x = '\xff'\n", b"x = 1\x00\n"])
def test_a_program_that_is_not_text_is_refused(tmp_path, content):
    toy(tmp_path)
    (tmp_path / "initial_program.py").write_bytes(content)

    assert refusal(tmp_path).what == "not a text in UTF-8"


def test_a_byte_order_mark_is_dropped(tmp_path):
    toy(tmp_path)
    (tmp_path / "initial_program.py").write_bytes(b"\xef\xbb\xbfx = 1\n")

    assert load([tmp_path]).seeds[0].source == "x = 1\n"


def test_a_syntax_error_in_the_evaluator_is_shown_with_its_line(tmp_path):
    toy(tmp_path)
    (tmp_path / "evaluator.py").write_text("import os\ndef evaluate(path:\n    return {}\n")

    error = refusal(tmp_path)

    assert error.where == "evaluator.py:2"
    assert error.value == "def evaluate(path:"


def test_an_evaluator_without_evaluate_is_refused(tmp_path):
    toy(tmp_path)
    (tmp_path / "evaluator.py").write_text("def score(path):\n    return {}\n")

    assert "no function `evaluate`" in refusal(tmp_path).what


@pytest.mark.parametrize(
    "text",
    [
        "from scoring import evaluate\n",
        "from scoring import *\n",
        "async def evaluate(path):\n    return {}\n",
        "import functools\nevaluate = functools.partial(print)\n",
        "try:\n    from fast import evaluate\nexcept ImportError:\n    evaluate = None\n",
        "if True:\n    def evaluate(path, *, quick=False):\n        return {}\n",
    ],
)
def test_evaluate_may_be_defined_in_any_way_python_has(tmp_path, text):
    toy(tmp_path)
    (tmp_path / "evaluator.py").write_text(text)

    assert load([tmp_path]).stages == ("evaluate",)


def test_loading_runs_neither_evaluator_nor_program(tmp_path):
    toy(tmp_path)
    for name in ("initial_program.py", "evaluator.py"):
        with (tmp_path / name).open("a") as file:
            file.write(f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")

    load([tmp_path])

    assert not (tmp_path / "ran").exists()


STAGED = "".join(f"def evaluate_stage{n}(path):\n    return {{}}\n" for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("config", "stages", "thresholds"),
    [
        ("timeout: 1", ("evaluate_stage1", "evaluate_stage2", "evaluate_stage3"), (0.5, 0.75)),
        (
            "cascade_thresholds: [1, 2, 3]",
            ("evaluate_stage1", "evaluate_stage2", "evaluate_stage3"),
            (1.0, 2.0),
        ),
        ("cascade_thresholds: [0.1]", ("evaluate_stage1", "evaluate_stage2"), (0.1,)),
        ("cascade_thresholds: []", ("evaluate_stage1",), ()),
        ("cascade_evaluation: false", ("evaluate",), ()),
    ],
)
def test_the_stages_that_run_follow_openevolves_cascade(tmp_path, config, stages, thresholds):
    toy(tmp_path)
    (tmp_path / "evaluator.py").write_text(EVALUATOR + STAGED)
    (tmp_path / "config.yaml").write_text(f"evaluator:\n  {config}\n")

    problem = load([tmp_path])

    assert problem.stages == stages
    assert problem.thresholds == thresholds


def test_a_missing_second_stage_ends_the_cascade(tmp_path):
    toy(tmp_path)
    text = "def evaluate_stage1(p):\n    pass\ndef evaluate_stage3(p):\n    pass\n"
    (tmp_path / "evaluator.py").write_text(text)

    assert load([tmp_path]).stages == ("evaluate_stage1",)


def test_limits_come_from_the_configuration_and_options_win(tmp_path):
    toy(tmp_path)
    (tmp_path / "config.yaml").write_text(
        "evaluator: {timeout: 40, memory_limit_mb: 300, cpu_limit: 3}\n"
    )

    def limits(**options: object) -> Limits:
        problem = load([tmp_path], options={f"sandbox.{k}": v for k, v in options.items()})
        seed = problem.seeds[0]
        return problem.prepare(Trial("evaluate", (seed.id,)), {seed.id: seed}).limits

    assert limits() == Limits(wall_seconds=40, cpu_seconds=120, memory_mib=300)
    assert limits(wall_seconds="10", processes=5) == Limits(
        wall_seconds=10, cpu_seconds=30, memory_mib=300, processes=5
    )


def test_the_mode_is_guarded_unless_an_option_says_otherwise(tmp_path):
    toy(tmp_path)

    def mode(**options: object) -> Mode:
        problem = load([tmp_path], options=options)
        seed = problem.seeds[0]
        return problem.prepare(Trial("evaluate", (seed.id,)), {seed.id: seed}).mode

    assert mode() is Mode.GUARDED
    assert mode(**{"sandbox.mode": "compatible"}) is Mode.COMPATIBLE
    assert refusal(tmp_path, options={"sandbox.mode": "open"}).where == "sandbox.mode"


@pytest.mark.parametrize("value", [0, -1, "many", True, float("nan")])
def test_a_limit_that_is_no_number_above_zero_is_refused(tmp_path, value):
    toy(tmp_path)

    assert refusal(tmp_path, options={"sandbox.memory_mib": value}).where == "sandbox.memory_mib"


def test_data_files_are_part_of_the_problem_and_the_evaluator_gets_their_names(tmp_path):
    toy(tmp_path / "problem")
    write(tmp_path, {"in/a.txt": "a", "in/deep/b.txt": "b", "c.json": "{}"})

    problem = load(
        [tmp_path / "problem"], options={"problem.data": f"{tmp_path}/in, {tmp_path}/c.json"}
    )

    names = ["data/in/a.txt", "data/in/deep/b.txt", "data/c.json"]
    assert problem.options["problem.data"] == names
    assert problem.files["data/in/deep/b.txt"] == b"b"
    seed = problem.seeds[0]
    job = problem.prepare(Trial("evaluate", (seed.id,)), {seed.id: seed})
    assert job.evaluator.environment == {"EVOQ_PROBLEM_DATA": ":".join(names)}
    assert str(tmp_path) not in str(problem.options)


def test_a_data_path_that_does_not_exist_is_named(tmp_path):
    error = refusal(toy(tmp_path), options={"problem.data": "nowhere.txt"})

    assert error.where == "problem.data"
    assert error.value == "nowhere.txt"


def test_an_environment_for_the_evaluator_may_not_take_over_python(tmp_path):
    toy(tmp_path)

    problem = load([tmp_path], options={"problem.environment": "RICH_FEEDBACK=1,LEVEL=low"})

    assert problem.options["problem.environment"] == {"RICH_FEEDBACK": "1", "LEVEL": "low"}
    error = refusal(tmp_path, options={"problem.environment": "PYTHONPATH=/x"})
    assert error.value == "PYTHONPATH"


def test_the_image_of_a_trial_is_that_of_the_option(tmp_path):
    toy(tmp_path)

    assert load([tmp_path]).first_job().evaluator.image == ""
    own = load([tmp_path], options={"sandbox.image": "own:1"})
    assert own.first_job().evaluator.image == "own:1"


def test_a_folder_with_too_many_files_is_refused(tmp_path, monkeypatch):
    toy(tmp_path, **{f"{n}.txt": "x" for n in range(4)})
    monkeypatch.setattr(files, "MAX_FILES", 5)

    assert "too large" in refusal(tmp_path).what


def test_a_folder_with_too_many_bytes_is_refused(tmp_path):
    toy(tmp_path)
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)

    assert "too large" in refusal(tmp_path).what


def test_data_of_any_size_is_named_and_not_stored(tmp_path):
    toy(tmp_path / "problem")
    write(tmp_path, {"train/a.txt": "a", "c.json": "{}"})

    problem = load(
        [tmp_path / "problem"],
        options={"problem.mounts": f"{tmp_path}/train, known={tmp_path}/c.json"},
    )

    evaluator = problem.first_job().evaluator
    assert evaluator.mounts == {"train": f"{tmp_path}/train", "known": f"{tmp_path}/c.json"}
    assert evaluator.environment == {"EVOQ_PROBLEM_DATA": "data/train:data/known"}
    assert not [name for name in problem.files if name.startswith("data/")]
    again = reload(problem.format, problem.name, problem.files, problem.options)
    assert again.first_job().evaluator == evaluator


@pytest.mark.parametrize(
    ("mounts", "words"),
    [
        ("nowhere", ("problem.mounts", "nowhere")),
        ("{folder}/a,{folder}/deep/a", ("the same name", "a", "NAME=PATH")),
        ("a b={folder}/a", ("not a name", "a b")),
        ("notes={folder}/a", ("the same place", "data/notes")),
    ],
)
def test_data_that_cannot_be_read_where_it_lies_is_named(tmp_path, mounts, words):
    toy(tmp_path / "problem", **{"data/notes": "x"})
    write(tmp_path, {"a": "a", "deep/a": "a"})

    error = refusal(
        tmp_path / "problem", options={"problem.mounts": mounts.format(folder=tmp_path)}
    )

    assert all(word in str(error) for word in words), error


def test_the_remedy_for_data_that_is_too_large_is_one_that_helps(tmp_path):
    toy(tmp_path / "problem")
    data = tmp_path / "data"
    data.mkdir()
    with (data / "large.bin").open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)
    error = refusal(tmp_path / "problem", options={"problem.data": str(data)})
    assert "--set problem.mounts=PATH" in error.remedy

    problem = load([tmp_path / "problem"], options={"problem.mounts": str(data)})

    assert problem.first_job().evaluator.mounts == {"data": str(data)}


def test_a_limit_below_the_initial_program_grows_with_it_and_is_noticed(tmp_path):
    toy(tmp_path, **{"config.yaml": "max_code_length: 10\n"})
    problem = load([tmp_path])

    assert problem.edit.max_code_chars == 2 * len(problem.seeds[0].source)
    assert "`max_code_length` (10) leaves its children no room" in problem.notices[-1]


def test_the_default_limit_grows_with_the_initial_program(tmp_path):
    toy(tmp_path)
    with (tmp_path / "initial_program.py").open("a") as file:
        file.write("# a remark of forty characters or so......\n" * 300)
    problem = load([tmp_path])

    assert problem.edit.max_code_chars == 2 * len(problem.seeds[0].source)
    assert "max_code_length" not in " ".join(problem.notices)


def test_programs_that_are_not_python_are_unverified_unless_an_option_says_otherwise(tmp_path):
    files = {"initial_program.rs": "fn main() {}\n", "evaluator.py": EVALUATOR}
    base = write(tmp_path, files)
    problem = load([base])
    asked = load([base], options={"sandbox.mode": "guarded"})
    modes = []
    for variant in (problem, asked):
        seed = variant.seeds[0]
        trial = Trial(variant.stages[0], (seed.id,))
        modes.append(variant.prepare(trial, {seed.id: seed}).mode)
    assert modes == [Mode.COMPATIBLE, Mode.GUARDED]
    assert any("unverified" in notice for notice in problem.notices)
    assert not any("unverified" in notice for notice in asked.notices)


def test_import_lists_come_from_the_configuration_and_options_win(tmp_path):
    toy(tmp_path)
    (tmp_path / "config.yaml").write_text("deny_imports: [socket]\nallow_imports: [math]\n")

    problem = load([tmp_path])
    assert (problem.imports.allow, problem.imports.deny) == (("math",), ("socket",))
    changed = load([tmp_path], options={"problem.allow_imports": "numpy, os.path"})
    assert changed.imports.allow == ("numpy", "os.path")
    denied = load([tmp_path], options={"problem.deny_imports": "os,sys"})
    assert (denied.imports.allow, denied.imports.deny) == (("math",), ("os", "sys"))
    assert changed.digest != problem.digest
    assert (
        reload(changed.format, changed.name, changed.files, changed.options).imports
        == changed.imports
    )
    options = {"problem.deny_imports": "not a name"}
    assert refusal(tmp_path, options=options).where == "problem.deny_imports"


def test_markers_that_restrict_nothing_are_noticed_where_they_are_enforced(tmp_path):
    (tmp_path / "evaluator.py").write_text(EVALUATOR)
    (tmp_path / "initial_program.py").write_text("# EVOLVE-BLOCK-START\nx = 1\n")

    [notice] = load([tmp_path]).notices
    (tmp_path / "config.yaml").write_text("enforce_evolve_blocks: false\n")

    assert "initial program, line 1: a block starts that never ends" in notice
    assert load([tmp_path]).notices == ()


def test_a_program_without_markers_is_noticed_because_all_of_it_evolves(tmp_path):
    write(tmp_path, {"initial_program.py": "x = 1\n", "evaluator.py": EVALUATOR})

    [notice] = load([tmp_path]).notices

    assert notice.startswith("initial program: no EVOLVE-BLOCK markers, so every line may change")


def test_markers_of_funsearch_are_noticed_with_the_operator_that_honours_them(tmp_path):
    program = "import funsearch\n\n@funsearch.evolve\ndef priority(x):\n    return x\n"
    write(tmp_path, {"initial_program.py": program, "evaluator.py": EVALUATOR})

    _, funsearch = load([tmp_path]).notices

    assert "`@funsearch.evolve` restricts only the operator `complete`" in funsearch
    assert "search.operators={complete: 1}" in funsearch


def test_an_evaluator_that_never_names_the_combined_score_is_noticed(tmp_path):
    evaluator = "def evaluate(program_path):\n    return {'speed': 1.0, 'error': 2.0}\n"
    write(tmp_path, {"initial_program.py": PROGRAM, "evaluator.py": evaluator})

    [notice] = load([tmp_path]).notices
    (tmp_path / "scoring.py").write_text("NAME = 'combined_score'\n")

    assert "never names `combined_score`: the fitness is the mean of all numbers" in notice
    assert load([tmp_path]).notices == ()


def test_configurations_that_are_not_in_use_are_named(tmp_path):
    toy(tmp_path)
    (tmp_path / "config_phase_1.yaml").write_text("max_iterations: 3\n")

    [notice] = load([tmp_path]).notices
    used = load([tmp_path], config=tmp_path / "config_phase_1.yaml").notices

    assert notice == ("No config.yaml, so the defaults hold: `--config` takes config_phase_1.yaml.")
    assert used == ()


def test_a_validation_is_no_stage_and_its_references_are_no_seeds(tmp_path):
    validation = "def evaluate_validation(path):\n    return {'combined_score': 2}\n"
    published = "x = 'published'\n"

    problem = load(
        [
            toy(
                tmp_path,
                **{
                    "evaluator.py": EVALUATOR + validation,
                    "references/by_hand.py": published,
                    "references/notes.txt": "no program",
                },
            )
        ]
    )

    assert (problem.stages, problem.validation) == (("evaluate",), "evaluate_validation")
    assert {name: one.source for name, one in problem.references.items()} == {"by hand": published}
    assert published not in [seed.source for seed in problem.seeds]
    [trial] = problem.trials_of(problem.seeds[0].id, problem.validation)
    seed = problem.seeds[0]
    assert problem.prepare(trial, {seed.id: seed}).function == "evaluate_validation"
    result = Outcome(b'{"metrics": {"combined_score": 2}, "artifacts": {}}', None)
    assert problem.interpret(trial, {seed.id: seed}, result).scores == {
        seed.id: {"combined_score": 2.0}
    }


def test_a_probe_is_no_stage(tmp_path):
    probe = "def probe_behaviour(path):\n    return {'bins': [0, 1]}\n"

    problem = load([toy(tmp_path, **{"evaluator.py": EVALUATOR + probe})])

    assert (problem.stages, problem.probe) == (("evaluate",), "probe_behaviour")
    seed = problem.seeds[0]
    job = problem.prepare(Trial(problem.probe, (seed.id,)), {seed.id: seed})
    assert job.function == "probe_behaviour"
