"""Replies as models of several families write them, and what must come of each.

All of them are written for this test.  `sought` is a text of the child, or the kind of failure.
"""

from dataclasses import dataclass

import pytest

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Completion, Offspring
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.children import read_edited, read_rewritten

PARENT = Program(
    """\
import numpy as np

# EVOLVE-BLOCK-START
def priority(item, bins):
    gaps = bins - item
    score = -gaps
    return score


def tie(bins):
    return np.arange(len(bins)) * 1e-9
# EVOLVE-BLOCK-END


def pack(items, capacity):
    bins = np.full(len(items), capacity)
    for item in items:
        fits = np.nonzero(bins - item >= 0)[0]
        best = fits[np.argmax(priority(item, bins[fits]))]
        bins[best] -= item
    return bins
"""
)
SQUARED = "score = -gaps ** 2"
BLOCK = f"<<<<<<< SEARCH\n    score = -gaps\n=======\n    {SQUARED}\n>>>>>>> REPLACE"
WHOLE = PARENT.source.replace("score = -gaps", SQUARED)
WINDOWS = BLOCK.replace("\n", "\r\n")
UNMARKED = WHOLE.replace("# EVOLVE-BLOCK-START\n", "").replace("# EVOLVE-BLOCK-END\n", "")
THOUGHT = f"The user wants a better heuristic. Maybe:\n```python\nx = 0\n```\nor {BLOCK}\nFine."

NO_CODE, BAD_EDIT = FailureKind.NO_CODE, FailureKind.BAD_EDIT
UNCHANGED, REFUSED = FailureKind.UNCHANGED, FailureKind.REFUSED
SYNTAX, TOO_LONG = FailureKind.SYNTAX, FailureKind.TOO_LONG


@dataclass(frozen=True)
class Case:
    name: str
    form: str
    text: str
    sought: str | FailureKind
    finish: str = "stop"


DIFF = [
    ("bare block", BLOCK, SQUARED),
    ("prose around a block", f"Squaring punishes large gaps.\n\n{BLOCK}\n\nGood luck!", SQUARED),
    ("block in a diff fence", f"Here you go:\n```diff\n{BLOCK}\n```", SQUARED),
    ("block in a fence of the language", f"```python\n{BLOCK}\n```", SQUARED),
    ("file name above the block", f"initial_program.py\n```\n{BLOCK}\n```", SQUARED),
    ("Windows line ends", WINDOWS, SQUARED),
    ("reasoning closed", f"<think>\n{THOUGHT}\n</think>\n\n{BLOCK}", SQUARED),
    ("reasoning opened by the chat template", f"{THOUGHT}\n</think>\n\n{BLOCK}", SQUARED),
    ("reasoning of Magistral", f"[THINK]{THOUGHT}[/THINK]{BLOCK}", SQUARED),
    ("reasoning of Kimi", f"◁think▷{THOUGHT}◁/think▷\n{BLOCK}", SQUARED),
    ("channels of gpt-oss", f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"
     f"<|channel|>final<|message|>{BLOCK}<|return|>", SQUARED),
    ("end mark of ChatML", f"{BLOCK}<|im_end|>", SQUARED),
    ("nine brackets", BLOCK.replace("<<<<<<<", "<<<<<<<<<").replace(">>>>>>>", ">>>>>>>>>"),
     SQUARED),
    ("Cline's markers", BLOCK.replace("<<<<<<<", "-------").replace(">>>>>>>", "+++++++"), SQUARED),
    ("indentation lost", BLOCK.replace("    score", "score"), f"    {SQUARED}"),
    ("white space at line ends", BLOCK.replace("-gaps\n", "-gaps   \n", 1), SQUARED),
    ("a comment in the search that is not there",
     "<<<<<<< SEARCH\ndef priority(item, bins):\n    gaps = bins - item\n    score = - gaps\n"
     f"=======\ndef priority(item, bins):\n    gaps = bins - item\n    {SQUARED}\n>>>>>>> REPLACE",
     SQUARED),
    ("whole program instead of blocks", f"I rewrote it:\n```python\n{WHOLE}```", SQUARED),
    ("the same lines back", BLOCK.replace(SQUARED, "score = -gaps"), UNCHANGED),
    ("only a comment", BLOCK.replace(SQUARED, "score = -gaps  # smaller is better"), UNCHANGED),
    ("a search from another program", BLOCK.replace("    score = -gaps", "    rank = sorted(x)"),
     BAD_EDIT),
    ("an edit outside the region", BLOCK.replace("    score = -gaps", "    for item in items:")
     .replace(SQUARED, "for item in sorted(items):"), BAD_EDIT),
    ("no divider", BLOCK.replace("=======\n", ""), BAD_EDIT),
    ("elided lines", "<<<<<<< SEARCH\ndef priority(item, bins):\n    ...\n=======\n"
     "def priority(item, bins):\n    return -bins\n>>>>>>> REPLACE", BAD_EDIT),
    ("a unified diff", "```diff\n@@ -5,3 +5,3 @@\n-    score = -gaps\n+    score = -gaps**2\n```",
     NO_CODE),
    ("a snippet without blocks", f"Replace the line with\n```python\n{SQUARED}\n```", NO_CODE),
    ("an indentation error", BLOCK.replace(f"    {SQUARED}", f"        {SQUARED}"), SYNTAX),
    ("prose alone", "The current heuristic is Best Fit, which is near optimal already.", NO_CODE),
    ("nothing", "", NO_CODE),
    ("a tool call in words", '{"name": "edit_file", "arguments": {"path": "x.py"}}', NO_CODE),
    ("a refusal", "I'm sorry, but I can't help with that.", REFUSED),
    ("a program that has grown too long",
     BLOCK.replace(SQUARED, SQUARED + "\n    " + "0 + " * 3000 + "0"), TOO_LONG),
]  # fmt: skip
CUT = [
    ("cut in the reasoning", f"<think>\n{THOUGHT}", NO_CODE),
    ("cut in its only block", BLOCK[:-30], BAD_EDIT),
    ("cut in the second block", f"{BLOCK}\n\n<<<<<<< SEARCH\ndef tie(b", SQUARED),
    ("cut in the prose after", f"{BLOCK}\n\nThis punishes lar", SQUARED),
]
REWRITE = [
    ("fenced", f"```python\n{WHOLE}```\nThe gaps are squared.", SQUARED),
    ("fence without a label", f"```\n{WHOLE}```", SQUARED),
    ("tildes", f"~~~python\n{WHOLE}~~~", SQUARED),
    ("sketch first, then the program",
     f"The idea:\n```python\n{SQUARED}\n```\nIn full:\n```python\n{WHOLE}```", SQUARED),
    ("old program first, then the new one",
     f"Before:\n```python\n{PARENT.source}```\nAfter:\n```python\n{WHOLE}```", SQUARED),
    ("commands before the program", f"```bash\npip install numpy\n```\n```py\n{WHOLE}```", SQUARED),
    ("no fence at all", WHOLE, SQUARED),
    ("fence never closed", f"```python\n{WHOLE}", SQUARED),
    ("blocks instead of a program", f"Only one line changes.\n```\n{BLOCK}\n```", SQUARED),
    ("reasoning, then the program", f"<think>{THOUGHT}</think>```python\n{WHOLE}```", SQUARED),
    ("outside text changed too", f"```python\n{WHOLE.replace('1e-9', '1e-9')[:-1]}  # end\n```",
     SQUARED),
    ("markers dropped", f"```python\n{UNMARKED}```", SQUARED),
    ("markers and more dropped", f"```python\n{UNMARKED[20:]}```", SQUARED),
    ("the same program back", f"```python\n{PARENT.source}```", UNCHANGED),
    ("unbalanced bracket", f"```python\n{WHOLE.replace('np.arange(len', 'np.arange((len')}```",
     SYNTAX),
    ("an outline", "1. Square the gaps.\n2. Break ties by index.", NO_CODE),
]  # fmt: skip
CUT_REWRITE = [
    ("cut in the program", f"```python\n{WHOLE[:200]}", NO_CODE),
    ("cut after the program", f"```python\n{WHOLE}```\nThe reason is th", SQUARED),
]
CASES = [
    *(Case(name, "diff", text, sought) for name, text, sought in DIFF),
    *(Case(name, "diff", text, sought, "length") for name, text, sought in CUT),
    *(Case(name, "rewrite", text, sought) for name, text, sought in REWRITE),
    *(Case(name, "rewrite", text, sought, "length") for name, text, sought in CUT_REWRITE),
    Case("withheld", "diff", "", REFUSED, "content_filter"),
    Case("a structured refusal", "rewrite", "I can't.", REFUSED, "refusal"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.form}: {case.name}")
def test_a_reply_becomes_the_expected_child_or_failure(case: Case) -> None:
    read = read_edited if case.form == "diff" else read_rewritten
    child = read(Completion(case.text, finish=case.finish), PARENT, EditRules())

    if isinstance(case.sought, FailureKind):
        assert isinstance(child, Failure), child
        assert child.kind is case.sought, child.detail
    else:
        assert isinstance(child, Offspring), child
        assert case.sought in child.program.source
        assert child.program.source.replace(SQUARED, "score = -gaps") == PARENT.source
