"""Problem formats: folders in, `Problem` values out; evaluator code is never imported here.

What is here reads files and text, and builds values.  Running anything of a problem is the
sandbox's business.  A format is a package beside `openevolve` and a line in `loading.FORMATS`.
"""

from app.adapters.problems.loading import load, reload
from app.adapters.problems.openevolve.config_yaml import configures_problem
from app.adapters.problems.openevolve.folder import replaced_keys

__all__ = ["configures_problem", "load", "reload", "replaced_keys"]
