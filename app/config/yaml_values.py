"""YAML as every file and setting is read: PyYAML's safe types, and the numbers of YAML 1.2."""

import re
from typing import Any

import yaml

_FLOAT = "tag:yaml.org,2002:float"
_WITH_EXPONENT = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)[eE][-+]?[0-9]+\Z")


class Loader(yaml.SafeLoader):
    """Reads `1e-4` as a number.

    YAML 1.1, which PyYAML follows, wants a dot before an exponent and a sign in it, and takes other
    numbers for texts; YAML 1.2, JSON and Python do not.
    """


Loader.add_implicit_resolver(_FLOAT, _WITH_EXPONENT, list("-+.0123456789"))


def loaded(text: str) -> Any:
    """Returns the value of a text.

    Raises:
      yaml.YAMLError: The text is not YAML.
    """
    return yaml.load(text, Loader=Loader)
