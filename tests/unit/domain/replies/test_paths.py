"""Replies about several files."""

from dataclasses import replace

import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.children import read_edited, read_rewritten

FILES = {
    "README.md": "# Words\n",
    "params.json": '{"most": 6}\n',
    "src/main.py": "from table import get\n\n\ndef answer(x):\n    return get(x) + 1\n",
    "src/table.py": "def get(x):\n    return x * 2\n",
}
PARENT = Program.of_files(FILES).focused("src/main.py")
RULES = EditRules(evolve=("src/*.py", "params.json", "README.md"))


def block(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


def files(child: Offspring | Failure) -> dict[str, str]:
    assert isinstance(child, Offspring), child
    return {file.path: file.source for file in child.program.files}


def edited(text: str, rules: EditRules = RULES) -> Offspring | Failure:
    return read_edited(Completion(text), PARENT, rules)


def test_a_block_without_a_path_is_about_the_file_in_focus() -> None:
    child = edited(block("    return get(x) + 1", "    return get(x) + 2"))
    assert files(child) == {**FILES, "src/main.py": FILES["src/main.py"].replace("+ 1", "+ 2")}
    assert isinstance(child, Offspring)
    assert child.program.path == "src/main.py"


@pytest.mark.parametrize(
    "heading",
    [
        "src/table.py\n",
        "`src/table.py`\n",
        "### src/table.py\n",
        "**src/table.py**:\n",
        "File: src/table.py\n",
        "src/table.py\n```python\n",
        "```python src/table.py\n",
        "```src/table.py\n",
        "```python:src/table.py\n",
    ],
)
def test_the_common_ways_to_name_a_file_are_read(heading: str) -> None:
    fence = "```\n" if "```" in heading else ""
    child = edited(f"I double less.\n\n{heading}{block('    return x * 2', '    return x')}{fence}")
    assert files(child) == {**FILES, "src/table.py": "def get(x):\n    return x\n"}


def test_one_reply_changes_several_files() -> None:
    text = (
        f"{block('    return get(x) + 1', '    return get(x)')}\n"
        f"src/table.py\n{block('    return x * 2', '    return x + 1')}\n"
        'params.json\n```json\n{"most": 7}\n```\n'
    )
    child = edited(text)
    assert files(child) == {
        **FILES,
        "params.json": '{"most": 7}\n',
        "src/main.py": FILES["src/main.py"].replace(" + 1", ""),
        "src/table.py": "def get(x):\n    return x + 1\n",
    }
    assert isinstance(child, Offspring)
    assert "src/table.py: " in child.changes


def test_whole_files_under_their_paths_are_read() -> None:
    text = (
        "src/table.py\n```python\ndef get(x):\n    return x * 3\n```\n"
        "src/main.py\n```python\nfrom table import get\n\n\n"
        "def answer(x):\n    return get(x)\n```\n"
    )
    child = read_rewritten(Completion(text), PARENT, RULES)
    assert files(child)["src/table.py"] == "def get(x):\n    return x * 3\n"
    assert files(child)["src/main.py"].endswith("    return get(x)\n")


def test_a_path_that_does_not_evolve_is_a_failure_that_names_it() -> None:
    child = edited(f"setup.py\n{block('a', 'b')}")
    assert isinstance(child, Failure)
    assert child.kind is FailureKind.BAD_EDIT
    assert "setup.py does not evolve" in child.detail
    assert "src/table.py" in child.detail


@pytest.mark.parametrize("path", ["../secret.py", "/etc/passwd.py", "src/../../a.py"])
def test_a_path_that_leads_out_changes_nothing_elsewhere(path: str) -> None:
    child = edited(f"{path}\n```python\nx = 1\n```\n")
    if isinstance(child, Offspring):
        assert set(files(child)) == set(FILES)


def test_a_new_file_is_added_only_where_the_problem_allows_it() -> None:
    text = "src/new.py\n```python\ndef fresh():\n    return 1\n```\n"
    refused = edited(text)
    assert isinstance(refused, Failure)
    assert "may add no files" in refused.detail

    child = edited(text, EditRules(evolve=RULES.evolve, new_files=1))
    assert files(child) == {**FILES, "src/new.py": "def fresh():\n    return 1\n"}

    two = text + text.replace("new.py", "newer.py")
    refused = edited(two, EditRules(evolve=RULES.evolve, new_files=1))
    assert isinstance(refused, Failure)
    assert "may add 1 files" in refused.detail


def test_a_failure_in_one_file_names_it() -> None:
    child = edited(f"src/table.py\n{block('    return y * 2', '    return y')}")
    assert isinstance(child, Failure)
    assert child.kind is FailureKind.BAD_EDIT
    assert child.detail.startswith("src/table.py: ")


def test_a_file_that_is_only_mentioned_is_no_change() -> None:
    text = f"The file src/table.py stays.\n{block('    return get(x) + 1', '    return 2')}"
    assert set(files(edited(text))) == set(FILES)


def test_a_reply_that_changes_nothing_is_unchanged() -> None:
    same = FILES["src/table.py"].rstrip("\n")
    child = edited(f"src/table.py\n```python\n{same}\n```\n")
    assert isinstance(child, Failure)
    assert child.kind is FailureKind.UNCHANGED


REMOVED = "Nothing needs the table.\n*** Delete File: src/table.py\n"


def test_a_file_is_removed_where_the_problem_allows_it() -> None:
    rules = replace(RULES, remove=True, new_files=1)
    moved = "src/new.py\n```python\nx = 1\n```\n"
    kept = {path: text for path, text in FILES.items() if path != "src/table.py"}

    child = edited(f"{block('    return get(x) + 1', '    return x')}{moved}{REMOVED}", rules)

    assert files(child) == {
        **kept,
        "src/main.py": FILES["src/main.py"].replace("get(x) + 1", "x"),
        "src/new.py": "x = 1\n",
    }
    assert isinstance(child, Offspring)
    assert child.changes.endswith("src/table.py: removed")
    assert files(edited(REMOVED, rules)) == kept
    assert files(edited("*** Delete File: src/main.py\n", rules)).keys() == FILES.keys() - {
        "src/main.py"
    }


@pytest.mark.parametrize(
    ("text", "rules", "why"),
    [
        (REMOVED, RULES, "src/table.py cannot be removed: a child may remove no files"),
        (REMOVED, replace(RULES, remove=True, entry="src/table.py"), "it is the entry"),
        ("*** Delete File: setup.py\n", replace(RULES, remove=True), "no such file that evolves"),
        (
            "".join(f"*** Delete File: {path}\n" for path in FILES),
            replace(RULES, remove=True),
            "a child needs a file",
        ),
    ],
)
def test_a_removal_that_is_not_allowed_is_a_failure_that_names_the_file(
    text: str, rules: EditRules, why: str
) -> None:
    refused = edited(text, rules)
    assert isinstance(refused, Failure)
    assert refused.kind is FailureKind.BAD_EDIT
    assert why in refused.detail
