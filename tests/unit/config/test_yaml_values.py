"""Numbers in YAML."""

import pytest
import yaml

from app.adapters.problems import configures_problem
from app.adapters.problems.openevolve.config_yaml import read
from app.config.layers import from_assignments, from_environment, from_file
from app.config.yaml_values import loaded


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("1e3", 1e3),
        ("+1e-4", 1e-4),
        ("-2.5e1", -25.0),
        (".5e-3", 5e-4),
        ("1.e2", 100.0),
        ("1_000", 1000),
        ("1_000e-3", 1.0),
    ],
)
def test_a_number_with_an_exponent_is_a_number(text: str, number: float):
    assert loaded(text) == number
    assert loaded(f"a: [{text}, {{b: {text}}}]") == {"a": [number, {"b": number}]}


@pytest.mark.parametrize(
    "text", ["e5", "1e", "1e-4x", "12e5abc", ".e5", "'1e-4'", "v1e4", "1.2.3e4"]
)
def test_a_text_that_looks_like_a_number_stays_a_text(text: str):
    assert isinstance(loaded(text), str)


def test_whatever_pyyaml_reads_otherwise_is_read_as_before():
    text = "{a: 1, b: 1.5, c: true, d: null, e: 2026-11-28, f: 0x10, g: .inf, h: x, i: [1, 2]}"

    assert loaded(text) == yaml.safe_load(text)


def test_every_source_of_settings_reads_exponents():
    expected = {"search.stop_threshold": 1e-4}

    assert from_assignments(["search.stop_threshold=1e-4"]).values == expected
    assert from_environment({"EVOQ_SEARCH__STOP_THRESHOLD": "1e-4"}).values == expected
    file = from_file("search:\n  stop_threshold: 1e-4\n", "f.yaml", foreign=configures_problem)
    assert file is not None
    assert file.values == expected


def test_a_whole_number_of_openevolve_may_have_an_exponent():
    config = read("max_iterations: 1e3\nconvergence_threshold: 1e-4\n", "config.yaml")

    assert config.values == {"max_iterations": 1000, "convergence_threshold": 1e-4}
    assert isinstance(config.values["max_iterations"], int)
