"""Problem formats: folders in, `Problem` values out; evaluator code is never imported here.

What is here reads files and text, and builds values.  Running anything of a problem is the
sandbox's business.
"""

from app.adapters.problems.errors import ProblemError
from app.adapters.problems.loading import load, reload

__all__ = ["ProblemError", "load", "reload"]
