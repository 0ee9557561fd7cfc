"""The advisory import policy of a problem."""

import pytest

from app.domain.evaluation import FailureKind
from app.domain.program import Program
from app.domain.source.imports import ImportPolicy

NETWORK = ImportPolicy(deny=("socket", "urllib", "os.system"))
NUMERIC = ImportPolicy(allow=("math", "numpy", "scipy.optimize"))


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        (NETWORK, "import socket"),
        (NETWORK, "import math, urllib.request as r"),
        (NETWORK, "from urllib import parse"),
        (NETWORK, "from os import system"),
        (NETWORK, "def f():\n    import socket"),
        (NETWORK, "s = __import__('socket')"),
        (NETWORK, "import importlib\nimportlib.import_module('urllib.error')"),
        (NUMERIC, "import os"),
        (NUMERIC, "import scipy"),
        (NUMERIC, "from scipy import stats"),
        (ImportPolicy(allow=()), "import math"),
        (ImportPolicy(allow=("os",), deny=("os.path",)), "import os.path"),
    ],
)
def test_a_forbidden_import_is_refused_with_line_and_module(policy, line):
    failure = policy.refusal(Program(f"x = 1\n{line}\n"))

    assert failure is not None
    assert failure.kind is FailureKind.IMPORT_BLOCKED
    assert "line " in failure.detail
    assert "Allowed" in failure.detail or "Denied" in failure.detail


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (ImportPolicy(), "import socket"),
        (NETWORK, "import os, sockets"),
        (NETWORK, "from . import socket"),
        (NUMERIC, "import math\nimport numpy.linalg\nfrom numpy import array"),
        (NUMERIC, "from scipy import optimize\nfrom scipy.optimize import minimize"),
        (NUMERIC, "from __future__ import annotations"),
        (NUMERIC, "import ("),
        (NUMERIC, "x = 'import os'"),
    ],
)
def test_allowed_imports_and_unparsable_texts_pass(policy, text):
    assert policy.refusal(Program(text)) is None


def test_a_program_in_another_language_is_not_read():
    assert NUMERIC.refusal(Program("import os;", "java")) is None


def test_a_child_may_keep_the_imports_of_a_seed_and_add_none():
    seeds = [Program("import os.path\nfrom scipy import stats\n")]
    kept = Program("from scipy import stats\nimport os.path\nimport math\n")
    added = Program("from scipy import stats\nimport os\n")

    assert NUMERIC.refusal_of_child(kept, seeds) is None
    failure = NUMERIC.refusal_of_child(added, seeds)
    assert failure is not None
    assert "`os`" in failure.detail
