"""What a problem's folder asks to have installed."""

import pytest

from app.adapters.sandbox.dependencies import (
    Dependencies,
    failed,
    from_dockerfile,
    from_requirements,
)
from app.domain.problem import EvaluatorBroken

PROGRAM = {"initial_program.py": b"pass\n", "evaluator.py": b"pass\n"}


def needed(requirements: bytes, **files: bytes) -> set[str]:
    named = {name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()}
    found = from_requirements({**PROGRAM, "requirements.txt": requirements, **named})
    return set() if found is None else set(found.files)


def test_a_folder_without_requirements_has_no_dependencies() -> None:
    assert from_requirements(PROGRAM) is None
    assert from_dockerfile(PROGRAM) is None
    assert needed(b"# nothing yet\n\n") == set()
    assert needed(b"--prefer-binary\n") == set()


def test_only_what_requirements_refer_to_shapes_their_environment() -> None:
    assert needed(b"tomli==2.0.1\nrequests[socks]>=2  # why\n") == {"requirements.txt"}
    one = from_requirements({**PROGRAM, "requirements.txt": b"tomli\n"})
    two = from_requirements({**PROGRAM, "evaluator.py": b"changed", "requirements.txt": b"tomli\n"})
    assert one is not None
    assert two is not None
    assert one.digest("base") == two.digest("base")
    assert one.digest("base") != one.digest("another base")


def test_files_that_requirements_name_are_included() -> None:
    files = {"lib__setup_dot_py": b"", "lib__lib__core_dot_py": b"", "more_dot_txt": b"tomli\n"}
    assert needed(b"./lib\n-r more.txt\n", **files) == {
        "requirements.txt", "lib/setup.py", "lib/lib/core.py", "more.txt"
    }  # fmt: skip
    for line in (
        b"-e ./lib",
        b"--editable lib",
        b"lib @ file:./lib",
        b"./lib[extra] ; python_version>'3'",
    ):
        assert needed(line, **files) == {"requirements.txt", "lib/setup.py", "lib/lib/core.py"}
    wheel = "thing-1.0-py3-none-any.whl"
    assert needed(wheel.encode(), **{wheel: b"zip"}) == {"requirements.txt", wheel}


@pytest.mark.parametrize(
    "line", ["../elsewhere", "./nowhere", "-r other.txt", "/opt/lib", "-c limits.txt"]
)
def test_what_lies_outside_the_folder_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(EvaluatorBroken) as caught:
        needed(b"tomli\n" + line.encode())
    assert "requirements.txt, line 2" in str(caught.value)
    assert line.rpartition(" ")[2] in str(caught.value)


def test_requirements_that_include_each_other_end() -> None:
    assert needed(b"-r more.txt\n", more_dot_txt=b"-r requirements.txt\ntomli\n") == {
        "requirements.txt", "more.txt"
    }  # fmt: skip


def test_addresses_are_not_paths() -> None:
    assert needed(b"git+https://example.org/x.git\nx @ https://example.org/x.whl\n") == {
        "requirements.txt"
    }


def test_a_failed_installation_reports_its_place_and_last_output() -> None:
    lines = [f"line {number}" for number in range(50)]
    text = str(failed("requirements.txt", "an image", lines))
    assert "requirements.txt" in text
    assert "an image" in text
    assert "line 49" in text
    assert "line 3\n" not in text
    assert "sandbox.image" in text


def test_a_dockerfile_may_copy_the_whole_folder() -> None:
    found = from_dockerfile({**PROGRAM, "Dockerfile": b"FROM scratch\n"})
    assert found == Dependencies("Dockerfile", {**PROGRAM, "Dockerfile": b"FROM scratch\n"})
