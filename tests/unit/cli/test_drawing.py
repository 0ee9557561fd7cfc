"""The import of what draws pictures, beside a run."""

import subprocess
import sys

_IMPORTING = """
from app.cli.session import import_drawing
import_drawing()
from matplotlib.artist import kwdoc
from matplotlib.lines import Line2D
from app.reports.course import Course
from app.reports.plots import failures
assert "markevery" not in Line2D.set.__doc__, "written at the import"
assert "markevery" in kwdoc(Line2D)
failures(Course(), "a run").canvas.draw()
"""


def test_drawing_is_imported_without_the_documentation_of_properties_and_draws():
    done = subprocess.run([sys.executable, "-c", _IMPORTING], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
