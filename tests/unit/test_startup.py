"""What a process that imports much does not spend at its start and end."""

import gc
import subprocess
import sys

from app.startup import start_quickly

_IMPORTING = """
import gc, os, sys
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
from app.startup import collect_as_usual, start_quickly
usual = gc.get_threshold()
if sys.argv[1] == "quickly":
    start_quickly()
before = len(collections)
import app.logs, app.embedded.stack, sqlalchemy
print(len(collections) - before, os.environ.get("PYDANTIC_DISABLE_PLUGINS"), end="", flush=True)
collect_as_usual()
assert gc.get_threshold() == usual
gc.collect()
class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        os.write(1, b" collected")
Cycle()
"""


def ended(how: str) -> list[str]:
    """Returns collections during the imports, the choice of plugins, and what the end collected."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTING, how],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_process_collects_seldom_while_it_imports_and_not_at_its_end():
    seldom, plugins, *end = ended("quickly")
    often, _, *usual_end = ended("as usual")

    assert 10 * int(seldom) < int(often)
    assert plugins == "__all__"
    assert (end, usual_end) == ([], ["collected"])


def test_a_choice_of_pydantics_plugins_stays():
    environment, usual = {"PYDANTIC_DISABLE_PLUGINS": "mine"}, gc.get_threshold()

    start_quickly(environment)

    gc.set_threshold(*usual)
    assert environment == {"PYDANTIC_DISABLE_PLUGINS": "mine"}
