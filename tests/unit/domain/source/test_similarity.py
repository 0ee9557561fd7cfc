"""Similarity of source texts."""

import pytest

from app.domain.source.similarity import similarity

LINES = [f"    total += weight_{n} * (item - {n}) ** 2\n" for n in range(20)]
LONG = "def f(item):\n    total = 0\n" + "".join(LINES) + "    return total\n"


def test_a_text_is_like_itself_whatever_its_layout_and_its_local_names():
    dressed = LONG.replace("total", "acc").replace(" + ", "  +  ") + "# a comment\n"

    assert similarity(LONG, LONG) == similarity(LONG, dressed) == 1.0


def test_similarity_falls_with_what_is_changed():
    few, many = (
        LONG.replace("weight_3 ", "other "),
        LONG.replace(" ** 2", " % 3").replace("+= weight", "-= item / weight"),
    )

    assert 0.9 < similarity(LONG, few) < 1.0
    assert similarity(LONG, many) < 0.7
    assert similarity(LONG, "def g(a, b):\n    return sorted(a)[b]\n") < 0.1


def test_the_estimate_is_near_the_share_of_common_runs_of_tokens():
    one = " ".join(f"a{n}" for n in range(300))
    other = " ".join([f"a{n}" for n in range(200)] + [f"b{n}" for n in range(100)])

    assert similarity(one, other) == pytest.approx(198 / (298 + 298 - 198), abs=0.13)


@pytest.mark.parametrize("text", ["", "(", "def f(:", "SELECT 1;"])
def test_a_text_that_is_no_python_has_a_sketch(text: str):
    assert similarity(text, text) == 1.0
