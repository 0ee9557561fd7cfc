"""The deployment as a test sees it: a compose project of its own, driven as a person would."""

import json
import os
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.e2e.session import END, Session
from tests.ports import free_port

SOCKET = Path("/var/run/docker.sock")
PROBLEM = {
    "initial_program.py": """\
# EVOLVE-BLOCK-START
def point():
    return [0.5, 1.25, -3.0, 2.5]
# EVOLVE-BLOCK-END
""",
    "evaluator.py": """\
import importlib.util
import time


def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    time.sleep(SECONDS)
    return {"combined_score": -sum((x - 1.0) ** 2 for x in program.point())}
""",
}
"""A problem whose trials wait and compute next to nothing: a run of it lasts as long as tests need,
and leaves the processors to the tests beside it.  `Deployment.begin` sets how long they wait."""
COMMANDS = f"""
import json, os, sys, tempfile
import app.adapters.store.schema, app.celery, app.client.plan, app.client.session
from app.cli.application import status_of

for line in sys.stdin:
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as reported:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.dup2(printed.fileno(), 1)
                os.dup2(reported.fileno(), 2)
                status = status_of(json.loads(line))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output = printed.seek(0) or printed.read().decode()
        errors = reported.seek(0) or reported.read().decode()
        print(json.dumps([status, output, errors]))
        print({END!r}, end="", flush=True)
"""
"""Imports the application once, with what commands import when they run, and forks for each."""
FEW = ("--set", "queue.generating=4", "--set", "queue.evaluating=2")
"""Options of a run that only has to go on, so that it leaves the processors to other tests."""
NO_GROUP = "65534"
"""A group that may open no socket: programs run in processes of worker-cpu."""
LABEL = "com.docker.compose"
"""What the labels begin with by which Compose knows its containers."""
HANDED_ON = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH")
"""Nothing else: a variable of the tester's would win over the project's `.env`."""


class Deployment:
    """One compose project with passwords, ports and volumes of its own."""

    def __init__(
        self,
        repository: Path,
        folder: Path,
        *overrides: Path,
        of_workers: Mapping[str, str] = {},
        **settings: str,
    ) -> None:
        """Writes the files of the project.

        Args:
          repository: The checkout with docker-compose.yml.
          folder: Where the project's `.env` and `workers.env` are written.
          overrides: Further files of Compose.
          of_workers: The lines of `workers.env`.
          settings: Lines of `.env`, in place of those that `infra/new-env` wrote.
        """
        self.repository = repository
        self.project = f"evoqueue-test-{secrets.token_hex(4)}"
        self.flower_port = free_port()
        self.dashboard_port = free_port()
        self._files = [repository / "docker-compose.yml", *overrides]
        self._settings = folder / ".env"
        self._ledger = Session(self._psql, environment())
        self._commands = Session(self._interpreter, environment())
        (folder / "infra").mkdir()
        shutil.copy(repository / "infra" / "new-env", folder / "infra")
        shutil.copy(repository / ".env.example", folder)
        options = ["--containers"] if SOCKET.exists() else []
        subprocess.run([folder / "infra" / "new-env", *options], check=True, capture_output=True)
        write_variables(folder / "workers.env", of_workers)
        self.settle(
            FLOWER_USER="tester",
            FLOWER_PORT=str(self.flower_port),
            DASHBOARD_PORT=str(self.dashboard_port),
            EVOQ_IMAGE="evoqueue-test",
            SETTINGS_FOLDER=str(folder),
            **settings,
        )

    def password(self, of: str) -> str:
        """Returns the password of a service, as in `FLOWER_PASSWORD`."""
        lines = self._settings.read_text().splitlines()
        [password] = [line for line in lines if line.startswith(f"{of}_PASSWORD=")]
        return password.partition("=")[2]

    def settle(self, **settings: str) -> None:
        """Adds lines to the project's `.env`; the next start takes them up."""
        with self._settings.open("a") as file:
            file.write(_lines(settings))

    def add(self, override: Path) -> None:
        """Adds a file of Compose; the next start takes it up."""
        self._files.append(override)

    def compose(self, *arguments: str, seconds: float = 120) -> str:
        """Returns what a `docker compose` command printed; fails the test when it fails."""
        done = self.try_compose(*arguments, seconds=seconds)
        if done.returncode != 0:
            raise AssertionError(
                f"docker compose {' '.join(arguments)}: exit {done.returncode}\n"
                f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
            )
        return done.stdout

    def try_compose(
        self, *arguments: str, seconds: float = 120
    ) -> "subprocess.CompletedProcess[str]":
        """Returns how a `docker compose` command ended."""
        return subprocess.run(
            self._command(*arguments),
            cwd=self.repository,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def _command(self, *arguments: str) -> list[str]:
        files = [part for file in self._files for part in ("-f", str(file))]
        settings = ["--env-file", str(self._settings)]
        return ["docker", "compose", "-p", self.project, *files, *settings, *arguments]

    def dump(self, file: Path) -> None:
        """Writes a backup, by the command of docs/deployment.md."""
        command = self._command(
            *("exec", "-T", "postgres", "pg_dump", "-U", "evoqueue", "-Fc", "evoqueue")
        )
        with file.open("wb") as written:
            subprocess.run(command, env=environment(), stdout=written, timeout=120, check=True)

    def restore(self, file: Path) -> None:
        """Reads a backup into an empty ledger, by the command of docs/deployment.md."""
        command = self._command(
            *("exec", "-T", "postgres", "pg_restore", "-U", "evoqueue", "-d", "evoqueue"),
            "--exit-on-error",
        )
        with file.open("rb") as read:
            subprocess.run(command, env=environment(), stdin=read, timeout=120, check=True)

    def send(self, service: str, folder: str, archive: bytes) -> None:
        """Unpacks a tar file in a folder of a service's container."""
        unpack = f"rm -rf {folder} && mkdir -p {folder} && tar -x -C {folder}"
        command = self._command("exec", "-T", service, "sh", "-c", unpack)
        subprocess.run(command, env=environment(), input=archive, timeout=120, check=True)

    @contextmanager
    def frozen(self, service: str) -> Iterator[None]:
        """Freezes every process of a service's container for a while, until its check passes again.

        An engine with cgroups of version 1 gives up ("unable to freeze") where a process forks all
        the time, and can be asked again.
        """
        name = self.container(service)["Id"]
        until(
            lambda: _run("docker", "pause", name).returncode == 0,
            f"{service} is frozen",
            seconds=60,
        )
        try:
            yield
        finally:
            docker("unpause", name)
        until(lambda: self.alive(service), f"{service} is alive again", seconds=150)

    @contextmanager
    def follower(self, run: str, file: Path) -> Iterator[None]:
        """Lets `evoq watch` write to a file meanwhile."""
        command = self._command("exec", "-T", "worker-control", "evoq", "watch", run)
        with (
            file.open("wb") as written,
            subprocess.Popen(command, env=environment(), stdout=written) as watching,
        ):
            try:
                yield
            finally:
                watching.terminate()

    def scrape(self) -> str:
        """Returns what Prometheus would scrape of the dashboard now."""
        with urlopen(
            Request(
                f"http://127.0.0.1:{self.dashboard_port}/metrics",
                headers={"Authorization": f"Bearer {self.password('DASHBOARD')}"},
            ),
            timeout=60,
        ) as answer:
            return str(answer.read().decode())

    def start(self, *options: str, profile: str = "") -> None:
        """Brings services up and waits until they are healthy."""
        profiles = ("--profile", profile) if profile else ()
        begun = self.try_compose(*profiles, "up", "-d", "--wait", *options, seconds=900)
        if begun.returncode != 0:
            raise AssertionError(
                f"docker compose up: exit {begun.returncode}\n{begun.stderr[-4000:]}\n{self.logs()}"
            )

    def end(self) -> None:
        """Takes everything down, the volumes too."""
        self._ledger.close()
        self._commands.close()
        self.compose("--profile", "*", "down", "--volumes", "--remove-orphans", seconds=300)

    def logs(self, *services: str) -> str:
        """Returns the last lines of every service's log."""
        return self.compose("logs", "--no-color", "--tail", "30", *services)

    def evoq(self, *arguments: str, seconds: float = 300) -> Any:
        """Returns the JSON document an `evoq` command printed where a person would submit."""
        printed = self.compose(
            *("exec", "-T", "worker-control", "evoq", *arguments, "--json"), seconds=seconds
        )
        return json.loads(printed)

    def ask(self, *arguments: str) -> Any:
        """Returns the JSON document of an `evoq` command, from a process that has run others.

        To import the application takes several times what most commands do.
        """
        status, output, errors = self._answer(*arguments)
        if status != 0:
            raise AssertionError(f"evoq {' '.join(arguments)}: exit {status}\n{output}\n{errors}")
        return json.loads(output)

    def _answer(self, *arguments: str) -> list[Any]:
        """Returns the exit status of an `evoq` command, its output, and its errors."""
        answer: list[Any] = json.loads(
            self._commands.ask(json.dumps([*arguments, "--json"]) + "\n")
        )
        return answer

    def findings(self) -> dict[str, str]:
        """Returns what `evoq doctor` finds, and the remedy, by the name of each check."""
        found = json.loads(self._answer("doctor")[1])
        return {each["name"]: f"{each['detail']} {each['remedy']}".strip() for each in found}

    def begin(
        self,
        name: str,
        *options: str,
        proposals: int,
        seed: int = 1,
        trial_seconds: float = 1.0,
    ) -> None:
        """Submits a run of `PROBLEM` and returns.

        The `evoq` of the image, a process of its own, determines the model; without one,
        `--no-model` among the options, the process that has run other commands submits it.
        """
        folder, seconds = "/tmp/waiting", str(trial_seconds)
        files = [
            f"printf %s {shlex.quote(text.replace('SECONDS', seconds))} > {folder}/{file}"
            for file, text in PROBLEM.items()
        ]
        write = " && ".join([f"mkdir -p {folder}", *files])
        self.compose("exec", "-T", "worker-control", "sh", "-c", write)
        submit = self.ask if "--no-model" in options else self.evoq
        submit(
            *("run", folder, "--iterations", str(proposals), "--seed", str(seed)),
            *("--name", name, "--detach", *options),
        )

    def sql(self, statement: str) -> list[list[str]]:
        """Returns the rows of a statement that only reads, every column as text."""
        printed = self._ledger.ask(f"{statement}\n;\n\\echo {END}")
        return [line.split("\t") for line in printed.splitlines()]

    def _psql(self) -> list[str]:
        return [
            *("docker", "exec", "-i", self._name("postgres")),
            *("psql", "-U", "evoqueue", "-d", "evoqueue"),
            *("-v", "ON_ERROR_STOP=1", "-At", "-F", "\t"),
        ]

    def _interpreter(self) -> list[str]:
        return ["docker", "exec", "-i", self._name("worker-control"), "python", "-c", COMMANDS]

    def number(self, statement: str) -> int:
        """Returns the one whole number a statement selects."""
        return int(self.sql(statement)[0][0])

    def state(self, run: str) -> str:
        """Returns the state of a run by the ledger."""
        return self.sql(f"SELECT state FROM runs WHERE name = '{run}'")[0][0]

    def asked(self, run: str) -> set[str]:
        """Returns the models that have answered a run."""
        rows = self.sql(
            f"SELECT DISTINCT model FROM completions WHERE cohort IN "
            f"(SELECT cohorts.id FROM cohorts JOIN runs ON run = runs.id WHERE name = '{run}')"
        )
        return {model for [model] in rows}

    def alive(self, service: str) -> bool:
        """Runs the health check of a service's container now, of which Docker knows the last."""
        container = self.container(service)
        [how, *check] = container["Config"]["Healthcheck"]["Test"]
        assert how == "CMD"
        return _run("docker", "exec", container["Id"], *check).returncode == 0

    def container(self, service: str) -> Any:
        """Returns what the engine says of a service's one container."""
        return self.inspect(self._name(service))

    def _name(self, service: str) -> str:
        """Returns the id of a service's one container, whether it runs or not."""
        labels = [f"project={self.project}", f"service={service}", "oneoff=False"]
        filters = [part for label in labels for part in ("--filter", f"label={LABEL}.{label}")]
        [name] = docker("ps", "--all", "--quiet", "--no-trunc", *filters).split()
        return name

    def containers(self) -> list[Any]:
        """Returns what the engine says of every container of the project."""
        found: list[Any] = json.loads(
            docker("inspect", *self.compose("ps", "--all", "--quiet").split())
        )
        return found

    def labelled(self, *labels: str) -> list[Any]:
        """Returns what the engine says of every running container with all these labels."""
        filters = [part for label in labels for part in ("--filter", f"label={label}")]
        return [self.inspect(name) for name in docker("ps", "--quiet", *filters).split()]

    def inspect(self, name: str) -> Any:
        """Returns what the engine says of a container or an image."""
        return json.loads(docker("inspect", name))[0]


def write_variables(file: Path, variables: Mapping[str, str]) -> None:
    """Writes variables in the form of `.env`."""
    file.write_text(_lines(variables))


def _lines(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def docker(*arguments: str) -> str:
    """Returns what a `docker` command printed; fails the test when it fails."""
    done = _run("docker", *arguments)
    if done.returncode != 0:
        command = " ".join(arguments)
        raise AssertionError(f"docker {command}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def environment() -> dict[str, str]:
    """Returns the variables a `docker` command is given."""
    return {name: os.environ[name] for name in HANDED_ON if name in os.environ}


def missing_engine() -> str:
    """Returns why no deployment can be brought up here; "" where one can."""
    for command in (("docker", "compose", "version"), ("docker", "info")):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except (FileNotFoundError, subprocess.TimeoutExpired) as error:
            return f"`{' '.join(command)}`: {error}"
        if done.returncode != 0:
            return f"`{' '.join(command)}`: {(done.stderr or done.stdout).strip()}"
    return ""


def until(true: Callable[[], bool], what: str, *, seconds: float) -> None:
    """Waits for something to become true; fails the test, naming it, when it does not."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(1.0)  # to ask may start a process or more
