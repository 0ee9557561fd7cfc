"""Writes the chart's manifests to a folder: `python -m infra.manifests`, or `make manifests`.

A Secret that the folder has stays: the volumes of the deployment keep its passwords.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import helm_python
import yaml

CHART = Path(__file__).parent / "chart"
SECRET = "secret.yaml"


def render(values: dict[str, Any], release: str, namespace: str) -> dict[str, str]:
    """Returns the manifests of an installation by their file, without the notes and the test.

    Raises:
      helm_python.HelmError: A value is unknown, out of range, or lacks another.
    """
    with helm_python.Chart.load(CHART) as chart:
        rendered = chart.render(values, name=release, namespace=namespace, is_install=True)
    return {
        Path(file).name: text.strip() + "\n"
        for file, text in rendered.items()
        if text.strip() and file.endswith(".yaml") and "/tests/" not in file
    }


def write(manifests: dict[str, str], folder: Path) -> list[Path]:
    """Writes manifests, removes those of an earlier call, and returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.yaml"):
        if old.name not in (manifests.keys() | {SECRET}):
            old.unlink()
    written = [folder / name for name in sorted(manifests)]
    for file in written:
        if file.name != SECRET:
            file.write_text(manifests[file.name])
        elif not file.exists():
            file.touch(mode=0o600)
            file.write_text(manifests[SECRET])
    return written


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="infra.manifests", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/manifests"))
    parser.add_argument("--values", type=Path, help="a file in the place of parts of values.yaml")
    parser.add_argument("--release", default="evoqueue")
    parser.add_argument("--namespace", default="default")
    given = parser.parse_args(arguments)
    try:
        helm_python.validate_release_name(given.release)
    except helm_python.HelmError as error:
        parser.error(f"--release {given.release}: {error}")
    try:
        text = given.values.read_text() if given.values else ""
        values = yaml.safe_load(text) or {}
        manifests = render(values, given.release, given.namespace)
    except (OSError, yaml.YAMLError, helm_python.HelmError) as error:
        print(f"{given.values or CHART / 'values.yaml'}: {error}", file=sys.stderr)
        return 1
    for file in write(manifests, given.out):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
