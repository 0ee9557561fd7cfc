"""Proposals per second of docker-compose.yml's deployment; model and evaluator are SIMULATED.

    python -m benchmarks.deployed -- --proposals 4000 --in-flight 64
    python -m benchmarks.deployed --set EVOQ_TASK_EVENTS=false -- --model-seconds 0.5

Real: the images, Postgres with its default durability, Redis, the workers, beat and Flower, each
in its container.  Simulated: the model (a sleep) and the evaluator (a formula in the worker).  It
starts a separate compose project and removes it afterwards.  The arguments after `--` are those of
`benchmarks.throughput`; processor time and memory are not measured here.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.deployment import Deployment

HERE = Path(__file__).parent
SERVICES = ("postgres", "redis", "migrate", "beat", "flower")
WORKERS = ("worker-control", "worker-gpu", "worker-cpu")


def main() -> None:
    options = _arguments()
    settings = dict(line.split("=", 1) for line in options.set)
    with tempfile.TemporaryDirectory(prefix="evoq-bench-") as folder:
        deployment = Deployment(HERE.parent, Path(folder), HERE / "deployed.yml", **settings)
        try:
            up = ("up", "-d", "--build", "--wait", *SERVICES, *WORKERS)
            started = deployment.try_compose(*up, seconds=900)
            if started.returncode != 0:
                sys.exit(started.stderr[-4000:])
            run = ("exec", "-T", "worker-control", "python", "-m", "benchmarks.throughput")
            done = deployment.try_compose(*run, "--deployed", *options.rest, seconds=1800)
            print(done.stdout or done.stderr)
        finally:
            deployment.end()
    sys.exit(done.returncode)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a line of `.env`"
    )
    parser.add_argument("rest", nargs="*", help="options of benchmarks.throughput, after --")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except subprocess.TimeoutExpired as error:
        sys.exit(str(error))
